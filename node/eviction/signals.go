package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/internal/quantity"
	"github.com/sampan-io/sampan/internal/sorting"
)

// A Signal is a value whose fall below a threshold ends pods.
type Signal string

// The signals.
const (
	MemoryAvailable  Signal = "memory.available"
	NodeFsAvailable  Signal = "nodefs.available"
	NodeFsInodes     Signal = "nodefs.inodesFree"
	ImageFsAvailable Signal = "imagefs.available"
	ImageFsInodes    Signal = "imagefs.inodesFree"
	PIDAvailable     Signal = "pid.available"
)

// Resources that pods do not request, by the names that events give them.
const (
	inodes corev1.ResourceName = "inodes"
	pids   corev1.ResourceName = "pids"
)

// resourceOf returns what a node lacks, and the condition that says so. The condition of an unknown signal is empty.
func (s Signal) resourceOf() (corev1.ResourceName, corev1.NodeConditionType) {
	switch s {
	case MemoryAvailable:
		return corev1.ResourceMemory, corev1.NodeMemoryPressure
	case NodeFsAvailable, ImageFsAvailable:
		return corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure
	case NodeFsInodes, ImageFsInodes:
		return inodes, corev1.NodeDiskPressure
	case PIDAvailable:
		return pids, corev1.NodePIDPressure
	}
	return "", ""
}

// A Threshold is the least value of a signal that a node is content with.
type Threshold struct {
	Signal  Signal
	Value   int64   // in the unit of the signal: bytes, inodes or processes
	Percent float64 // of the capacity, in place of Value, if it is not 0
	Text    string  // Value as messages show it; empty with Percent

	// Soft thresholds end pods when the signal has been below them for the time Grace, and give the pods time to end.
	Soft  bool
	Grace time.Duration
	// Reclaim is by how much the signal has to be above the threshold before that is met again, once pods were ended for it: a
	// threshold of which only Value and Percent count; nil means nothing.
	Reclaim *Threshold
}

// least returns the threshold for a capacity.
func (t Threshold) least(capacity int64) int64 {
	if t.Percent != 0 {
		return int64(float64(capacity) * t.Percent / 100)
	}
	return t.Value
}

// Settings are the fields of a KubeletConfiguration about thresholds: quantities, percentages or durations by signal.
type Settings struct{ Hard, Soft, SoftGracePeriod, MinimumReclaim map[string]string }

// Parse reads thresholds. The result is sorted by signal, memory first, and the hard ones before the soft ones.
func Parse(s Settings) ([]Threshold, error) {
	hard, err := parse("evictionHard", s.Hard)
	if err != nil {
		return nil, err
	}
	soft, err := parse("evictionSoft", s.Soft)
	if err != nil {
		return nil, err
	}
	least, err := parse("evictionMinimumReclaim", s.MinimumReclaim)
	if err != nil {
		return nil, err
	}
	for i := range soft {
		name := string(soft[i].Signal)
		soft[i].Soft = true
		if soft[i].Grace, err = time.ParseDuration(s.SoftGracePeriod[name]); err != nil || soft[i].Grace < 0 {
			return nil, fmt.Errorf("evictionSoftGracePeriod[%s]: must be a duration >= 0s, got %q", name, s.SoftGracePeriod[name])
		}
	}
	list := slices.Concat(hard, soft)
	for i := range list {
		if j := slices.IndexFunc(least, func(t Threshold) bool { return t.Signal == list[i].Signal }); j >= 0 {
			list[i].Reclaim = &least[j]
		}
	}
	sorting.Stable(list, bySignal)
	return list, nil
}

// parse reads the thresholds of one field.
func parse(field string, values map[string]string) ([]Threshold, error) {
	var list []Threshold
	for name, text := range values {
		t := Threshold{Signal: Signal(name)}
		if _, condition := t.Signal.resourceOf(); condition == "" {
			return nil, fmt.Errorf("%s[%s]: unknown signal", field, name)
		}
		if percent, is := strings.CutSuffix(text, "%"); is {
			p, err := strconv.ParseFloat(percent, 64)
			if err != nil || !(p >= 0 && p <= 100) {
				return nil, fmt.Errorf("%s[%s]: must be a percentage from 0%% to 100%%, got %q", field, name, text)
			}
			t.Percent = p
		} else {
			q, err := quantity.Parse(text)
			if err != nil || q.Sign() < 0 {
				return nil, fmt.Errorf("%s[%s]: must be a quantity >= 0 or a percentage, got %q", field, name, text)
			}
			t.Value, t.Text = q.Value(), q.String()
		}
		if t.Percent != 0 || t.Value != 0 {
			list = append(list, t)
		}
	}
	sorting.Slice(list, bySignal)
	return list, nil
}

