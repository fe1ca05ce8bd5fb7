package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/proxy"
)

// endpoint returns the status of an endpoint, and why it is not a backend or does not answer.
func (w *World) endpoint(p *Path, j proxy.Judgement, seen *FrontendSeen) EndpointTrace {
	e := EndpointTrace{Status: j.Status, Candidate: j.Status.Chosen(), at: j.At}
	if j.At.IsValid() {
		e.Address = j.At.String()
	} else if len(j.Endpoint.Addresses) > 0 {
		e.Address = j.Endpoint.Addresses[0]
	}
	if j.Endpoint.NodeName != nil {
		e.Node = *j.Endpoint.NodeName
	}
	pod := w.podOf(j)
	if ref := j.Endpoint.TargetRef; ref != nil && ref.Kind == "Pod" {
		e.Pod = ref.Name
	}
	if seen != nil && e.Candidate {
		for i := range seen.Endpoints {
			if seen.Endpoints[i].At == j.At {
				e.Answer = &seen.Endpoints[i].Answer
			}
		}
		e.Suspect = seen.Pool != nil && slices.Contains(seen.Pool.Suspects, j.At)
	}
	switch j.Status {
	case proxy.Candidate:
	case proxy.LastResort:
		e.Why = "it terminates, and no other is ready"
	case proxy.NotReady:
		e.Why = "not ready"
		if v := w.verdict(pod); v != "" {
			e.Why += ": " + v
		}
	case proxy.Terminating:
		e.Why = "it terminates and does not serve any more"
	case proxy.Leaving:
		e.Why = "it terminates, and others are ready"
	case proxy.OnAnotherNode:
		e.Why = fmt.Sprintf("it is not on node %s, and the traffic policy is Local", w.Here.Node)
	case proxy.ForAnotherZone:
		e.Why = "it is for other zones by its hints"
		if zs := zones(j); zs != "" {
			e.Why = fmt.Sprintf("it is for zone %s by its hints, and node %s is in zone %s", zs, w.Here.Node, w.Here.Zone)
		}
	case proxy.ForAnotherNode:
		e.Why = "it is for other nodes by its hints"
	case proxy.AddressRefused:
		e.Why = whyRefused
	case proxy.WithoutPort:
		e.Why = fmt.Sprintf("its slice has no port %q", p.Port.Name)
		if p.Port.TargetPort.Type == intstr.String && p.Port.TargetPort.StrVal != "" {
			e.Why = fmt.Sprintf("its containers have no port of the name %q, which is the targetPort", p.Port.TargetPort.StrVal)
		}
	case proxy.OfAnotherProxy:
		e.Why = "its slice is left to another proxy, by a label"
	case proxy.OfAnotherFamily:
		e.Why = "it is of the other family"
	}
	if a := e.Answer; a != nil && !a.OK() {
		e.Why = why(a, j.At, pod)
	}
	return e
}

func zones(j proxy.Judgement) string {
	if j.Endpoint.Hints == nil {
		return ""
	}
	var zs []string
	for _, z := range j.Endpoint.Hints.ForZones {
		zs = append(zs, z.Name)
	}
	return strings.Join(zs, ", ")
}

// why describes why an endpoint does not answer.
func why(a *Answer, at netip.AddrPort, pod *corev1.Pod) string {
	switch a.Result {
	case Refused:
		s := fmt.Sprintf("refused: nothing listens on port %d", at.Port())
		if pod != nil {
			s += " of the pod"
			if ps := declared(pod); len(ps) > 0 && !slices.Contains(ps, int32(at.Port())) {
				s += fmt.Sprintf(", whose containers say %s", join(ps))
			}
		}
		return s
	case NoRoute:
		return "no route to it" + detail(a)
	case TimedOut:
		return fmt.Sprintf("no answer in %.3gs: it is dropped on the way, perhaps by a NetworkPolicy or a firewall", a.Seconds)
	case Closed:
		return "the connection was closed at once"
	case Failed:
		return "it could not be tried" + detail(a)
	case Answered, Silent:
	}
	return ""
}

