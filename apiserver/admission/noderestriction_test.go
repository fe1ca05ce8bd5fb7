package admission_test

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/names"
)

func TestNodeRestriction(t *testing.T) {
	yes := true
	mine := &corev1.Pod{ObjectMeta: meta("ship", "mine"), Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}}}},
	}}}}}
	theirs := &corev1.Pod{ObjectMeta: meta("ship", "theirs"), Spec: corev1.PodSpec{NodeName: "n2"}}
	self := &corev1.Node{ObjectMeta: meta("", "n1")}
	self.Labels = map[string]string{"disk": "ssd", "kubernetes.io/hostname": "n1", "example.kubernetes.io/x": "set by the admin"}
	mine.Spec.Volumes = append(mine.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "disks"}}})
	driver := &storagev1.CSIDriver{ObjectMeta: meta("", "disks"), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "cloud"}}}}
	m := newMemory(map[string]catalog.Object{"pods/ship/mine": mine, "pods/ship/theirs": theirs, "nodes//n1": self, "csidrivers//disks": driver})
	m.put("nodes", &corev1.Node{ObjectMeta: meta("", "n2"), Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.2.0/24"}}})

	mirror := func(change func(*corev1.Pod)) *admission.Attributes {
		p := &corev1.Pod{ObjectMeta: meta("kube-system", "static-n1"), Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{}}}}
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-n1", Controller: &yes}}
		change(p)
		return creating(podKind(), p)
	}
	node := func(name string, change func(*corev1.Node)) *admission.Attributes {
		n := self.DeepCopy()
		n.Name = name
		change(n)
		return updating(nodeKind(), n, self)
	}
	status := func(old *corev1.Pod, change func(*corev1.Pod)) *admission.Attributes {
		p := old.DeepCopy()
		change(p)
		a := updating(podKind(), p, old)
		a.Subresource = "status"
		return a
	}
	token := func(pod *corev1.Pod, change func(*authenticationv1.TokenRequest)) *admission.Attributes {
		tr := &authenticationv1.TokenRequest{ObjectMeta: meta("ship", "cook")}
		tr.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
		change(tr)
		a := creating(accountKind(), tr)
		a.Subresource = "token"
		return a
	}
	claim := func(change func(*corev1.PersistentVolumeClaim)) *admission.Attributes {
		old := &corev1.PersistentVolumeClaim{ObjectMeta: meta("ship", "data")}
		old.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending}}
		c := old.DeepCopy()
		change(c)
		a := updating(kind("", "persistentvolumeclaims", "PersistentVolumeClaim", true), c, old)
		a.Subresource = "status"
		return a
	}
	lease := func(ns, name string) *admission.Attributes {
		return creating(leaseKind(), &coordinationv1.Lease{ObjectMeta: meta(ns, name)})
	}
	drivers := func(name string) *admission.Attributes {
		return creating(kind("storage.k8s.io", "csinodes", "CSINode", false), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	devices := kind("resource.k8s.io", "resourceslices", "ResourceSlice", false)
	slice := func(node string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}
	}
	sub := func(a *admission.Attributes, name string) *admission.Attributes {
		a.Subresource = name
		return a
	}
	tests := []struct {
		name   string
		a      *admission.Attributes
		refuse string
	}{
		{"a mirror pod", mirror(func(*corev1.Pod) {}), ""},
		{"a pod of its own making", mirror(func(p *corev1.Pod) { p.Annotations = nil }), "can only create mirror pods"},
		{"a mirror pod for another", mirror(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), "spec.nodeName set to itself"},
		{"one that nobody owns", mirror(func(p *corev1.Pod) { p.OwnerReferences = nil }), "a single owner reference set to itself"},
		{"one that another owns", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "n2" }), "an owner reference set to itself"},
		{"of a node made anew", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "x" }), "UID mismatch"},
		{"one with an account", mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "admin" }), "reference a service account"},
		{"one with a secret", mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
		}), `reference other objects (volume "v")`},
		{"one with a directory", mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
		}), ""},
		{"one with a secret in its environment", mirror(func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}
		}), "reference secrets"},
		{"deleting its pod", deleting(podKind(), mine), ""},
		{"deleting another's", deleting(podKind(), theirs), "can only delete pods with spec.nodeName set to itself"},
		{"changing its pod", updating(podKind(), mine, mine), `unexpected operation "UPDATE"`},
		{"binding a pod", sub(creating(podKind(), mine), "binding"), "unexpected pod subresource"},
		{"evicting its pod", sub(creating(podKind(), mine), "eviction"), ""},
		{"evicting another's", sub(creating(podKind(), theirs), "eviction"), "can only evict pods"},

		{"the status of its pod", status(mine, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), ""},
		{"the status of another's", status(theirs, func(*corev1.Pod) {}), "can only update pod status for pods with spec.nodeName set to itself"},
		{"labels with the status", status(mine, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }), "cannot update labels through pod status"},

		{"a claim with the status", status(mine, func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c"}}
		}), "cannot update resource claim statues"},
		{"a claim of extended resources with the status", status(mine, func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "theirs"}
		}), "cannot update extended resource claim status"},
		{"a claim of its resources with the status", status(mine, func(p *corev1.Pod) {
			p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "theirs"}}
		}), "cannot update node allocatable resource claim statuses"},

		{"its node", node("n1", func(*corev1.Node) {}), ""},
		{"an owner of its node", node("n1", func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), "is not allowed to modify ownerReferences"},
		{"another node", node("n2", func(*corev1.Node) {}), `node "n1" is not allowed to modify node "n2"`},
		{"its taints", node("n1", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }), "is not allowed to modify taints"},
		{"a label of its own", node("n1", func(n *corev1.Node) { n.Labels["disk"] = "hdd" }), ""},
		{"a label that nodes set", node("n1", func(n *corev1.Node) { n.Labels["node.kubernetes.io/instance-type"] = "boat" }), ""},
		{"a role", node("n1", func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }), "is not allowed to modify labels: node-role.kubernetes.io/control-plane"},
		{"a label that restricts it", node("n1", func(n *corev1.Node) { n.Labels["node-restriction.kubernetes.io/x"] = "" }), "is not allowed to modify labels"},
		{"an unverified kubelet", node("n1", func(n *corev1.Node) { n.Labels[names.UnverifiedKubelet] = "" }), "is not allowed to modify labels"},
		{"taking a label of the admin's away", node("n1", func(n *corev1.Node) { delete(n.Labels, "example.kubernetes.io/x") }), "is not allowed to modify labels: example.kubernetes.io/x"},
		{"a free pod network", node("n1", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24"} }), ""},
		{"another's pod network", node("n1", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.2.128/25"} }), `is not allowed to set the pod network 10.244.2.128/25, which overlaps 10.244.2.0/24 of node "n2"`},
		{"registering with all pod networks", creating(nodeKind(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/16"}}}), "which overlaps 10.244.2.0/24"},
		{"registering with a role", creating(nodeKind(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"node-role.kubernetes.io/x": ""}}}), "is not allowed to set the following labels"},

		{"a token for the API server, which the pod does not ask for", token(mine, func(*authenticationv1.TokenRequest) {}), `system:node:n1 is not authorized to request tokens for audience ""`},
		{"for an audience that the pod names", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.Audiences = []string{"vault"} }), ""},
		{"for an audience of a driver", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.Audiences = []string{"cloud"} }), ""},
		{"the size of a claim", claim(func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity, c.Status.Conditions = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}, nil
		}), ""},
		{"the phase of a claim", claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), "is not allowed to update fields other than status.quantity and status.conditions"},
		{"labels of a claim", claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), "is not allowed to update fields other than"},
		{"for another audience", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.Audiences = []string{"bank"} }), `system:node:n1 is not authorized to request tokens for audience "bank"`},
		{"for an audience that it may request", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.Audiences = []string{"registry"} }), ""},
		{"for two audiences", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.Audiences = []string{"registry", "registry"} }), "node may only request 0 or 1 audiences"},
		{"for another's pod", token(theirs, func(*authenticationv1.TokenRequest) {}), "bound to a pod scheduled on a different node"},
		{"for no pod", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.BoundObjectRef = nil }), "not bound to a pod"},
		{"without a UID", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.BoundObjectRef.UID = "" }), "without a uid"},
		{"for a pod made anew", token(mine, func(tr *authenticationv1.TokenRequest) { tr.Spec.BoundObjectRef.UID = types.UID("x") }), "does not match the UID in record"},

		{"its lease", lease("kube-node-lease", "n1"), ""},
		{"another's lease", lease("kube-node-lease", "n2"), "same name as the requesting node"},
		{"the lease of its service proxy", lease("kube-system", "service-proxy-n1"), ""},
		{"that of another's", lease("kube-system", "service-proxy-n2"), "can only access leases in the"},
		{"a lease elsewhere", lease("kube-system", "n1"), "can only access leases in the"},

		{"devices of its own", creating(devices, slice("n1")), ""},
		{"devices of another", creating(devices, slice("n2")), "can only create ResourceSlice with the same NodeName as the requesting node"},
		{"devices of all nodes", creating(devices, &resourcev1.ResourceSlice{}), "can only create ResourceSlice with the same NodeName"},
		{"deleting its devices", deleting(devices, slice("n1")), ""},
		{"deleting another's devices", deleting(devices, slice("n2")), "can only delete ResourceSlice with the same NodeName as the requesting node"},

		{"its drivers", drivers("n1"), ""},
		{"another's drivers", drivers("n2"), "can only access CSINode with the same name as the requesting node"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plugin := admission.NewNodeRestriction(m, audiences("registry"))
			if err := plugin.Admit(t.Context(), tt.a); err != nil {
				t.Errorf("somebody who is no node is refused: %v", err)
			}
			tt.a.User = &auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}
			err := plugin.Admit(t.Context(), tt.a)
			switch {
			case tt.refuse == "" && err != nil:
				t.Error(err)
			case tt.refuse != "" && (err == nil || !strings.Contains(err.Error(), tt.refuse)):
				t.Errorf("err = %v, want %q", err, tt.refuse)
			}
		})
	}
}

