package await

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/internal/podstate"
)

var podRules = rulesFor(corev1.SchemeGroupVersion.WithKind("Pod"), rules[*corev1.Pod]{
	judge: judgePodServing,
	ended: func(p *corev1.Pod) (string, bool) {
		// A pod that is being deleted will vanish, and a selector will pick another.
		if p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed) {
			return "the pod has ended (" + string(p.Status.Phase) + ")", true
		}
		return "", false
	},
	place:  placePod,
	served: true,
})

// placePod judges a pod as a part and, in a compact forest, as a member.
func placePod(f *forest, n *node, p *corev1.Pod) {
	restarts := restartsOf(p)
	if restarts > n.restarts && n.part.known {
		f.restarted(n)
	}
	owner := metav1.GetControllerOfNoCopy(p)
	n.restarts, n.part, n.tally = restarts, partOfPod(f.parts, p, owner).logged(f.parts, p), tallyOf(p)
	if f.compact {
		n.own, n.object = judgePod(f.degree.base(), p).logged(f.degree.base(), p), nil
		n.own.Cause = f.once(n.own.Cause)
	}
	n.part.Cause = f.once(n.part.Cause)
	f.setNames(n, namesOf(p))
	f.adopt(p, owner)
}

// judgePod judges a pod. It is observed when its node has reported a status, scheduled when it has a node, running when
// its phase is Running or Succeeded, ready by the condition Ready, finished and complete when its phase is Succeeded.
// judgePodServing judges the degree Serving.
func judgePod(d Degree, p *corev1.Pod) judged {
	say := func(v Verdict) judged { return judged{Verdict: v, known: true} }
	switch d {
	case Deleted:
		return say(waiting("%s", ending(p)))
	case Observed:
		switch {
		case p.Status.ObservedGeneration > 0 && p.Status.ObservedGeneration < p.Generation:
			return say(waiting("its node has not seen the latest change yet"))
		case p.Status.StartTime != nil || p.Status.ObservedGeneration > 0 || p.Status.Phase != corev1.PodPending && p.Status.Phase != "":
			return say(done())
		}
		return podTrouble(d, p)
	case Scheduled:
		if p.Spec.NodeName != "" {
			return say(done())
		}
		return podTrouble(d, p)
	}
	switch p.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		// It will vanish, which ends a wait for it; a selector picks another pod.
		if p.DeletionTimestamp != nil && (p.Status.Phase == corev1.PodFailed || d.isOneOf(Ready, Serving, OldGone)) {
			return say(waiting("the pod is being deleted"))
		}
	default: // see below
	}
	switch p.Status.Phase {
	case corev1.PodFailed:
		return say(failed(Certain, "the pod failed: %s", podEnd(p)))
	case corev1.PodSucceeded:
		if d.isOneOf(Ready, Serving, OldGone) {
			return say(failed(Certain, "the pod has ended, it will not be ready again"))
		}
		return say(done())
	case corev1.PodRunning:
		if p.Status.ObservedGeneration > 0 && p.Status.ObservedGeneration < p.Generation && d != Running {
			return say(waiting("its node has not seen the latest change yet"))
		}
		if d == Running || !d.isOneOf(Finished, Complete) && podstate.Ready(p) && p.DeletionTimestamp == nil {
			return say(done())
		}
	default: // not there yet
	}
	if p.DeletionTimestamp != nil {
		return say(waiting("the pod is being deleted"))
	}
	return podTrouble(d, p)
}

// logged sets Logged for a pod that is not done, if a container of it has run.
func (j judged) logged(d Degree, p *corev1.Pod) judged {
	if d == Deleted || j.State == Done {
		return j
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			ended := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
			j.Logged = j.Logged || s.State.Running != nil || ended != nil && ended.StartedAt.Unix() > 0 // the kubelet says 1970 of what did not start
		}
	}
	return j
}

// judgePodServing is judgePod with the degree Serving, which needs EndpointSlices.
func judgePodServing(d Degree, p *corev1.Pod, v *view) (Verdict, error) {
	verdict := v.final(v.node, judgePod(d, p).logged(d, p))
	if d != Serving || verdict.State != Done {
		return verdict, nil
	}
	s := v.serves[p.UID]
	switch {
	case !v.known:
		return waiting("ready; who serves is not known yet"), nil
	case s == nil:
		if why := v.unselected(p.Labels); why != "" {
			return failed(Likely, "ready, but %s", why), nil
		}
		return waiting("ready, but no service has it among its endpoints"), nil
	case s.no > 0:
		return waiting("ready, but not yet serving in all endpoints that have it"), nil
	}
	return verdict, nil
}