// bySignal is the order in which thresholds are looked at.
func bySignal(a, b Threshold) int {
	if (a.Signal == MemoryAvailable) != (b.Signal == MemoryAvailable) {
		if a.Signal == MemoryAvailable {
			return -1
		}
		return 1
	}
	return strings.Compare(string(a.Signal), string(b.Signal))
}

// An Observation is the value of a signal.
type Observation struct{ Available, Capacity int64 }

// A Shortage is a signal that is below its threshold.
type Shortage struct {
	Signal   Signal
	Resource corev1.ResourceName // what the node lacks
	Least    int64
	Text     string // Least as messages show it; empty means in multiples of 1,024
	Soft     bool   // pods get time to end
	Observation
}

// Numbers returns the threshold and what is available, in the formats of upstream's kubelet: a threshold that is a quantity as it was
// given, a percentage as a multiple of 1,024, and available inodes and processes as multiples of 1,000.
func (s Shortage) Numbers() (threshold, available string) {
	format := resource.BinarySI
	if s.Resource == inodes || s.Resource == pids {
		format = resource.DecimalSI
	}
	return cmp.Or(s.Text, binary(s.Least)), resource.NewQuantity(s.Available, format).String()
}

// OfDisk reports whether the node lacks space or inodes of its disk.
func (s Shortage) OfDisk() bool {
	_, condition := s.Signal.resourceOf()
	return condition == corev1.NodeDiskPressure
}

// A Monitor compares observations with thresholds. Its methods are not safe for concurrent use.
type Monitor struct {
	Thresholds []Threshold
	// Transition is how long a condition holds after its last cause.
	Transition time.Duration

	last  map[corev1.NodeConditionType]time.Time // when a condition last had a cause
	since map[int]time.Time                      // since when a threshold is met, by its index
	acted map[int]bool                           // thresholds that were reported as shortages, and are still met
	met   []Shortage                             // see Met
}

// Met returns the thresholds that were met at the last [Monitor.Observe], with soft ones whose time is not over.
func (m *Monitor) Met() []Shortage { return m.met }

// Observe returns the shortages that there are now, the most urgent first, and the conditions of the node that hold, sorted.
// A soft threshold is a cause of its condition at once, and a shortage when its time is over. Signals without observation, and those
// whose capacity is not known (0), cause nothing.
func (m *Monitor) Observe(values map[Signal]Observation, now time.Time) ([]Shortage, []corev1.NodeConditionType) {
	if m.last == nil {
		m.last, m.since, m.acted = map[corev1.NodeConditionType]time.Time{}, map[int]time.Time{}, map[int]bool{}
	}
	m.met = nil
	var short []Shortage
	for i, t := range m.Thresholds {
		o, known := values[t.Signal]
		least := t.least(o.Capacity)
		enough := least
		if m.acted[i] && t.Reclaim != nil {
			enough += t.Reclaim.least(o.Capacity)
		}
		if !known || o.Capacity <= 0 || o.Available >= enough {
			delete(m.since, i)
			delete(m.acted, i)
			continue
		}
		lacks, condition := t.Signal.resourceOf()
		m.last[condition] = now
		if _, met := m.since[i]; !met {
			m.since[i] = now
		}
		s := Shortage{Signal: t.Signal, Resource: lacks, Least: least, Text: t.Text, Soft: t.Soft, Observation: o}
		m.met = append(m.met, s)
		if now.Sub(m.since[i]) < t.Grace {
			continue
		}
		m.acted[i] = true
		short = append(short, s)
	}
	var conditions []corev1.NodeConditionType
	for c, at := range m.last {
		if now.Sub(at) < m.Transition {
			conditions = append(conditions, c)
		}
	}
	slices.Sort(conditions)
	return short, conditions
}
