package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

var (
	read  = []string{"get", "list", "watch"}
	core  = []string{""}
	all   = []string{"*"}
	write = []string{"create", "update", "patch", "delete"}
)

// A role is a cluster role and the subjects that are bound to it.
type role struct {
	name     string
	rules    []rbacv1.PolicyRule
	subjects []rbacv1.Subject
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// rule reads like "verbs on resources of groups".
func rule(verbs, groups []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: resources}
}

func paths(verb string, urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: urls}
}

// Fixed returns the built-in policy: the least rights that a cluster's
// components need, under the names that Kubernetes gives them. Its controllers run as
// one user, which therefore has the roles of all of them.
//
// What a node may do is not here, apart from the empty role system:node that
// Kubernetes has too: see the package comment.
func Fixed() Objects {
	var o Objects
	for _, r := range append(accessRoles(), componentRoles()...) {
		meta := metav1.ObjectMeta{
			Name:        r.name,
			Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
			Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
		}
		o.ClusterRoles = append(o.ClusterRoles, rbacv1.ClusterRole{ObjectMeta: meta, Rules: r.rules})
		if len(r.subjects) > 0 {
			o.ClusterRoleBindings = append(o.ClusterRoleBindings, rbacv1.ClusterRoleBinding{
				ObjectMeta: *meta.DeepCopy(),
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.name},
				Subjects:   r.subjects,
			})
		}
	}
	serviceProxies(&o)
	return o
}

// serviceProxies lets the proxies say, in Leases, which endpoints they have applied and whether they
// announce addresses, and read that of each other.
func serviceProxies(o *Objects) {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "sampan:service-proxy"}
	o.Roles = append(o.Roles, rbacv1.Role{
		ObjectMeta: meta,
		Rules:      []rbacv1.PolicyRule{rule([]string{"get", "list", "watch", "create", "update"}, []string{"coordination.k8s.io"}, "leases")},
	})
	o.RoleBindings = append(o.RoleBindings, rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{user("system:kube-proxy")},
	})
}