func detail(a *Answer) string {
	if a.Error == "" {
		return ""
	}
	return ": " + a.Error
}

// declared returns the ports that the containers of a pod declare.
func declared(pod *corev1.Pod) (ports []int32) {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			ports = append(ports, p.ContainerPort)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func join(ports []int32) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, fmt.Sprint(p))
	}
	return strings.Join(texts, ", ")
}

func (w *World) podOf(j proxy.Judgement) *corev1.Pod {
	ref := j.Endpoint.TargetRef
	if ref == nil || ref.Kind != "Pod" {
		return nil
	}
	for _, p := range w.Pods {
		if p.Name == ref.Name {
			return p
		}
	}
	return nil
}

// verdict describes why a pod is not ready, as waiting for it would.
func (w *World) verdict(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	var warnings []*corev1.Event
	for _, e := range w.Warnings {
		if e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == pod.Name {
			warnings = append(warnings, e)
		}
	}
	v, err := await.Judge(await.Ready, await.View{Object: pod, Warnings: warnings})
	if err != nil || v.State == await.Done {
		return ""
	}
	return v.Cause
}

// cause describes why nothing answers at a path; "" if something does.
func (w *World) cause(p *Path, pt *PathTrace) string {
	if ok, known := pt.answers(); ok || !known {
		return ""
	}
	if len(pt.Differs) > 0 {
		return pt.Differs[0]
	}
	if pt.Dropped != "" {
		return pt.Dropped
	}
	if pt.chosen() == 0 {
		return w.noCandidates(p, pt)
	}
	var silent, ok int
	var reasons []string
	for i := range pt.Endpoints {
		switch e := &pt.Endpoints[i]; {
		case !e.Candidate || e.Answer == nil:
		case e.Answer.OK():
			ok++
		default:
			if silent++; !slices.Contains(reasons, e.Why) {
				reasons = append(reasons, e.Why)
			}
		}
	}
	switch {
	case silent > 0 && ok == 0:
		s := "its only endpoint does not answer"
		if silent > 1 {
			s = fmt.Sprintf("none of its %d endpoints answers", silent)
		}
		return s + ": " + strings.Join(reasons[:min(few, len(reasons))], "; ")
	case ok > 0 && pt.Answer != nil:
		return fmt.Sprintf("its endpoints answer, but the address does not (%s): rules of the proxy or of another program interfere", plain(pt.Answer))
	}
	return plain(pt.Answer)
}

// plain describes the result of dialling an address of a Service.
func plain(a *Answer) string {
	switch a.Result {
	case Refused:
		return "refused"
	case NoRoute:
		return "no route to it" + detail(a)
	case TimedOut:
		return fmt.Sprintf("no answer in %.3gs", a.Seconds)
	case Closed:
		return "the proxy took the connection and closed it"
	case Failed:
		return "it could not be tried" + detail(a)
	case Answered:
		return "answers"
	case Silent:
		return "not refused, which is all that UDP says"
	}
	return ""
}

// noCandidates describes why no endpoint is a backend.
func (w *World) noCandidates(p *Path, pt *PathTrace) string {
	if len(pt.Endpoints) == 0 {
		return w.noEndpoints(p)
	}
	var reasons []string
	count := map[proxy.EndpointStatus]int{}
	for i := range pt.Endpoints {
		e := &pt.Endpoints[i]
		count[e.Status]++
		if !slices.Contains(reasons, e.Why) {
			reasons = append(reasons, e.Why)
		}
	}
	n := len(pt.Endpoints)
	what := fmt.Sprintf("none of its %d endpoints is a candidate", n)
	if n == 1 {
		what = "its only endpoint is not a candidate"
	}
	if count[proxy.NotReady] == n {
		what = strings.Replace(what, "a candidate", "ready", 1)
		what = strings.Replace(what, "no candidate", "not ready", 1)
		for i := range reasons {
			reasons[i] = strings.TrimPrefix(strings.TrimPrefix(reasons[i], "not ready"), ": ")
		}
		reasons = slices.DeleteFunc(reasons, func(s string) bool { return s == "" })
	}
	if len(reasons) == 0 {
		return what
	}
	return what + ": " + strings.Join(reasons[:min(few, len(reasons))], "; ")
}

