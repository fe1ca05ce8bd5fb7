package usage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	// shortest is the least time between the two samples of a rate. The kernel accounts for CPU time in steps of up to 10 ms.
	shortest = time.Second

	// fresh is how long a sample is the answer to further reads, so that clients that read often, or several at once, do not
	// make the kubelets measure all the time.
	fresh = 5 * time.Second

	// longest is the most time between the two samples of a rate, and how long samples are kept.
	longest = time.Minute

	// patience bounds how long a node may take for an answer, as in metrics-server.
	patience = 10 * time.Second

	// together is how many nodes are asked at the same time.
	together = 20
)

// A Lookup reads stored objects.
type Lookup interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)
}

// Options configures a [Meter]. Objects and Fetch are required.
type Options struct {
	Objects Lookup // has the nodes

	// Fetch returns the metrics of a node in the text format of Prometheus.
	Fetch func(ctx context.Context, node *corev1.Node) ([]byte, error)

	Log *slog.Logger // nil means slog.Default
}

// A Meter makes metrics of pods and nodes; see the package comment. It is safe for concurrent use.
type Meter struct {
	opts  Options
	slots chan struct{} // has one for each node that is being asked

	mu     sync.Mutex
	nodes  map[string]*samples // guarded by mu; by the UIDs of nodes
	forget *time.Timer         // guarded by mu; nil: nothing is kept
}

// samples are the last two samples of a node.
type samples struct {
	turn chan struct{} // has a token unless a request works with the fields below
	read time.Time     // guarded by Meter.mu; when a client last wanted them

	before, last *sample
	fault        error     // why the last sample could not be taken, or nil
	faultAt      time.Time // when that was
}

// New returns a meter without samples.
func New(opts Options) (*Meter, error) {
	if opts.Objects == nil || opts.Fetch == nil {
		return nil, errors.New("usage: Options needs Objects and Fetch")
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &Meter{opts: opts, slots: make(chan struct{}, together), nodes: map[string]*samples{}}, nil
}

// Nodes returns the metrics of the nodes that can be measured.
func (m *Meter) Nodes(ctx context.Context, from []catalog.Object) ([]catalog.Object, error) {
	var nodes []*corev1.Node
	for _, obj := range from {
		if n, ok := obj.(*corev1.Node); ok {
			nodes = append(nodes, n)
		}
	}
	pairs := m.measure(ctx, nodes, nil)
	var out []catalog.Object
	for _, n := range nodes {
		p, ok := pairs[n.Name]
		if !ok || p.last.node == nil {
			continue
		}
		if u, ok := rate(p.before.node, *p.last.node); ok {
			out = append(out, &metricsv1beta1.NodeMetrics{
				ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: now()},
				Timestamp:  metav1.NewTime(u.at), Window: metav1.Duration{Duration: u.window}, Usage: u.resources(),
			})
		}
	}
	return out, ctx.Err()
}

// Pods returns the metrics of the pods that can be measured.
func (m *Meter) Pods(ctx context.Context, from []catalog.Object) ([]catalog.Object, error) {
	var nodes []*corev1.Node
	wanted := map[string][]podKey{} // by node
	for _, obj := range from {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" || p.Status.Phase != corev1.PodRunning {
			continue
		}
		_, asked := wanted[p.Spec.NodeName]
		if wanted[p.Spec.NodeName] = append(wanted[p.Spec.NodeName], podKey{p.Namespace, p.Name}); asked {
			continue
		}
		if obj, err := m.opts.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", p.Spec.NodeName); err == nil {
			if n, ok := obj.(*corev1.Node); ok {
				nodes = append(nodes, n)
			}
		}
	}
	pairs := m.measure(ctx, nodes, wanted)
	var out []catalog.Object
	for _, obj := range from {
		if p, ok := obj.(*corev1.Pod); ok && p.Status.Phase == corev1.PodRunning {
			if pair, ok := pairs[p.Spec.NodeName]; ok {
				if made := podMetrics(p, pair); made != nil {
					out = append(out, made)
				}
			}
		}
	}
	return out, ctx.Err()
}

// podMetrics returns nil if there is a container of which nothing can be said, or none at all.
func podMetrics(p *corev1.Pod, samples pair) *metricsv1beta1.PodMetrics {
	key := podKey{p.Namespace, p.Name}
	out := &metricsv1beta1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, CreationTimestamp: now()},
	}
	for _, name := range order(p, samples.last.pods[key]) {
		var before *point
		if b, ok := samples.before.pods[key][name]; ok {
			before = &b
		}
		u, ok := rate(before, samples.last.pods[key][name])
		if !ok {
			return nil
		}
		out.Containers = append(out.Containers, metricsv1beta1.ContainerMetrics{Name: name, Usage: u.resources()})
		if out.Timestamp.IsZero() || u.at.Before(out.Timestamp.Time) {
			out.Timestamp = metav1.NewTime(u.at)
		}
		out.Window.Duration = max(out.Window.Duration, u.window)
	}
	if len(out.Containers) == 0 {
		return nil
	}
	return out
}

