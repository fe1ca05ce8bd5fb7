package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/dra"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/volume"
)

// A concern is one thing that a pod needs of its node before its containers run. All that the agent does about it is in its functions,
// of which each may be nil. They are called for one pod at a time by its worker's operations, except for adopt.
//
// The concerns of a node are prepared in the order of its table, and released in the opposite one. A new kind of thing that pods need is
// an entry in that table, see [Node.concernsOf].
type concern struct {
	// waits says that prepare may hang: it comes before the pod takes one of the slots of pods that start.
	waits bool
	// prepare gets the thing for a pod. It is called again after a failure of this or a later concern.
	prepare func(ctx context.Context, p *preparation) error
	// reason is that of the event about a failure of prepare, and describe its message; nil: that of the error.
	reason   string
	describe func(error) error
	// attempt adds the thing to the configuration of an attempt at a container.
	attempt func(ctx context.Context, o order, c *cri.ContainerConfig) error
	// release gives the thing back when the action that at names is due: the containers of the pod have ended. It can be called without
	// prepare, again, and for a pod of which only the UID is known.
	release func(ctx context.Context, pod *corev1.Pod) error
	at      lifecycle.Verb
	// adopt takes over the thing of a pod that ran before the agent started, in the goroutine of its worker.
	adopt func(w *worker)
}

// A preparation is a pod whose concerns are being prepared, and what they have found out.
type preparation struct {
	w       *worker
	pod     *corev1.Pod
	handler string    // of the runtime, for the pod's RuntimeClass
	again   time.Time // when its volumes have to be looked at again; zero: never
}

// failedSandbox is the reason of events about the sandbox of a pod.
const failedSandbox = "FailedCreatePodSandBox"

// notMade is the error of a pod whose sandbox could not be made.
func notMade(err error) error {
	return fmt.Errorf("Failed to create pod sandbox: %s", criclient.Message(err)) //nolint:staticcheck // an event's text
}

// concernsOf returns the table of the node's concerns, in the order in which they are prepared. It is called when all parts of the node
// are open.
func (n *Node) concernsOf() []concern {
	list := []concern{{ // volumes that a driver mounts, or whose file system is made
		waits: true, reason: failedMount,
		prepare: func(ctx context.Context, p *preparation) (err error) {
			p.again, err = n.files.MountDrivers(ctx, p.pod, p.w.seen, volume.Used(&p.pod.Spec))
			return err
		},
		at: lifecycle.Unmount, release: func(ctx context.Context, pod *corev1.Pod) error {
			// Drivers come first: a directory below which a driver has mounted something can't be removed.
			if err := n.files.ReleaseDrivers(ctx, pod.UID); err != nil {
				return err
			}
			return n.files.Unmount(pod.UID)
		},
	}}
	if n.plugins.claims != nil {
		list = append(list, n.claimed())
	}
	list = append(list, concern{ // files, and all other volumes
		reason: failedMount,
		prepare: func(ctx context.Context, p *preparation) error {
			p.w.reportDNS(p.pod)
			again, err := n.makeVolumes(ctx, p.pod, p.w.seen, volume.Used(&p.pod.Spec))
			p.again = earliest(p.again, again)
			if err == nil {
				p.w.volumes.mounted.Store(true)
			}
			return err
		},
		attempt: func(_ context.Context, o order, c *cri.ContainerConfig) error {
			return n.files.BlockDevices(o.pod, o.container, c)
		},
		at: lifecycle.Remove, release: func(_ context.Context, pod *corev1.Pod) error { return n.files.Remove(pod.UID) },
	}, concern{ // the runtime's handler
		reason: failedSandbox, describe: notMade,
		prepare: func(ctx context.Context, p *preparation) (err error) {
			p.handler, err = n.handler(ctx, p.pod)
			return err
		},
	})
	if n.opts.RootDir != "" { // a simulated runtime has no processes
		list = append(list, n.ownUsers())
	}
	if n.plugins.devices != nil {
		list = append(list, n.pluggedDevices())
	}
	if n.isolation.cgroups != nil {
		list = append(list, n.ownCgroups())
	}
	return append(list, concern{ // logs
		at: lifecycle.Remove, release: func(_ context.Context, pod *corev1.Pod) error {
			n.removePodCgroup(pod.UID)
			dir := n.logs(pod)
			if dir == "" || pod.Name == "" {
				return nil
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			n.unlinkLogs(pod)
			return nil
		},
	})
}

// claimed is the concern of resource claims, which drivers of devices prepare.
func (n *Node) claimed() concern {
	return concern{
		waits: true, reason: failedPrepare,
		prepare: func(ctx context.Context, p *preparation) error {
			if !dra.Needed(p.pod) {
				return nil
			}
			return n.plugins.claims.Prepare(ctx, p.pod)
		},
		describe: func(err error) error {
			return fmt.Errorf("Failed to prepare dynamic resources: %w", err) //nolint:staticcheck // an event's text
		},
		attempt: func(_ context.Context, o order, c *cri.ContainerConfig) error {
			if !dra.Needed(o.pod) {
				return nil
			}
			names, err := n.plugins.claims.Devices(o.pod, o.container)
			for _, name := range names {
				c.CDIDevices = append(c.CDIDevices, &cri.CDIDevice{Name: name})
			}
			return err
		},
		at: lifecycle.Unprepare, release: func(ctx context.Context, pod *corev1.Pod) error { return n.plugins.claims.Unprepare(ctx, pod.UID) },
	}
}

// ownUsers is the concern of pods with users of their own.
func (n *Node) ownUsers() concern {
	return concern{
		reason: failedSandbox, describe: notMade,
		prepare: func(_ context.Context, p *preparation) error {
			if p.pod.Spec.HostUsers == nil || *p.pod.Spec.HostUsers {
				return nil
			}
			if !n.abilities.handlers.feature(p.handler, (*cri.RuntimeHandlerFeatures).GetUserNamespaces) {
				if p.handler != "" {
					return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", p.handler)
				}
				return errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
			}
			return n.isolation.users.allocate(p.pod.UID)
		},
		at: lifecycle.Remove, release: func(_ context.Context, pod *corev1.Pod) error { n.isolation.users.release(pod.UID); return nil },
	}
}

// pluggedDevices is the concern of the devices of device plug-ins.
func (n *Node) pluggedDevices() concern {
	return concern{
		waits: true, reason: failedSandbox, describe: notMade,
		prepare: func(ctx context.Context, p *preparation) error {
			err := n.plugins.devices.Allocate(ctx, p.pod)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return &lifecycle.RejectionError{Rejection: lifecycle.Rejection{Reason: "UnexpectedAdmissionError", Message: err.Error()}}
			}
			return nil
		},
		attempt: n.addDevices,
		at:      lifecycle.Remove, release: func(_ context.Context, pod *corev1.Pod) error { n.plugins.devices.Release(pod.UID); return nil },
	}
}

