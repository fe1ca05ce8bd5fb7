package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/proxy"
)

// Explain makes a trace. The error is a [NotFoundError] if the Service does not have the target.
func Explain(w World) (*Trace, error) {
	svc := w.Service
	t := &Trace{
		APIVersion: APIVersion, Kind: "ServiceTrace", Namespace: svc.Namespace, Name: svc.Name, Type: cmp.Or(svc.Spec.Type, corev1.ServiceTypeClusterIP),
		Client: w.Client, Node: w.Here.Node, Paths: []PathTrace{},
	}
	plan := proxy.NewPlan(svc, w.Slices, w.Here)
	paths, also, err := Paths(svc, &plan, w.Here, w.Target)
	if err != nil {
		return nil, err
	}
	t.AlsoAt = also
	for _, o := range w.Others {
		t.Notes = append(t.Notes, fmt.Sprintf("Service %s/%s wants the same address and does not get it: it is younger", o.Namespace, o.Name))
	}
	for _, f := range plan.Faults {
		t.Hints = append(t.Hints, f.Message)
	}
	refused := refusedOf(svc, &plan)
	for _, a := range refused {
		t.Hints = append(t.Hints, fmt.Sprintf("no traffic is sent to or from %s: %s", a, whyRefused))
	}
	t.Hints = append(t.Hints, w.selection()...)
	if w.NoPods != "" {
		t.Notes = append(t.Notes, "pods are not known: "+w.NoPods)
	}
	if w.Unseen != "" {
		t.Notes = append(t.Notes, "what the node has and what answers is not known: "+w.Unseen)
	} else if w.Report != nil && !w.Report.Known && len(paths) > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("the proxy of node %s does not know the Service yet", w.Report.Node))
	}
	if w.Elsewhere != "" && w.Report != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("the address is that of node %s, and the client is on node %s: it was tried from node %s itself", w.Elsewhere, w.Client.Node, w.Elsewhere))
	}
	for i := range paths {
		t.Paths = append(t.Paths, w.path(&plan, &paths[i]))
		for _, e := range t.Paths[i].Endpoints {
			if e.Candidate {
				t.candidates++
			}
		}
	}
	t.judge(&w, len(plan.Rules), refused)
	return t, nil
}

// whyRefused is why an address of a Service or an endpoint is refused.
const whyRefused = "the address is refused: it is loopback, link-local, multicast, of another family or in the service network"

// refusedOf returns the refused addresses of a Service, without those of its endpoints.
func refusedOf(svc *corev1.Service, plan *proxy.Plan) []string {
	all := slices.Concat(svc.Spec.ClusterIPs, svc.Spec.ExternalIPs)
	for _, in := range svc.Status.LoadBalancer.Ingress {
		all = append(all, in.IP)
	}
	return slices.DeleteFunc(slices.Clone(plan.Refused), func(a string) bool { return !slices.Contains(all, a) })
}

// SlicesOf returns the slices that a path is about: those of a headless Service have a label for
// proxies to ignore them.
func SlicesOf(p *Path, all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	if p.Kind != Headless {
		return all
	}
	bare := make([]*discoveryv1.EndpointSlice, len(all))
	for i, s := range all {
		c := *s
		c.Labels = nil
		bare[i] = &c
	}
	return bare
}

// inside reports whether the client is inside for the rules of a node.
func inside(c *Client, here proxy.Here) bool { return c.Node == here.Node }

