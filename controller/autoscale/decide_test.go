package autoscale

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// byCPU is the metric that pods use so much of the CPU that they request, in percent.
func byCPU(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

func byQueue(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: target,
	}}
}

func each(value string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse(value))}
}

func whole(value string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: new(resource.MustParse(value))}
}

func autoscaler(least, most int32, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Generation: 7},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    &least, MaxReplicas: most, Metrics: metrics,
		},
	}
}

func scaleOf(replicas int32) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas}, Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: "app=web"},
	}
}

// conditions returns the conditions of a status, each as "Type=Status Reason: message".
func conditions(s autoscalingv2.HorizontalPodAutoscalerStatus) (all []string) {
	for _, c := range s.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return all
}

func texts(events []event) (all []string) {
	for _, e := range events {
		all = append(all, e.kind+" "+e.reason+": "+e.message)
	}
	return all
}

const (
	gotScale    = "AbleToScale=True SucceededGetScale: the HPA controller was able to get the target's current scale"
	sameSize    = "AbleToScale=True ReadyForNewScale: recommended size matches current size"
	waitsDown   = "AbleToScale=True ScaleDownStabilized: recent recommendations were higher than current one, applying the highest recent recommendation"
	waitsUp     = "AbleToScale=True ScaleUpStabilized: recent recommendations were lower than current one, applying the lowest recent recommendation"
	cpuFound    = "ScalingActive=True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)"
	queueFound  = "ScalingActive=True ValidMetricFound: the HPA was able to successfully calculate a replica count from external metric queue(nil)"
	unlimited   = "ScalingLimited=False DesiredWithinRange: the desired count is within the acceptable range"
	tooMany     = "ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count"
	tooFew      = "ScalingLimited=True TooFewReplicas: the desired replica count is less than the minimum replica count"
	tooFast     = "ScalingLimited=True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate"
	tooFastDown = "ScalingLimited=True ScaleDownLimit: the desired replica count is decreasing faster than the maximum scale rate"
	toZero      = "ScaledToZero=True ScaledToZero: the HPA controller scaled the workload to zero"
	notToZero   = "ScaledToZero=False NotScaledToZero: the HPA controller did not scale the workload to zero"
	disabled    = "ScalingActive=False ScalingDisabled: scaling is disabled since the replica count of the target is zero"
	cpuMissing  = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API"
	cpuFailed   = "ScalingActive=False FailedGetResourceMetric: the HPA was unable to compute the replica count: " + cpuMissing
	cpuWarning  = "Warning FailedGetResourceMetric: " + cpuMissing
)

func updated(n int) string {
	return fmt.Sprintf("AbleToScale=True SucceededRescale: the HPA controller was able to update the target scale to %d", n)
}

