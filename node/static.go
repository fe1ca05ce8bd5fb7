package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/run"
)

// Static pods come from the files of a directory. They run without the API server, which gets a mirror pod for each: a copy
// that shows the status, and whose deletion only makes the agent create another one. The worker of a static pod has the UID of
// the pod in the file, which is also the hash of the file. Files are read again when one of them changes; a pod whose file has
// changed is stopped, and started again when it has ended.

// The annotations of static pods and their mirror pods, as upstream's kubelet has them.
const (
	configSource = "kubernetes.io/config.source"
	configHash   = "kubernetes.io/config.hash"
	configSeen   = "kubernetes.io/config.seen"
)

// maxManifest bounds a file of a static pod, in bytes.
const maxManifest = 1 << 20

// statics are the static pods of a node. Its fields are guarded by Node.mu.
type statics struct {
	wanted  map[types.NamespacedName]*corev1.Pod
	running map[types.NamespacedName]*worker
	mirrors map[types.NamespacedName]*corev1.Pod // the mirror pods that there are
	wake    chan struct{}                        // holds one: mirror pods may have to be created or deleted
}

// isMirror reports whether a pod of the API server is the copy of a static pod.
func isMirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// fromAPI returns a pod of the API server without the annotation by which the agent knows static pods.
func fromAPI(pod *corev1.Pod) *corev1.Pod {
	if pod == nil || !isStatic(pod) || isMirror(pod) {
		return pod
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	delete(out.Annotations, configSource)
	return &out
}

// isStatic reports whether a pod comes from a file.
func isStatic(pod *corev1.Pod) bool { return pod.Annotations[configSource] == "file" }

// followStatic keeps the static pods those of the directory until ctx is cancelled. Read is called after the first reading.
func (n *Node) followStatic(ctx context.Context, read func()) {
	dir := n.opts.StaticPodPath
	for failures := 1; ctx.Err() == nil; failures++ {
		err := filewatch.Follow(ctx, []string{dir + "/"}, func() {
			n.readStatic(dir)
			read()
		})
		if ctx.Err() != nil {
			return
		}
		if failures == 1 {
			n.log.Warn("static pods can't be read, will try again", "directory", dir, "err", err)
		}
		read()
		run.Pause(ctx, run.Backoff{First: firstRedial, Max: retryPause}.Pause(failures))
	}
}

// readStatic reads all files of the directory. A file that is no valid pod is reported and left out.
func (n *Node) readStatic(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		n.log.Warn("static pods can't be read", "directory", dir, "err", err)
		return
	}
	wanted := map[types.NamespacedName]*corev1.Pod{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		pod, err := n.staticPod(path)
		if err != nil {
			n.log.Error("invalid static pod", "file", path, "err", err)
			continue
		}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if wanted[key] != nil {
			n.log.Error("two static pods have one name, the second one is left out", "file", path, "pod", key)
			continue
		}
		wanted[key] = pod
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.statics.wanted = wanted
	n.syncStatic()
}

// staticPod reads one file.
func (n *Node) staticPod(path string) (*corev1.Pod, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxManifest {
		return nil, fmt.Errorf("must be a regular file of at most %d bytes", maxManifest)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pod, err := n.opts.ReadPod(data)
	if err != nil {
		return nil, err
	}
	if pod.Name == "" {
		return nil, fmt.Errorf("metadata.name: must not be empty")
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", n.opts.Name, path, data))
	hash := hex.EncodeToString(sum[:16])
	pod.UID = types.UID(hash)
	pod.Name += "-" + n.opts.Name
	pod.Namespace = cmp.Or(pod.Namespace, metav1.NamespaceDefault)
	pod.Annotations = maps.Clone(pod.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[configSource], pod.Annotations[configHash] = "file", hash
	pod.Annotations[configSeen] = time.Now().Format(time.RFC3339Nano)
	pod.Spec.NodeName = n.opts.Name
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	return pod, nil
}

// syncStatic starts the workers of wanted static pods and stops the others. The caller holds mu.
func (n *Node) syncStatic() {
	s := &n.statics
	for key, w := range s.running {
		if n.workers[w.uid] != w {
			delete(s.running, key)
		} else if pod := s.wanted[key]; pod == nil || pod.UID != w.uid {
			w.leave()
		}
	}
	for key, pod := range s.wanted {
		if s.running[key] != nil {
			continue
		}
		rejection := n.admit(pod, n.object())
		f := n.found[pod.UID]
		delete(n.found, pod.UID)
		w := n.startWorker(pod, f, rejection)
		w.mirrored(mirrorFor(w, s.mirrors[key]))
		s.running[key] = w
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// mirrorFor returns a mirror pod if it is the copy of the static pod of a worker, and otherwise nil. Any user who may create pods can
// write the annotations of a mirror pod: it counts only with the name of the static pod as well.
func mirrorFor(w *worker, pod *corev1.Pod) *corev1.Pod {
	if w == nil || pod == nil || pod.Annotations[configHash] != string(w.uid) {
		return nil
	}
	return pod
}

// mirrorChanged is called when a mirror pod has changed; pod is nil if it was deleted. The caller holds mu.
func (n *Node) mirrorChanged(old, pod *corev1.Pod) {
	named := cmp.Or(pod, old)
	key := types.NamespacedName{Namespace: named.Namespace, Name: named.Name}
	if pod == nil {
		delete(n.statics.mirrors, key)
	} else {
		n.statics.mirrors[key] = pod
	}
	if w := n.statics.running[key]; w != nil {
		w.mirrored(mirrorFor(w, pod))
	}
	select {
	case n.statics.wake <- struct{}{}:
	default:
	}
}

// mirror keeps one mirror pod in the API server for each static pod, until ctx is cancelled. It is started when the node's pods
// have been listed, and waits for the Node object, which owns mirror pods.
func (n *Node) mirror(ctx context.Context) {
	select {
	case <-n.ready:
	case <-ctx.Done():
	}
	for failures := 0; ctx.Err() == nil; {
		if err := n.syncMirrors(ctx); err != nil && ctx.Err() == nil {
			if failures++; failures == 1 {
				n.log.Warn("mirror pods can't be written, will try again", "err", err)
			}
			run.Pause(ctx, pauseAfter(failures))
			continue
		}
		failures = 0
		select {
		case <-n.statics.wake:
		case <-ctx.Done():
		}
	}
}

// syncMirrors creates and deletes mirror pods once.
func (n *Node) syncMirrors(ctx context.Context) error {
	n.mu.Lock()
	wanted := maps.Clone(n.statics.wanted)
	n.mu.Unlock()
	for _, pod := range n.pods.List("") {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		static := wanted[key]
		switch {
		case !isMirror(pod):
		case static != nil && pod.Annotations[configHash] == string(static.UID) && pod.DeletionTimestamp == nil:
			delete(wanted, key)
		default:
			err := client.Pods.Delete(ctx, n.opts.Client, key.Namespace, key.Name, metav1.DeleteOptions{
				GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
			})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(wanted), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range names {
		if _, err := client.Pods.Create(ctx, n.opts.Client, n.mirrorOf(wanted[key])); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("pod %s: %w", key, err)
		}
	}
	return nil
}

// mirrorOf returns the mirror pod of a static pod. The node owns it.
func (n *Node) mirrorOf(pod *corev1.Pod) *corev1.Pod {
	m := pod.DeepCopy()
	m.UID, m.ResourceVersion = "", ""
	m.Annotations[corev1.MirrorPodAnnotationKey] = m.Annotations[configHash]
	if node, ok := n.self.Get("", n.opts.Name); ok {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true)}}
	}
	return m
}

// mirrored passes the newest version of the mirror pod to the worker of a static pod; nil if there is none.
func (w *worker) mirrored(pod *corev1.Pod) {
	w.mu.Lock()
	w.mirrorPod = pod
	w.mu.Unlock()
	w.nudge()
}
