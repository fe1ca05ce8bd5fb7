package rbac_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/catalog"
)

// pods is a store that holds pods.
type pods []*corev1.Pod

func (p pods) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	for _, pod := range p {
		if gvr.Resource == "pods" && pod.Namespace == namespace && pod.Name == name {
			return pod, nil
		}
	}
	for key, o := range stored() {
		if gvr.Resource+" "+namespace+"/"+name == key {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

// stored are the objects of volumes that every store holds: n1 has a pod with the claim a/data.
func stored() map[string]catalog.Object {
	claim := func(uid, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	volume := func(uid, stage, publish string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "a", Name: "data", UID: types.UID(uid)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				NodeStageSecretRef:   &corev1.SecretReference{Namespace: "c", Name: stage},
				NodePublishSecretRef: &corev1.SecretReference{Namespace: "c", Name: publish},
			}},
		}}
	}
	attachment := func(node string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}
	}
	slice := func(node string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}
	}
	return map[string]catalog.Object{
		"persistentvolumeclaims a/data": claim("1", "pv"), "persistentvolumes /pv": volume("1", "stage", "publish"),
		"persistentvolumeclaims a/forged": claim("2", "pv-of-another"), "persistentvolumes /pv-of-another": volume("3", "stale", "stale"),
		"resourceslices /slice-mine": slice("n1"), "resourceslices /slice-theirs": slice("n2"),
		"volumeattachments /csi-mine": attachment("n1"), "volumeattachments /csi-theirs": attachment("n2"),
	}
}

func (p pods) List(_ context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error) {
	var found []catalog.Object
	for _, pod := range p {
		if gvr.Resource == "pods" && (namespace == "" || pod.Namespace == namespace) && pod.Spec.NodeName == where["spec.nodeName"] {
			found = append(found, pod)
		}
	}
	return found, nil
}

func pod(namespace, name, node string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "sa-" + name}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func fleet() pods {
	list := pods{
		pod("a", "mine", "n1", func(s *corev1.PodSpec) {
			s.ImagePullSecrets = []corev1.LocalObjectReference{named("pull")}
			s.InitContainers = []corev1.Container{{Env: []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("init-env")}}}}}}
			s.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("env-from")}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("map-from")}},
			}}}
			s.Volumes = []corev1.Volume{
				{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
				{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{LocalObjectReference: named("projected")}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("kube-root-ca.crt")}},
				}}}},
				{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "forged"}}},
			}
		}),
		pod("b", "theirs", "n2", func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{named("pull-b")} }),
	}
	mine := list[0]
	mine.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "named", ResourceClaimName: new("claim-mine")}, {Name: "made", ResourceClaimTemplateName: new("t")},
	}
	mine.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: new("claim-made")}}
	mine.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim-extended"}
	list[1].Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "named", ResourceClaimName: new("claim-theirs")}}
	return list
}

func user(name string, groups ...string) *auth.User {
	return &auth.User{Name: name, Groups: append(groups, auth.GroupAuthenticated)}
}

// ask reads "verb resource[.group][/subresource] [namespace/]name", with "*" for no
// name and an optional field selector, or "verb /path".
func ask(t *testing.T, u *auth.User, text string) rbac.Attributes {
	t.Helper()
	parts := strings.Fields(text)
	a := rbac.Attributes{User: u, Verb: parts[0], Version: "v1"}
	if strings.HasPrefix(parts[1], "/") {
		a.Path, a.Version = parts[1], ""
		return a
	}
	resource, sub, _ := strings.Cut(parts[1], "/")
	a.Resource, a.Group, _ = strings.Cut(resource, ".")
	a.Subresource = sub
	if len(parts) > 2 {
		var ok bool
		if a.Namespace, a.Name, ok = strings.Cut(parts[2], "/"); !ok {
			a.Namespace, a.Name = "", a.Namespace
		}
		if a.Name == "*" {
			a.Name = ""
		}
	}
	if len(parts) > 3 {
		a.Fields = fields.ParseSelectorOrDie(parts[3])
	}
	return a
}

