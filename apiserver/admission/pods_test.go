package admission_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/scheduling"
	"github.com/sampan-io/sampan/internal/run"
)

func TestNamespaceLifecycle(t *testing.T) {
	now := metav1.Now()
	m := newMemory(map[string]catalog.Object{
		"namespaces//home": &corev1.Namespace{ObjectMeta: meta("", "home")},
		"namespaces//old":  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "old", DeletionTimestamp: &now}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
	})
	in := func(ns string) *corev1.Pod { return &corev1.Pod{ObjectMeta: meta(ns, "p")} }
	named := func(name string) *corev1.Namespace { return &corev1.Namespace{ObjectMeta: meta("", name)} }
	binding := creating(podKind(), in("old"))
	binding.Subresource = "binding"
	tests := []struct {
		name   string
		a      *admission.Attributes
		refuse string
		is     func(error) bool
	}{
		{"into a namespace", creating(podKind(), in("home")), "", nil},
		{"into none", creating(podKind(), in("nowhere")), `namespaces "nowhere" not found`, apierrors.IsNotFound},
		{"into one that goes", creating(podKind(), in("old")), `pods "p" is forbidden: unable to create new content in namespace old because it is being terminated`, apierrors.IsForbidden},
		{"a change in one that goes", updating(podKind(), in("old"), in("old")), "", nil},
		{"a binding in one that goes", binding, "", nil},
		{"what has no namespace", creating(nodeKind(), &corev1.Node{ObjectMeta: meta("", "n")}), "", nil},
		{"a namespace itself", creating(namespaceKind(), named("new")), "", nil},
		{"deleting a namespace", deleting(namespaceKind(), named("home")), "", nil},
		{"deleting default", deleting(namespaceKind(), named("default")), `namespaces "default" is forbidden: this namespace may not be deleted`, apierrors.IsForbidden},
		{"deleting kube-node-lease", deleting(namespaceKind(), named("kube-node-lease")), "may not be deleted", apierrors.IsForbidden},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := admission.NewNamespaceLifecycle(m).Admit(t.Context(), tt.a)
			switch {
			case tt.refuse == "" && err != nil:
				t.Error(err)
			case tt.refuse != "" && (err == nil || !tt.is(err) || !strings.Contains(err.Error(), tt.refuse)):
				t.Errorf("err = %v, want %q", err, tt.refuse)
			}
		})
	}
	err := admission.NewNamespaceLifecycle(m).Admit(t.Context(), creating(podKind(), in("old")))
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("%v does not say by its cause that the namespace goes", err)
	}
}

func sailors() *memory {
	no := false
	return newMemory(map[string]catalog.Object{
		"serviceaccounts/ship/default": &corev1.ServiceAccount{ObjectMeta: meta("ship", "default"), ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}},
		"serviceaccounts/ship/mute":    &corev1.ServiceAccount{ObjectMeta: meta("ship", "mute"), AutomountServiceAccountToken: &no},
	})
}

