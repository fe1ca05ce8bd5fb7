package autoscale

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// pods makes pods from words, one for each: the number is the usage that is measured, in thousandths, or "-" for none, and
// what follows is the state:
//
//	500          running and ready for a long time
//	500pending   not running yet
//	500unready   running, not ready, and never was
//	500lapsed    running, not ready any more
//	500young     started a minute ago, ready for 50 s
//	500fresh     started a minute ago, ready for 10 s, which is shorter than the window of the metric
//	500failed    failed
//	500deleted   being deleted
//	500bare      running, without a condition
//
// Each pod requests 1000 thousandths of the CPU.
func pods(t *testing.T, words string) (all []*corev1.Pod, metrics podReading) {
	t.Helper()
	metrics = podReading{}
	for i, word := range strings.Fields(words) {
		end := strings.IndexFunc(word, func(r rune) bool { return r >= 'a' && r <= 'z' })
		state := ""
		if end >= 0 {
			word, state = word[:end], word[end:]
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p" + strconv.Itoa(i)}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
		p.Status = running(noon.Add(-time.Hour), noon.Add(-time.Hour+time.Minute), true)
		switch state {
		case "":
		case "pending":
			p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		case "unready":
			p.Status = running(noon.Add(-time.Hour), noon.Add(-time.Hour+10*time.Second), false)
		case "lapsed":
			p.Status = running(noon.Add(-time.Hour), noon.Add(-time.Minute), false)
		case "young":
			p.Status = running(noon.Add(-time.Minute), noon.Add(-50*time.Second), true)
		case "fresh":
			p.Status = running(noon.Add(-time.Minute), noon.Add(-10*time.Second), true)
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "deleted":
			p.DeletionTimestamp = new(metav1.NewTime(noon))
		case "bare":
			p.Status.Conditions = nil
		default:
			t.Fatalf("%q is not a state", state)
		}
		all = append(all, p)
		if word != "-" {
			v, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			metrics[p.Name] = podMetric{noon, 15 * time.Second, v}
		}
	}
	return all, metrics
}

func running(started, changed time.Time, ready bool) corev1.PodStatus {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: new(metav1.NewTime(started)),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(changed)}},
	}
}

