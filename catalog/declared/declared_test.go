package declared_test

import (
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/declared"
)

func TestValidate(t *testing.T) {
	binding := func(role string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}}
	}
	slice := func(addresses ...string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: addresses}},
		}
	}
	job := func(scheduling *batchv1.JobSchedulingConfiguration) *batchv1.Job {
		return &batchv1.Job{Spec: batchv1.JobSpec{Scheduling: scheduling}}
	}
	autoscaler := func(least int32) *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"},
			MinReplicas:    new(least), MaxReplicas: 3,
		}}
	}
	responder := func(name string, priority int32) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			EvictionResponders: []corev1.EvictionResponder{{Name: name, Priority: &priority}},
		}}
	}
	for _, test := range []struct {
		name        string
		obj, old    runtime.Object
		subresource string
		want        string // field: type
	}{
		{name: "good", obj: binding("reader")},
		{name: "beta rule", obj: binding(""), want: "roleRef.name: Required value"},
		{
			name: "change", obj: &storagev1.StorageClass{Provisioner: "b"}, old: &storagev1.StorageClass{Provisioner: "a"},
			want: "provisioner: Invalid value",
		},
		{name: "too few", obj: slice(), want: "endpoints[0].addresses: Required value"},
		{name: "bad before and after", obj: slice(), old: slice()},
		{name: "alpha rule", obj: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Generation: -1}}},
		{name: "no enforced rule", obj: &corev1.Secret{Type: "b"}, old: &corev1.Secret{Type: "a"}},
		{name: "type without rules", obj: &corev1.Binding{}},
		{name: "gate that is off", obj: job(&batchv1.JobSchedulingConfiguration{
			SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{},
		}), want: "spec.scheduling: Forbidden"},
		{name: "gate that is on", obj: autoscaler(0)},
		{name: "below the least", obj: autoscaler(-1), want: "spec.minReplicas: Invalid value"},
		{
			name: "subresource", obj: autoscaler(-1), old: autoscaler(1), subresource: "status",
			want: "spec.minReplicas: Invalid value",
		},
		{name: "group without kinds here", obj: &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: make([]resourcev1.DeviceRequest, 33)},
		}}, want: "spec.devices.requests: Too many"},
		{name: "responder", obj: responder("a.example/b", 1000)},
		{
			name: "reserved domain", obj: responder("a.k8s.io/b", 1000),
			want: "spec.evictionResponders[0].name: Invalid value",
		},
		{
			name: "reserved domain in capitals", obj: responder("Kubernetes.IO./b", 1000),
			want: "spec.evictionResponders[0].name: Invalid value, spec.evictionResponders[0].name: Invalid value",
		},
		{
			name: "reserved priority", obj: responder("a.example/b", 999),
			want: "spec.evictionResponders[0].priority: Invalid value",
		},
		{
			name: "negative priority", obj: responder("a.example/b", -1),
			want: "spec.evictionResponders[0].priority: Invalid value",
		},
		{
			name: "another type", obj: &corev1.Pod{}, old: &storagev1.CSINode{},
			want: "<nil>: Internal error",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, e := range declared.Validate(t.Context(), test.obj, test.old, test.subresource) {
				got = append(got, e.Field+": "+e.Type.String())
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestValidateSurvivesPanics gives a rule a nil object.
func TestValidateSurvivesPanics(t *testing.T) {
	errs := declared.Validate(t.Context(), (*corev1.Pod)(nil), nil, "")
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeInternal {
		t.Errorf("got %v, want an internal error", errs)
	}
}

func TestMerge(t *testing.T) {
	a, b := field.NewPath("spec", "a"), field.NewPath("spec", "b")
	byHand := func(p *field.Path) *field.Error { return field.Required(p, "by hand") }
	covered := func(p *field.Path) *field.Error { return field.Required(p, "by hand").MarkCoveredByDeclarative() }
	rule := func(p *field.Path) *field.Error { return field.Required(p, "declared").MarkBeta() }
	for _, test := range []struct {
		name             string
		byHand, declared field.ErrorList
		want             string
	}{
		{name: "nothing"},
		{"only by hand", field.ErrorList{byHand(a)}, nil, "a by hand"},
		{"only declared", nil, field.ErrorList{rule(a)}, "a declared"},
		{"same field and type", field.ErrorList{byHand(a)}, field.ErrorList{rule(a)}, "a by hand"},
		{"twice by hand", field.ErrorList{byHand(a), byHand(a)}, field.ErrorList{rule(a)}, "a by hand, a by hand"},
		{"covered", field.ErrorList{covered(a)}, field.ErrorList{rule(a)}, "a declared"},
		{"covered, but not found", field.ErrorList{covered(a)}, field.ErrorList{rule(b)}, "a by hand, b declared"},
		{"covered and not", field.ErrorList{covered(a), byHand(a)}, field.ErrorList{rule(a)}, "a by hand"},
		{"another field", field.ErrorList{byHand(a)}, field.ErrorList{rule(b)}, "a by hand, b declared"},
		{
			"another type",
			field.ErrorList{field.Invalid(a, "", "by hand")},
			field.ErrorList{rule(a)},
			"a by hand, a declared",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, e := range declared.Merge(test.byHand, test.declared) {
				got = append(got, strings.TrimPrefix(e.Field, "spec.")+" "+e.Detail)
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "web", Image: "web:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
			Ports: []corev1.ContainerPort{{ContainerPort: 80}},
		}}, Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}},
	}
	running := pod.DeepCopy()
	running.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}
	for _, bench := range []struct {
		name     string
		obj, old runtime.Object
	}{{"create a pod", pod, nil}, {"update a pod", running, pod}, {"renew a lease", &coordinationv1.Lease{}, &coordinationv1.Lease{}}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if errs := declared.Validate(b.Context(), bench.obj, bench.old, ""); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
	}
}

// The generated rules would compare them pairwise, for minutes.
func TestCrowdOfDeviceStatuses(t *testing.T) {
	c := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Devices: make([]resourcev1.AllocatedDeviceStatus, 50_000)}}
	got := declared.Validate(t.Context(), c, c, "status")
	if len(got) != 1 || got[0].Type != field.ErrorTypeTooMany || got[0].Field != "status.devices" {
		t.Errorf("got %v, want too many devices", got)
	}
}
