package node

import (
	"context"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/resolvconf"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/static"
	"github.com/sampan-io/sampan/node/volume"
)

// lookup is how long a container's start waits for the first answer about an
// object that its pod names.
const lookup = 10 * time.Second

// facts returns the values for the pod's environment. It waits for the list of services, unless the pod is static: such a pod
// runs without the API server.
func (n *Node) facts(ctx context.Context, pod *corev1.Pod, ips []string) crispec.Facts {
	if !static.Is(pod) {
		select {
		case <-n.api.services.Ready():
		case <-ctx.Done():
		}
	}
	services := n.api.services.List(pod.Namespace)
	if api, ok := n.api.services.Get("default", "kubernetes"); ok && pod.Namespace != "default" {
		services = append(services, api)
	}
	var files crispec.Files
	if n.files.Kept() {
		files = n.files.Reader(ctx, pod)
	}
	return crispec.Facts{
		Files: files, Pod: pod, IPs: ips, HostIPs: n.machine.hostIPs, Allocatable: n.machine.allocatable,
		Services: services, Objects: n.api.references.At(ctx),
	}
}

func (n *Node) makeVolumes(ctx context.Context, pod *corev1.Pod, needed time.Time, used map[string]bool) (time.Time, error) {
	limited, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	return n.files.SetUp(ctx, pod, n.facts(limited, pod, nil), needed, used)
}

// prepareEphemeral makes the volumes that an ephemeral container is the first of the pod to use. Other containers find theirs.
func (n *Node) prepareEphemeral(ctx context.Context, o order) error {
	if !o.ephemeral {
		return nil
	}
	late := volume.Used(&corev1.PodSpec{Containers: []corev1.Container{*o.container}})
	before := o.pod.Spec
	before.EphemeralContainers = nil
	for name := range volume.Used(&before) {
		delete(late, name)
	}
	if len(late) == 0 {
		return nil
	}
	if _, err := n.files.MountDrivers(ctx, o.pod, time.Time{}, late); err != nil {
		return err
	}
	_, err := n.makeVolumes(ctx, o.pod, time.Time{}, late)
	return err
}

func (n *Node) dns(pod *corev1.Pod) (c *cri.DNSConfig, missing bool, omitted []string) {
	return crispec.DNS(pod, n.resolver(), n.opts.ClusterDNS, n.opts.ClusterDomain)
}

// resolver reads the host's resolver configuration as it is now.
func (n *Node) resolver() resolvconf.Config {
	if n.opts.ResolvConf != "" {
		return resolvconf.Read(n.opts.ResolvConf)
	}
	return resolvconf.Host()
}

func (n *Node) sandboxConfig(pod *corev1.Pod, attempt int32) *cri.PodSandboxConfig {
	dns, _, _ := n.dns(pod)
	at := crispec.Place{Logs: n.logs(pod), Domain: n.opts.ClusterDomain, DNS: dns, QOS: lifecycle.ClassOf(pod), Users: n.isolation.users.get(pod)}
	if n.isolation.cgroups != nil {
		at.Cgroup = n.isolation.cgroups.Path(pod.UID, at.QOS)
	} else if n.opts.Owner != "" {
		at.Cgroup = n.podCgroup(pod)
	}
	config := crispec.Sandbox(pod, attempt, at)
	if n.opts.Owner != "" {
		config.Labels[names.Cluster] = n.opts.Owner
	}
	return config
}

// containerConfig returns the configuration for an attempt at a container, and
// makes the files that it mounts. volumes are the ids of the images that are volumes, by the names of these.
func (n *Node) containerConfig(ctx context.Context, o order, image *cri.Image, volumes map[string]string) (*cri.ContainerConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	ips := o.sandbox.IPs
	if o.pod.Spec.HostNetwork {
		ips = n.machine.hostIPs
	}
	facts := n.facts(ctx, o.pod, ips)
	_, known, err := facts.Environment(o.container)
	if err != nil {
		return nil, err
	}
	env := func(name string) (string, bool) { v, ok := known[name]; return v, ok }
	if err := n.files.CatchUp(ctx, o.pod, o.container, facts, env); err != nil {
		return nil, err
	}
	mounts, err := n.files.Mounts(o.pod, o.container, o.attempt, ips, volumes, env)
	if err != nil {
		return nil, err
	}
	last, err := n.files.CreateMessageFile(o.pod, o.container, o.attempt)
	if err != nil {
		return nil, err
	}
	config, err := crispec.Attempt{
		Facts: facts, Container: o.container, Attempt: o.attempt, Hash: lifecycle.Hash(o.container), QOS: lifecycle.ClassOf(o.pod),
		Node: n.spec(o.pod.UID, o.container.Name), Image: image, Mounts: mounts, TerminationFile: last,
		Seccomp: n.opts.Seccomp, Users: n.isolation.users.get(o.pod), Unified: n.unified(),
	}.Config()
	if err != nil {
		return nil, err
	}
	return config, n.attempt(ctx, o, config)
}

// logDirectory makes the directory of a container's logs.
func (n *Node) logDirectory(pod *corev1.Pod, container string) error {
	dir := n.logs(pod)
	if dir == "" {
		return nil
	}
	return os.MkdirAll(filepath.Join(dir, container), 0o755) // as Kubernetes has it: log collectors read it
}
