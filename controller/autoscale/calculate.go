package autoscale

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/sampan-io/sampan/internal/podresources"
	"github.com/sampan-io/sampan/internal/podstate"
)

// Upstream's defaults of the flags of kube-controller-manager.
const (
	// cpuInitialization is how long after its start the CPU of a pod may be that of its start.
	cpuInitialization = 5 * time.Minute
	// initialReadiness is how long after its start a pod that becomes unready may not have been ready yet.
	initialReadiness = 30 * time.Second
	// defaultTolerance is by what part the usage may differ from the target without a change.
	defaultTolerance = 0.1
)

// A tolerance is by what parts the usage may be below and above the target without a change.
type tolerance struct{ below, above float64 }

func toleranceOf(b *autoscalingv2.HorizontalPodAutoscalerBehavior) tolerance {
	t := tolerance{defaultTolerance, defaultTolerance}
	if b == nil {
		return t
	}
	if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
		t.below = b.ScaleDown.Tolerance.AsApproximateFloat64()
	}
	if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
		t.above = b.ScaleUp.Tolerance.AsApproximateFloat64()
	}
	return t
}

// covers reports whether a ratio of usage to target is no reason for a change.
func (t tolerance) covers(ratio float64) bool { return 1-t.below <= ratio && ratio <= 1+t.above }

// A podMetric is the value of a metric of one pod, in thousandths.
type podMetric struct {
	at     time.Time
	window time.Duration // that value is an average over
	value  int64
}

// A calculation is the question how many replicas a metric of pods asks for.
type calculation struct {
	now       time.Time
	current   int32 // replicas that the target asks for
	tolerance tolerance
	pods      []*corev1.Pod        // that the target selects
	metrics   map[string]podMetric // by the names of pods
	resource  corev1.ResourceName  // empty if the metric is not one of a resource
}

// A goal says how values of pods are compared to the target.
type goal interface {
	// prepare is called before all others, with the pods of the target.
	prepare(pods []*corev1.Pod) error
	// ratio returns the usage of pods with the given values in relation to the target.
	ratio(values map[string]int64) (float64, error)
	// full returns the value to assume for a pod without a metric, so that nothing is scaled down for lack of one.
	full(pod string) int64
}

// ceil returns the next whole number of replicas.
func ceil(f float64) int32 {
	switch f = math.Ceil(f); {
	case f >= math.MaxInt32:
		return math.MaxInt32
	case f > 0:
		return int32(f)
	}
	return 0
}

var (
	errNoPods    = errors.New("no pods returned by selector while calculating replica count")
	errNoMetrics = errors.New("did not receive metrics for targeted pods (pods might be unready)")
)

// replicas returns how many replicas bring the usage to the goal. Pods that are being deleted or have failed do not count.
// Pods that are not ready count when the target is to grow, with no usage: they will take their share. Pods without a metric
// count against the direction: with no usage when the target is to grow and with full usage when it is to shrink.
func (c calculation) replicas(g goal) (int32, error) {
	if len(c.pods) == 0 {
		return 0, errNoPods
	}
	values := map[string]int64{}
	for name, m := range c.metrics {
		values[name] = m.value
	}
	var unready, missing []string
	ready := 0
	for _, p := range c.pods {
		m, measured := c.metrics[p.Name]
		switch {
		case p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodFailed:
			delete(values, p.Name)
		case p.Status.Phase == corev1.PodPending, measured && c.resource == corev1.ResourceCPU && c.starting(p, m):
			delete(values, p.Name)
			unready = append(unready, p.Name)
		case !measured:
			missing = append(missing, p.Name)
		default:
			ready++
		}
	}
	if len(values) == 0 {
		return 0, errNoMetrics
	}
	if err := g.prepare(c.pods); err != nil {
		return 0, err
	}
	ratio, err := g.ratio(values)
	if err != nil {
		return 0, err
	}
	if len(missing) == 0 && (len(unready) == 0 || ratio <= 1) {
		if c.tolerance.covers(ratio) {
			return c.current, nil
		}
		return ceil(ratio * float64(ready)), nil
	}
	for _, name := range missing {
		if ratio < 1 {
			values[name] = g.full(name)
		} else if ratio > 1 {
			values[name] = 0
		}
	}
	if ratio > 1 {
		for _, name := range unready {
			values[name] = 0
		}
	}
	careful, err := g.ratio(values)
	if err != nil {
		return 0, err
	}
	if c.tolerance.covers(careful) || ratio < 1 && careful > 1 || ratio > 1 && careful < 1 {
		return c.current, nil
	}
	n := ceil(careful * float64(len(values)))
	if careful < 1 && n > c.current || careful > 1 && n < c.current {
		return c.current, nil
	}
	return n, nil
}

