package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A field that is stored but has no effect causes one warning for the client that writes it.
func TestFieldsWithoutEffectWarn(t *testing.T) {
	f := serve(t)
	said := func(a answer, want ...string) {
		t.Helper()
		got := a.header.Values("Warning")
		if a.code >= 300 || len(got) != len(want) {
			t.Fatalf("%d with the warnings %q, want %q: %s", a.code, got, want, a.body)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], `299 - "`+want[i]+": has no effect in this version: ") {
				t.Errorf("warning %q, want one of %s", got[i], want[i])
			}
		}
	}
	const merge = "Content-Type: application/merge-patch+json"
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec = pod("").Spec
	d.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"}}
	const deployments, label = "/apis/apps/v1/namespaces/default/deployments", `Deployment \"d\": spec.template.spec.securityContext.seLinuxOptions`
	said(f.do("POST", deployments+"?dryRun=All", d), label)
	said(f.do("POST", deployments, d), label)
	said(f.do("PATCH", deployments+"/d", `{"metadata":{"labels":{"a":"b"}}}`, merge))
	said(f.do("PATCH", deployments+"/d", `{"spec":{"paused":true}}`, merge), label)
	said(f.do("GET", deployments+"/d", nil))

	p := pod("p")
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}}}}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}}}
	said(f.do("POST", pods, p)) // the scheduler obeys this field
	p.Name = "q"
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"}}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"}}
	p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0], p.Spec.Containers[0])
	p.Spec.Containers[1].Name, p.Spec.Containers[2].Name = "second", "third"
	said(f.do("POST", pods, p), `Pod \"q\": spec.securityContext.seLinuxOptions`, `Pod \"q\": spec.containers[0].securityContext.seLinuxOptions (and 2 more)`)
	p.Name = "nothing"
	p.Spec.SecurityContext.SELinuxOptions, p.Spec.Containers = &corev1.SELinuxOptions{}, p.Spec.Containers[:1]
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		SELinuxOptions: &corev1.SELinuxOptions{}, WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(bool)},
	}
	said(f.do("POST", pods, p)) // empty options ask for nothing
	p = pod("hp")
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 8081}}
	said(f.do("POST", pods, p)) // which leads to the pod
	p.Name, p.Spec.HostNetwork = "hn", true
	p.Spec.Containers[0].Ports[1].HostPort = 81
	said(f.do("POST", pods, p)) // its ports are the host's
}

// warnings returns the texts of the warnings of an answer.
func (a answer) warnings() (texts []string) {
	for _, h := range a.header.Values("Warning") {
		texts = append(texts, strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(h, `299 - "`), `"`), `\"`, `"`))
	}
	return texts
}

func TestUpdatesWarnAsUpstream(t *testing.T) {
	f := serve(t)
	const merge = "Content-Type: application/merge-patch+json"
	p := pod("a.b")
	const name = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
	if got := f.do("POST", pods, p).warnings(); !slices.Equal(got, []string{name}) {
		t.Errorf("a new pod: %q", got)
	}
	if got := f.do("PATCH", pods+"/a.b", `{"spec":{"activeDeadlineSeconds":5}}`, merge).warnings(); got != nil {
		t.Errorf("an update of a pod: %q", got)
	}
	const ip = `status.podIPs[0].ip: IPv6 address "fd00:0::1" should be in RFC 5952 canonical format ("fd00::1")`
	if got := f.do("PATCH", pods+"/a.b/status", `{"status":{"podIPs":[{"ip":"fd00:0::1"}]}}`, merge).warnings(); !slices.Equal(got, []string{ip}) {
		t.Errorf("the status of a pod: %q", got)
	}
	const old = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
	for _, path := range []string{"/api/v1/endpoints", "/api/v1/namespaces/default/endpoints", "/api/v1/namespaces/default/endpoints/none"} {
		if got := f.do("GET", path, nil).warnings(); !slices.Equal(got, []string{old}) {
			t.Errorf("GET %s: %q", path, got)
		}
	}
}