// accessRoles are the roles for people and for all users.
func accessRoles() []role {
	return []role{
		{
			"cluster-admin",
			[]rbacv1.PolicyRule{rule(all, all, "*"), paths("*", "*")},
			[]rbacv1.Subject{group(auth.GroupMasters)},
		},
		{
			"system:discovery",
			[]rbacv1.PolicyRule{paths(
				"get",
				"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/",
			)},
			[]rbacv1.Subject{group(auth.GroupAuthenticated)},
		},
		{
			"system:basic-user",
			[]rbacv1.PolicyRule{
				rule([]string{"create"}, []string{"authorization.k8s.io"}, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
				rule([]string{"create"}, []string{"authentication.k8s.io"}, "selfsubjectreviews"),
			},
			[]rbacv1.Subject{group(auth.GroupAuthenticated)},
		},
		{
			"system:public-info-viewer",
			[]rbacv1.PolicyRule{paths("get", "/healthz", "/livez", "/readyz", "/version", "/version/")},
			[]rbacv1.Subject{group(auth.GroupAuthenticated), group(auth.GroupUnauthenticated)},
		},
		{
			"system:monitoring",
			[]rbacv1.PolicyRule{paths("get", "/metrics", "/metrics/slis", "/livez", "/readyz", "/healthz", "/livez/*", "/readyz/*", "/healthz/*")},
			[]rbacv1.Subject{group("system:monitoring")},
		},
	}
}

// componentRoles are for the parts of the cluster.
func componentRoles() []role {
	events := rule([]string{"create", "update", "patch"}, []string{"", "events.k8s.io"}, "events")
	controllers := []rbacv1.Subject{user("system:kube-controller-manager")}
	controller := func(name string, rules ...rbacv1.PolicyRule) role {
		return role{"system:controller:" + name, append(rules, events), controllers}
	}
	return []role{
		{"system:node", nil, nil},
		{
			"system:node-proxier",
			[]rbacv1.PolicyRule{
				rule([]string{"list", "watch"}, core, "services", "endpoints"),
				rule(read, core, "nodes"),
				rule([]string{"list", "watch"}, []string{"discovery.k8s.io"}, "endpointslices"),
				rule([]string{"list", "watch"}, []string{"networking.k8s.io"}, "servicecidrs"),
				events,
			},
			[]rbacv1.Subject{user("system:kube-proxy")},
		},
		{
			"system:sampan:simulated-nodes",
			[]rbacv1.PolicyRule{
				rule([]string{"list", "watch", "create", "patch"}, core, "nodes"),
				rule([]string{"list", "watch"}, core, "pods"),
				events,
			},
			[]rbacv1.Subject{user("system:sampan:simulated-nodes")},
		},
		{
			"system:sampan:local-provisioner",
			[]rbacv1.PolicyRule{
				rule([]string{"list", "watch", "create", "update", "delete"}, core, "persistentvolumes"),
				rule([]string{"list", "watch"}, core, "persistentvolumeclaims", "nodes"),
				rule([]string{"list", "watch", "create"}, []string{"storage.k8s.io"}, "storageclasses"),
				events,
			},
			[]rbacv1.Subject{user("system:sampan:local-provisioner")},
		},
		{
			"system:kube-dns",
			[]rbacv1.PolicyRule{
				rule([]string{"list", "watch"}, core, "services", "namespaces"),
				rule([]string{"list", "watch"}, []string{"discovery.k8s.io"}, "endpointslices"),
			},
			[]rbacv1.Subject{user("system:kube-dns")},
		},
		{
			"system:kube-scheduler",
			[]rbacv1.PolicyRule{
				events,
				rule(read, core, "nodes", "namespaces", "replicationcontrollers", "services", "persistentvolumes", "persistentvolumeclaims"),
				rule([]string{"get", "list", "watch", "delete"}, core, "pods"),
				rule([]string{"create"}, core, "bindings", "pods/binding"),
				rule([]string{"update", "patch"}, core, "pods/status"),
				rule(read, []string{"apps"}, "replicasets", "statefulsets"),
				rule(read, []string{"policy"}, "poddisruptionbudgets"),
				rule(read, []string{"storage.k8s.io"}, "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
				rule([]string{"create"}, []string{"coordination.k8s.io"}, "leases"),
				{Verbs: []string{"get", "update", "patch"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"kube-scheduler"}},
			},
			[]rbacv1.Subject{user("system:kube-scheduler")},
		},
		{
			"system:volume-scheduler",
			[]rbacv1.PolicyRule{
				rule([]string{"get", "list", "watch", "update", "patch"}, core, "persistentvolumes", "persistentvolumeclaims"),
				rule(read, []string{"storage.k8s.io"}, "storageclasses"),
			},
			[]rbacv1.Subject{user("system:kube-scheduler")},
		},
		{
			"system:kube-controller-manager",
			[]rbacv1.PolicyRule{
				events,
				rule([]string{"list", "watch"}, all, "*"),
				rule([]string{"create"}, []string{"coordination.k8s.io"}, "leases"),
				{Verbs: []string{"get", "update", "patch"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"kube-controller-manager"}},
			},
			controllers,
		},
		controller(
			"replication-controller",
			rule([]string{"get", "list", "watch", "update", "patch"}, core, "replicationcontrollers"),
			rule([]string{"update", "patch"}, core, "replicationcontrollers/status", "replicationcontrollers/finalizers"),
			rule([]string{"get", "list", "watch", "create", "delete", "patch"}, core, "pods"),
		),
		controller(
			"replicaset-controller",
			rule([]string{"get", "list", "watch", "update", "patch"}, []string{"apps"}, "replicasets"),
			rule([]string{"update", "patch"}, []string{"apps"}, "replicasets/status", "replicasets/finalizers"),
			rule([]string{"get", "list", "watch", "create", "delete", "patch"}, core, "pods"),
		),
		controller(
			"deployment-controller",
			rule([]string{"get", "list", "watch", "update", "patch"}, []string{"apps"}, "deployments"),
			rule([]string{"update", "patch"}, []string{"apps"}, "deployments/status", "deployments/finalizers"),
			rule(append([]string{"get", "list", "watch"}, write...), []string{"apps"}, "replicasets"),
			rule([]string{"get", "list", "watch"}, core, "pods"),
		),
		controller(
			"statefulset-controller",
			rule([]string{"get", "list", "watch"}, []string{"apps"}, "statefulsets"),
			rule([]string{"update", "patch"}, []string{"apps"}, "statefulsets/status", "statefulsets/finalizers"),
			rule(append([]string{"get", "list", "watch"}, write...), []string{"apps"}, "controllerrevisions"),
			rule(append([]string{"get", "list", "watch"}, write...), core, "pods"),
			rule(append([]string{"get", "list", "watch"}, write...), core, "persistentvolumeclaims"),
		),
		controller(
			"daemon-set-controller",
			rule([]string{"get", "list", "watch"}, []string{"apps"}, "daemonsets"),
			rule([]string{"update", "patch"}, []string{"apps"}, "daemonsets/status", "daemonsets/finalizers"),
			rule(append([]string{"get", "list", "watch"}, write...), []string{"apps"}, "controllerrevisions"),
			rule(read, core, "nodes"),
			rule([]string{"create"}, core, "pods/binding"),
			rule([]string{"get", "list", "watch", "create", "delete", "patch"}, core, "pods"),
		),
		controller(
			"disruption-controller",
			rule(read, []string{"apps"}, "deployments", "replicasets", "statefulsets"),
			rule(read, core, "replicationcontrollers", "pods"),
			rule(read, []string{"policy"}, "poddisruptionbudgets"),
			rule([]string{"update"}, []string{"policy"}, "poddisruptionbudgets/status"),
		),
		controller(
			"job-controller",
			rule([]string{"get", "list", "watch", "update", "patch"}, []string{"batch"}, "jobs"),
			rule([]string{"update", "patch"}, []string{"batch"}, "jobs/status", "jobs/finalizers"),
			rule([]string{"get", "list", "watch", "create", "delete", "patch", "update"}, core, "pods"),
			rule([]string{"update", "patch"}, core, "pods/status"),
		),
		controller(
			"ttl-after-finished-controller",
			rule([]string{"get", "list", "watch", "delete"}, []string{"batch"}, "jobs"),
		),
		controller(
			"endpoint-controller",
			rule(read, core, "services", "pods"),
			rule(append([]string{"get", "list", "watch"}, write...), core, "endpoints"),
			rule([]string{"create"}, core, "endpoints/restricted"),
		),
		controller(
			"endpointslice-controller",
			rule(read, core, "services", "pods", "nodes"),
			rule([]string{"update"}, core, "services/finalizers"),
			rule(append([]string{"get", "list", "watch"}, write...), []string{"discovery.k8s.io"}, "endpointslices"),
			rule([]string{"create"}, []string{"discovery.k8s.io"}, "endpointslices/restricted"),
		),
		controller(
			"service-controller",
			rule([]string{"get", "list", "watch"}, core, "services"),
			rule([]string{"patch", "update"}, core, "services/status"),
			rule([]string{"list", "watch"}, core, "nodes"),
		),
		controller(
			"namespace-controller",
			rule([]string{"get", "list", "watch", "delete"}, core, "namespaces"),
			rule([]string{"update", "patch"}, core, "namespaces/finalize", "namespaces/status"),
			rule([]string{"get", "list", "delete", "deletecollection"}, all, "*"),
		),
		controller(
			"service-account-controller",
			rule(read, core, "namespaces"),
			rule([]string{"get", "list", "watch", "create"}, core, "serviceaccounts"),
		),
		controller(
			"root-ca-cert-publisher",
			rule(read, core, "namespaces"),
			rule([]string{"get", "list", "watch", "create", "update", "patch"}, core, "configmaps"),
		),
		controller(
			"persistent-volume-binder",
			rule([]string{"get", "list", "watch", "update", "create", "delete"}, core, "persistentvolumes"),
			rule([]string{"update"}, core, "persistentvolumes/status"),
			rule([]string{"get", "list", "watch", "update"}, core, "persistentvolumeclaims"),
			rule([]string{"update"}, core, "persistentvolumeclaims/status"),
			rule(read, []string{"storage.k8s.io"}, "storageclasses"),
			rule([]string{"get", "list", "watch"}, core, "pods"),
		),
		controller(
			"pvc-protection-controller",
			rule([]string{"get", "list", "watch", "update"}, core, "persistentvolumeclaims"),
			rule([]string{"get", "list", "watch"}, core, "pods"),
		),
		controller(
			"pv-protection-controller",
			rule([]string{"get", "list", "watch", "update"}, core, "persistentvolumes"),
		),
		controller(
			"ephemeral-volume-controller",
			rule([]string{"get", "list", "watch"}, core, "pods"),
			rule([]string{"update"}, core, "pods/finalizers"),
			rule([]string{"get", "list", "watch", "create"}, core, "persistentvolumeclaims"),
		),
		controller(
			"generic-garbage-collector",
			rule([]string{"get", "list", "watch", "patch", "update", "delete"}, all, "*"),
		),
		controller(
			"pod-garbage-collector",
			rule([]string{"get", "list", "watch", "delete"}, core, "pods"),
			rule([]string{"patch"}, core, "pods/status"),
			rule([]string{"get", "list"}, core, "nodes"),
		),
		controller(
			"node-controller",
			rule([]string{"get", "list", "watch", "update", "patch", "delete"}, core, "nodes"),
			rule([]string{"update", "patch"}, core, "nodes/status"),
			rule([]string{"get", "list", "watch", "delete"}, core, "pods"),
			rule([]string{"update", "patch"}, core, "pods/status"),
			rule(read, []string{"coordination.k8s.io"}, "leases"),
		),
	}
}