func (w *World) path(plan *proxy.Plan, p *Path) PathTrace {
	r := &p.Rule
	pt := PathTrace{Kind: p.Kind, Port: portName(p.Port), Protocol: protocolOf(p.Port), Endpoints: []EndpointTrace{}}
	in := inside(&w.Client, w.Here)
	seen := w.Report.Of(p)
	if p.Kind != Headless {
		pt.Address = portAt(r.Address, int32(r.Port), r.Protocol)
		if p.At.IsValid() {
			pt.Address = p.String()
		}
		if pt.Mode = "kernel"; r.Relayed {
			pt.Mode = "userspace"
		}
		pool := poolOf(plan, r.Pool)
		pt.Differs = w.differences(r, seen, in)
		pt.Dropped = w.dropped(r)
		pt.Policy = w.policy(p, in)
		pt.SeenAs = w.seenAs(r, pool, in)
		pt.Affinity = affinityOf(r, pool, seen)
	}
	for _, j := range proxy.JudgeEndpoints(w.Service, SlicesOf(p, w.Slices), w.Here, r, in) {
		if j.Status != proxy.OfAnotherFamily {
			pt.Endpoints = append(pt.Endpoints, w.endpoint(p, j, seen))
		}
	}
	sorting.Stable(pt.Endpoints, func(a, b EndpointTrace) int {
		if a.Candidate != b.Candidate {
			return map[bool]int{true: -1, false: 1}[a.Candidate]
		}
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.Address, b.Address))
	})
	if seen != nil {
		pt.Answer = seen.Frontend
	}
	pt.Cause = w.cause(p, &pt)
	return pt
}

func poolOf(plan *proxy.Plan, id proxy.PoolID) *proxy.Pool {
	for i := range plan.Pools {
		if plan.Pools[i].PoolID == id {
			return &plan.Pools[i]
		}
	}
	return nil
}

// differences describes how the node's state differs from the plan (trace-T2).
func (w *World) differences(r *proxy.PlannedRule, seen *FrontendSeen, in bool) (all []string) {
	if seen == nil {
		return nil
	}
	all = append(all, seen.Faults...)
	node := w.Report.Node
	differ := func(whose string, want, has []netip.AddrPort) {
		if lacks := without(want, has); len(lacks) > 0 {
			all = append(all, fmt.Sprintf("%s of node %s lacks %s, which is planned", whose, node, some(lacks)))
		}
		if more := without(has, want); len(more) > 0 {
			all = append(all, fmt.Sprintf("%s of node %s leads to %s, which is not planned", whose, node, some(more)))
		}
	}
	if k := seen.Kernel; k != nil {
		switch {
		case !k.Found:
			all = append(all, fmt.Sprintf("the kernel of node %s has no rule for it", node))
		case r.Relayed:
			if len(r.Backends) > 0 && len(k.Backends) != 1 {
				all = append(all, fmt.Sprintf("the kernel of node %s leads to %s and not to the socket of the forwarder", node, some(k.Backends)))
			}
		default:
			differ("the kernel", r.Backends, k.Backends)
			if r.Inside != nil {
				differ("the kernel, for clients inside,", r.Inside, k.Inside)
			}
		}
	}
	behind := r.Backends
	if in && r.Inside != nil {
		behind = r.Inside
	}
	switch {
	case r.Relayed && seen.Pool != nil:
		differ("the forwarder", behind, seen.Pool.Backends)
	case r.Relayed && len(behind) > 0 && seen.Kernel != nil:
		all = append(all, fmt.Sprintf("the forwarder of node %s has no socket for it", node))
	}
	return all
}

// without returns the elements of all that are not in others.
func without(all, others []netip.AddrPort) (left []netip.AddrPort) {
	for _, a := range all {
		if !slices.Contains(others, a) {
			left = append(left, a)
		}
	}
	return left
}

// few is how many elements of a long list are shown.
const few = 3

func some[T fmt.Stringer](all []T) string {
	var texts []string
	for _, a := range all[:min(few, len(all))] {
		texts = append(texts, a.String())
	}
	s := strings.Join(texts, ", ")
	if n := len(all) - few; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	if s == "" {
		return "nothing"
	}
	return s
}