func TestWhoMayDoWhat(t *testing.T) {
	admin := user("kubernetes-admin", auth.GroupMasters)
	scheduler, manager, proxy := user("system:kube-scheduler"), user("system:kube-controller-manager"), user("system:kube-proxy")
	jobs := user("system:serviceaccount:kube-system:job-controller", auth.GroupServiceAccounts, auth.GroupServiceAccounts+":kube-system")
	account := user("system:serviceaccount:a:sa-mine", auth.GroupServiceAccounts, auth.GroupServiceAccounts+":a")
	anonymous := &auth.User{Name: auth.Anonymous, Groups: []string{auth.GroupUnauthenticated}}
	node := user("system:node:n1", auth.GroupNodes)
	tests := []struct {
		who  *auth.User
		what string
		may  bool
	}{
		{admin, "delete namespaces x", true},
		{admin, "create pods/exec a/mine", true},
		{admin, "get /metrics", true},
		{admin, "anything widgets.example.com a/x", true},

		{scheduler, "list pods *", true},
		{scheduler, "watch nodes *", true},
		{scheduler, "create pods/binding a/mine", true},
		{scheduler, "patch pods/status a/mine", true},
		{scheduler, "create events a/*", true},

		{node, "create certificatesigningrequests.certificates.k8s.io/selfnodeclient *", true},
		{node, "create certificatesigningrequests.certificates.k8s.io/nodeclient *", false},
		{node, "create podcertificaterequests.certificates.k8s.io a/*", true},
		{node, "update podcertificaterequests.certificates.k8s.io/status a/x", false},
		{node, "list podcertificaterequests.certificates.k8s.io *", false},
		{node, "delete podcertificaterequests.certificates.k8s.io a/x", false},
		{scheduler, "update pods a/mine", false},
		{scheduler, "create pods a/*", false},
		{scheduler, "list secrets *", false},
		{scheduler, "update persistentvolumes disk", true},
		{scheduler, "update persistentvolumeclaims a/data", true},
		{scheduler, "delete persistentvolumeclaims a/data", false},
		{scheduler, "watch volumeattachments.storage.k8s.io *", true},
		{scheduler, "update leases.coordination.k8s.io kube-system/kube-scheduler", true},
		{scheduler, "update leases.coordination.k8s.io a/other", false},

		{manager, "watch widgets.example.com *", true},
		{manager, "create pods a/*", false},
		{manager, "update jobs.batch/status a/build", false},
		{manager, "delete namespaces x", false},
		{jobs, "create pods a/*", true},
		{jobs, "update jobs.batch/status a/build", true},
		{jobs, "update replicationcontrollers/status a/web", false},
		{jobs, "delete namespaces x", false},
		{manager, "create pods/exec a/mine", false},
		{manager, "create secrets a/*", true},
		{manager, "create serviceaccounts/token a/x", true},
		{manager, "create nodes n9", false},

		{proxy, "watch services *", true},
		{proxy, "watch endpointslices.discovery.k8s.io *", true},
		{proxy, "get pods a/mine", false},
		{proxy, "update leases.coordination.k8s.io kube-system/service-proxy-n1", true},
		{proxy, "update leases.coordination.k8s.io kube-node-lease/n1", false},
		{proxy, "delete leases.coordination.k8s.io kube-system/kube-scheduler", false},
		{proxy, "update services a/x", false},

		{account, "get /version", true},
		{account, "get /apis/batch/v1", true},
		{account, "get /openapi/v3", true},
		{account, "get pods a/mine", false},
		{account, "list namespaces *", false},

		{anonymous, "get /livez", true},
		{anonymous, "get /readyz", true},
		{anonymous, "get /healthz", true},
		{anonymous, "get /version", true},
		{anonymous, "get /api", false},
		{anonymous, "get /metrics", false},
		{anonymous, "post /version", false},
		{anonymous, "list pods *", false},

		{node, "create nodes *", true},
		{node, "get nodes n1", true},
		{node, "watch nodes n1", true},
		{node, "patch nodes/status n1", true},
		{node, "get nodes n2", true}, // its service proxy and its routes need all
		{node, "list nodes *", true},
		{node, "delete nodes n1", false},
		{node, "list pods * spec.nodeName=n1", true},
		{node, "watch pods * spec.nodeName=n1,status.phase!=Failed", true},
		{node, "list pods * spec.nodeName=n2", false},
		{node, "list pods * spec.nodeName!=n1", false},
		{node, "list pods *", false},
		{node, "get pods a/mine", true},
		{node, "get pods b/theirs", false},
		{node, "get pods a/unknown", false},
		{node, "patch pods/status a/mine", true},
		{node, "update pods a/mine", false},
		{node, "create pods/binding a/mine", false},
		{node, "create pods/exec a/mine", false},
		{node, "get leases.coordination.k8s.io kube-node-lease/n1", true},
		{node, "update leases.coordination.k8s.io kube-node-lease/n1", true},
		{node, "create leases.coordination.k8s.io kube-node-lease/*", true},
		{node, "update leases.coordination.k8s.io kube-node-lease/n2", false},
		{node, "update leases.coordination.k8s.io kube-system/n1", false},
		{node, "list leases.coordination.k8s.io kube-node-lease/*", false},
		{node, "create csinodes.storage.k8s.io *", true},
		{node, "update csinodes.storage.k8s.io n1", true},
		{node, "update csinodes.storage.k8s.io n2", false},
		{node, "list csinodes.storage.k8s.io *", false},
		{node, "create resourceslices.resource.k8s.io *", true},
		{node, "list resourceslices.resource.k8s.io * spec.nodeName=n1", true},
		{node, "deletecollection resourceslices.resource.k8s.io * spec.nodeName=n1,spec.driver=d", true},
		{node, "list resourceslices.resource.k8s.io * spec.nodeName=n2", false},
		{node, "list resourceslices.resource.k8s.io *", false},
		{node, "delete resourceslices.resource.k8s.io slice-mine", true},
		{node, "delete resourceslices.resource.k8s.io slice-theirs", false},
		{node, "get resourceclaims.resource.k8s.io a/claim-mine", true},
		{node, "get resourceclaims.resource.k8s.io a/claim-made", true},
		{node, "get resourceclaims.resource.k8s.io a/claim-extended", true},
		{node, "get resourceclaims.resource.k8s.io b/claim-theirs", false},
		{node, "list resourceclaims.resource.k8s.io a/*", false},
		{node, "update resourceclaims.resource.k8s.io a/claim-mine", false},
		{node, "list persistentvolumeclaims a/*", false},
		{node, "get persistentvolumeclaims a/nobodys", false},
		{node, "get persistentvolumes disk", false},
		{node, "watch leases.coordination.k8s.io kube-system/*", true},
		{node, "create leases.coordination.k8s.io kube-system/*", true}, // which one: NodeRestriction
		{node, "update leases.coordination.k8s.io kube-system/service-proxy-n1", true},
		{node, "update leases.coordination.k8s.io kube-system/service-proxy-n2", false},
		{node, "delete leases.coordination.k8s.io kube-system/service-proxy-n1", false},
		{node, "get secrets a/pull", true},
		{node, "get secrets a/init-env", true},
		{node, "get secrets a/env-from", true},
		{node, "watch secrets a/volume", true},
		{node, "get secrets a/projected", true},
		{node, "get secrets b/pull", false},
		{node, "get secrets b/pull-b", false},
		{node, "list secrets a/*", false},
		{node, "list secrets *", false},
		{node, "update secrets a/pull", false},
		{node, "get configmaps a/kube-root-ca.crt", true},
		{node, "get configmaps a/map-from", true},
		{node, "get configmaps a/pull", false},
		{node, "create serviceaccounts/token a/sa-mine", true},
		{node, "create serviceaccounts/token b/sa-theirs", false},
		{node, "get serviceaccounts a/sa-mine", true},
		{node, "create serviceaccounts a/*", false},
		{node, "get volumeattachments.storage.k8s.io csi-mine", true},
		{node, "get volumeattachments.storage.k8s.io csi-theirs", false},
		{node, "list volumeattachments.storage.k8s.io *", false},
		{node, "update volumeattachments.storage.k8s.io csi-mine", false},
		{node, "patch persistentvolumeclaims/status a/data", true},
		{node, "patch persistentvolumeclaims/status a/other", false},
		{node, "delete persistentvolumeclaims/status a/data", false},
		{node, "get secrets c/stage", true},
		{node, "get secrets c/publish", true},
		{node, "get secrets c/other", false},
		{node, "get secrets c/stale", false},
		{node, "list services *", true},
		{node, "watch endpointslices.discovery.k8s.io *", true},
		{node, "create events a/*", true},
		{node, "get replicationcontrollers a/web", false},

		{user("system:node:n1"), "get nodes n1", false}, // not in the group
		{user("n1", auth.GroupNodes), "update nodes/status n1", false},
		{user("system:node:", auth.GroupNodes), "create nodes *", false},
	}
	authorizer := rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All()), Objects: fleet()})
	for _, tt := range tests {
		t.Run(tt.who.Name+" "+tt.what, func(t *testing.T) {
			if got := authorizer.Authorize(t.Context(), ask(t, tt.who, tt.what)); got.Allowed != tt.may {
				t.Errorf("Allowed = %v (%s), want %v", got.Allowed, got.Reason, tt.may)
			}
		})
	}
}

