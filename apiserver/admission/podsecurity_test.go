package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
)

const psa = "pod-security.kubernetes.io/"

func podSecurity(t *testing.T, m *memory) *admission.PodSecurity {
	t.Helper()
	p, err := admission.NewPodSecurity(m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func labelled(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		ns.Labels[psa+key] = value
	}
	return ns
}

func privilegedPod(name string) *corev1.Pod {
	yes := true
	return &corev1.Pod{ObjectMeta: meta("ship", name), Spec: corev1.PodSpec{
		HostNetwork: true,
		Containers:  []corev1.Container{{Name: "c", Image: "a", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}},
	}}
}

func restrictedPod(name string) *corev1.Pod {
	yes, no := true, false
	return &corev1.Pod{ObjectMeta: meta("ship", name), Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "c", Image: "a", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}}
}

func TestPodSecurityChecksPods(t *testing.T) {
	const baseline = `host namespaces (hostNetwork=true), privileged (container "c" must not set securityContext.privileged=true)`
	for _, tt := range []struct {
		name     string
		labels   []string
		pod      *corev1.Pod
		refused  string
		warnings []string
	}{
		{"no labels", nil, privilegedPod("p"), "", nil},
		{"privileged", []string{"enforce=privileged"}, privilegedPod("p"), "", nil},
		{"restricted pod", []string{"enforce=restricted", "warn=restricted", "audit=restricted"}, restrictedPod("p"), "", nil},
		{
			"baseline",
			[]string{"enforce=baseline"},
			privilegedPod("p"),
			`pods "p" is forbidden: violates PodSecurity "baseline:latest": ` + baseline, nil,
		},
		{
			"older version",
			[]string{"enforce=baseline", "enforce-version=v1.30"},
			privilegedPod("p"),
			`pods "p" is forbidden: violates PodSecurity "baseline:v1.30": ` + baseline, nil,
		},
		{"warn", []string{"warn=baseline"}, privilegedPod("p"), "", []string{`would violate PodSecurity "baseline:latest": ` + baseline}},
		{"audit", []string{"audit=baseline"}, privilegedPod("p"), "", nil},
		{
			"enforce and warn",
			[]string{"enforce=baseline", "warn=restricted"},
			restrictedWithHostPort(),
			`violates PodSecurity "baseline:latest": hostPort (container "c" uses hostPort 80)`, nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := creating(podKind(), tt.pod)
			err := podSecurity(t, newMemory(map[string]catalog.Object{"namespaces//ship": labelled("ship", tt.labels...)})).Validate(t.Context(), a)
			if tt.refused == "" && err != nil || tt.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.refused)) {
				t.Errorf("err = %v, want %q", err, tt.refused)
			}
			if d := cmp.Diff(tt.warnings, a.Warnings); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}

func restrictedWithHostPort() *corev1.Pod {
	p := restrictedPod("p")
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	return p
}

func TestPodSecurityChecksUpdatesOfImagesOnly(t *testing.T) {
	p := podSecurity(t, newMemory(map[string]catalog.Object{"namespaces//ship": labelled("ship", "enforce=baseline")}))
	old := privilegedPod("p")
	pod := old.DeepCopy()
	pod.Labels = map[string]string{"a": "b"}
	if err := p.Validate(t.Context(), updating(podKind(), pod, old)); err != nil {
		t.Errorf("another label: %v", err)
	}
	pod.Spec.Containers[0].Image = "b"
	if err := p.Validate(t.Context(), updating(podKind(), pod, old)); !apierrors.IsForbidden(err) {
		t.Errorf("another image: %v, want Forbidden", err)
	}
	a := updating(podKind(), pod, old)
	a.Subresource = "status"
	if err := p.Validate(t.Context(), a); err != nil {
		t.Errorf("the status: %v", err)
	}
}

