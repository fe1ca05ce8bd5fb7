package snapshots

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sampan-io/sampan/catalog"
)

func TestChangeRuleByKey(t *testing.T) {
	network := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	same, nodes, moved := Change{}, Change{Nodes: true}, Change{From: network, To: network}
	for _, c := range []struct {
		key                string
		same, nodes, moved Interest
	}{
		{"configmaps/a/b", Keep, Keep, Keep},
		{"configmaps/a/kube-root-ca.crt", Drop, Drop, Drop},
		{"configmaps/kube-system/extension-apiserver-authentication", Drop, Drop, Drop},
		{"configmaps/kube-public/cluster-info", Drop, Drop, Drop},
		{"secrets/a/b", Decide, Decide, Decide},
		{"namespaces/kube-system", Decide, Decide, Decide},
		{"namespaces/default", Keep, Keep, Keep},
		{"events/a/b", Drop, Drop, Drop},
		{"events.events.k8s.io/a/b", Drop, Drop, Drop},
		{"leases.coordination.k8s.io/kube-node-lease/n", Drop, Drop, Drop},
		{"certificatesigningrequests.certificates.k8s.io/b", Drop, Drop, Drop},
		{"nodes/n", Keep, Drop, Keep},
		{"csinodes.storage.k8s.io/n", Keep, Drop, Keep},
		{"volumeattachments.storage.k8s.io/n", Keep, Drop, Keep},
		{"resourceslices.resource.k8s.io/n", Keep, Drop, Keep},
		{"pods/a/b", Keep, Decide, Keep},
		{"persistentvolumes/b", Keep, Decide, Keep},
		{"persistentvolumeclaims/a/b", Keep, Decide, Keep},
		{"services/a/b", Keep, Keep, Decide},
		{"ipaddresses.networking.k8s.io/10.96.0.1", Keep, Keep, Decide},
		{"servicecidrs.networking.k8s.io/kubernetes", Keep, Keep, Drop},
		{"deployments.apps/a/b", Keep, Keep, Keep},
		{"widgets.example.com/a/b", Keep, Keep, Keep},
	} {
		for i, got := range []Interest{same.Interest(c.key), nodes.Interest(c.key), moved.Interest(c.key)} {
			if want := []Interest{c.same, c.nodes, c.moved}[i]; got != want {
				t.Errorf("%s, case %d: got %d, want %d", c.key, i, got, want)
			}
		}
	}
}

// status is the part of an object that the rule changes, as a text.
func status(obj catalog.Object) string {
	switch o := obj.(type) {
	case *corev1.Pod:
		return fmt.Sprintf("%s on %q with IP %q, %d containers", o.Status.Phase, o.Spec.NodeName, o.Status.PodIP, len(o.Status.ContainerStatuses))
	case *corev1.PersistentVolume:
		return string(o.Spec.PersistentVolumeReclaimPolicy)
	case *corev1.Secret:
		return fmt.Sprintf("%d values", len(o.Data))
	case *corev1.Namespace:
		return string(o.UID)
	case *networkingv1.IPAddress:
		return o.Name
	case *corev1.Service:
		return fmt.Sprint(o.Spec.ClusterIP, o.Spec.ClusterIPs)
	}
	return ""
}

func TestChangeRuleByObject(t *testing.T) {
	pod := func(phase corev1.PodPhase, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{Phase: phase, PodIP: "10.0.0.1", QOSClass: corev1.PodQOSBurstable, ContainerStatuses: []corev1.ContainerStatus{{}}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: ptr.To(true)}}
		}
	}
	volume := func(s corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: s, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete}}
	}
	service := func(ips ...string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ips[0], ClusterIPs: ips}}
	}
	nodes := Change{Nodes: true, UID: "new"}
	moved := Change{
		From: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:1::/112")},
		To:   []netip.Prefix{netip.MustParsePrefix("10.112.0.0/16"), netip.MustParsePrefix("fd00:2::/108")},
	}
	for name, c := range map[string]struct {
		change Change
		obj    catalog.Object
		want   string // "" means that it is left out
	}{
		"running pod":             {nodes, pod(corev1.PodRunning, nil), `Pending on "" with IP "", 0 containers`},
		"running pod, same nodes": {Change{}, pod(corev1.PodRunning, nil), `Running on "n" with IP "10.0.0.1", 1 containers`},
		"finished pod":            {nodes, pod(corev1.PodSucceeded, nil), `Succeeded on "n" with IP "10.0.0.1", 1 containers`},
		"failed pod":              {nodes, pod(corev1.PodFailed, nil), `Failed on "n" with IP "10.0.0.1", 1 containers`},
		"pod of a ReplicaSet":     {nodes, pod(corev1.PodRunning, owned("ReplicaSet")), `Pending on "" with IP "", 0 containers`},
		"pod of a DaemonSet":      {nodes, pod(corev1.PodRunning, owned("DaemonSet")), ""},
		"static pod":              {nodes, pod(corev1.PodRunning, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }), ""},
		"pod that is deleted":     {nodes, pod(corev1.PodRunning, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), ""},

		"hostPath volume":     {nodes, volume(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{}}), ""},
		"local volume":        {nodes, volume(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}}), ""},
		"CSI volume":          {nodes, volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}), "Retain"},
		"volume, same nodes":  {Change{}, volume(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}}), "Delete"},
		"bootstrap token":     {nodes, &corev1.Secret{Type: "bootstrap.kubernetes.io/token"}, ""},
		"token of an account": {nodes, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": nil, "ca.crt": nil, "namespace": nil}}, "1 values"},
		"other Secret":        {nodes, &corev1.Secret{Data: map[string][]byte{"token": nil}}, "1 values"},
		"kube-system":         {nodes, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "old"}}, "new"},
		"other namespace":     {nodes, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "old"}}, "old"},

		"Service":                   {moved, service("10.96.200.7", "fd00:1::ab"), "10.112.200.7[10.112.200.7 fd00:2::ab]"},
		"IPAddress":                 {moved, &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.96.200.7"}}, "10.112.200.7"},
		"headless Service":          {moved, service("None"), "None[None]"},
		"Service, same network":     {nodes, service("10.96.200.7"), "10.96.200.7[10.96.200.7]"},
		"Service outside, as after": {moved, service("10.1.0.1"), "10.1.0.1[10.1.0.1]"},
	} {
		got := ""
		if c.change.Apply(c.obj) {
			got = status(c.obj)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestUnbindMakesAClaimNew(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n", "mine": "x"}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "v"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	if Unbind(c); c.Spec.VolumeName != "" || c.Status.Phase != corev1.ClaimPending || len(c.Annotations) != 1 {
		t.Errorf("got %+v", c)
	}
}
