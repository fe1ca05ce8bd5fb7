package autoscale_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/autoscale"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/run"
)

// A world is a server whose pods use some CPU each, and that may have the APIs of custom and external metrics.
type world struct {
	client.Interface
	server *clienttest.Server

	mu     sync.Mutex
	cpu    string            // of each pod with metrics; empty: there are none
	served map[string]string // documents beside those of the server, by path and query
	asked  []string          // paths of raw requests
}

// List has the metrics of pods.
func (w *world) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if gvr.Group != metricsv1beta1.GroupName {
		return w.Interface.List(ctx, gvr, namespace, opts)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil || w.cpu == "" {
		return nil, metav1.ListMeta{}, err
	}
	var out []runtime.Object
	for _, p := range clienttest.All(w.server, client.Pods, namespace) {
		if selector.Matches(labels.Set(p.Labels)) {
			out = append(out, &metricsv1beta1.PodMetrics{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.Name}, Timestamp: metav1.Now(), Window: metav1.Duration{Duration: 15 * time.Second},
				Containers: []metricsv1beta1.ContainerMetrics{{Name: "c", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(w.cpu)}}},
			})
		}
	}
	return out, metav1.ListMeta{}, nil
}

// Do has the documents.
func (w *world) Do(ctx context.Context, r client.RawRequest) (*http.Response, error) {
	u := url.URL{Path: r.Path, RawQuery: r.Query.Encode()}
	w.mu.Lock()
	w.asked = append(w.asked, u.Path)
	text, ok := w.served[u.RequestURI()]
	w.mu.Unlock()
	if ok {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
	}
	a := httptest.NewRecorder()
	w.server.Handler().ServeHTTP(a, httptest.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil))
	if a.Code != http.StatusOK {
		return nil, apierrors.NewGenericServerResponse(a.Code, "get", schema.GroupResource{}, "", a.Body.String(), 0, true)
	}
	return a.Result(), nil
}

func (w *world) uses(cpu string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cpu = cpu
}

// running runs the controller in such a world.
func running(t *testing.T, f func(t *testing.T, s *clienttest.Server, w *world), objs ...client.Object) {
	w := &world{cpu: "500m", served: map[string]string{}}
	tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
		w.Interface, w.server = c, c.(*clienttest.Server)
		return autoscale.Tasks(autoscale.Options{Config: controller.Config{Client: w, Caches: caches}, Raw: w})
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) { f(t, s, w) }, objs...)
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	l := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: l},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}},
		},
		Status: appsv1.DeploymentStatus{Replicas: replicas},
	}
}

// podsOf returns running pods of a deployment, each of which requests one core.
func podsOf(name string, n int) (out []client.Object) {
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{"app": name}}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
		long := metav1.NewTime(time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)) // before the time of bubbles begins
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &long, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: long}}}
		out = append(out, p)
	}
	return out
}

func scaler(name, target string, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	if metrics == nil {
		metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
		}}}
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			MinReplicas:    new(int32(1)), MaxReplicas: 10, Metrics: metrics,
		},
	}
}

func replicas(s *clienttest.Server, name string) int32 {
	return *clienttest.Find(s, client.Deployments, "default", name).Spec.Replicas
}