// partOfPod judges a pod as a part of its owner. A pod that has ended does not hold up its owner, except the failed pod of
// a Job and a rejected pod.
func partOfPod(d Degree, p *corev1.Pod, owner *metav1.OwnerReference) judged {
	say := func(v Verdict) judged { return judged{Verdict: v, known: true} }
	switch {
	case d == Deleted, d == OldGone && p.DeletionTimestamp != nil:
		return say(waiting("%s", ending(p)))
	case p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodSucceeded:
		return say(done())
	case p.Status.Phase == corev1.PodFailed && owner != nil && owner.Kind == "Job":
		return say(waiting("it failed: %s", podEnd(p)))
	case p.Status.Phase == corev1.PodFailed && strings.HasPrefix(p.Status.Message, rejected):
		return say(rejection(p))
	case p.Status.Phase == corev1.PodFailed, d == Scheduled && p.Spec.NodeName != "":
		return say(done())
	}
	return podTrouble(d, p)
}

// rejected is the prefix of the kubelet's message for a pod that it did not admit.
const rejected = "Pod was rejected: "

// rejection returns the verdict on a rejected pod as a part of its controller, which creates another one. The next pod is
// rejected as well if the node does not support it, and may fit if the node is only full.
func rejection(p *corev1.Pod) Verdict {
	text := events.Reason(p.Status.Reason, strings.TrimPrefix(p.Status.Message, rejected))
	switch p.Status.Reason {
	case "UnsupportedFeature", "SysctlForbidden", "PodOSNotSupported":
		return failed(Likely, "%s", text)
	}
	return waiting("%s", text)
}

// ending returns the reason that the deletion of a pod waits.
func ending(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp == nil:
		return "its deletion has not been requested"
	case len(p.Finalizers) > 0:
		return heldBy(p.Finalizers)
	case p.Spec.NodeName != "" && !podstate.Finished(p):
		return "being deleted, node " + p.Spec.NodeName + " has not stopped it yet"
	}
	return "being deleted"
}

// likelyToFail reports whether the reason of a waiting container is a failure that may recover: the registry may be
// reachable again, a ConfigMap may be created later.
func likelyToFail(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError", "PostStartHookError":
		return true
	}
	return false
}

// lacksForMount reports whether a warning says that a volume cannot be mounted because an object or a key of it does not
// exist, or that a path on the node is not of the type that the pod names. The kubelet tries again until it does.
func lacksForMount(n events.Note) bool {
	if n.Normal != "" || n.Reason != "FailedMount" {
		return false
	}
	of := strings.Contains(n.Message, "configmap ") || strings.Contains(n.Message, "secret ")
	return of && (strings.Contains(n.Message, " not found") || strings.Contains(n.Message, "references non-existent ")) ||
		strings.Contains(n.Message, "hostPath type check failed")
}

// noSuchPort returns a message if a readiness or startup probe of a running container that is not ready names a port that
// the container does not have, so that the container cannot become ready; otherwise "".
func noSuchPort(p *corev1.Pod) string {
	for i, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		containers := p.Spec.InitContainers
		if i == 1 {
			containers = p.Spec.Containers
		}
		for _, s := range statuses {
			at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
			if s.Ready || s.State.Running == nil || at < 0 {
				continue
			}
			c := &containers[at]
			for _, probe := range []struct {
				kind string
				*corev1.Probe
			}{{"startup", c.StartupProbe}, {"readiness", c.ReadinessProbe}} {
				if port := namedPort(probe.Probe); port != "" && !slices.ContainsFunc(c.Ports, func(o corev1.ContainerPort) bool { return o.Name == port }) {
					return fmt.Sprintf("container %s: its %s probe names the port %q, which the container does not have", c.Name, probe.kind, port)
				}
			}
		}
	}
	return ""
}

// namedPort returns the name of the port that a probe asks; empty if it has none or a number.
func namedPort(p *corev1.Probe) string {
	var port intstr.IntOrString
	switch {
	case p == nil:
	case p.HTTPGet != nil:
		port = p.HTTPGet.Port
	case p.TCPSocket != nil:
		port = p.TCPSocket.Port
	}
	if _, err := strconv.Atoi(port.StrVal); err == nil {
		return "" // the kubelet reads a number in quotes
	}
	return port.StrVal
}

