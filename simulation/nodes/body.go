package nodes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/simulation"
)

// scheme is the scheme of the containers' IDs.
const scheme = lifecycle.Runtime(simulation.RuntimeName)

// A body is the state of a pod on its node: on a real node that is its containers and its
// agent's memory. It is a function of its inputs and of the time, and does no I/O.
type body struct {
	view   lifecycle.View
	life   simulation.Life
	since  time.Time            // when the node received the pod
	clocks []clock              // of view.Containers, one each
	setups int                  // failed ones in a row
	held   map[string]time.Time // until when containers wait for their back-off, as reported

	// changed counts the changes of view.Last.
	changed uint64
	// remove is true if only the pod's object is left.
	remove   bool
	warnings []warning // not reported yet

	host host
}

// A host is the part of a node that a body needs.
type host interface {
	// addresses returns a free address of each IP family, or none if there is none.
	addresses() []string
	// claim records that an address is in use already.
	claim(ip string)
	// release frees an address.
	release(ip string)
	// holds reports whether an image is on the node.
	holds(image string) bool
}

// A clock holds the times of a container's next changes. Zero times never come.
type clock struct {
	ends  time.Time // when it ends by itself
	stops time.Time // when it ends because it was stopped
	code  int32     // its exit code then
	ready time.Time // when it is ready; zero with asked: never
	// asked is true if the container is ready only after a delay or a probe.
	asked bool
}

// A warning is an event to record.
type warning struct{ container, reason, message string }

// newBody returns the body of a pod that the node receives now. Containers that run
// according to its status keep running.
func newBody(pod *corev1.Pod, life simulation.Life, h host, hostIPs []string, now time.Time) *body {
	b := &body{view: lifecycle.View{Pod: pod, Last: pod.Status, HostIPs: hostIPs}, life: life, since: now, host: h}
	if pod.Status.PodIP != "" && !b.view.Finished() {
		b.adopt(&pod.Status)
		return b
	}
	if r := lifecycle.Affordable(&pod.Spec); r != nil && !b.view.Finished() {
		b.view.Memory.Failed = r.Verdict()
		b.warn("", r.Reason, r.Message)
	}
	return b
}

// adopt restores the containers from before the agent was restarted: simulated
// containers outlive it.
func (b *body) adopt(s *corev1.PodStatus) {
	box := lifecycle.Sandbox{ID: string(b.view.Pod.UID), Ready: true}
	if !b.view.Pod.Spec.HostNetwork {
		for _, ip := range s.PodIPs {
			box.IPs = append(box.IPs, ip.IP)
			b.host.claim(ip.IP)
		}
	}
	b.view.Sandboxes = []lifecycle.Sandbox{box}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			b.recall(&list[i], box.ID)
		}
	}
}

func (b *body) recall(s *corev1.ContainerStatus, box string) {
	if s.ContainerID == "" {
		return
	}
	c := lifecycle.Container{
		ID: strings.TrimPrefix(s.ContainerID, string(scheme)+"://"), Name: s.Name, Attempt: s.RestartCount, Sandbox: box,
		Image: s.Image, ImageID: s.ImageID, Hash: b.hash(s.Name),
	}
	t := s.State.Terminated
	if t == nil {
		t = s.LastTerminationState.Terminated
	}
	var k clock
	switch {
	case s.State.Running != nil:
		c.State, c.StartedAt = lifecycle.Running, s.State.Running.StartedAt.Time
		c.CreatedAt = c.StartedAt
		k = b.clock(s.Name, c.StartedAt)
	case t != nil:
		c.State, c.ExitCode, c.Reason, c.Message = lifecycle.Exited, t.ExitCode, t.Reason, t.Message
		c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
		c.CreatedAt = c.StartedAt
	default:
		return
	}
	b.view.Containers, b.clocks = append(b.view.Containers, c), append(b.clocks, k)
	b.begun(b.spec(c.Name), c.ID)
}