func condition(s *clienttest.Server, name string, kind autoscalingv2.HorizontalPodAutoscalerConditionType) string {
	for _, c := range clienttest.Find(s, client.HorizontalPodAutoscalers, "default", name).Status.Conditions {
		if c.Type == kind {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestTargetFollowsUsage has pods that use more, and then less, of the CPU.
func TestTargetFollowsUsage(t *testing.T) {
	objs := append(podsOf("web", 2), deployment("web", 2), scaler("web", "web"))
	running(t, func(t *testing.T, s *clienttest.Server, w *world) {
		if n := replicas(s, "web"); n != 2 {
			t.Fatalf("%d replicas at the target", n)
		}
		w.uses("1")
		sleep(14 * time.Second)
		if n := replicas(s, "web"); n != 2 {
			t.Errorf("%d replicas before the next period", n)
		}
		sleep(2 * time.Second)
		if n := replicas(s, "web"); n != 4 {
			t.Fatalf("%d replicas at twice the target, want 4", n)
		}
		h := clienttest.Find(s, client.HorizontalPodAutoscalers, "default", "web")
		if h.Status.CurrentReplicas != 2 || h.Status.DesiredReplicas != 4 || h.Status.LastScaleTime == nil || *h.Status.CurrentMetrics[0].Resource.Current.AverageUtilization != 100 {
			t.Errorf("status: %+v", h.Status)
		}
		if want := "True SucceededRescale: the HPA controller was able to update the target scale to 4"; condition(s, "web", autoscalingv2.AbleToScale) != want {
			t.Errorf("AbleToScale: %s", condition(s, "web", autoscalingv2.AbleToScale))
		}
		s.Set(t, podsOf("web", 4)[2:]...)
		w.uses("100m")
		sleep(5*time.Minute - 20*time.Second)
		if n := replicas(s, "web"); n != 4 {
			t.Errorf("%d replicas before the window for shrinking is over", n)
		}
		sleep(time.Minute)
		if n := replicas(s, "web"); n != 1 {
			t.Errorf("%d replicas at a fifth of the target, want 1", n)
		}
		var reasons []string
		for _, e := range clienttest.All(s, client.Events, "default") {
			reasons = append(reasons, e.Reason+": "+e.Message+" by "+e.Source.Component)
		}
		slices.Sort(reasons)
		want := []string{
			"SuccessfulRescale: New size: 1; reason: All metrics below target by horizontal-pod-autoscaler",
			"SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target by horizontal-pod-autoscaler",
		}
		if !slices.Equal(reasons, want) {
			t.Errorf("events %q, want %q", reasons, want)
		}
	}, objs...)
}

// TestChangedAutoscalerActsAtOnce changes a specification, and checks that the status, which is written then, does not wake
// the controller again.
func TestChangedAutoscalerActsAtOnce(t *testing.T) {
	objs := append(podsOf("web", 2), deployment("web", 2), scaler("web", "web"))
	running(t, func(t *testing.T, s *clienttest.Server, w *world) {
		h := clienttest.Find(s, client.HorizontalPodAutoscalers, "default", "web").DeepCopy()
		h.Spec.MinReplicas = new(int32(5))
		if _, err := client.HorizontalPodAutoscalers.Update(t.Context(), s, h, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := replicas(s, "web"); n != 5 {
			t.Errorf("%d replicas after the minimum was raised, want 5", n)
		}
		w.mu.Lock()
		asked := len(w.asked)
		w.mu.Unlock()
		sleep(10 * time.Second)
		if w.mu.Lock(); len(w.asked) != asked {
			t.Errorf("the controller has worked meanwhile: %q", w.asked[asked:])
		}
		w.mu.Unlock()
	}, objs...)
}

// TestNothingRunsWithoutAutoscalers checks autoscale-A1, before the first and after the last one.
func TestNothingRunsWithoutAutoscalers(t *testing.T) {
	running(t, func(t *testing.T, s *clienttest.Server, w *world) {
		sleep(time.Hour)
		if len(w.asked) > 0 {
			t.Errorf("without an autoscaler: %q", w.asked)
		}
		h := scaler("web", "web")
		s.Set(t, h)
		sleep(time.Minute)
		if len(w.asked) == 0 {
			t.Error("nothing is read for an autoscaler")
		}
		s.Remove(t, h)
		synctest.Wait()
		w.asked = nil
		sleep(time.Hour)
		if len(w.asked) > 0 {
			t.Errorf("after the last autoscaler: %q", w.asked)
		}
	}, deployment("web", 2))
}

// TestTwoAutoscalersOfOnePod checks autoscale-A4.
func TestTwoAutoscalersOfOnePod(t *testing.T) {
	objs := append(podsOf("web", 2), deployment("web", 2), scaler("a", "web"), scaler("b", "web"))
	running(t, func(t *testing.T, s *clienttest.Server, w *world) {
		w.uses("1")
		sleep(time.Minute)
		if n := replicas(s, "web"); n != 2 {
			t.Errorf("%d replicas", n)
		}
		const want = "False AmbiguousSelector: pods by selector app=web are controlled by more than one HPA (e.g. [default/"
		for _, name := range []string{"a", "b"} {
			if got := condition(s, name, autoscalingv2.ScalingActive); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s", name, got)
			}
		}
		s.Remove(t, scaler("a", "web"))
		sleep(time.Minute)
		if n := replicas(s, "web"); n != 4 {
			t.Errorf("%d replicas with one autoscaler left, want 4", n)
		}
	}, objs...)
}

// TestTargetsThatAreNone has targets of which there is no scale.
func TestTargetsThatAreNone(t *testing.T) {
	of := func(name, apiVersion, kind string) *autoscalingv2.HorizontalPodAutoscaler {
		h := scaler(name, "web")
		h.Spec.ScaleTargetRef.APIVersion, h.Spec.ScaleTargetRef.Kind = apiVersion, kind
		return h
	}
	running(t, func(t *testing.T, s *clienttest.Server, _ *world) {
		const words = "False FailedGetScale: the HPA controller was unable to get the target's current scale: "
		for name, want := range map[string]string{
			"missing": `deployments.apps "web" not found`,
			"unknown": `no matches for kind "Boat" in group "apps"`,
			"group":   `no matches for kind "Boat" in group "sea.example"`,
			"escape":  `no matches for kind "Deployment" in group ".."`,
			"version": "unexpected GroupVersion string: a/b/c",
			"daemon":  "the server could not find the requested resource",
		} {
			if got := condition(s, name, autoscalingv2.AbleToScale); !strings.HasPrefix(got, words+want) {
				t.Errorf("%s: %s", name, got)
			}
		}
		// The version of the target does not matter, as for upstream's controller.
		if got := condition(s, "core", autoscalingv2.AbleToScale); !strings.HasPrefix(got, `False FailedGetScale: the HPA controller was unable to get the target's current scale: replicationcontrollers "web" not found`) {
			t.Errorf("core: %s", got)
		}
	}, of("missing", "apps/v1", "Deployment"), of("unknown", "apps/v1", "Boat"), of("group", "sea.example/v1", "Boat"), of("escape", "../v1", "Deployment"),
		of("version", "a/b/c", "Deployment"), of("daemon", "apps/v1", "DaemonSet"), of("core", "v7", "ReplicationController"))
}

// TestOtherMetrics reads custom and external metrics by their paths, if there are any.
func TestOtherMetrics(t *testing.T) {
	verb := &metav1.LabelSelector{MatchLabels: map[string]string{"verb": "GET"}}
	id := autoscalingv2.MetricIdentifier{Name: "hits", Selector: verb}
	ten := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("10"))}
	object := func(apiVersion, kind, name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: name}, Metric: id, Target: ten,
		}}
	}
	const custom = "/apis/custom.metrics.k8s.io"
	group := map[string]string{custom: `{"kind":"APIGroup","name":"custom.metrics.k8s.io","versions":[{"version":"v1beta1"},{"version":"v1beta2"}],"preferredVersion":{"version":"v1beta2"}}`}
	with := func(path, items string) map[string]string {
		return map[string]string{custom: group[custom], path: `{"items":[` + items + `]}`}
	}
	for _, tt := range []struct {
		name   string
		metric autoscalingv2.MetricSpec
		served map[string]string
		want   string // of the condition ScalingActive
	}{
		{
			"pods",
			autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: ten}},
			with(custom+"/v1beta2/namespaces/default/pods/%2A/hits?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET", `{"describedObject":{"name":"web-0"},"value":"30"},{"describedObject":{"name":"web-1"},"value":"10","windowSeconds":5}`),
			"True ValidMetricFound: the HPA was able to successfully calculate a replica count from pods metric hits",
		},
		{
			"object", object("apps/v1", "Deployment", "db"),
			with(custom+"/v1beta2/namespaces/default/deployments.apps/db/hits?metricLabelSelector=verb%3DGET", `{"value":"40"}`),
			"True ValidMetricFound: the HPA was able to successfully calculate a replica count from external metric hits(",
		},
		{
			"namespace", object("v1", "Namespace", "kube-system"),
			with(custom+"/v1beta2/namespaces/default/metrics/hits?metricLabelSelector=verb%3DGET", `{"value":"40"}`),
			"True ValidMetricFound",
		},
		{
			"external",
			autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: ten}},
			map[string]string{"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/hits?labelSelector=verb%3DGET": `{"items":[{"value":"15"},{"value":"25"}]}`},
			"True ValidMetricFound",
		},
		{
			"no custom metrics", object("apps/v1", "Deployment", "db"), nil,
			"False FailedGetObjectMetric: the HPA was unable to compute the replica count: unable to get metric hits on Deployment default/db: unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered",
		},
		{
			"no external metrics",
			autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "hits"}, Target: ten}},
			nil,
			"False FailedGetExternalMetric: the HPA was unable to compute the replica count: unable to get external metric default/hits/nil: unable to fetch metrics from external metrics API: the server could not find the requested resource (get hits.external.metrics.k8s.io)",
		},
		{
			"two values of an object", object("apps/v1", "Deployment", "db"),
			with(custom+"/v1beta2/namespaces/default/deployments.apps/db/hits?metricLabelSelector=verb%3DGET", `{"value":"40"},{"value":"41"}`),
			"False FailedGetObjectMetric: the HPA was unable to compute the replica count: unable to get metric hits on Deployment default/db: unable to fetch metrics from custom metrics API: the custom metrics API server returned 2 results when we asked for exactly one",
		},
		{
			"an answer that is not JSON", object("apps/v1", "Deployment", "db"),
			map[string]string{custom: group[custom], custom + "/v1beta2/namespaces/default/deployments.apps/db/hits?metricLabelSelector=verb%3DGET": "<html>"},
			"False FailedGetObjectMetric: the HPA was unable to compute the replica count: unable to get metric hits on Deployment default/db: unable to fetch metrics from custom metrics API: reading /apis/",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objs := append(podsOf("web", 2), deployment("web", 2))
			running(t, func(t *testing.T, s *clienttest.Server, w *world) {
				w.mu.Lock()
				if tt.served != nil {
					w.served = tt.served
				}
				w.mu.Unlock()
				s.Set(t, scaler("web", "web", tt.metric))
				synctest.Wait()
				if got := condition(s, "web", autoscalingv2.ScalingActive); !strings.HasPrefix(got, tt.want) {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				want := int32(2)
				if strings.HasPrefix(tt.want, "True") {
					want = 4 // all are of 40, with 10 for each
				}
				if n := replicas(s, "web"); n != want {
					t.Errorf("%d replicas, want %d", n, want)
				}
			}, objs...)
		})
	}
}

// TestRescaleFaults has a target that others change meanwhile, and one that cannot be scaled.
func TestRescaleFaults(t *testing.T) {
	objs := append(podsOf("web", 2), deployment("web", 2), scaler("web", "web"))
	running(t, func(t *testing.T, s *clienttest.Server, w *world) {
		conflicts := 0
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "update" && r.Subresource == "scale" {
				if conflicts++; conflicts < 4 {
					return apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "web", errors.New("changed"))
				}
			}
			return nil
		})
		w.Interface = s
		w.uses("1")
		sleep(20 * time.Second)
		if n := replicas(s, "web"); n != 4 || conflicts != 4 {
			t.Errorf("%d replicas after %d tries, want 4 after 4", n, conflicts)
		}
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "update" && r.Subresource == "scale" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", errors.New("no"))
			}
			return nil
		})
		s.Set(t, podsOf("web", 4)[2:]...)
		sleep(15 * time.Second)
		if got := condition(s, "web", autoscalingv2.AbleToScale); !strings.HasPrefix(got, "False FailedUpdateScale: the HPA controller was unable to update the target scale: ") {
			t.Errorf("AbleToScale: %s", got)
		}
	}, objs...)
}