// addDevices adds to the configuration of a container what device plug-ins gave it.
func (n *Node) addDevices(ctx context.Context, o order, c *cri.ContainerConfig) error {
	given, err := n.plugins.devices.Container(ctx, o.pod.UID, o.container.Name)
	if err != nil {
		return err
	}
	for _, g := range given {
		for _, d := range g.GetDevices() {
			c.Devices = append(c.Devices, &cri.Device{HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions()})
		}
		for _, m := range g.GetMounts() {
			c.Mounts = append(c.Mounts, &cri.Mount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Readonly: m.GetReadOnly()})
		}
		for _, d := range g.GetCdiDevices() {
			c.CDIDevices = append(c.CDIDevices, &cri.CDIDevice{Name: d.GetName()})
		}
		for _, name := range slices.Sorted(maps.Keys(g.GetEnvs())) {
			c.Envs = append(c.Envs, &cri.KeyValue{Key: name, Value: []byte(g.GetEnvs()[name])})
		}
		maps.Copy(c.Annotations, g.GetAnnotations())
	}
	return nil
}

// ownCgroups is the concern of the cgroups of pods that the agent makes.
func (n *Node) ownCgroups() concern {
	return concern{
		reason: failedSandbox, describe: notMade,
		prepare: func(_ context.Context, p *preparation) error {
			return n.setCgroup(p.pod, lifecycle.ClassOf(p.pod), n.metrics.CgroupCreate)
		},
		at: lifecycle.Remove, release: func(_ context.Context, pod *corev1.Pod) error {
			began := time.Now()
			defer func() { n.metrics.CgroupEnd.Observe(time.Since(began).Seconds()) }()
			return n.isolation.cgroups.Remove(pod.UID)
		},
		adopt: func(w *worker) {
			pod := w.view.Granted()
			if pod.Spec.Containers == nil { // the API server has deleted it
				return
			}
			if err := n.limit(pod, lifecycle.ClassOf(pod)); err != nil {
				w.log.Warn("the limits of a pod could not be set again", "err", err)
			}
		},
	}
}

// prepare prepares the concerns that may hang, or the others. It returns nil, or the end of an operation that has failed.
func (w *worker) prepare(ctx context.Context, p *preparation, waits bool) (failed func()) {
	for i := range w.n.isolation.concerns {
		c := &w.n.isolation.concerns[i]
		if c.prepare == nil || c.waits != waits {
			continue
		}
		err := c.prepare(ctx, p)
		if err == nil {
			continue
		}
		if c.reason == failedSandbox && ctx.Err() == nil {
			w.n.metrics.Pods.Sandboxed(p.pod, err)
		}
		if refused := (*lifecycle.RejectionError)(nil); errors.As(err, &refused) {
			return w.refuse(refused.Rejection)
		}
		if c.describe != nil {
			err = c.describe(err)
		}
		return w.setUpFailed(ctx, c.reason, err)
	}
	return nil
}

// attempt adds to the configuration of a container what the concerns have for it.
func (n *Node) attempt(ctx context.Context, o order, c *cri.ContainerConfig) error {
	for i := range n.isolation.concerns {
		if add := n.isolation.concerns[i].attempt; add != nil {
			if err := add(ctx, o, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// release releases the concerns that an action releases, the one that was prepared last first.
func (n *Node) release(ctx context.Context, pod *corev1.Pod, by lifecycle.Verb) error {
	for _, c := range slices.Backward(n.isolation.concerns) {
		if c.release == nil || c.at != by {
			continue
		}
		if err := c.release(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes over what a pod has that ran before the agent started.
func (n *Node) adopt(w *worker) {
	for _, c := range n.isolation.concerns {
		if c.adopt != nil {
			c.adopt(w)
		}
	}
}

// reportDNS reports once if the pod gets no cluster DNS, or if its resolv.conf has more entries than a resolver reads.
func (w *worker) reportDNS(pod *corev1.Pod) {
	w.volumes.dnsTold.Do(func() {
		_, missing, omitted := w.n.dns(pod)
		if missing && w.n.opts.RootDir != "" { // without files no pod has a resolv.conf
			w.event(corev1.EventTypeWarning, "MissingClusterDNS", "pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
				pod.Name+"_"+pod.Namespace+"("+string(pod.UID)+")", pod.Spec.DNSPolicy, corev1.DNSDefault)
		}
		for _, text := range omitted {
			w.event(corev1.EventTypeWarning, "DNSConfigForming", "%s", text)
		}
	})
}
