package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/trace"
)

// A KernelLooker looks up a kernel's state of a frontend (package proxy/nft). It may be called
// from any goroutine.
type KernelLooker interface {
	Lookup(ctx context.Context, d proxy.Frontend, client netip.Addr) (proxy.Seen, error)
}

// A ForwarderLooker looks up a forwarder's state of a pool (package proxy/userspace), if there is
// one. It may be called from any goroutine.
type ForwarderLooker interface {
	Look(id proxy.PoolID, client netip.Addr) (proxy.PoolSeen, bool)
}

// A Pod is the source of connections.
type Pod struct {
	Namespace string // path of its network namespace; "" for one in the network of the node
	Addresses []netip.Addr
}

// Options configures a [Tracer]. Services is required.
type Options struct {
	// Services returns a Service with its slices and the node, as in the proxy's caches.
	Services func(name types.NamespacedName) (svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here proxy.Here, known bool)

	Kernel    KernelLooker    // nil: it is not looked up
	Forwarder ForwarderLooker // nil: there is none

	// Pod finds a running pod of this node. The error is for the user. Nil: there are no pods.
	Pod func(ctx context.Context, name types.NamespacedName) (Pod, error)

	Log *slog.Logger // nil means slog.Default
}

// A Tracer answers questions over HTTP. It is safe for concurrent use.
type Tracer struct {
	opts  Options
	slots chan struct{}
}

const (
	maxQuestions = 4  // at a time
	maxPaths     = 16 // of a question
	maxEndpoints = 16 // of a path
	maxDials     = 16 // at a time
)

// Time limits: for an answer to a TCP SYN, which the kernel repeats after a second; for a UDP
// packet to be refused; and for a forwarder to give up, which tries for 3.75 s.
const (
	dialLimit    = 2500 * time.Millisecond
	refusalLimit = 300 * time.Millisecond
	relayLimit   = 5 * time.Second
)

// New returns a Tracer.
func New(o Options) (*Tracer, error) {
	if o.Services == nil {
		return nil, errors.New("tracer: Options.Services is nil")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Tracer{o, make(chan struct{}, maxQuestions)}, nil
}

// ServeHTTP answers a [trace.Question] with a [trace.NodeReport].
func (t *Tracer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := trace.ParseQuestion(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many traces at the same time, try again later")
		return
	}
	var from *Pod
	if q.From.Name != "" {
		if t.opts.Pod == nil {
			refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "this node has no pods to trace from")
			return
		}
		p, err := t.opts.Pod(r.Context(), q.From)
		if err != nil {
			refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
			return
		}
		from = &p
	}
	s, err := t.see(r.Context(), q, from)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	t.opts.Log.Debug("traced a service", "service", q.Service, "target", q.Target, "from", q.From)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}

// refuse answers with a Status, as API servers do, which pass it on.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Code: code, Message: message,
	})
}

// see looks everything up, and then dials.
func (t *Tracer) see(ctx context.Context, q trace.Question, from *Pod) (*trace.NodeReport, error) {
	svc, all, here, known := t.opts.Services(q.Service)
	s := &trace.NodeReport{Node: here.Node, Here: here, Known: known, Frontends: []trace.FrontendSeen{}}
	if !known {
		return s, nil
	}
	plan := proxy.NewPlan(svc, all, here)
	paths, _, err := trace.Paths(svc, &plan, here, q.Target)
	if err != nil {
		return s, nil // the asker has a different version of the Service, and says what is missing
	}
	if len(paths) > maxPaths {
		return nil, fmt.Errorf("%d addresses and ports match, want at most %d at a time: name a port", len(paths), maxPaths)
	}
	namespace := ""
	if from != nil {
		namespace = from.Namespace
	}
	group := run.NewGroup(ctx, maxDials)
	defer group.Stop()
	d := dialler{namespace: namespace}
	for i := range paths {
		s.Frontends = append(s.Frontends, t.lookAt(ctx, &paths[i], from))
	}
	for i := range paths {
		p, seen := &paths[i], &s.Frontends[i]
		for _, j := range proxy.JudgeEndpoints(svc, trace.SlicesOf(p, all), here, &p.Rule, true) {
			if j.Status.Chosen() && len(seen.Endpoints) < maxEndpoints && !slices.ContainsFunc(seen.Endpoints, func(e trace.EndpointAnswer) bool { return e.At == j.At }) {
				seen.Endpoints = append(seen.Endpoints, trace.EndpointAnswer{At: j.At})
			}
		}
		for n := range seen.Endpoints {
			e := &seen.Endpoints[n]
			group.Go(func(ctx context.Context) { e.Answer = d.dial(ctx, e.At, seen.Protocol) })
		}
	}
	group.Wait()
	for i := range paths {
		if p, seen := &paths[i], &s.Frontends[i]; p.At.IsValid() {
			some := slices.ContainsFunc(seen.Endpoints, func(e trace.EndpointAnswer) bool { return e.Answer.OK() })
			group.Go(func(ctx context.Context) {
				a := d.frontend(ctx, p.At, seen.Protocol, p.Rule.Relayed, some)
				seen.Frontend = &a
			})
		}
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return s, nil
}

// lookAt looks up the node's state of a path.
func (t *Tracer) lookAt(ctx context.Context, p *trace.Path, from *Pod) trace.FrontendSeen {
	id := p.Rule.Pool
	seen := trace.FrontendSeen{Address: p.Rule.Address, Port: p.Rule.Port, PortName: p.Port.Name, Protocol: id.Protocol, IPv6: id.IPv6}
	if p.Kind == trace.Headless {
		return seen
	}
	client := t.clientAddress(p, from)
	if p.Rule.Relayed && t.opts.Forwarder != nil {
		if p.Rule.Inside != nil {
			id.Local = false // as for all clients from here
		}
		if pool, ok := t.opts.Forwarder.Look(id, client); ok {
			seen.Pool = &pool
		}
	}
	if t.opts.Kernel != nil {
		k, err := t.opts.Kernel.Lookup(ctx, p.Rule.Frontend, client)
		if err != nil {
			seen.Faults = append(seen.Faults, fmt.Sprintf("the kernel's rules could not be read: %v", err))
		} else {
			seen.Kernel = &k
		}
	}
	return seen
}

// clientAddress returns the source address of connections to a path: the kernel's choice.
func (t *Tracer) clientAddress(p *trace.Path, from *Pod) netip.Addr {
	if from != nil && from.Namespace != "" {
		for _, a := range from.Addresses {
			if a.Is6() == p.Rule.Address.Is6() {
				return a
			}
		}
		return netip.Addr{}
	}
	return source(p.At)
}