// dropped describes why the client may not connect.
func (w *World) dropped(r *proxy.PlannedRule) string {
	if len(r.Sources) == 0 {
		return ""
	}
	as := w.Client.Addresses
	if !w.Client.pod() {
		as = append(slices.Clone(w.Here.Addresses), r.Address)
	}
	var mine []netip.Addr
	for _, a := range as {
		if slices.ContainsFunc(r.Sources, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return ""
		}
		if a.Is6() == r.Address.Is6() && a != r.Address {
			mine = append(mine, a)
		}
	}
	var nets []string
	for _, p := range w.Service.Spec.LoadBalancerSourceRanges {
		nets = append(nets, strings.TrimSpace(p))
	}
	return fmt.Sprintf("the client's address %s is in none of the networks that loadBalancerSourceRanges lets in (%s)", some(mine), strings.Join(nets, ", "))
}

// policy describes which endpoints an address uses.
func (w *World) policy(p *Path, in bool) string {
	name := "externalTrafficPolicy"
	if p.Kind == ClusterIP {
		name = "internalTrafficPolicy"
	}
	switch {
	case !p.Rule.Pool.Local:
		return ""
	case in && p.Rule.Inside != nil:
		return name + " is Local, which is not about clients inside: those of all nodes"
	}
	return fmt.Sprintf("%s is Local: only those of node %s", name, w.Here.Node)
}

// seenAs describes whose address servers see.
func (w *World) seenAs(r *proxy.PlannedRule, pool *proxy.Pool, in bool) string {
	node := "the address of node " + w.Here.Node
	if r.Relayed {
		s := node
		if pool != nil && pool.Transparent {
			s = "the client's address (where the pod is of this node)"
		}
		if pool != nil && pool.ProxyProtocol > 0 {
			s += fmt.Sprintf("; the client's address is in a header of the PROXY protocol, version %d", pool.ProxyProtocol)
		}
		return s
	}
	m := r.Masquerade
	if in && r.Inside != nil {
		m = proxy.MasqueradeForeign
	}
	switch {
	case !w.Client.pod() && in:
		return node
	case m == proxy.MasqueradeEverybody, m == proxy.MasqueradeForeign && !w.Client.pod():
		return node
	case w.alone(r):
		return node + ", because the pod reaches itself"
	}
	return "the client's address"
}

// alone reports whether the client itself is the only backend.
func (w *World) alone(r *proxy.PlannedRule) bool {
	return w.Client.pod() && len(r.Backends) == 1 && slices.Contains(w.Client.Addresses, r.Backends[0].Addr())
}

func affinityOf(r *proxy.PlannedRule, pool *proxy.Pool, seen *FrontendSeen) *Affinity {
	d := r.Affinity
	if pool != nil {
		d = pool.Affinity
	}
	if d == 0 {
		return nil
	}
	a := &Affinity{Seconds: int64(d / time.Second)}
	var bound netip.AddrPort
	var left time.Duration
	switch {
	case seen == nil:
	case seen.Pool != nil:
		bound, left = seen.Pool.Bound, seen.Pool.Left
	case seen.Kernel != nil && !r.Relayed:
		bound, left = seen.Kernel.Bound, seen.Kernel.Left
	}
	if bound.IsValid() {
		a.Bound, a.Left = bound.String(), int64(left/time.Second)
	}
	return a
}