// podTrouble returns why a pod that has not ended has not reached the degree. The verdict is Done if there is no problem.
func podTrouble(d Degree, p *corev1.Pod) judged {
	say := func(v Verdict) judged { return judged{Verdict: v, known: true} }
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			j := say(waiting("%s", events.Reason(c.Reason, c.Message)))
			j.claim = strings.Contains(strings.ToLower(c.Message), "claim")
			return j
		}
	}
	starting := ""
	for i, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			if i == 0 && s.State.Running != nil && (s.Started == nil || !*s.Started) && starting == "" {
				starting = "init container " + s.Name + " is running"
			}
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 && starting == "" {
				starting = fmt.Sprintf("container %s exited with code %d%s", s.Name, t.ExitCode, why(t))
			}
			w := s.State.Waiting
			if w == nil {
				continue
			}
			text := "container " + s.Name + ": " + events.Reason(w.Reason, w.Message)
			switch {
			case w.Reason == "InvalidImageName", w.Reason == "ErrImageNeverPull":
				return say(failed(Certain, "%s", text))
			case likelyToFail(w.Reason):
				return say(failed(Likely, "%s", text))
			case w.Reason == "CrashLoopBackOff":
				return say(failed(Likely, "%s%s", text, lastExit(s)))
			}
			if starting == "" {
				starting = events.Reason(w.Reason, w.Message)
			}
		}
	}
	running := p.Status.Phase == corev1.PodRunning
	// The kubelet makes the sandbox of a pod when its volumes are mounted.
	sandbox := podstate.Condition(p, corev1.PodReadyToStartContainers)
	mounting := !running && (sandbox == nil || sandbox.Status != corev1.ConditionTrue)
	vague := func(format string, args ...any) judged {
		return judged{Verdict: waiting(format, args...), vague: true, known: true, mounting: mounting}
	}
	switch {
	case running && (d == Running || podstate.Ready(p) && !d.isOneOf(Finished, Complete)):
		return say(done())
	case running && d.isOneOf(Finished, Complete):
		return say(waiting("running"))
	case running && noSuchPort(p) != "":
		return say(failed(Likely, "%s", noSuchPort(p)))
	case running:
		var text strings.Builder
		text.WriteString("running, not ready")
		if c := podstate.Condition(p, corev1.PodReady); c != nil && c.Message != "" {
			text.WriteString(": " + events.Line(c.Message))
		}
		if starting != "" {
			text.WriteString("; " + starting)
		}
		return vague("%s", text.String())
	case starting != "":
		return vague("%s", starting)
	case p.Spec.NodeName == "" && p.Spec.SchedulerName != "" && p.Spec.SchedulerName != corev1.DefaultSchedulerName:
		// Every scheduler binds a pod or writes a condition PodScheduled.
		return vague("not yet on a node: spec.schedulerName is %q, and no scheduler of that name has decided about it yet", p.Spec.SchedulerName)
	case p.Spec.NodeName == "":
		return vague("not yet on a node: no scheduler has decided about it yet")
	}
	return vague("starting on node %s", p.Spec.NodeName)
}

// tallyOf returns the counts of one pod.
func tallyOf(p *corev1.Pod) (t tally) {
	switch {
	case p.DeletionTimestamp != nil:
		t.ending = 1
		return t
	case podstate.Finished(p):
		t.ended = 1
		return t
	}
	t.live = 1
	if p.Spec.NodeName != "" {
		t.scheduled = 1
	}
	if p.Status.Phase == corev1.PodRunning {
		t.running = 1
		if podstate.Ready(p) {
			t.ready = 1
		}
	}
	return t
}

// restartsOf returns the number of restarts of a pod's containers.
func restartsOf(p *corev1.Pod) (n int32) {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			n += s.RestartCount
		}
	}
	return n
}

// podEnd returns how a failed pod ended: the reason in its status, or the first exit code of a container that is not 0.
func podEnd(p *corev1.Pod) string {
	if s := events.Reason(p.Status.Reason, p.Status.Message); s != "" {
		return s
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
				return fmt.Sprintf("container %s exited with code %d", s.Name, t.ExitCode) + why(t)
			}
		}
	}
	return "its status has no reason"
}

func lastExit(s corev1.ContainerStatus) string {
	t := s.LastTerminationState.Terminated
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" (it exited with code %d%s)", t.ExitCode, why(t))
}

func why(t *corev1.ContainerStateTerminated) string {
	if t.Reason == "" || t.Reason == "Error" {
		return ""
	}
	return ", " + t.Reason
}