// TestReplicasByUtilization has what upstream's replica calculator answers for the same pods.
func TestReplicasByUtilization(t *testing.T) {
	for _, tt := range []struct {
		name    string
		pods    string
		current int32
		target  int32
		want    int32
		percent int32
		err     string
	}{
		{name: "up", pods: "300 500 700", current: 3, target: 30, want: 5, percent: 50},
		{name: "down", pods: "100 300 500 250 250", current: 5, target: 50, want: 3, percent: 28},
		{name: "to many, which others limit", pods: "1000 1000", current: 2, target: 1, want: 200, percent: 100},
		{name: "to none, which others limit", pods: "0 0", current: 2, target: 50, want: 0, percent: 0},
		{name: "within the tolerance above", pods: "540 560", current: 2, target: 50, want: 2, percent: 55},
		{name: "beyond the tolerance above", pods: "560 560", current: 2, target: 50, want: 3, percent: 56},
		{name: "within the tolerance below", pods: "450 460", current: 2, target: 50, want: 2, percent: 45},
		{name: "beyond the tolerance below", pods: "400 400 400", current: 3, target: 50, want: 3, percent: 40},
		{name: "percents are cut off", pods: "559 559", current: 2, target: 50, want: 2, percent: 55},
		{name: "the target counts, not the pods that are there", pods: "500 500", current: 7, target: 50, want: 7, percent: 50},
		{name: "up by the ready pods only", pods: "900 900", current: 5, target: 30, want: 6, percent: 90},

		{name: "a pending pod will take its share", pods: "900 900 -pending", current: 3, target: 30, want: 6, percent: 90},
		{name: "an unready pod will take its share", pods: "900 900 900unready", current: 3, target: 30, want: 6, percent: 90},
		{name: "unready pods keep the target from growing", pods: "400 0unready 0unready", current: 3, target: 30, want: 3, percent: 40},
		{name: "pending pods do not keep it from shrinking", pods: "100 100 -pending", current: 3, target: 50, want: 1, percent: 10},
		{name: "a pod that was ready before counts", pods: "900 900 900lapsed", current: 3, target: 30, want: 9, percent: 90},
		{name: "a young pod counts when it was ready for a window", pods: "900 900young", current: 2, target: 30, want: 6, percent: 90},
		{name: "a young pod does not count before", pods: "900 900fresh", current: 2, target: 30, want: 3, percent: 90},
		{name: "a pod without conditions is not ready", pods: "900 900bare", current: 2, target: 30, want: 3, percent: 90},

		{name: "a missing pod uses nothing on the way up", pods: "900 900 -", current: 3, target: 30, want: 6, percent: 90},
		{name: "a missing pod keeps the target from growing", pods: "350 -", current: 2, target: 30, want: 2, percent: 35},
		{name: "a missing pod uses all on the way down", pods: "100 100 -", current: 3, target: 50, want: 3, percent: 10},
		{name: "even more than all if the target is more", pods: "100 100 100 -", current: 4, target: 200, want: 2, percent: 10},
		{name: "a missing and an unready pod on the way up", pods: "900 900 - 10unready", current: 4, target: 30, want: 6, percent: 90},
		{name: "missing pods at the target change nothing", pods: "300 300 -", current: 3, target: 30, want: 3, percent: 30},
		{name: "more pods than the target asks for", pods: "100 -pending - -", current: 1, target: 80, want: 1, percent: 10},

		{name: "failed and deleted pods do not count", pods: "900 900 100failed 100deleted -failed -deleted", current: 2, target: 30, want: 6, percent: 90},
		{name: "no pods", pods: "", current: 1, target: 50, err: "no pods returned by selector while calculating replica count"},
		{name: "only unready pods", pods: "900unready -pending", current: 2, target: 50, err: "did not receive metrics for targeted pods (pods might be unready)"},
		{name: "no metrics", pods: "- -", current: 2, target: 50, err: "did not receive metrics for targeted pods (pods might be unready)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, metrics := pods(t, tt.pods)
			c := calculation{now: noon, current: tt.current, tolerance: toleranceOf(nil), pods: all, metrics: metrics, resource: corev1.ResourceCPU}
			g := &utilization{target: tt.target, resource: corev1.ResourceCPU}
			got, err := c.replicas(g)
			if fmt.Sprint(err) != or(tt.err, "<nil>") || got != tt.want || g.percent != tt.percent {
				t.Errorf("%d replicas at %d%%, %v; want %d at %d%%, %s", got, g.percent, err, tt.want, tt.percent, tt.err)
			}
		})
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// TestReplicasByAverage has metrics that are not a percentage of a request. Only with the CPU does it matter for how long pods
// are ready.
func TestReplicasByAverage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		pods    string
		current int32
		target  int64
		want    int32
		average int64
	}{
		{"up", "20000 10000 30000", 3, 15000, 4, 20000},
		{"down", "12000 12000 12000 12000 12000", 5, 20000, 3, 12000},
		{"within the tolerance", "20666 20666", 2, 20000, 2, 20666},
		{"unready pods count", "50000 15000unready 30000", 3, 15000, 7, 31666},
		{"pending pods do not", "50000 15000pending 30000", 3, 15000, 6, 40000},
		{"a missing pod is at the target on the way down", "8000 8000 -", 3, 16000, 2, 8000},
		{"a missing pod is at nothing on the way up", "40000 40000 -", 3, 16000, 5, 40000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, metrics := pods(t, tt.pods)
			c := calculation{now: noon, current: tt.current, tolerance: toleranceOf(nil), pods: all, metrics: metrics}
			g := &average{target: tt.target}
			if got, err := c.replicas(g); err != nil || got != tt.want || g.now != tt.average {
				t.Errorf("%d replicas at %d, %v; want %d at %d", got, g.now, err, tt.want, tt.average)
			}
		})
	}
}