// starting reports whether the CPU of a pod may be that of its start, which says nothing about later.
func (c calculation) starting(p *corev1.Pod, m podMetric) bool {
	ready := podstate.Condition(p, corev1.PodReady)
	if ready == nil || p.Status.StartTime == nil {
		return true
	}
	start, unready := p.Status.StartTime.Time, ready.Status == corev1.ConditionFalse
	if start.Add(cpuInitialization).After(c.now) {
		return unready || m.at.Before(ready.LastTransitionTime.Add(m.window))
	}
	return unready && start.Add(initialReadiness).After(ready.LastTransitionTime.Time)
}

// average is the goal that pods have a value on average.
type average struct {
	target int64
	now    int64 // the average of the values that were compared first
	known  bool
}

func (*average) prepare([]*corev1.Pod) error { return nil }

func (a *average) ratio(values map[string]int64) (float64, error) {
	total := int64(0)
	for _, v := range values {
		total += v
	}
	mean := total / int64(len(values))
	if !a.known {
		a.now, a.known = mean, true
	}
	return float64(mean) / float64(a.target), nil
}

func (a *average) full(string) int64 { return a.target }

// utilization is the goal that pods use a percentage of their requests.
type utilization struct {
	target    int32
	container string // empty: all of the pod
	resource  corev1.ResourceName

	requests map[string]int64
	percent  int32 // of the values that were compared first
	mean     int64 // of the same
	known    bool
}

func (u *utilization) prepare(pods []*corev1.Pod) error {
	u.requests = map[string]int64{}
	for _, p := range pods {
		r, err := requestOf(p, u.container, u.resource)
		if err != nil {
			return err
		}
		u.requests[p.Name] = r
	}
	return nil
}

func (u *utilization) ratio(values map[string]int64) (float64, error) {
	var used, requested, n int64
	for name, v := range values {
		if r, ok := u.requests[name]; ok {
			used, requested, n = used+v, requested+r, n+1
		}
	}
	if requested == 0 {
		return 0, errors.New("no metrics returned matched known pods")
	}
	percent := int32(min(part(used, 100, requested), math.MaxInt32))
	if !u.known {
		u.percent, u.mean, u.known = percent, used/n, true
	}
	return float64(percent) / float64(u.target), nil
}

func (u *utilization) full(pod string) int64 {
	return part(u.requests[pod], int64(max(100, u.target)), 100)
}

// part returns v*times/of for values that are not negative, and at most the largest int64: a quantity in a pod may be as
// large as that.
func part(v, times, of int64) int64 {
	high, low := bits.Mul64(uint64(v), uint64(times))
	if high >= uint64(of) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(of))
	return int64(min(quotient, math.MaxInt64))
}

// requestOf returns what a pod, or one of its containers, requests of a resource, in thousandths. Every container must say.
func requestOf(p *corev1.Pod, container string, name corev1.ResourceName) (int64, error) {
	if container == "" && resourcehelper.IsPodLevelRequestsSet(p) {
		q, ok := podresources.Requests(p, podresources.Options{})[name]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", name, p.Name)
		}
		return q.MilliValue(), nil
	}
	total, found := int64(0), false
	add := func(c *corev1.Container) error {
		if container != "" && c.Name != container {
			return nil
		}
		q, ok := c.Resources.Requests[name]
		if !ok {
			return fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, p.Name)
		}
		total, found = total+q.MilliValue(), true
		return nil
	}
	for i := range p.Spec.Containers {
		if err := add(&p.Spec.Containers[i]); err != nil {
			return 0, err
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			if err := add(c); err != nil {
				return 0, err
			}
		}
	}
	if container != "" && !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, p.Name)
	}
	return total, nil
}

// byValue returns how many replicas bring a value that is not one of pods, such as the length of a queue, to its target.
// Without replicas there is one for each time that the target fits into the value.
func (c calculation) byValue(value, target int64) (int32, error) {
	ratio := float64(value) / float64(target)
	if c.current == 0 {
		return ceil(ratio), nil
	}
	if c.tolerance.covers(ratio) {
		return c.current, nil
	}
	if len(c.pods) == 0 {
		return 0, fmt.Errorf("unable to calculate ready pods: %w", errNoPods)
	}
	ready := 0
	for _, p := range c.pods {
		if p.Status.Phase == corev1.PodRunning && podstate.Ready(p) {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), nil
}

// byShare returns how many replicas there must be so that each one's share of a value is the target, and what the share of
// each of the present ones is; without any that is the whole.
func (c calculation) byShare(value, target int64, present int32) (replicas int32, share int64) {
	if present == 0 {
		return ceil(float64(value) / float64(target)), value
	}
	replicas = present
	if ratio := float64(value) / (float64(target) * float64(present)); !c.tolerance.covers(ratio) {
		replicas = ceil(float64(value) / float64(target))
	}
	f := math.Ceil(float64(value) / float64(present))
	if value == math.MaxInt64 || f >= math.MaxInt64 {
		return replicas, math.MaxInt64
	}
	return replicas, int64(f)
}

// total returns the sum of values, at most the largest number.
func total(values []int64) int64 {
	sum := int64(0)
	for _, v := range values {
		if v > 0 && sum > math.MaxInt64-v {
			return math.MaxInt64
		}
		sum += v
	}
	return sum
}