// order returns the names of the containers in a sample, in the order of the pod.
func order(p *corev1.Pod, sampled map[string]point) (names []string) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			if _, ok := sampled[c.Name]; ok {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// now is the time as metadata keeps it.
func now() metav1.Time { return metav1.NewTime(time.Now().UTC().Truncate(time.Second)) }

// A pair is two samples of a node.
type pair struct{ before, last *sample }

// measure returns two samples of each of the nodes that answer, by their names. Wanted are the pods on them that the caller
// wants to know about.
func (m *Meter) measure(ctx context.Context, nodes []*corev1.Node, wanted map[string][]podKey) map[string]pair {
	var mu sync.Mutex
	pairs := map[string]pair{}
	g := run.NewGroup(ctx, 0) // most of the time they wait
	for _, n := range nodes {
		g.Go(func(ctx context.Context) {
			var p pair
			err := run.Catch(func() (err error) {
				p, err = m.pairOf(ctx, n, wanted[n.Name])
				return err
			})
			if err != nil {
				m.opts.Log.DebugContext(ctx, "the usage of a node could not be read", "node", n.Name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			pairs[n.Name] = p
		})
	}
	g.Wait()
	g.Stop()
	return pairs
}

// pairOf returns two samples of a node that are at least shortest and at most longest apart. A fresh one that lacks one of the
// wanted pods is not good enough.
func (m *Meter) pairOf(ctx context.Context, n *corev1.Node, wanted []podKey) (pair, error) {
	s := m.samplesOf(n)
	select {
	case <-s.turn:
	case <-ctx.Done():
		return pair{}, context.Cause(ctx)
	}
	defer func() { s.turn <- struct{}{} }()
	now := time.Now()
	if s.fault != nil && now.Sub(s.faultAt) < fresh {
		return pair{}, s.fault
	}
	if s.last != nil && now.Sub(s.last.at) > longest {
		s.before, s.last = nil, nil
	}
	if age := fresh; s.before != nil {
		if !s.last.has(wanted) {
			age = shortest
		}
		if now.Sub(s.last.at) < age {
			return pair{s.before, s.last}, nil
		}
	}
	if s.last == nil {
		first, err := m.fetch(ctx, n, s)
		if err != nil {
			return pair{}, err
		}
		s.last = first
	}
	if wait := time.Until(s.last.at.Add(shortest)); wait > 0 && !run.Pause(ctx, wait) {
		return pair{}, context.Cause(ctx)
	}
	next, err := m.fetch(ctx, n, s)
	if err != nil {
		return pair{}, err
	}
	s.before, s.last = s.last, next
	return pair{s.before, s.last}, nil
}

// fetch takes a sample. That a node does not answer is remembered, so that the next readers do not wait for it one after the
// other; that a reader has gone is not.
func (m *Meter) fetch(ctx context.Context, n *corev1.Node, s *samples) (*sample, error) {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-m.slots }()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := m.opts.Fetch(limited, n)
	var taken *sample
	if err == nil {
		taken, err = parse(text, time.Now())
	}
	if s.fault = nil; err != nil && ctx.Err() == nil {
		s.fault, s.faultAt = err, time.Now()
	}
	return taken, err
}

// samplesOf returns the samples of a node, and has them forgotten when no request has read them for longest.
func (m *Meter) samplesOf(n *corev1.Node) *samples {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.nodes[string(n.UID)]
	if s == nil {
		s = &samples{turn: make(chan struct{}, 1)}
		s.turn <- struct{}{}
		m.nodes[string(n.UID)] = s
	}
	s.read = time.Now()
	if m.forget == nil {
		m.forget = time.AfterFunc(longest, m.drop)
	}
	return s
}

// drop forgets samples that no request has read for longest, and comes back if there is more.
func (m *Meter) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next time.Duration
	for uid, s := range m.nodes {
		left := time.Until(s.read.Add(longest))
		if left <= 0 {
			delete(m.nodes, uid)
		} else if next == 0 || left < next {
			next = left
		}
	}
	m.forget = nil
	if next > 0 {
		m.forget = time.AfterFunc(next, m.drop)
	}
}
