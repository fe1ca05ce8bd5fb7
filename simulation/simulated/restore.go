package simulated

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/simulation"
)

// restore makes the parts of a pod that its status shows: a sandbox with its addresses, and the latest attempt at
// each container. So pods go on over a restart of the process, and in a copy of the cluster. A pod that has ended, or
// that has no containers yet, has nothing to restore. It is called before the runtime is used.
func (r *Runtime) restore(pod *corev1.Pod, logDir string) {
	all := latestAttempts(pod)
	if len(all) == 0 {
		return
	}
	at := crispec.Place{QOS: pod.Status.QOSClass}
	if logDir != "" {
		at.Logs = crispec.LogDirectory(logDir, pod.Namespace, pod.Name, string(pod.UID))
	}
	s := &sandbox{id: r.id(), config: crispec.Sandbox(pod, 0, at), created: pod.CreationTimestamp.UnixNano(), ready: true}
	if t := pod.Status.StartTime; t != nil {
		s.created = t.UnixNano()
	}
	if !pod.Spec.HostNetwork {
		var err error
		if s.place, err = r.placeOf(pod.Status.PodIPs); err != nil {
			return // the network is smaller than it was: the pod is made again when there is an address
		}
		s.ips = r.addresses(s.place)
	}
	r.sandboxes[s.id] = s
	for _, a := range all {
		if r.containers[a.id()] != nil {
			continue // a status can be written by users: an ID belongs to one container
		}
		c := &container{sandbox: s, status: a.restored(pod, s)}
		r.containers[c.status.GetId()] = c
		s.containers = append(s.containers, c.status.GetId())
		if c.status.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			r.resume(c)
		}
		if path := c.status.GetLogPath(); path != "" && os.MkdirAll(filepath.Dir(path), 0o750) == nil {
			if _, err := os.Stat(path); err != nil {
				_ = c.log() // it is only a line that says that nothing ran
			}
		}
	}
}

// addresses returns the addresses at a place in the networks.
func (r *Runtime) addresses(place uint32) (ips []string) {
	for _, n := range r.cidrs {
		ips = append(ips, simulation.Plus(n.Addr(), place).String())
	}
	return ips
}

// placeOf takes the place of a pod's addresses in the networks, or another one if they are not in them.
func (r *Runtime) placeOf(ips []corev1.PodIP) (uint32, error) {
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil || !r.cidrs[0].Contains(a) {
			continue
		}
		n := low(a) - low(r.cidrs[0].Addr())
		if n > gateway && n < r.size-1 && !r.taken[n] {
			r.taken[n], r.last = true, max(r.last, n)
			return n, nil
		}
	}
	return r.place()
}

// low returns the last 32 bits of an address.
func low(a netip.Addr) uint32 {
	b := a.AsSlice()
	return binary.BigEndian.Uint32(b[len(b)-4:])
}

// An attempt is one at a container, as the status of its pod shows it.
type attempt struct {
	spec    *corev1.Container
	status  *corev1.ContainerStatus
	running *corev1.ContainerStateRunning    // nil: it has ended
	ended   *corev1.ContainerStateTerminated // nil: it runs
	init    bool                             // it ends before others start
}

// latestAttempts returns the attempts at the containers of a pod that has not ended.
func latestAttempts(pod *corev1.Pod) (all []attempt) {
	if p := pod.Status.Phase; p == corev1.PodSucceeded || p == corev1.PodFailed {
		return nil
	}
	add := func(list []corev1.ContainerStatus, spec func(name string) (*corev1.Container, bool)) {
		for i := range list {
			a := attempt{status: &list[i], running: list[i].State.Running, ended: list[i].State.Terminated}
			if a.running == nil && a.ended == nil { // it waits for the next one
				a.ended = list[i].LastTerminationState.Terminated
			}
			a.spec, a.init = spec(list[i].Name)
			if a.spec != nil && a.id() != "" {
				all = append(all, a)
			}
		}
	}
	in := func(list []corev1.Container, init bool) func(string) (*corev1.Container, bool) {
		return func(name string) (*corev1.Container, bool) {
			for i := range list {
				if c := &list[i]; c.Name == name {
					return c, init && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways)
				}
			}
			return nil, false
		}
	}
	add(pod.Status.InitContainerStatuses, in(pod.Spec.InitContainers, true))
	add(pod.Status.ContainerStatuses, in(pod.Spec.Containers, false))
	add(pod.Status.EphemeralContainerStatuses, func(name string) (*corev1.Container, bool) {
		for i := range pod.Spec.EphemeralContainers {
			if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
				return (*corev1.Container)(&c.EphemeralContainerCommon), false
			}
		}
		return nil, false
	})
	return all
}