func TestServiceAccountMountsAToken(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers: []corev1.Container{
			{Name: "a"},
			{Name: "b", VolumeMounts: []corev1.VolumeMount{{Name: "own", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}},
		},
	}}
	if err := admission.NewServiceAccount(sailors()).Admit(t.Context(), creating(podKind(), pod)); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Volumes) != 1 {
		t.Fatalf("volumes = %v, want one", pod.Spec.Volumes)
	}
	name := pod.Spec.Volumes[0].Name
	if !strings.HasPrefix(name, "kube-api-access-") || len(name) != len("kube-api-access-")+5 {
		t.Errorf("the volume is called %q", name)
	}
	mode, life := int32(420), int64(3607)
	mount := []corev1.VolumeMount{{Name: name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
	want := corev1.PodSpec{
		ServiceAccountName: "default", DeprecatedServiceAccount: "default",
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		InitContainers:   []corev1.Container{{Name: "init", VolumeMounts: mount}},
		Containers:       []corev1.Container{{Name: "a", VolumeMounts: mount}, pod.Spec.Containers[1]},
		Volumes: []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: &mode,
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &life, Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
			},
		}}}},
	}
	if diff := cmp.Diff(want, pod.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestServiceAccount(t *testing.T) {
	yes, no := true, false
	mirror := map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	token := corev1.Volume{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}}
	one := []corev1.Container{{Name: "c"}}
	tests := []struct {
		name    string
		spec    corev1.PodSpec
		notes   map[string]string
		volumes int
		account string
		refuse  string
	}{
		{name: "the default one", spec: corev1.PodSpec{Containers: one}, volumes: 1, account: "default"},
		{name: "the pod does not want a token", spec: corev1.PodSpec{Containers: one, AutomountServiceAccountToken: &no}, account: "default"},
		{name: "the account does not want one", spec: corev1.PodSpec{Containers: one, ServiceAccountName: "mute"}, account: "mute"},
		{name: "the pod has the last word", spec: corev1.PodSpec{Containers: one, ServiceAccountName: "mute", AutomountServiceAccountToken: &yes}, volumes: 1, account: "mute"},
		{name: "a missing account", spec: corev1.PodSpec{Containers: one, ServiceAccountName: "ghost"}, refuse: `error looking up service account ship/ghost: serviceaccounts "ghost" not found`},
		{
			name: "the volume of another run stays",
			spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}},
				Volumes:    []corev1.Volume{{Name: "kube-api-access-abcde"}},
			},
			volumes: 1, account: "default",
		},
		{name: "a mirror pod is left alone", notes: mirror, spec: corev1.PodSpec{Containers: one}},
		{name: "a mirror pod has no account", notes: mirror, spec: corev1.PodSpec{ServiceAccountName: "mute"}, refuse: "a mirror pod may not reference service accounts", account: "mute"},
		{name: "a mirror pod has no token", notes: mirror, spec: corev1.PodSpec{Volumes: []corev1.Volume{token}}, volumes: 1, refuse: "a mirror pod may not use ServiceAccountToken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: *tt.spec.DeepCopy()}
			pod.Annotations = tt.notes
			err := admission.NewServiceAccount(sailors()).Admit(t.Context(), creating(podKind(), pod))
			if tt.refuse != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.refuse) {
					t.Errorf("err = %v, want Forbidden with %q", err, tt.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(pod.Spec.Volumes) != tt.volumes || pod.Spec.ServiceAccountName != tt.account {
				t.Errorf("%d volumes as %q, want %d as %q", len(pod.Spec.Volumes), pod.Spec.ServiceAccountName, tt.volumes, tt.account)
			}
		})
	}
}

// TestAPodWaitsForTheDefaultAccount plays what follows the creation of a
// namespace: a pod that is created before the controller has made the account.
func TestAPodWaitsForTheDefaultAccount(t *testing.T) {
	tests := []struct {
		name    string
		made    time.Duration // after the pod came; 0 means never
		failed  bool          // a first try to make it fails
		refused bool
	}{
		{name: "made a moment later", made: 30 * time.Millisecond},
		{name: "made at the second try", made: 30 * time.Millisecond, failed: true},
		{name: "never made", refused: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(nil)
				plugin := admission.NewServiceAccount(m)
				group := run.NewGroup(t.Context(), 0)
				defer group.Stop()
				try := func(committed bool) {
					account := &corev1.ServiceAccount{ObjectMeta: meta("ship", "default")}
					a := creating(accountKind(), account)
					if err := plugin.Admit(t.Context(), a); err != nil {
						t.Error(err)
					}
					if committed {
						m.put("serviceaccounts", account)
					}
					a.Finish(committed)
				}
				if tt.made > 0 {
					group.Go(func(context.Context) {
						time.Sleep(tt.made / 2)
						if tt.failed {
							try(false)
						}
						time.Sleep(tt.made / 2)
						try(true)
					})
				}
				start := time.Now()
				pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
				err := plugin.Admit(t.Context(), creating(podKind(), pod))
				switch waited := time.Since(start); {
				case tt.refused && (!apierrors.IsForbidden(err) || waited != time.Second):
					t.Errorf("err = %v after %v, want Forbidden after a second", err, waited)
				case !tt.refused && (err != nil || waited != tt.made):
					t.Errorf("err = %v after %v, want none after %v", err, waited, tt.made)
				}
			})
		})
	}
}