// TestDecisions has the conditions, events and replicas of autoscalers whose target has some replicas.
func TestDecisions(t *testing.T) {
	zeroed := autoscalingv2.HorizontalPodAutoscalerCondition{Type: autoscalingv2.ScaledToZero, Status: corev1.ConditionTrue, Reason: "ScaledToZero", Message: "the HPA controller scaled the workload to zero"}
	noCPU := failedReading{errors.New("unable to get metrics for resource cpu: no metrics returned from resource metrics API")}
	slow := func(up, down int32) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		rules := func(policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
			return &autoscalingv2.HPAScalingRules{SelectPolicy: new(autoscalingv2.MaxChangePolicySelect), Policies: policies}
		}
		b := &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp:   rules(policy(autoscalingv2.PodsScalingPolicy, 2, 60)),
			ScaleDown: rules(policy(autoscalingv2.PodsScalingPolicy, 1, 60)),
		}
		b.ScaleUp.StabilizationWindowSeconds, b.ScaleDown.StabilizationWindowSeconds = &up, &down
		return b
	}
	for _, tt := range []struct {
		name     string
		object   *autoscalingv2.HorizontalPodAutoscaler
		behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
		zeroed   bool
		history  history
		current  int32
		pods     string
		readings []reading // of the metrics after the first, which is that of the pods, or of all if pods is empty

		want       int32
		conditions []string
		events     []string
	}{
		{
			name: "it grows", object: autoscaler(1, 10, byCPU(50)), current: 2, pods: "900 900",
			want: 4, conditions: []string{updated(4), cpuFound, unlimited, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target"},
		},
		{name: "nothing to do", object: autoscaler(1, 10, byCPU(50)), current: 2, pods: "500 500", want: 2, conditions: []string{sameSize, cpuFound, unlimited}},
		{
			name: "it may not shrink yet", object: autoscaler(1, 10, byCPU(50)), current: 2, pods: "100 100",
			want: 2, conditions: []string{waitsDown, cpuFound, unlimited},
		},
		{
			name: "it shrinks after the window", object: autoscaler(1, 10, byCPU(50)), history: history{recommended: ago(2, 301)}, current: 2, pods: "100 100",
			want: 1, conditions: []string{updated(1), cpuFound, unlimited, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 1; reason: All metrics below target"},
		},
		{
			name: "the maximum", object: autoscaler(1, 3, byCPU(50)), current: 2, pods: "900 900",
			want: 3, conditions: []string{updated(3), cpuFound, tooMany, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 3; reason: cpu resource utilization (percentage of request) above target"},
		},
		{
			name: "the minimum", object: autoscaler(2, 5, byCPU(50)), history: history{recommended: ago(3, 301)}, current: 3, pods: "0 0 0",
			want: 2, conditions: []string{updated(2), "ScalingActive=True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)", tooFew, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 2; reason: All metrics below target"},
		},
		{
			name: "not more than twice as many at once", object: autoscaler(1, 100, byCPU(10)), current: 3, pods: "1000 1000 1000",
			want: 6, conditions: []string{updated(6), cpuFound, tooFast, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 6; reason: cpu resource utilization (percentage of request) above target"},
		},
		{
			name: "above the maximum", object: autoscaler(1, 3, byCPU(50)), current: 9,
			want: 3, conditions: []string{updated(3), notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 3; reason: Current number of replicas above Spec.MaxReplicas"},
		},
		{
			name: "below the minimum", object: autoscaler(2, 3, byCPU(50)), current: 1,
			want: 2, conditions: []string{updated(2), notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 2; reason: Current number of replicas below Spec.MinReplicas"},
		},
		{name: "switched off by a user", object: autoscaler(1, 3, byCPU(50)), current: 0, want: 0, conditions: []string{gotScale, disabled}},
		{
			name: "no metrics", object: autoscaler(1, 3, byCPU(50)), current: 2, readings: []reading{noCPU},
			want: 2, conditions: []string{gotScale, cpuFailed},
			events: []string{cpuWarning, "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: " + cpuMissing},
		},
		{
			name: "one of two metrics, which wants more", object: autoscaler(1, 9, byCPU(50), byQueue(each("5"))), current: 2, readings: []reading{noCPU, valueReading{15000}},
			want: 3, conditions: []string{updated(3), queueFound, unlimited, notToZero},
			events: []string{cpuWarning, "Normal SuccessfulRescale: New size: 3; reason: external metric queue(nil) above target"},
		},
		{
			name: "one of two metrics, which wants the same", object: autoscaler(1, 9, byCPU(50), byQueue(each("5"))), current: 2, readings: []reading{noCPU, valueReading{10000}},
			want: 2, conditions: []string{sameSize, queueFound, unlimited}, events: []string{cpuWarning},
		},
		{
			name: "from one to four at once", object: autoscaler(1, 100, byCPU(10)), current: 1, pods: "1000",
			want: 4, conditions: []string{updated(4), cpuFound, tooFast, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target"},
		},
		{
			name: "one of two metrics, which wants less", object: autoscaler(1, 9, byCPU(50), byQueue(each("5"))), current: 2, readings: []reading{noCPU, valueReading{2000}},
			want: 2, conditions: []string{gotScale, cpuFailed},
			events: []string{cpuWarning, "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2), first error is: failed to get cpu resource metric value: " + cpuMissing},
		},
		{
			name: "the most of two metrics", object: autoscaler(1, 9, byCPU(50), byQueue(whole("5"))), current: 2, pods: "500 500", readings: []reading{valueReading{4000, 6000}},
			want: 4, conditions: []string{updated(4), queueFound, unlimited, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 4; reason: external metric queue(nil) above target"},
		},
		{
			name: "to zero", object: autoscaler(0, 9, byQueue(each("5"))), history: history{recommended: ago(1, 301)}, current: 1, readings: []reading{valueReading{0}},
			want: 0, conditions: []string{updated(0), queueFound, unlimited, toZero},
			events: []string{"Normal SuccessfulRescale: New size: 0; reason: All metrics below target"},
		},
		{
			name: "from zero", object: autoscaler(0, 9, byQueue(each("5"))), zeroed: true, current: 0, readings: []reading{valueReading{7000}},
			want: 2, conditions: []string{notToZero, updated(2), queueFound, unlimited},
			events: []string{"Normal SuccessfulRescale: New size: 2; reason: external metric queue(nil) above target"},
		},
		{name: "it stays at zero", object: autoscaler(0, 9, byQueue(each("5"))), zeroed: true, current: 0, readings: []reading{valueReading{0}}, want: 0, conditions: []string{toZero, sameSize, queueFound, unlimited}},
		{
			name: "from zero because the minimum was raised", object: autoscaler(3, 9, byQueue(each("5"))), zeroed: true, current: 0, readings: []reading{valueReading{0}},
			want: 3, conditions: []string{notToZero, updated(3), queueFound, tooFew},
			events: []string{"Normal SuccessfulRescale: New size: 3; reason: "},
		},
		{name: "a user's zero", object: autoscaler(0, 9, byQueue(each("5"))), current: 0, want: 0, conditions: []string{gotScale, disabled}},

		{
			name: "a behavior limits growth", object: autoscaler(1, 100, byCPU(10)), behavior: slow(0, 0), current: 3, pods: "1000 1000 1000",
			want: 5, conditions: []string{updated(5), cpuFound, tooFast, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 5; reason: cpu resource utilization (percentage of request) above target"},
		},
		{
			name: "growth is used up", object: autoscaler(1, 100, byCPU(10)), behavior: slow(0, 0), history: history{ups: ago(2, 30)}, current: 3, pods: "1000 1000 1000",
			want: 3, conditions: []string{sameSize, cpuFound, tooFast},
		},
		{
			name: "a behavior limits shrinking", object: autoscaler(1, 100, byCPU(50)), behavior: slow(0, 0), current: 3, pods: "10 10 10",
			want: 2, conditions: []string{updated(2), cpuFound, tooFastDown, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 2; reason: All metrics below target"},
		},
		{
			name: "a behavior and the minimum", object: autoscaler(3, 100, byCPU(50)), behavior: slow(0, 0), current: 3, pods: "10 10 10",
			want: 3, conditions: []string{sameSize, cpuFound, tooFew},
		},
		{
			name: "a behavior and the maximum", object: autoscaler(1, 4, byCPU(50)), behavior: slow(0, 0), current: 3, pods: "900 900 900",
			want: 4, conditions: []string{updated(4), cpuFound, tooMany, notToZero},
			events: []string{"Normal SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target"},
		},
		{
			name: "a window for growth", object: autoscaler(1, 9, byCPU(50)), behavior: slow(60, 0), history: history{recommended: ago(2, 30)}, current: 2, pods: "900 900",
			want: 2, conditions: []string{waitsUp, cpuFound, unlimited},
		},
		{
			name: "a window for shrinking", object: autoscaler(1, 9, byCPU(50)), behavior: slow(0, 60), history: history{recommended: ago(3, 30)}, current: 3, pods: "10 10 10",
			want: 3, conditions: []string{waitsDown, cpuFound, unlimited},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			object := tt.object
			object.Spec.Behavior = tt.behavior
			object.Status.DesiredReplicas = 77
			if tt.zeroed {
				object.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{zeroed}
			}
			before := object.DeepCopy()
			d := newDecision(object, &tt.history, noon)
			scale := scaleOf(tt.current)
			asks := d.target(scale)
			if asks != (tt.pods != "" || tt.readings != nil) {
				t.Fatalf("it asks for metrics: %v", asks)
			}
			var failure error
			if asks {
				all, metrics := pods(t, tt.pods)
				readings := tt.readings
				if tt.pods != "" {
					readings = append([]reading{metrics}, readings...)
				}
				failure = d.compute(scale, all, readings)
			}
			if d.rescale {
				d.rescaled(nil)
			} else if d.desired = tt.current; tt.current != tt.want {
				t.Error("it does not rescale")
			}
			if d.desired != tt.want {
				t.Errorf("%d replicas, want %d", d.desired, tt.want)
			}
			if got := conditions(d.status); !sameSet(got, tt.conditions) {
				t.Errorf("conditions\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.conditions, "\n"))
			}
			if got := texts(d.events); !slices.Equal(got, tt.events) {
				t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.events, "\n"))
			}
			wanted := tt.want
			if failure != nil && strings.HasPrefix(tt.events[len(tt.events)-1], "Warning FailedCompute") {
				wanted = 77 // what it was is not known to be wrong
			}
			if s := d.status; s.CurrentReplicas != tt.current || s.DesiredReplicas != wanted || *s.ObservedGeneration != 7 || (s.LastScaleTime != nil) != d.rescale {
				t.Errorf("status: %+v", s)
			}
			if !asks && d.status.CurrentMetrics != nil || asks && len(d.status.CurrentMetrics) != len(object.Spec.Metrics) {
				t.Errorf("metrics in the status: %+v", d.status.CurrentMetrics)
			}
			if before.String() != object.String() {
				t.Error("the autoscaler itself was changed")
			}
		})
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// TestMetricsInStatus has metrics of all types, and what the status and the condition say of them.
func TestMetricsInStatus(t *testing.T) {
	deployment := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "db"}
	id := autoscalingv2.MetricIdentifier{Name: "hits", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"verb": "GET"}}}
	objectOf := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{DescribedObject: deployment, Metric: id, Target: target}}
	}
	memory := byCPU(50)
	memory.Resource = &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: each("1Gi")}
	inContainer := autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceCPU, Container: "c", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
	}}
	ofPods := autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: each("10")}}
	const selector = "&LabelSelector{MatchLabels:map[string]string{verb: GET,},MatchExpressions:[]LabelSelectorRequirement{},}"
	all, metrics := pods(t, "500 700")
	bytes := podReading{}
	for name, m := range metrics {
		m.value *= 1 << 30
		bytes[name] = m
	}
	broken := failedReading{errors.New("broken")}
	for _, tt := range []struct {
		name    string
		spec    autoscalingv2.MetricSpec
		reading reading
		want    string // replicas, the name of the metric and its value; or the reason, cause and error
	}{
		{"cpu", byCPU(50), metrics, "3 cpu resource utilization (percentage of request): 60% 600m"},
		{"memory", memory, bytes, "2 memory resource: 614.4Mi"},
		{"container", inContainer, metrics, "3 cpu container resource utilization (percentage of request): 60% 600m"},
		{"pods", ofPods, podReading{"p0": {value: 30000}, "p1": {value: 10000}}, "4 pods metric hits: 20"},
		{"object", objectOf(whole("10")), valueReading{30000}, "6 Deployment metric hits: 30"},
		{"object for each", objectOf(each("10")), valueReading{30000}, "3 external metric hits(" + selector + "): 15"},
		{"external", byQueue(whole("10")), valueReading{10000, 20000}, "6 external metric queue(nil): 30"},
		{"external for each", byQueue(each("10")), valueReading{10000, 20000}, "3 external metric queue(nil): 15"},
		{"broken cpu", byCPU(50), broken, "FailedGetResourceMetric: failed to get cpu utilization: broken | failed to get cpu resource metric value: failed to get cpu utilization: broken"},
		{"broken memory", memory, broken, "FailedGetResourceMetric: failed to get memory usage: broken | failed to get memory resource metric value: failed to get memory usage: broken"},
		{"broken container", inContainer, broken, "FailedGetContainerResourceMetric: failed to get cpu utilization: broken | failed to get c container metric value: failed to get cpu utilization: broken"},
		{"broken pods", ofPods, broken, "FailedGetPodsMetric: broken | failed to get pods metric value: broken"},
		{"broken object", objectOf(whole("10")), broken, "FailedGetObjectMetric: broken | failed to get object metric value: broken"},
		{"broken object for each", objectOf(each("10")), broken, "FailedGetObjectMetric: broken | failed to get object metric value: failed to get hits object metric: broken"},
		{"broken external", byQueue(whole("10")), broken, "FailedGetExternalMetric: broken | failed to get queue external metric value: failed to get external metric queue: broken"},
		{"broken external for each", byQueue(each("10")), broken, "FailedGetExternalMetric: broken | failed to get queue external metric value: failed to get queue external metric: broken"},
		{"no target", objectOf(autoscalingv2.MetricTarget{}), valueReading{1}, "FailedGetObjectMetric: invalid object metric source: neither a value target nor an average value target was set | failed to get object metric value: invalid object metric source: neither a value target nor an average value target was set"},
		{"an unknown type", autoscalingv2.MetricSpec{Type: "Weather"}, valueReading{1}, `InvalidMetricSourceType: unknown metric source type "Weather" | unknown metric source type "Weather"`},
		{"a reading of another type", byCPU(50), valueReading{1}, "FailedGetResourceMetric: failed to get cpu utilization: the metric was read as one of another type | failed to get cpu resource metric value: failed to get cpu utilization: the metric was read as one of another type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := measurement{calculation: calculation{now: noon, current: 2, tolerance: toleranceOf(nil), pods: all}, present: 2}
			p, err := m.propose(&tt.spec, tt.reading)
			got := ""
			if err != nil {
				got = fmt.Sprintf("%s: %v | %v", err.reason, err.cause, err.err)
			} else {
				got = fmt.Sprintf("%d %s:%s", p.replicas, p.name, shown(p.status))
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if err == nil && p.status.Type != tt.spec.Type {
				t.Errorf("the status is of type %s", p.status.Type)
			}
		})
	}
}