// id returns the ID of the attempt in this runtime, or "" if there is none, or another runtime made it.
func (a *attempt) id() string {
	whole := a.status.ContainerID
	if a.running == nil && a.ended == nil {
		return ""
	}
	if a.running == nil && a.ended.ContainerID != "" {
		whole = a.ended.ContainerID
	}
	id, ours := strings.CutPrefix(whole, simulation.RuntimeName+"://")
	if !ours {
		return ""
	}
	return id
}

// restored returns the state of the attempt as the runtime had it.
func (a *attempt) restored(pod *corev1.Pod, s *sandbox) *cri.ContainerStatus {
	spec := *a.spec
	if a.status.Image != "" {
		spec.Image = a.status.Image // the one that it was made from: a newer one in the pod makes another attempt
	}
	out := &cri.ContainerStatus{
		Id: a.id(), Metadata: &cri.ContainerMetadata{Name: spec.Name, Attempt: uint32(a.status.RestartCount)},
		Image:    &cri.ImageSpec{Image: a.status.ImageID, UserSpecifiedImage: a.status.Image},
		ImageRef: a.status.ImageID, ImageId: a.status.ImageID,
		Labels: map[string]string{
			crispec.ContainerName: spec.Name, crispec.PodName: pod.Name,
			crispec.PodNamespace: pod.Namespace, crispec.PodUID: string(pod.UID),
		},
		Annotations: map[string]string{
			crispec.ContainerHash:   lifecycle.Hash(&spec),
			crispec.RestartCount:    strconv.Itoa(int(a.status.RestartCount)),
			crispec.TerminationPath: spec.TerminationMessagePath,
			crispec.TerminationUse:  string(spec.TerminationMessagePolicy),
		},
	}
	if a.init {
		out.Annotations[crispec.InitContainer] = "true"
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		out.Annotations[crispec.TerminationGrace] = strconv.FormatInt(*g, 10)
	}
	if dir := s.config.GetLogDirectory(); dir != "" {
		out.LogPath = filepath.Join(dir, crispec.LogPath(spec.Name, a.status.RestartCount))
	}
	if a.running != nil {
		out.State, out.StartedAt = cri.ContainerState_CONTAINER_RUNNING, a.running.StartedAt.UnixNano()
	} else {
		out.State, out.StartedAt = cri.ContainerState_CONTAINER_EXITED, a.ended.StartedAt.UnixNano()
		out.FinishedAt, out.ExitCode = a.ended.FinishedAt.UnixNano(), a.ended.ExitCode
		out.Reason, out.Message = a.ended.Reason, a.ended.Message
	}
	out.CreatedAt = out.GetStartedAt()
	return out
}

// resume lets a container that runs end when its pod's annotations say, counted from its start.
func (r *Runtime) resume(c *container) {
	annotations := c.sandbox.config.GetAnnotations()
	c.usage, _ = simulation.UsageOf(annotations) // an invalid one would not have been started
	after, code, ends, err := endOf(annotations)
	if err != nil || !ends {
		return
	}
	id := c.status.GetId()
	c.end = time.AfterFunc(time.Until(time.Unix(0, c.status.GetStartedAt()).Add(after)), func() { r.ended(id, code) })
}
