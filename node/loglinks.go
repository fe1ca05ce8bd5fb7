package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/node/crispec"
)

// Log collectors read /var/log/containers, in which upstream's kubelet has a link for each container to its log, with the names of the
// pod, the namespace and the container, and the id of the container, in the link's name.

const (
	linkSuffix = ".log"
	linkLength = 255 // of a file name, at most
)

// linkName returns the name of the link to a container's log.
func linkName(pod types.NamespacedName, container, id string) string {
	name := pod.Name + "_" + pod.Namespace + "_" + container + "-" + id
	return name[:min(len(name), linkLength-len(linkSuffix))] + linkSuffix
}

// linkLog makes the link to the log of a container that was started.
func (n *Node) linkLog(o order, id string) {
	if n.opts.LogLinks == "" || n.opts.LogDir == "" {
		return
	}
	path := filepath.Join(n.opts.LogLinks, linkName(types.NamespacedName{Namespace: o.pod.Namespace, Name: o.pod.Name}, o.container.Name, id))
	err := os.MkdirAll(n.opts.LogLinks, 0o755)
	if err == nil {
		err = os.Symlink(filepath.Join(n.logs(o.pod), crispec.LogPath(o.container.Name, o.attempt)), path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		n.log.Warn("the link to the log of a container can't be made", "link", path, "err", err)
	}
}

// unlinkLogs removes the links to logs of a pod that are not there any more.
func (n *Node) unlinkLogs(pod *corev1.Pod) {
	if n.opts.LogLinks == "" {
		return
	}
	n.unlinkBelow(n.logs(pod), pod.Name+"_"+pod.Namespace+"_")
}

// unlinkBelow removes the links whose names have a prefix, and whose targets were below a directory and are not there any more.
func (n *Node) unlinkBelow(dir, prefix string) {
	entries, err := os.ReadDir(n.opts.LogLinks)
	if err != nil {
		return // there are none
	}
	for _, e := range entries {
		path := filepath.Join(n.opts.LogLinks, e.Name())
		if !strings.HasPrefix(e.Name(), prefix) || e.Type() != fs.ModeSymlink {
			continue
		}
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, dir+"/") {
			continue
		}
		if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(path) // a link that stays leads nowhere
		}
	}
}
