package simulation

import (
	"iter"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/nodefeature"
)

// A Plan is a set of simulated nodes and of lives for their pods. It is immutable.
type Plan struct {
	seed   int64
	groups []group
	rules  []rule
}

type group struct {
	name                  string
	count                 int
	capacity, allocatable corev1.ResourceList
	labels, annotations   map[string]string
	taints                []corev1.Taint
	unschedulable         bool
	region                string
	zones                 []string
	images                []corev1.ContainerImage
}

type rule struct {
	selector           labels.Selector
	namespaces         []string
	probability        float64
	start, ready, stop span
	run                *span // nil: for ever
	exitCode           int32
	pullError          string
	neverReady         bool
	usage              Usage
}

// A span is a range of durations.
type span struct{ from, to time.Duration }

// at returns the duration that is a fraction of 0 to 1 up the range.
func (s span) at(fraction float64) time.Duration {
	return s.from + time.Duration(fraction*float64(s.to-s.from))
}

// defaultCapacity is what a node has that says nothing of it: a big machine, on which
// the number of pods is the first limit.
func defaultCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
}

// Uniform returns a plan of equal nodes, called after prefix: prefix-0, prefix-1, … Pods
// run at once and for ever.
func Uniform(prefix string, count int) *Plan {
	return &Plan{groups: []group{{name: prefix + "-" + Number, count: count, capacity: defaultCapacity()}}}
}

// Len returns the number of nodes.
func (p *Plan) Len() int {
	n := 0
	for i := range p.groups {
		n += p.groups[i].count
	}
	return n
}

// Names yields the nodes' numbers among all of the plan, from 0, and their names.
func (p *Plan) Names() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		all := 0
		for i := range p.groups {
			for n := range p.groups[i].count {
				if !yield(all, p.groups[i].nodeName(n)) {
					return
				}
				all++
			}
		}
	}
}

// Node returns the object of the node with a number among all of the plan. It has no
// conditions, and no address. Its lists and maps may be shared with other nodes of its
// group: they must not be changed.
func (p *Plan) Node(number int) *corev1.Node {
	for i := range p.groups {
		if g := &p.groups[i]; number < g.count {
			return g.node(number)
		}
		number -= p.groups[i].count
	}
	return nil
}

// Holds reports whether an image lies on the node with a number.
func (p *Plan) Holds(number int, image string) bool {
	for i := range p.groups {
		if g := &p.groups[i]; number < g.count {
			return slices.ContainsFunc(g.images, func(i corev1.ContainerImage) bool { return slices.Contains(i.Names, image) })
		}
		number -= p.groups[i].count
	}
	return false
}

func (g *group) node(n int) *corev1.Node {
	name := g.nodeName(n)
	l := map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
	}
	if g.region != "" {
		l[corev1.LabelTopologyRegion] = g.region
	}
	if len(g.zones) > 0 {
		l[corev1.LabelTopologyZone] = g.zones[n%len(g.zones)]
	}
	maps.Copy(l, g.labels)
	allocatable := g.capacity
	if len(g.allocatable) > 0 {
		allocatable = maps.Clone(g.capacity)
		maps.Copy(allocatable, g.allocatable)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l, Annotations: g.annotations},
		Spec:       corev1.NodeSpec{Taints: g.taints, Unschedulable: g.unschedulable},
		Status: corev1.NodeStatus{
			Capacity: g.capacity, Allocatable: allocatable, Images: g.images, DeclaredFeatures: nodefeature.Declared(false),
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: runtime.GOARCH, ContainerRuntimeVersion: RuntimeName + "://1.0.0",
				MachineID: name, SystemUUID: name, BootID: name, KernelVersion: "simulated", OSImage: "simulated",
			},
		},
	}
}

// RuntimeName is the name of the container runtime of simulated nodes.
const RuntimeName = "simulated"

// Simulated reports whether a node is simulated, by what it says of its runtime.
func Simulated(node *corev1.Node) bool {
	v := node.Status.NodeInfo.ContainerRuntimeVersion
	return len(v) > len(RuntimeName) && v[:len(RuntimeName)] == RuntimeName && v[len(RuntimeName)] == ':'
}