// audiences are those for which nodes may request tokens of the service account that the tests name.
type audiences string

func (g audiences) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: a.Verb == "request-serviceaccounts-token-audience" && a.Resource == string(g) && a.Group == "" && a.Namespace != "" && a.Name != ""}
}

// A node makes events and leases of any name: they are small.
func TestNodesWriteSmallObjects(t *testing.T) {
	p := admission.NewNodeRestriction(newMemory(nil), nil)
	node := &auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}
	event := func(message int) *corev1.Event {
		return &corev1.Event{ObjectMeta: meta("ship", "e"), Message: strings.Repeat("x", message)}
	}
	events := catalog.Kind{Resource: "events", Namespaced: true, New: func() catalog.Object { return &corev1.Event{} }}
	for _, tt := range []struct {
		user    *auth.User
		message int
		refused bool
	}{{node, 30_000, false}, {node, 40_000, true}, {node, 2_000_000, true}, {&auth.User{Name: "boss"}, 2_000_000, false}} {
		for _, a := range []*admission.Attributes{creating(&events, event(tt.message)), updating(&events, event(tt.message), event(1))} {
			a.User = tt.user
			err := p.Admit(t.Context(), a)
			if (err != nil) != tt.refused || err != nil && !strings.Contains(err.Error(), "with at most 32768 bytes, got") {
				t.Errorf("%s %s with %d bytes: %v", tt.user.Name, a.Operation, tt.message, err)
			}
		}
	}
}

