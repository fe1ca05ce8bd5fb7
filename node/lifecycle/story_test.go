package lifecycle_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/storytest"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// TestStories plays testdata/*.txt. A story is a list of commands that change the
// view of one pod; "look" runs Decide and Status, and the lines starting with ">"
// under it are their results. The last status of the next look is the status from
// this one. Run with -update after a change, then read the diff.
func TestStories(t *testing.T) {
	storytest.Play(t, "testdata", func(t *testing.T) func(string) []string {
		p := &player{t: t}
		return func(line string) []string {
			words := strings.Fields(line)
			if len(words) == 0 {
				return nil
			}
			return p.do(words[0], words[1:])
		}
	})
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// player holds the view of the pod of one story.
type player struct {
	t    *testing.T
	view lifecycle.View
}

func (p *player) do(verb string, args []string) []string {
	v := &p.view
	switch verb {
	case "pod":
		p.pod(args)
	case "at":
		v.Now = epoch.Add(p.duration(args[0]))
	case "sandbox": // sandbox ATTEMPT ready|dead [IP]
		p.sandbox(args)
	case "container": // container NAME ATTEMPT STATE [CODE [REASON]]
		p.container(args)
	case "claims": // claims prepared|free
		v.Memory.Prepared = args[0] == "prepared"
	case "volumes": // volumes mounted|unmounted
		v.Memory.Mounted = args[0] == "mounted"
	case "forget": // the runtime lost everything
		v.Sandboxes, v.Containers = nil, nil
	case "restarted": // restarted NAME: its next attempt is being made
		if v.Memory.Restarts == nil {
			v.Memory.Restarts = map[string]lifecycle.Backoff{}
		}
		for i, c := range slices.Backward(v.Containers) {
			if c.Name == args[0] && c.State == lifecycle.Exited {
				v.Memory.Restarts[c.Name] = v.Memory.Restarts[c.Name].Next(v.Containers[i].FinishedAt, v.Now, lifecycle.DefaultPauses()).For(c.Attempt + 1)
				break
			}
		}
	case "failure": // failure NAME REASON LATER PAUSE; - is for none
		args[2] = strings.TrimPrefix(args[2], "-")
		v.Memory.Failures = map[string]lifecycle.Failure{args[0]: {Reason: args[1], LaterReason: args[2], At: v.Now, Retry: v.Now.Add(p.duration(args[3]))}}
	case "mended":
		v.Memory.Failures = nil
	case "setup-failed":
		v.Memory.Setup = lifecycle.Failure{At: v.Now, Retry: v.Now.Add(p.duration(args[0]))}
	case "ready": // ready NAME true|false
		if v.Memory.Ready == nil {
			v.Memory.Ready = map[string]bool{}
		}
		for _, c := range v.Containers {
			if c.Name == args[0] && c.State == lifecycle.Running {
				v.Memory.Ready[c.ID] = args[1] == "true"
			}
		}
	case "started", "hooked", "unhooked", "prestopped", "liveness", "startup", "hook-failed": // VERB NAME
		p.mark(verb, args[0])
	case "stopping": // stopping NAME GRACE: the worker has begun to stop it
		m := &v.Memory
		if m.StopBy == nil {
			m.StopBy = map[string]time.Time{}
		}
		m.StopBy[p.running(args[0])] = v.Now.Add(p.duration(args[1]))
	case "debug": // debug NAME: an ephemeral container is added
		v.Pod = v.Pod.DeepCopy()
		e := corev1.EphemeralContainer{}
		e.Name, e.Image = args[0], args[0]
		v.Pod.Spec.EphemeralContainers = append(v.Pod.Spec.EphemeralContainers, e)
	case "image": // image NAME IMAGE
		v.Pod = v.Pod.DeepCopy()
		for i := range v.Pod.Spec.Containers {
			if v.Pod.Spec.Containers[i].Name == args[0] {
				v.Pod.Spec.Containers[i].Image = args[1]
			}
		}
	case "delete": // delete GRACE [DRAIN]
		v.Pod = v.Pod.DeepCopy()
		grace := int64(p.duration(args[0]) / time.Second)
		v.Pod.DeletionGracePeriodSeconds = &grace
		v.Pod.DeletionTimestamp = &metav1.Time{Time: v.Now.Add(p.duration(args[0]))}
		v.Memory.DeletionSeen, v.Memory.KillBy = v.Now, v.Now.Add(p.duration(args[0]))
		if len(args) > 1 {
			v.Memory.DrainUntil = v.Now.Add(p.duration(args[1]))
		}
	case "gone":
		v.Gone = true
	case "look":
		return p.look()
	default:
		p.t.Fatalf("unknown command %q", verb)
	}
	return nil
}

// running returns the ID of the running container of this name.
func (p *player) running(name string) string {
	for _, c := range p.view.Containers {
		if c.Name == name && c.State == lifecycle.Running {
			return c.ID
		}
	}
	p.t.Fatalf("no container %q runs", name)
	return ""
}

// mark records what the worker has found out about a running container.
func (p *player) mark(verb, name string) {
	m, id := &p.view.Memory, p.running(name)
	set := func(at *map[string]bool, yes bool) {
		if *at == nil {
			*at = map[string]bool{}
		}
		(*at)[id] = yes
	}
	unfit := func(cause lifecycle.Cause) {
		m.Unfit = map[string]lifecycle.Cause{id: cause}
		if m.Replaced == nil {
			m.Replaced = map[string]bool{}
		}
		m.Replaced[id] = cause != lifecycle.BadHook
	}
	switch verb {
	case "started":
		set(&m.Started, true)
	case "hooked":
		m.Hooked = map[string]int32{name: 0}
	case "unhooked":
		m.Hooked = nil
	case "prestopped":
		set(&m.PreStopped, true)
	case "liveness":
		unfit(lifecycle.NotLive)
	case "startup":
		unfit(lifecycle.NotStarted)
	case "hook-failed":
		unfit(lifecycle.BadHook)
	}
}

func (p *player) duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func (p *player) pod(args []string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u", Generation: 1}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		names := strings.Split(value, ",")
		switch key {
		case "restart":
			pod.Spec.RestartPolicy = corev1.RestartPolicy(value)
		case "deadline":
			s := int64(p.duration(value) / time.Second)
			pod.Spec.ActiveDeadlineSeconds = &s
		case "init": // a name that ends with + is that of a sidecar
			for _, n := range names {
				name, is := strings.CutSuffix(n, "+")
				c := corev1.Container{Name: name, Image: name}
				if is {
					always := corev1.ContainerRestartPolicyAlways
					c.RestartPolicy = &always
				}
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			}
		case "containers":
			for _, n := range names {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: n, Image: n})
			}
		case "probed":
			for i := range pod.Spec.Containers {
				if slices.Contains(names, pod.Spec.Containers[i].Name) {
					pod.Spec.Containers[i].ReadinessProbe = &corev1.Probe{}
				}
			}
		case "startup", "prestop", "grace": // for grace, NAME:SECONDS of the liveness probe
			for _, n := range names {
				p.configure(pod, key, n)
			}
		case "rule": // NAME:POLICY:CODE:ACTION
			part := strings.Split(value, ":")
			c, _ := lifecycle.Spec(pod, part[0])
			policy := corev1.ContainerRestartPolicy(part[1])
			code, _ := strconv.Atoi(part[2])
			c.RestartPolicy = &policy
			c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{
				Action: corev1.ContainerRestartRuleAction(part[3]),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
					Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{int32(code)},
				},
			})
		case "gate":
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: corev1.PodConditionType(value)}}
		case "phase":
			pod.Status.Phase = corev1.PodPhase(value)
		default:
			p.t.Fatalf("pod: unknown %q", arg)
		}
	}
	p.view = lifecycle.View{Now: epoch, Pod: pod, Last: pod.Status, HostIPs: []string{"192.0.2.1"}}
}

