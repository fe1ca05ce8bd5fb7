package autoscale

import (
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A decision is one decision of an autoscaler. Its methods are called in this order: target, and if that asks for
// metrics select and compute, and if a rescale is wanted rescaled. The status is complete after any of them.
type decision struct {
	autoscaler *autoscalingv2.HorizontalPodAutoscaler // must not be changed
	now        time.Time
	history    *history // is changed

	status  autoscalingv2.HorizontalPodAutoscalerStatus
	events  []event
	current int32 // replicas that the target asks for
	// measured has the status of each metric; nil if they were not read.
	measured []autoscalingv2.MetricStatus

	// rescale says that the target is to have desired replicas, and why.
	rescale bool
	desired int32
	reason  string
}

type event struct{ kind, reason, message string }

func newDecision(a *autoscalingv2.HorizontalPodAutoscaler, h *history, now time.Time) *decision {
	return &decision{autoscaler: a, now: now, history: h, status: *a.Status.DeepCopy()}
}

func (d *decision) warn(reason, format string, args ...any) {
	d.events = append(d.events, event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

// set sets a condition.
func (d *decision) set(kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, format string, args ...any) {
	i := slices.IndexFunc(d.status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		i = len(d.status.Conditions)
		d.status.Conditions = append(d.status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
	}
	c := &d.status.Conditions[i]
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(d.now)
	}
	c.Status, c.Reason, c.Message = status, reason, fmt.Sprintf(format, args...)
}

// unable records that the scale of the target cannot be read.
func (d *decision) unable(err error) {
	d.warn("FailedGetScale", "%s", err)
	d.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale", "the HPA controller was unable to get the target's current scale: %v", err)
}

func (d *decision) least() int32 {
	if m := d.autoscaler.Spec.MinReplicas; m != nil {
		return *m
	}
	return 1
}

// canBeZero reports whether the metrics of the autoscaler exist without pods, so that it may scale to and from 0.
func (d *decision) canBeZero() bool {
	return slices.ContainsFunc(d.autoscaler.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

// zeroed reports whether the controller itself has scaled the target to 0.
func (d *decision) zeroed() bool {
	return slices.ContainsFunc(d.status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
	})
}

// target decides by the scale of the target, and reports whether metrics are needed for more.
func (d *decision) target(scale *autoscalingv1.Scale) (metrics bool) {
	d.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	d.current = scale.Spec.Replicas
	d.history.begin(d.current, d.now)
	switch most, least := d.autoscaler.Spec.MaxReplicas, d.least(); {
	case d.current == 0 && (!d.zeroed() || least == 0 && !d.canBeZero()):
		d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		d.settle(0)
	case d.current == 0:
		return true
	case d.current > most:
		d.rescale, d.desired, d.reason = true, most, "Current number of replicas above Spec.MaxReplicas"
	case d.current < least:
		d.rescale, d.desired, d.reason = true, least, "Current number of replicas below Spec.MinReplicas"
	default:
		return true
	}
	return false
}

// fail records that no number of replicas could be computed.
func (d *decision) fail(err error) {
	d.settle(d.status.DesiredReplicas)
	d.warn("FailedComputeMetricsReplicas", "%s", err)
}

// selectPods parses the selector of the scale. It returns false if there is none, or a wrong one.
func (d *decision) selectPods(scale *autoscalingv1.Scale) (labels.Selector, bool) {
	text := scale.Status.Selector
	if text == "" {
		const message = "selector is required"
		d.warn("SelectorRequired", message)
		d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "the HPA target's scale is missing a selector")
		d.fail(errors.New(message))
		return nil, false
	}
	selector, err := labels.Parse(text)
	if err != nil {
		err = fmt.Errorf("couldn't convert selector into a corresponding internal selector object: %w", err)
		d.warn("InvalidSelector", "%s", err)
		d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "%s", err)
		d.fail(err)
		return nil, false
	}
	return selector, true
}

// ambiguous records that other autoscalers select the same pods.
func (d *decision) ambiguous(selector string, autoscalers []string) {
	err := fmt.Errorf("pods by selector %v are controlled by more than one HPA (e.g. %v)", selector, autoscalers)
	d.warn("AmbiguousSelector", "%s", err)
	d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "AmbiguousSelector", "%s", err)
	d.fail(err)
}

// compute decides by the metrics, in the order of the specification. An error is that of a metric that could not be
// used, even if others were.
func (d *decision) compute(scale *autoscalingv1.Scale, pods []*corev1.Pod, readings []reading) error {
	m := measurement{
		calculation: calculation{now: d.now, current: d.current, tolerance: toleranceOf(d.autoscaler.Spec.Behavior), pods: pods},
		present:     scale.Status.Replicas,
	}
	specs := d.autoscaler.Spec.Metrics
	d.measured = make([]autoscalingv2.MetricStatus, len(specs))
	var wanted int32
	var metric string
	var first *unusable
	failures := 0
	for i := range specs {
		p, err := m.propose(&specs[i], readings[i])
		if err != nil {
			if first == nil {
				first = err
			}
			d.warn(err.reason, "%s", err.cause)
			failures++
			continue
		}
		d.measured[i] = p.status
		if wanted == 0 || p.replicas > wanted {
			wanted, metric = p.replicas, p.name
		}
	}
	var problem error
	if first != nil {
		problem = fmt.Errorf("invalid metrics (%v invalid out of %v), first error is: %w", failures, len(specs), first.err)
	}
	if failures >= len(specs) || failures > 0 && wanted < d.current {
		if first == nil { // there are no metrics, which the API does not allow
			problem = errors.New("no metrics")
			first = &unusable{"InvalidMetricSourceType", problem, problem}
		}
		d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, first.reason, "the HPA was unable to compute the replica count: %v", first.cause)
		d.fail(problem)
		return problem
	}
	d.set(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from %s", metric)
	if wanted > 0 {
		d.desired = wanted
	} else {
		metric = ""
	}
	switch {
	case d.desired > d.current:
		d.reason = metric + " above target"
	case d.desired < d.current:
		d.reason = "All metrics below target"
	}
	if d.autoscaler.Spec.Behavior == nil {
		d.normalize()
	} else {
		d.behave(d.autoscaler.Spec.Behavior)
	}
	if least := d.least(); d.current == 0 && least != 0 && d.zeroed() && d.desired < least {
		d.desired = least
		if d.reason == "" {
			d.reason = "Current number of replicas below Spec.MinReplicas"
		}
	}
	d.rescale = d.desired != d.current
	d.settle(d.current)
	return problem
}

// normalize limits the wanted replicas of an autoscaler without a behavior.
func (d *decision) normalize() {
	wanted := d.history.highest(d.desired, d.now)
	d.history.recommend(d.desired, d.now)
	d.stabilized(wanted, "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation")
	// At most twice the present number, in case that the usage is wrong; from few to a few more.
	limit := int32(min(int64(d.current)*2, int64(1)<<30))
	limit = max(limit, 4)
	switch most, least := d.autoscaler.Spec.MaxReplicas, d.least(); {
	case wanted < least:
		d.limited(least, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
	case wanted > min(limit, most) && most > limit:
		d.limited(limit, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
	case wanted > min(limit, most):
		d.limited(most, "TooManyReplicas", "the desired replica count is more than the maximum replica count")
	default:
		d.unlimited(wanted)
	}
}

// behave limits the wanted replicas by a behavior.
func (d *decision) behave(b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	wanted := d.history.stabilize(b, d.current, d.desired, d.now)
	d.history.recommend(d.desired, d.now)
	if d.desired >= d.current {
		d.stabilized(wanted, "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation")
	} else {
		d.stabilized(wanted, "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation")
	}
	most, least := d.autoscaler.Spec.MaxReplicas, d.least()
	switch {
	case wanted > d.current:
		limit := max(d.history.mostUp(rules(b.ScaleUp), d.current, d.now), d.current)
		switch {
		case wanted > min(limit, most) && most > limit:
			d.limited(limit, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
			return
		case wanted > min(limit, most):
			d.limited(most, "TooManyReplicas", "the desired replica count is more than the maximum replica count")
			return
		}
	case wanted < d.current:
		limit := min(d.history.leastDown(rules(b.ScaleDown), d.current, d.now), d.current)
		switch {
		case wanted < max(limit, least) && least < limit:
			d.limited(limit, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
			return
		case wanted < max(limit, least):
			d.limited(least, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
			return
		}
	}
	d.unlimited(wanted)
}

// rules returns the rules of a direction. They are complete in objects that the API server has given defaults.
func rules(r *autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
	if r == nil {
		return &autoscalingv2.HPAScalingRules{}
	}
	return r
}

// stabilized records whether stabilization has changed the wanted replicas.
func (d *decision) stabilized(wanted int32, reason, message string) {
	if wanted == d.desired {
		reason, message = "ReadyForNewScale", "recommended size matches current size"
	}
	d.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, reason, "%s", message)
}

func (d *decision) limited(replicas int32, reason, message string) {
	d.set(autoscalingv2.ScalingLimited, corev1.ConditionTrue, reason, "%s", message)
	d.desired = replicas
}

func (d *decision) unlimited(replicas int32) {
	d.set(autoscalingv2.ScalingLimited, corev1.ConditionFalse, "DesiredWithinRange", "the desired count is within the acceptable range")
	d.desired = replicas
}

// settle completes the status of a target that keeps its replicas.
func (d *decision) settle(desired int32) {
	generation := d.autoscaler.Generation
	d.status.ObservedGeneration = &generation
	d.status.CurrentReplicas, d.status.DesiredReplicas, d.status.CurrentMetrics = d.current, desired, d.measured
}

// rescaled records that the scale of the target was written, or why not.
func (d *decision) rescaled(err error) {
	if err != nil {
		d.warn("FailedRescale", "New size: %d; reason: %s; error: %v", d.desired, d.reason, err)
		d.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", "the HPA controller was unable to update the target scale: %v", err)
		d.settle(d.autoscaler.Status.DesiredReplicas)
		return
	}
	d.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", "the HPA controller was able to update the target scale to %d", d.desired)
	d.events = append(d.events, event{corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", d.desired, d.reason)})
	if d.autoscaler.Spec.Behavior != nil {
		d.history.changed(d.current, d.desired, d.now)
	}
	if d.desired == 0 && d.least() == 0 && d.canBeZero() {
		d.set(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero", "the HPA controller scaled the workload to zero")
	} else {
		d.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	}
	d.settle(d.desired)
	d.status.LastScaleTime = new(metav1.NewTime(d.now))
}