func TestReplicasByOneValue(t *testing.T) {
	all, _ := pods(t, "- - -unready")
	for _, tt := range []struct {
		current       int32
		value, target int64
		want          int32
	}{
		{3, 60, 20, 6},
		{3, 10, 20, 1},
		{3, 21, 20, 3},
		{3, 0, 20, 0},
		{0, 60, 20, 3},
		{0, 1, 20, 1},
		{0, 0, 20, 0},
		{3, math.MaxInt64, 1, math.MaxInt32},
		{3, -5, 20, 0},
	} {
		c := calculation{current: tt.current, tolerance: toleranceOf(nil), pods: all}
		if got, err := c.byValue(tt.value, tt.target); err != nil || got != tt.want {
			t.Errorf("%d replicas, a value of %d for a target of %d: %d, %v; want %d", tt.current, tt.value, tt.target, got, err, tt.want)
		}
	}
	if _, err := (calculation{current: 3, tolerance: toleranceOf(nil)}).byValue(100, 1); err == nil || err.Error() != "unable to calculate ready pods: no pods returned by selector while calculating replica count" {
		t.Errorf("without pods: %v", err)
	}
	for _, tt := range []struct {
		present       int32
		value, target int64
		want          int32
		share         int64
	}{
		{3, 60, 10, 6, 20},
		{3, 31, 10, 3, 11},
		{3, 10, 10, 1, 4},
		{0, 60, 10, 6, 60},
		{0, 0, 10, 0, 0},
		{3, math.MaxInt64, 1, math.MaxInt32, math.MaxInt64},
	} {
		got, share := calculation{tolerance: toleranceOf(nil)}.byShare(tt.value, tt.target, tt.present)
		if got != tt.want || share != tt.share {
			t.Errorf("%d present, a value of %d for a target of %d: %d at %d; want %d at %d", tt.present, tt.value, tt.target, got, share, tt.want, tt.share)
		}
	}
	if got := total([]int64{math.MaxInt64, 1}); got != math.MaxInt64 {
		t.Errorf("the sum overflows: %d", got)
	}
}

func TestPartDoesNotOverflow(t *testing.T) {
	for _, tt := range []struct{ v, times, of, want int64 }{
		{500, 100, 1000, 50},
		{math.MaxInt64, 100, 100, math.MaxInt64},
		{math.MaxInt64, 100, 1, math.MaxInt64},
		{math.MaxInt64, 2, math.MaxInt64, 2},
		{0, 100, 1, 0},
	} {
		if got := part(tt.v, tt.times, tt.of); got != tt.want {
			t.Errorf("%d times %d of %d: %d, want %d", tt.v, tt.times, tt.of, got, tt.want)
		}
	}
}

func TestTolerance(t *testing.T) {
	b := &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   &autoscalingv2.HPAScalingRules{Tolerance: new(resource.MustParse("0.3"))},
		ScaleDown: &autoscalingv2.HPAScalingRules{Tolerance: new(resource.MustParse("0"))},
	}
	own, usual := toleranceOf(b), toleranceOf(&autoscalingv2.HorizontalPodAutoscalerBehavior{})
	for ratio, want := range map[float64][2]bool{1: {true, true}, 1.29: {true, false}, 1.31: {false, false}, 0.99: {false, true}, 0.91: {false, true}, 0.8: {false, false}} {
		if own.covers(ratio) != want[0] || usual.covers(ratio) != want[1] {
			t.Errorf("%v: %v and %v, want %v", ratio, own.covers(ratio), usual.covers(ratio), want)
		}
	}
}

func TestRequests(t *testing.T) {
	request := func(name, cpu string) corev1.Container {
		c := corev1.Container{Name: name}
		if cpu != "" {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
		return c
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar, setup := request("sidecar", "200m"), request("setup", "")
	sidecar.RestartPolicy = &always
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{setup, sidecar}, Containers: []corev1.Container{request("a", "1"), request("b", "500m")},
	}}
	whole := p.DeepCopy()
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}
	lacking := p.DeepCopy()
	lacking.Spec.Containers[1] = request("b", "")
	for _, tt := range []struct {
		pod       *corev1.Pod
		container string
		name      corev1.ResourceName
		want      string
	}{
		{p, "", "cpu", "1700 <nil>"},
		{p, "b", "cpu", "500 <nil>"},
		{p, "sidecar", "cpu", "200 <nil>"},
		{p, "setup", "cpu", "0 container setup not found in Pod p"},
		{p, "", "memory", "0 missing request for memory in container a of Pod p"},
		{lacking, "", "cpu", "0 missing request for cpu in container b of Pod p"},
		{lacking, "a", "cpu", "1000 <nil>"},
		{whole, "", "cpu", "4000 <nil>"},
		{whole, "b", "cpu", "500 <nil>"},
	} {
		got, err := requestOf(tt.pod, tt.container, tt.name)
		if text := fmt.Sprint(got, " ", err); text != tt.want {
			t.Errorf("%s of container %q: %s, want %s", tt.name, tt.container, text, tt.want)
		}
	}
}