func (p *player) sandbox(args []string) {
	attempt, _ := strconv.Atoi(args[0])
	s := lifecycle.Sandbox{ID: "s" + args[0], Attempt: uint32(attempt), Ready: args[1] == "ready", IPs: args[2:]}
	p.view.Sandboxes = slices.DeleteFunc(p.view.Sandboxes, func(o lifecycle.Sandbox) bool { return o.ID == s.ID })
	p.view.Sandboxes = append(p.view.Sandboxes, s)
}

func (p *player) container(args []string) {
	v := &p.view
	attempt, _ := strconv.Atoi(args[1])
	c := lifecycle.Container{ID: args[0] + "-" + args[1], Name: args[0], Attempt: int32(attempt), StartedAt: v.Now, CreatedAt: v.Now}
	for _, s := range v.Sandboxes {
		c.Sandbox = s.ID
	}
	for i := range v.Pod.Spec.Containers {
		if v.Pod.Spec.Containers[i].Name == c.Name {
			c.Hash = lifecycle.Hash(&v.Pod.Spec.Containers[i])
		}
	}
	v.Containers = slices.DeleteFunc(slices.Clone(v.Containers), func(o lifecycle.Container) bool {
		if o.ID == c.ID {
			c.StartedAt, c.CreatedAt, c.Sandbox, c.Hash = o.StartedAt, o.CreatedAt, o.Sandbox, o.Hash
		}
		return o.ID == c.ID
	})
	switch args[2] {
	case "created":
		c.StartedAt = time.Time{}
	case "running":
		c.State = lifecycle.Running
	case "exited":
		c.State, c.FinishedAt = lifecycle.Exited, v.Now
		code, _ := strconv.Atoi(args[3])
		c.ExitCode = int32(code)
		if len(args) > 4 {
			c.Reason = args[4]
		}
	case "unknown":
		c.State = lifecycle.Unknown
	case "lost":
		return
	default:
		p.t.Fatalf("container: unknown state %q", args[2])
	}
	v.Containers = append(v.Containers, c)
}