// The annotation on a node that makes a simulated one fail, and the only value that it
// can have: the node is cut off, so that it neither sends nor receives anything.
// Its pods go on running.
const (
	FailureAnnotation = names.SimulatedFailure
	Cut               = "cut"
)

// IsCut reports whether a node is to be cut off.
func IsCut(node *corev1.Node) bool { return node.Annotations[FailureAnnotation] == Cut }

// The annotations on a pod that set its behaviour.
const (
	RunSecondsAnnotation = names.SimulatedRunSeconds
	ExitCodeAnnotation   = names.SimulatedExitCode
	PullErrorAnnotation  = names.SimulatedPullError
	UnreadyAnnotation    = names.SimulatedUnready
	CPUAnnotation        = names.SimulatedCPU
	MemoryAnnotation     = names.SimulatedMemory
)

// A Life is how one pod lives on its simulated node. The zero Life runs at once and for
// ever.
type Life struct {
	StartDelay time.Duration // from being bound to running
	ReadyDelay time.Duration // from running to ready
	NeverReady bool
	Ends       bool          // by itself, after
	Run        time.Duration // from its start, and
	ExitCode   int32
	StopDelay  time.Duration // from the signal to the end
	PullError  string        // why its images can't be pulled; empty: they can
	Usage      Usage         // of each of its containers while it runs
}

// Life returns how a pod lives.
func (p *Plan) Life(pod *corev1.Pod) Life {
	var l Life
	for i := range p.rules {
		if r := &p.rules[i]; r.holds(pod) {
			d := p.dice(i, pod)
			if d.next() >= r.probability {
				continue
			}
			l = Life{
				StartDelay: r.start.at(d.next()), ReadyDelay: r.ready.at(d.next()), StopDelay: r.stop.at(d.next()),
				NeverReady: r.neverReady, ExitCode: r.exitCode, PullError: r.pullError, Usage: r.usage,
			}
			if r.run != nil {
				l.Ends, l.Run = true, r.run.at(d.next())
			}
			break
		}
	}
	return l.annotated(pod.Annotations)
}

func (r *rule) holds(pod *corev1.Pod) bool {
	return (len(r.namespaces) == 0 || slices.Contains(r.namespaces, pod.Namespace)) && r.selector.Matches(labels.Set(pod.Labels))
}

// annotated returns the life after what the pod's own annotations say. A number that
// is none is not looked at.
func (l Life) annotated(a map[string]string) Life {
	if s, err := strconv.ParseFloat(a[RunSecondsAnnotation], 64); err == nil && s >= 0 {
		l.Ends, l.Run, l.ExitCode = true, time.Duration(s*float64(time.Second)), 0
		if code, err := strconv.ParseInt(a[ExitCodeAnnotation], 10, 32); err == nil {
			l.ExitCode = int32(code)
		}
	}
	if why := a[PullErrorAnnotation]; why != "" {
		l.PullError = why
	}
	if a[UnreadyAnnotation] != "" {
		l.NeverReady = true
	}
	if u, err := l.Usage.annotated(a); err == nil {
		l.Usage = u
	}
	return l
}

// dice are drawn for one pod under one rule.
type dice uint64

func (p *Plan) dice(rule int, pod *corev1.Pod) dice {
	// FNV-1a, whose results mean the same on every machine.
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	mix := func(b byte) { h = (h ^ uint64(b)) * prime }
	for shift := 0; shift < 64; shift += 8 {
		mix(byte(p.seed >> shift))
		mix(byte(rule >> shift))
	}
	for _, text := range []string{pod.Namespace, "/", pod.Name} {
		for i := range len(text) {
			mix(text[i])
		}
	}
	return dice(h)
}

// next returns a number of 0 to 1, without 1 itself.
func (d *dice) next() float64 {
	// SplitMix64: neighbours in become strangers out.
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return float64(z>>11) / (1 << 53)
}