// shown returns the values in the status of a metric.
func shown(s autoscalingv2.MetricStatus) (text string) {
	var v autoscalingv2.MetricValueStatus
	switch {
	case s.Resource != nil:
		v = s.Resource.Current
	case s.ContainerResource != nil:
		v = s.ContainerResource.Current
	case s.Pods != nil:
		v = s.Pods.Current
	case s.Object != nil:
		v = s.Object.Current
	case s.External != nil:
		v = s.External.Current
	}
	if v.AverageUtilization != nil {
		text += fmt.Sprintf(" %d%%", *v.AverageUtilization)
	}
	for _, q := range []*resource.Quantity{v.AverageValue, v.Value} {
		if q != nil && q.Format == resource.BinarySI {
			text += fmt.Sprintf(" %.1fMi", q.AsApproximateFloat64()/(1<<20))
		} else if q != nil {
			text += " " + q.String()
		}
	}
	return text
}

func TestUnreadableTargets(t *testing.T) {
	d := newDecision(autoscaler(1, 3, byCPU(50)), &history{}, noon)
	d.unable(errors.New(`deployments.apps "web" not found`))
	if got, want := conditions(d.status), `AbleToScale=False FailedGetScale: the HPA controller was unable to get the target's current scale: deployments.apps "web" not found`; len(got) != 1 || got[0] != want {
		t.Errorf("conditions %q, want %q", got, want)
	}
	if got, want := texts(d.events), `Warning FailedGetScale: deployments.apps "web" not found`; len(got) != 1 || got[0] != want {
		t.Errorf("events %q, want %q", got, want)
	}
	for selector, want := range map[string]string{
		"":      "ScalingActive=False InvalidSelector: the HPA target's scale is missing a selector",
		"a=b=c": "ScalingActive=False InvalidSelector: couldn't convert selector into a corresponding internal selector object: ",
	} {
		d := newDecision(autoscaler(1, 3, byCPU(50)), &history{}, noon)
		scale := scaleOf(2)
		scale.Status.Selector = selector
		if !d.target(scale) {
			t.Fatal("it asks for no metrics")
		}
		if _, ok := d.selectPods(scale); ok || !strings.HasPrefix(conditions(d.status)[1], want) || len(d.events) != 2 || d.rescale {
			t.Errorf("selector %q: %q, %q", selector, conditions(d.status), texts(d.events))
		}
	}
	d = newDecision(autoscaler(1, 3, byCPU(50)), &history{}, noon)
	d.target(scaleOf(9))
	d.rescaled(errors.New("forbidden"))
	if got, want := conditions(d.status), "AbleToScale=False FailedUpdateScale: the HPA controller was unable to update the target scale: forbidden"; got[0] != want || d.status.LastScaleTime != nil {
		t.Errorf("conditions %q, want %q", got, want)
	}
	if got, want := texts(d.events), "Warning FailedRescale: New size: 3; reason: Current number of replicas above Spec.MaxReplicas; error: forbidden"; got[0] != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestTransitionTimes checks that a condition that stays as it is keeps its time.
func TestTransitionTimes(t *testing.T) {
	object := autoscaler(1, 3, byCPU(50))
	d := newDecision(object, &history{}, noon)
	d.target(scaleOf(2))
	object.Status = d.status
	later := newDecision(object, &history{}, noon.Add(time.Minute))
	later.target(scaleOf(2))
	if c := later.status.Conditions[0]; !c.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("%v, want %v", c.LastTransitionTime, noon)
	}
	later.unable(errors.New("gone"))
	if c := later.status.Conditions[0]; !c.LastTransitionTime.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("after a change: %v", c.LastTransitionTime)
	}
	if c := d.status.Conditions[0]; c.Status != corev1.ConditionTrue {
		t.Error("the earlier status was changed")
	}
}