func TestRules(t *testing.T) {
	tests := []struct {
		name string
		rule rbacv1.PolicyRule
		what string
		may  bool
	}{
		{"a resource is not its subresource", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}, "get pods/log a/x", false},
		{"a subresource is not its resource", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods/log"}}, "get pods a/x", false},
		{"a subresource", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods/log"}}, "get pods/log a/x", true},
		{"a subresource of everything", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"*/scale"}}, "get deployments.apps/scale a/x", true},
		{"of everything, but another", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"*/scale"}}, "get deployments.apps/status a/x", false},
		{"everything", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, "get pods/log a/x", true},
		{"another group", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"*"}}, "get pods a/x", false},
		{"a name", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"x"}}, "get pods a/x", true},
		{"another name", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"x"}}, "get pods a/y", false},
		{"a list is of no name", rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"x"}}, "list pods a/*", false},
		{"resources are not paths", rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, "get /version", false},
		{"a path", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/version"}}, "get /version", true},
		{"below a path", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/apis/*"}}, "get /apis/batch/v1", true},
		{"below is not the path itself", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/apis/*"}}, "get /apis", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := ask(t, user("jane"), tt.what)
			if got := rbac.Allow([]rbacv1.PolicyRule{tt.rule}, &a); got != tt.may {
				t.Errorf("Allow = %v, want %v", got, tt.may)
			}
		})
	}
}

// TestBindings checks where the rights of a binding hold: those of a RoleBinding
// in its namespace alone, whatever its role is.
func TestBindings(t *testing.T) {
	read := []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	policy := rbac.NewPolicy(rbac.Objects{
		ClusterRoles: []rbacv1.ClusterRole{{ObjectMeta: in("", "reader"), Rules: read}},
		Roles:        []rbacv1.Role{{ObjectMeta: in("a", "local"), Rules: read}},
		RoleBindings: []rbacv1.RoleBinding{
			{ObjectMeta: in("a", "x"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}}},
			{ObjectMeta: in("a", "y"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "local"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "cook"}, {Kind: "ServiceAccount", Namespace: "b", Name: "cook"}}},
			{ObjectMeta: in("b", "z"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "local"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "joe"}}},
		},
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{
			{ObjectMeta: in("", "all"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "Group", Name: "readers"}}},
			{ObjectMeta: in("", "dangling"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "nothing"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "joe"}}},
		},
	})
	tests := []struct {
		who  *auth.User
		what string
		why  string
	}{
		{user("jane"), "get pods a/x", `RBAC: allowed by RoleBinding "x/a" of ClusterRole "reader" to User "jane"`},
		{user("jane"), "get pods b/x", ""},
		{user("jane"), "list pods *", ""},
		{user("system:serviceaccount:a:cook"), "get pods a/x", `RBAC: allowed by RoleBinding "y/a" of Role "local" to ServiceAccount "cook/a"`},
		{user("system:serviceaccount:b:cook"), "get pods a/x", `RBAC: allowed by RoleBinding "y/a" of Role "local" to ServiceAccount "cook/b"`},
		{user("system:serviceaccount:c:cook"), "get pods a/x", ""},
		{user("joe"), "get pods b/x", `RBAC: [clusterrole.rbac.authorization.k8s.io "nothing" not found, role.rbac.authorization.k8s.io "local" not found]`},
		{user("joe"), "get pods a/x", `RBAC: clusterrole.rbac.authorization.k8s.io "nothing" not found`},
		{user("bob", "readers"), "list pods *", `RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to Group "readers"`},
	}
	for _, tt := range tests {
		t.Run(tt.who.Name+" "+tt.what, func(t *testing.T) {
			a := ask(t, tt.who, tt.what)
			if d := policy.Authorize(&a); d.Allowed != strings.Contains(tt.why, "allowed") || d.Reason != tt.why {
				t.Errorf("Authorize = %v, want %q", d, tt.why)
			}
		})
	}
}

func TestForbiddenSpeaksAsKubernetes(t *testing.T) {
	authorizer := rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All()), Objects: fleet()})
	node := user("system:node:n1", auth.GroupNodes)
	tests := []struct {
		who        *auth.User
		what, want string
	}{
		{user("x"), "list pods default/*", `pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default"`},
		{user("x"), "delete jobs.batch a/build", `jobs.batch "build" is forbidden: User "x" cannot delete resource "jobs" in API group "batch" in the namespace "a"`},
		{user("x"), "get nodes n1", `nodes "n1" is forbidden: User "x" cannot get resource "nodes" in API group "" at the cluster scope`},
		{user("x"), "get pods/log a/p", `pods "p" is forbidden: User "x" cannot get resource "pods/log" in API group "" in the namespace "a"`},
		{user("x"), "get /metrics", `forbidden: User "x" cannot get path "/metrics"`},
		{user("<b>"), "get /metrics", `forbidden: User "&lt;b&gt;" cannot get path "/metrics"`},
		{node, "get secrets b/pull-b", `secrets "pull-b" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group "" in the namespace "b": no relationship found between node 'n1' and this object`},
		{node, "list pods *", `pods is forbidden: User "system:node:n1" cannot list resource "pods" in API group "" at the cluster scope: can only list/watch pods with spec.nodeName field selector`},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			a := ask(t, tt.who, tt.what)
			d := authorizer.Authorize(t.Context(), a)
			err := rbac.Forbidden(a, d)
			if d.Allowed || err.Error() != tt.want || !apierrors.IsForbidden(err) {
				t.Errorf("\n%s, want\n%s", err, tt.want)
			}
		})
	}
}

// TestAllowingCostsNothing pins that requests of the admin and of components are
// allowed without an allocation.
func TestAllowingCostsNothing(t *testing.T) {
	authorizer := rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All()), Objects: fleet()})
	for _, a := range []rbac.Attributes{
		ask(t, user("kubernetes-admin", auth.GroupMasters), "update pods a/mine"),
		ask(t, user("system:kube-scheduler"), "create pods/binding a/mine"),
		ask(t, user("system:serviceaccount:kube-system:job-controller"), "update jobs.batch/status a/build"),
		ask(t, user("system:node:n1", auth.GroupNodes), "patch pods/status a/mine"),
	} {
		ctx := t.Context()
		if got := testing.AllocsPerRun(100, func() { authorizer.Authorize(ctx, a) }); got > 0 {
			t.Errorf("%s %s by %s allocates %v times, want 0", a.Verb, a.Resource, a.User.Name, got)
		}
	}
}