func TestFinishRunsBackwardsAndOnce(t *testing.T) {
	var told []string
	a := &admission.Attributes{}
	for _, name := range []string{"first", "second"} {
		a.Done = append(a.Done, func(committed bool) {
			if committed {
				told = append(told, name)
			}
		})
	}
	a.Finish(true)
	a.Finish(true)
	if got := strings.Join(told, " "); got != "second first" {
		t.Errorf("told %q", got)
	}
}

func TestNodeRequestsCertificatesForItsPods(t *testing.T) {
	mine := &corev1.Pod{ObjectMeta: meta("ship", "mine"), Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "cook"}}
	theirs := &corev1.Pod{ObjectMeta: meta("ship", "theirs"), Spec: corev1.PodSpec{NodeName: "n2", ServiceAccountName: "cook"}}
	m := newMemory(map[string]catalog.Object{"pods/ship/mine": mine, "pods/ship/theirs": theirs})
	requests := kind("certificates.k8s.io", "podcertificaterequests", "PodCertificateRequest", true)
	for name, test := range map[string]struct {
		of     *corev1.Pod
		change func(*certificatesv1.PodCertificateRequestSpec)
		want   string
	}{
		"its pod":            {mine, func(*certificatesv1.PodCertificateRequestSpec) {}, ""},
		"another node":       {mine, func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "n2" }, "not the requesting node"},
		"another's pod":      {theirs, func(*certificatesv1.PodCertificateRequestSpec) {}, "is not running on node"},
		"a pod made anew":    {mine, func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "x" }, "differs from running pod"},
		"another's account":  {mine, func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "captain" }, "serviceAccountName"},
		"a pod that is gone": {mine, func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "gone" }, "not found"},
	} {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: meta("ship", "req-1")}
		r.Spec = certificatesv1.PodCertificateRequestSpec{NodeName: "n1", PodName: test.of.Name, PodUID: test.of.UID, ServiceAccountName: test.of.Spec.ServiceAccountName}
		test.change(&r.Spec)
		a := creating(requests, r)
		a.User = &auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}
		err := admission.NewNodeRestriction(m, audiences("registry")).Admit(t.Context(), a)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