func TestPodSecurityWarnsOfTemplates(t *testing.T) {
	p := podSecurity(t, newMemory(map[string]catalog.Object{"namespaces//ship": labelled("ship", "enforce=baseline")}))
	d := &appsv1.Deployment{ObjectMeta: meta("ship", "d")}
	d.Spec.Template.Spec = privilegedPod("").Spec
	a := creating(kind("apps", "deployments", "Deployment", true), d)
	if err := p.Validate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	want := []string{`would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true), ` +
		`privileged (container "c" must not set securityContext.privileged=true)`}
	if d := cmp.Diff(want, a.Warnings); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
	rc := &corev1.ReplicationController{ObjectMeta: meta("ship", "rc")} // without a template
	if err := p.Validate(t.Context(), creating(kind("", "replicationcontrollers", "ReplicationController", true), rc)); err != nil {
		t.Error(err)
	}
}

func TestPodSecurityChecksLabelsOfNamespaces(t *testing.T) {
	m := newMemory(nil)
	p := podSecurity(t, m)
	err := p.Validate(t.Context(), creating(namespaceKind(), labelled("ship", "enforce=strict", "warn-version=1.30")))
	for _, want := range []string{
		`metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`,
		`metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1.30": must be "latest" or "v1.x"`,
	} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
	// Labels that were wrong before do not hold up other changes.
	if err := p.Validate(t.Context(), updating(namespaceKind(), labelled("ship", "enforce=strict"), labelled("ship", "enforce=strict"))); err != nil {
		t.Errorf("an update of a namespace with a wrong label: %v", err)
	}
	if err := p.Validate(t.Context(), updating(namespaceKind(), labelled("ship", "enforce=strict"), labelled("ship"))); !apierrors.IsInvalid(err) {
		t.Errorf("an update to a wrong label: %v", err)
	}
	a := creating(namespaceKind(), labelled("ship", "audit=baseline"))
	if err := p.Validate(t.Context(), a); err != nil || len(a.Warnings) != 0 {
		t.Errorf("an audit level: %v, %q", err, a.Warnings)
	}
}

func TestPodSecurityWarnsOfPodsThatAreThere(t *testing.T) {
	m := newMemory(nil)
	p := podSecurity(t, m)
	for i := range 5 {
		pod := privilegedPod(fmt.Sprint("p", i))
		if i > 1 {
			pod.Spec.HostNetwork = false
		}
		if i > 2 {
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{Controller: &yes, UID: types.UID("rs")}}
		}
		m.put("pods", pod)
	}
	m.put("pods", restrictedPod("good"))
	update := func(now, was *corev1.Namespace) []string {
		t.Helper()
		a := updating(namespaceKind(), now, was)
		if err := p.Validate(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return a.Warnings
	}
	want := []string{
		`existing pods in namespace "ship" violate the new PodSecurity enforce level "baseline:latest"`,
		"p0 (and 1 other pod): host namespaces, privileged",
		"p2 (and 2 other pods): privileged",
	}
	if d := cmp.Diff(want, update(labelled("ship", "enforce=baseline"), labelled("ship"))); d != "" {
		t.Errorf("stricter (-want +got):\n%s", d)
	}
	if got := update(labelled("ship", "enforce=baseline"), labelled("ship", "enforce=baseline")); got != nil {
		t.Errorf("the same level: %q", got)
	}
	if got := update(labelled("ship", "enforce=baseline"), labelled("ship", "enforce=restricted")); got != nil {
		t.Errorf("less strict: %q", got)
	}
}

func TestPodSecurityChecksEphemeralContainers(t *testing.T) {
	m := newMemory(nil)
	m.put("namespaces", labelled("ship", "enforce=baseline"))
	p := podSecurity(t, m)
	yes := true
	debugged := func(c corev1.EphemeralContainerCommon) *corev1.Pod {
		pod := restrictedPod("p")
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: c}}
		return pod
	}
	debug := corev1.EphemeralContainerCommon{Name: "debug", Image: "a"}
	privileged := debug
	privileged.SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	for _, tt := range []struct {
		name     string
		now, was *corev1.Pod
		want     string
	}{
		{"added", debugged(debug), restrictedPod("p"), ""},
		{
			"privileged", debugged(privileged), restrictedPod("p"),
			`pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged (container "debug" must not set securityContext.privileged=true)`,
		},
		{"there before", debugged(privileged), debugged(privileged), ""},
	} {
		a := updating(podKind(), tt.now, tt.was)
		a.Subresource = "ephemeralcontainers"
		if err := p.Validate(t.Context(), a); err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
			t.Errorf("%s: err = %v, want %q", tt.name, err, tt.want)
		}
	}
}