// judge sets the message, the verdict and the hints of a trace.
func (t *Trace) judge(w *World, rules int, refused []string) {
	name := t.Namespace + "/" + t.Name
	svc := w.Service
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		t.Message = fmt.Sprintf("%s is another name for %s: nothing is proxied", name, svc.Spec.ExternalName)
		return
	case len(t.Paths) == 0 && svc.Labels["service.kubernetes.io/service-proxy-name"] != "":
		t.Message = fmt.Sprintf("%s is left to the proxy %q, by its label service.kubernetes.io/service-proxy-name", name, svc.Labels["service.kubernetes.io/service-proxy-name"])
		return
	case len(t.Paths) == 0 && len(svc.Spec.Ports) == 0:
		t.Message, t.Answers = fmt.Sprintf("%s has no ports: nothing leads there", name), new(false)
		return
	case len(t.Paths) == 0 && rules == 0:
		t.Message, t.Answers = fmt.Sprintf("%s has no usable address (yet): nothing leads there", name), new(false)
		return
	case len(t.Paths) == 0 && w.Target.Address.IsLoopback():
		t.Message, t.Answers = fmt.Sprintf("nothing answers at %s of %s: node ports are at the addresses of nodes, and of loopback at most at 127.0.0.1 and ::1", w.Target, name), new(false)
		return
	case len(t.Paths) == 0 && slices.Contains(refused, w.Target.Address.String()):
		t.Message, t.Answers = fmt.Sprintf("nothing answers at %s of %s: %s", w.Target, name, whyRefused), new(false)
		t.Hints = nil
		return
	case len(t.Paths) == 0:
		t.Message, t.Answers = fmt.Sprintf("%s has no rule for %s on node %s", name, w.Target, t.Node), new(false)
		return
	}
	var good, bad, unknown []*PathTrace
	for i := range t.Paths {
		p := &t.Paths[i]
		switch ok, known := p.answers(); {
		case !known:
			unknown = append(unknown, p)
		case ok:
			good = append(good, p)
		default:
			bad = append(bad, p)
		}
	}
	switch {
	case len(good) > 0 && len(bad) > 0:
		t.Message = fmt.Sprintf("%s answers at %s, but not at %s: %s", name, names(good), names(bad), bad[0].Cause)
		t.Answers = new(true)
	case len(good) > 0:
		t.Message, t.Answers = fmt.Sprintf("%s answers at %s%s", name, names(good), good[0].except()), new(true)
	case len(unknown) > 0:
		t.Message = fmt.Sprintf("%s leads from %s to %s; what answers is not known", name, names(unknown), counted(unknown[0].chosen(), "endpoint"))
		if len(bad) > 0 {
			t.Message += fmt.Sprintf(", but that nothing does at %s: %s", names(bad), bad[0].Cause)
		}
	default:
		t.Message, t.Answers = fmt.Sprintf("nothing answers at %s of %s: %s", names(bad), name, bad[0].Cause), new(false)
	}
}

// answers reports whether something answers, if that is known.
func (p *PathTrace) answers() (ok, known bool) {
	tried, some := 0, false
	for i := range p.Endpoints {
		if a := p.Endpoints[i].Answer; a != nil {
			tried++
			some = some || a.OK()
		}
	}
	switch {
	case p.Answer != nil:
		// A forwarder accepts connections before it has found a backend that answers.
		return p.Answer.OK() && (p.Mode != "userspace" || some || tried == 0), true
	case p.Dropped != "", p.chosen() == 0:
		return false, true
	case p.Kind == Headless && tried > 0:
		return some, true
	}
	return false, false
}

func (p *PathTrace) chosen() (n int) {
	for i := range p.Endpoints {
		if p.Endpoints[i].Candidate {
			n++
		}
	}
	return n
}

// except describes which candidates do not answer although others do.
func (p *PathTrace) except() string {
	if len(p.Differs) > 0 {
		return ", but " + p.Differs[0]
	}
	silent := 0
	var first *EndpointTrace
	for i := range p.Endpoints {
		if e := &p.Endpoints[i]; e.Candidate && e.Answer != nil && !e.Answer.OK() {
			if silent++; first == nil {
				first = e
			}
		}
	}
	if silent == 0 {
		return ""
	}
	return fmt.Sprintf(", but %d of %s does not: %s", silent, counted(p.chosen(), "candidate"), first.Why)
}

func names(ps []*PathTrace) string {
	var texts []string
	for _, p := range ps[:min(few, len(ps))] {
		texts = append(texts, p.title())
	}
	s := strings.Join(texts, ", ")
	if n := len(ps) - few; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

func (p *PathTrace) title() string {
	if p.Address == "" {
		return "port " + p.Port
	}
	return p.Address
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