// noEndpoints describes why a Service has no endpoint of a family.
func (w *World) noEndpoints(p *Path) string {
	others := 0
	for _, s := range w.Slices {
		others += len(s.Endpoints)
	}
	family := "IPv4"
	if p.Rule.Pool.IPv6 {
		family = "IPv6"
	}
	if others > 0 {
		return fmt.Sprintf("it has no endpoint of %s, and %d of the other family", family, others)
	}
	if len(w.Service.Spec.Selector) == 0 {
		return "the Service has no selector, and no EndpointSlice of its name has endpoints"
	}
	selector := labels.SelectorFromSet(w.Service.Spec.Selector)
	if w.NoPods != "" {
		return fmt.Sprintf("it has no endpoints for the selector %s", selector)
	}
	var matched []string
	for _, pod := range w.Pods {
		if selector.Matches(labels.Set(pod.Labels)) {
			v := w.verdict(pod)
			if v == "" {
				v = "it is not an endpoint yet"
			}
			matched = append(matched, fmt.Sprintf("pod %s: %s", pod.Name, v))
		}
	}
	if len(matched) == 0 {
		s := fmt.Sprintf("no pod matches the selector %s", selector)
		if near := w.nearest(); near != "" {
			s += "; the nearest, " + near
		}
		return s
	}
	slices.Sort(matched)
	return fmt.Sprintf("no pod that the selector %s matches has an address: %s", selector, strings.Join(matched[:min(few, len(matched))], "; "))
}

// nearest describes how the pods that differ least from the selector differ; "" if none has any
// label of it.
func (w *World) nearest() string {
	want := w.Service.Spec.Selector
	var names []string
	best, differs := 1<<30, ""
	for _, pod := range w.Pods {
		var wrong []string
		cost := 0
		for key, value := range want {
			switch has, ok := pod.Labels[key]; {
			case ok && has == value:
			case ok:
				cost += 2
				wrong = append(wrong, fmt.Sprintf("%s=%s instead of %s=%s", key, has, key, value))
			default:
				cost += 3
				wrong = append(wrong, fmt.Sprintf("no label %s", key))
				for other, v := range pod.Labels {
					if _, wanted := want[other]; v == value && !wanted {
						wrong[len(wrong)-1] = fmt.Sprintf("%s=%s instead of %s=%s", other, v, key, value)
						cost--
						break
					}
				}
			}
		}
		if cost >= 3*len(want) {
			continue // it has no label of the selector
		}
		slices.Sort(wrong)
		switch text := strings.Join(wrong, " and "); {
		case cost < best:
			best, differs, names = cost, text, []string{pod.Name}
		case cost == best && text == differs:
			names = append(names, pod.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	what := "pod " + names[0] + " has "
	if len(names) > 1 {
		what = fmt.Sprintf("%s (%s), have ", counted(len(names), "pod"), strings.Join(names[:min(few, len(names))], ", "))
	}
	return what + differs
}

// selection returns hints about pods that the selector matches and that have no endpoint, if others
// do.
func (w *World) selection() []string {
	if len(w.Service.Spec.Selector) == 0 || w.NoPods != "" {
		return nil
	}
	known := map[string]bool{}
	for _, s := range w.Slices {
		for i := range s.Endpoints {
			if ref := s.Endpoints[i].TargetRef; ref != nil {
				known[ref.Name] = true
			}
		}
	}
	if len(known) == 0 {
		return nil // that is the cause
	}
	var hints []string
	selector := labels.SelectorFromSet(w.Service.Spec.Selector)
	for _, pod := range w.Pods {
		if selector.Matches(labels.Set(pod.Labels)) && !known[pod.Name] && !podstate.Finished(pod) {
			if v := w.verdict(pod); v != "" {
				hints = append(hints, fmt.Sprintf("pod %s is not an endpoint: %s", pod.Name, v))
			}
		}
	}
	slices.Sort(hints)
	return hints[:min(few, len(hints))]
}