// update sets another version of the pod.
func (b *body) update(pod *corev1.Pod) { b.view.Pod = pod }

// advance brings the body to the given time. It returns when to do so again if nothing
// happens before; the zero time means never.
func (b *body) advance(now time.Time) (wake time.Time) {
	b.view.Now = now
	if b.view.Deleting() {
		m, by := &b.view.Memory, now.Add(b.view.Grace())
		if m.DeletionSeen.IsZero() {
			m.DeletionSeen, m.KillBy = now, by
		}
		if by.Before(m.KillBy) {
			m.KillBy = by
		}
	}
	for {
		b.tick(now)
		b.updateStatus()
		d := lifecycle.Decide(b.view)
		done := false
		for _, a := range d.Actions {
			done = b.act(a, now) || done
		}
		if done {
			continue
		}
		for name, h := range d.Held {
			b.hold(name, h)
		}
		return b.next(now, d.Wake)
	}
}

// updateStatus computes the status for the API server.
func (b *body) updateStatus() {
	if s := scheme.Status(b.view); !equality.Semantic.DeepEqual(&s, &b.view.Last) {
		b.view.Last = s
		b.changed++
	}
}

// next returns the first time after now at which something changes.
func (b *body) next(now, wake time.Time) time.Time {
	first := func(t time.Time) {
		if t.After(now) && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	for i := range b.clocks {
		if b.view.Containers[i].State == lifecycle.Running {
			k := &b.clocks[i]
			first(k.ends)
			first(k.stops)
			first(k.ready)
		}
	}
	if len(b.view.Sandboxes) == 0 && !b.view.Deleting() && !b.view.Finished() {
		first(b.since.Add(b.life.StartDelay))
	}
	return wake
}

// tick applies the changes of the containers that are due.
func (b *body) tick(now time.Time) {
	for i := range b.view.Containers {
		c, k := &b.view.Containers[i], &b.clocks[i]
		if c.State != lifecycle.Running {
			continue
		}
		at, code := k.ends, b.life.ExitCode
		if !k.stops.IsZero() && (at.IsZero() || k.stops.Before(at)) {
			at, code = k.stops, k.code
		}
		if !at.IsZero() && !now.Before(at) {
			c.State, c.FinishedAt, c.ExitCode = lifecycle.Exited, now, code
			continue
		}
		if k.asked {
			if b.view.Memory.Ready == nil {
				b.view.Memory.Ready = map[string]bool{}
			}
			b.view.Memory.Ready[c.ID] = !k.ready.IsZero() && !now.Before(k.ready)
		}
	}
}

// act does an action. It reports whether the state has changed.
func (b *body) act(a lifecycle.Action, now time.Time) bool {
	switch a.Verb {
	case lifecycle.SetUp:
		return b.setUp(a, now)
	case lifecycle.Start:
		b.start(a, now)
	case lifecycle.PreStop: // hooks of simulated containers take no time
		if b.view.Memory.PreStopped == nil {
			b.view.Memory.PreStopped = map[string]bool{}
		}
		b.view.Memory.PreStopped[a.ID] = true
	case lifecycle.Stop:
		return b.stop(a, now)
	case lifecycle.Release:
		for i := range b.view.Sandboxes {
			if s := &b.view.Sandboxes[i]; s.ID == a.ID {
				b.free(s)
			}
		}
	case lifecycle.Discard:
		b.view.Sandboxes = slices.DeleteFunc(b.view.Sandboxes, func(s lifecycle.Sandbox) bool { return s.ID == a.ID })
	case lifecycle.Fail:
		b.view.Memory.Failed = a.Verdict
	case lifecycle.Remove:
		b.remove = true
		return false
	}
	return true
}

// free releases the addresses of a sandbox.
func (b *body) free(s *lifecycle.Sandbox) {
	if s.Ready {
		s.Ready = false
		for _, ip := range s.IPs {
			b.host.release(ip)
		}
	}
}

// leave frees all resources: the pod is deleted.
func (b *body) leave() {
	for i := range b.view.Sandboxes {
		b.free(&b.view.Sandboxes[i])
	}
}

func (b *body) setUp(a lifecycle.Action, now time.Time) bool {
	if a.Attempt == 0 && now.Before(b.since.Add(b.life.StartDelay)) {
		return false
	}
	s := lifecycle.Sandbox{ID: string(b.view.Pod.UID), Attempt: uint32(a.Attempt), Ready: true}
	if a.Attempt > 0 {
		s.ID += "-" + strconv.Itoa(int(a.Attempt))
	}
	if !b.view.Pod.Spec.HostNetwork {
		ips := b.host.addresses()
		if len(ips) == 0 {
			const message = "Failed to create pod sandbox: the node has no free address" // with the prefix of the real agent
			b.warn("", "FailedCreatePodSandBox", message)
			b.setups++
			b.view.Memory.Setup = lifecycle.Failure{Reason: "FailedCreatePodSandBox", Message: message, At: now, Retry: now.Add(setupPause << min(b.setups, 4))}
			return true
		}
		s.IPs = ips
	}
	b.setups, b.view.Memory.Setup = 0, lifecycle.Failure{}
	b.view.Sandboxes = append(b.view.Sandboxes, s)
	return true
}

// setupPause is half of the first pause after there was no address.
const setupPause = 5 * time.Second

func (b *body) spec(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{b.view.Pod.Spec.InitContainers, b.view.Pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func (b *body) hash(name string) string {
	if c := b.spec(name); c != nil {
		return lifecycle.Hash(c)
	}
	return ""
}

func (b *body) restarts() map[string]lifecycle.Backoff {
	if b.view.Memory.Restarts == nil {
		b.view.Memory.Restarts = map[string]lifecycle.Backoff{}
	}
	return b.view.Memory.Restarts
}

func (b *body) start(a lifecycle.Action, now time.Time) {
	c := b.spec(a.Container)
	if b.pullFails(c, now) {
		return
	}
	delete(b.view.Memory.Failures, c.Name)
	b.restarting(a, now)
	started := lifecycle.Container{
		ID: b.id(c.Name, a.Attempt), Name: c.Name, Attempt: a.Attempt, State: lifecycle.Running, Hash: lifecycle.Hash(c),
		CreatedAt: now, StartedAt: now, Image: c.Image, ImageID: imageID(c.Image),
	}
	for i := range b.view.Sandboxes {
		if b.view.Sandboxes[i].Ready {
			started.Sandbox = b.view.Sandboxes[i].ID
		}
	}
	var k clock
	if a.Init { // init containers end at once
		started.State, started.FinishedAt = lifecycle.Exited, now
	} else {
		k = b.clock(c.Name, now)
	}
	b.view.Containers, b.clocks = append(b.view.Containers, started), append(b.clocks, k)
	b.begun(c, started.ID)
}

// begun records that the startup probe of a container, if it has one, has succeeded.
func (b *body) begun(c *corev1.Container, id string) {
	if c == nil || c.StartupProbe == nil {
		return
	}
	if b.view.Memory.Started == nil {
		b.view.Memory.Started = map[string]bool{}
	}
	b.view.Memory.Started[id] = true
}

// clock returns the clock of a container that was started at the given time.
func (b *body) clock(name string, at time.Time) clock {
	var k clock
	c, isInit := lifecycle.Spec(b.view.Pod, name)
	if b.life.Ends && !isInit { // sidecars run until they are stopped
		k.ends = at.Add(b.life.Run)
	}
	delay := b.life.ReadyDelay
	if c != nil && c.ReadinessProbe != nil {
		k.asked = true
		delay += time.Duration(c.ReadinessProbe.InitialDelaySeconds) * time.Second
	}
	k.asked = k.asked || delay > 0 || b.life.NeverReady
	if !b.life.NeverReady {
		k.ready = at.Add(delay)
	}
	return k
}

// kept is how many attempts at a container are kept: the current one, and the one before,
// which the status contains.
const kept = 2

// restarting counts a restart for the back-off, and drops old attempts.
func (b *body) restarting(a lifecycle.Action, now time.Time) {
	var ended time.Time
	old := 0
	for i := range b.view.Containers {
		if c := &b.view.Containers[i]; c.Name == a.Container && c.State == lifecycle.Exited {
			old++
			if c.FinishedAt.After(ended) {
				ended = c.FinishedAt
			}
		}
	}
	if !ended.IsZero() {
		b.restarts()[a.Container] = b.restarts()[a.Container].Next(ended, now, lifecycle.DefaultPauses()).For(a.Attempt)
	}
	for i := 0; i < len(b.view.Containers) && old >= kept; {
		c := &b.view.Containers[i]
		if c.Name != a.Container || c.State != lifecycle.Exited {
			i++
			continue
		}
		delete(b.view.Memory.Ready, c.ID)
		b.view.Containers, b.clocks = slices.Delete(b.view.Containers, i, i+1), slices.Delete(b.clocks, i, i+1)
		old--
	}
}

// pullFails records a failed pull of the image, if the pod's life has one. It reports
// whether it failed.
func (b *body) pullFails(c *corev1.Container, now time.Time) bool {
	why := b.life.PullError
	if why == "" || c.ImagePullPolicy == corev1.PullNever || c.ImagePullPolicy != corev1.PullAlways && b.host.holds(c.Image) {
		return false
	}
	if b.view.Memory.Failures == nil {
		b.view.Memory.Failures = map[string]lifecycle.Failure{}
	}
	pause := lifecycle.FirstPause
	if f, again := b.view.Memory.Failures[c.Name]; again {
		pause = min(2*f.Retry.Sub(f.At), lifecycle.LongestPause)
	}
	b.view.Memory.Failures[c.Name] = lifecycle.Failure{
		Reason: "ErrImagePull", Message: why, At: now, Retry: now.Add(pause),
		LaterReason: "ImagePullBackOff", LaterMessage: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.Image, why),
	}
	b.warn(c.Name, "Failed", fmt.Sprintf("Failed to pull image %q: %s", c.Image, why))
	b.warn(c.Name, "Failed", "Error: ErrImagePull")
	return true
}

// hold reports a container that waits for its back-off, once for each wait.
func (b *body) hold(name string, h lifecycle.Hold) {
	if b.held[name].Equal(h.Until) {
		return
	}
	if b.held == nil {
		b.held = map[string]time.Time{}
	}
	b.held[name] = h.Until
	p := b.view.Pod
	b.warn(name, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, p.Name, p.Namespace, p.UID))
}

// stop signals a container. It is killed if it takes longer than the grace period.
func (b *body) stop(a lifecycle.Action, now time.Time) bool {
	const killed = 137 // by signal 9
	for i := range b.view.Containers {
		c, k := &b.view.Containers[i], &b.clocks[i]
		if c.ID != a.ID || c.State != lifecycle.Running {
			continue
		}
		at, code := now.Add(b.life.StopDelay), int32(0)
		if b.life.StopDelay > a.Grace {
			at, code = now.Add(a.Grace), killed
		}
		if !k.stops.IsZero() && !at.Before(k.stops) {
			return false // it has had its signal
		}
		k.stops, k.code = at, code
		return !at.After(now)
	}
	return false
}

func (b *body) warn(container, reason, message string) {
	b.warnings = append(b.warnings, warning{container, reason, message})
}

// id returns an ID as long as those of real runtimes.
func (b *body) id(name string, attempt int32) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", b.view.Pod.UID, name, attempt))
	return hex.EncodeToString(sum[:])
}

func imageID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}