func TestPriority(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	never := corev1.PreemptNever
	tests := []struct {
		name   string
		spec   corev1.PodSpec
		want   int32
		refuse string
	}{
		{"no class", corev1.PodSpec{}, 0, ""},
		{"a system class", corev1.PodSpec{PriorityClassName: "system-node-critical"}, 2000001000, ""},
		{"the number that comes out anyway", corev1.PodSpec{Priority: number(0)}, 0, ""},
		{"another number", corev1.PodSpec{Priority: number(7)}, 0, "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0"},
		{"another policy", corev1.PodSpec{PreemptionPolicy: &never}, 0, "the string value of PreemptionPolicy (Never) must not be provided"},
		{"no such class", corev1.PodSpec{PriorityClassName: "vip"}, 0, "no PriorityClass with name vip was found"},
	}
	classes := newMemory(nil)
	for _, c := range scheduling.System() {
		classes.put("priorityclasses", c)
	}
	priority := admission.NewPriority(classes)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: tt.spec}
			err := priority.Admit(t.Context(), creating(podKind(), pod))
			if tt.refuse != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.refuse) {
					t.Errorf("err = %v, want %q", err, tt.refuse)
				}
				return
			}
			if err != nil || *pod.Spec.Priority != tt.want || *pod.Spec.PreemptionPolicy != corev1.PreemptLowerPriority {
				t.Fatalf("priority = %v, %v, %v", pod.Spec.Priority, pod.Spec.PreemptionPolicy, err)
			}
			// An update with the file that the pod was made from keeps what was set.
			again := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: tt.spec}
			again.Spec.Priority = nil
			if err := priority.Admit(t.Context(), updating(podKind(), again, pod)); err != nil || *again.Spec.Priority != tt.want {
				t.Errorf("after an update: priority = %v, %v", again.Spec.Priority, err)
			}
		})
	}
}

func TestTheDefaultPriorityClass(t *testing.T) {
	classes := newMemory(nil)
	priority := admission.NewPriority(classes)
	kind := scheduling.Kinds()[0]
	class := func(name string, value int32) *schedulingv1.PriorityClass {
		never := corev1.PreemptNever
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: true, PreemptionPolicy: &never}
	}
	normal := class("normal", 7)
	if err := priority.Admit(t.Context(), creating(kind, normal)); err != nil {
		t.Fatal(err)
	}
	classes.put("priorityclasses", normal)
	pod := &corev1.Pod{ObjectMeta: meta("ship", "p")}
	if err := priority.Admit(t.Context(), creating(podKind(), pod)); err != nil || pod.Spec.PriorityClassName != "normal" || *pod.Spec.Priority != 7 || *pod.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("a pod without a class: %q, %v, %v", pod.Spec.PriorityClassName, pod.Spec.Priority, err)
	}
	if err := priority.Admit(t.Context(), updating(kind, normal, normal)); err != nil {
		t.Errorf("an update of the default: %v", err)
	}
	second := class("second", 9)
	if err := priority.Admit(t.Context(), creating(kind, second)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PriorityClass normal is already marked as default") {
		t.Errorf("a second default: %v", err)
	}
	second.GlobalDefault = false
	if err := priority.Admit(t.Context(), creating(kind, second)); err != nil {
		t.Errorf("another class: %v", err)
	}
}

// A client that replaces all tolerations of a pod keeps the default ones: without them the update would be refused.
func TestDefaultTolerationSecondsActsOnUpdates(t *testing.T) {
	old := &corev1.Pod{ObjectMeta: meta("ship", "p")}
	pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}}}
	if err := (admission.DefaultTolerationSeconds{}).Admit(t.Context(), updating(podKind(), pod, old)); err != nil || len(pod.Spec.Tolerations) != 3 {
		t.Errorf("tolerations are %v, %v; want the one that was written and two", pod.Spec.Tolerations, err)
	}
	status := updating(podKind(), &corev1.Pod{ObjectMeta: meta("ship", "p")}, old)
	status.Subresource = "status"
	if err := (admission.DefaultTolerationSeconds{}).Admit(t.Context(), status); err != nil || len(status.Object.(*corev1.Pod).Spec.Tolerations) != 0 {
		t.Errorf("an update of the status: %v, %v", status.Object, err)
	}
}

func TestDefaultTolerationSeconds(t *testing.T) {
	of := func(ts ...corev1.Toleration) []string {
		pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{Tolerations: ts}}
		for range 2 { // adding twice adds nothing
			if err := (admission.DefaultTolerationSeconds{}).Admit(t.Context(), creating(podKind(), pod)); err != nil {
				t.Fatal(err)
			}
		}
		var added []string
		for _, x := range pod.Spec.Tolerations[len(ts):] {
			if x.Operator != corev1.TolerationOpExists || x.Effect != corev1.TaintEffectNoExecute || *x.TolerationSeconds != 300 {
				t.Errorf("added %v", x)
			}
			added = append(added, strings.TrimPrefix(x.Key, "node.kubernetes.io/"))
		}
		return added
	}
	tests := []struct {
		name string
		have []corev1.Toleration
		want []string
	}{
		{"none", nil, []string{"not-ready", "unreachable"}},
		{"one of them", []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}}, []string{"unreachable"}},
		{"of another effect", []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}, []string{"not-ready", "unreachable"}},
		{"everything", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, of(tt.have...)); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
		})
	}
}