func (p *player) configure(pod *corev1.Pod, key, value string) {
	name, seconds, _ := strings.Cut(value, ":")
	c, _ := lifecycle.Spec(pod, name)
	switch key {
	case "startup":
		c.StartupProbe = &corev1.Probe{}
	case "prestop":
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
	case "grace":
		s, _ := strconv.ParseInt(seconds, 10, 64)
		c.LivenessProbe = &corev1.Probe{TerminationGracePeriodSeconds: &s}
	}
}

func (p *player) look() []string {
	v := &p.view
	st := lifecycle.Runtime("test").Status(*v)
	v.Last = st
	d := lifecycle.Decide(*v)
	var out []string
	for _, a := range d.Actions {
		out = append(out, a.String())
		if a.Verb == lifecycle.Fail {
			v.Memory.Failed = a.Verdict
		}
	}
	if !d.Wake.IsZero() {
		out = append(out, "look again at "+d.Wake.Sub(epoch).String())
	}
	line := string(st.Phase)
	if st.Reason != "" {
		line += " " + st.Reason
	}
	if st.PodIP != "" {
		line += " ip=" + st.PodIP
	}
	for _, c := range st.Conditions {
		line += fmt.Sprintf(" %s=%s", short[c.Type], c.Status)
		if c.Reason != "" {
			line += "(" + c.Reason + ")"
		}
	}
	out = append(out, line)
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
		l := fmt.Sprintf("  %s restarts=%d ready=%t %s", c.Name, c.RestartCount, c.Ready, state(c.State))
		if last := state(c.LastTerminationState); last != "" {
			l += " last: " + last
		}
		out = append(out, l)
	}
	return out
}

var short = map[corev1.PodConditionType]string{
	corev1.PodReadyToStartContainers: "sandbox", corev1.PodInitialized: "init", corev1.PodReady: "Ready",
	corev1.ContainersReady: "containers", corev1.PodScheduled: "scheduled", corev1.AllContainersRestarting: "restarting",
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return strings.TrimSpace("waiting " + s.Waiting.Reason + " " + s.Waiting.Message)
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %d %s", s.Terminated.ExitCode, s.Terminated.Reason)
	}
	return ""
}
