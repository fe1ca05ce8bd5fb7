package apply

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/internal/sorting"
)

// A rank is the place of a kind in the order of an apply. Kinds come after the
// kinds that they depend on.
type rank int

// The ranks.
const (
	namespaces  rank = iota // all namespaced objects need one
	definitions             // kinds, which must be established before their objects
	limits                  // quotas and defaults for later objects
	identities              // service accounts of pods
	settings                // objects that pods mount and read
	rights                  // permissions of the service accounts
	addresses               // Services, before their pods, because pods have them in their environment
	workloads
	others  // custom resources: their controllers are running by now
	outside // objects that lead to workloads, or act on them
	guards  // webhooks and policies for every write, so that they do not block the objects above
)

// ranks are those of the kinds that have one; all others are others.
func ranks() map[schema.GroupKind]rank {
	of := map[schema.GroupKind]rank{}
	for _, r := range []struct {
		rank  rank
		group string
		kinds []string
	}{
		{namespaces, "", []string{"Namespace"}},
		{definitions, "apiextensions.k8s.io", []string{"CustomResourceDefinition"}},
		{limits, "", []string{"ResourceQuota", "LimitRange"}},
		{limits, "scheduling.k8s.io", []string{"PriorityClass"}},
		{limits, "storage.k8s.io", []string{"StorageClass", "CSIDriver", "VolumeAttributesClass"}},
		{limits, "node.k8s.io", []string{"RuntimeClass"}},
		{limits, "networking.k8s.io", []string{"IngressClass", "NetworkPolicy"}},
		{limits, "policy", []string{"PodDisruptionBudget"}},
		{identities, "", []string{"ServiceAccount"}},
		{settings, "", []string{"Secret", "ConfigMap", "PersistentVolume", "PersistentVolumeClaim", "PodTemplate"}},
		{rights, "rbac.authorization.k8s.io", []string{"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"}},
		{addresses, "", []string{"Service", "Endpoints"}},
		{addresses, "discovery.k8s.io", []string{"EndpointSlice"}},
		{workloads, "", []string{"Pod", "ReplicationController"}},
		{workloads, "apps", []string{"ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "ControllerRevision"}},
		{workloads, "batch", []string{"Job", "CronJob"}},
		{outside, "networking.k8s.io", []string{"Ingress"}},
		{outside, "autoscaling", []string{"HorizontalPodAutoscaler"}},
		{outside, "apiregistration.k8s.io", []string{"APIService"}},
		{guards, "admissionregistration.k8s.io", []string{
			"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
			"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		}},
	} {
		for _, k := range r.kinds {
			of[schema.GroupKind{Group: r.group, Kind: k}] = r.rank
		}
	}
	return of
}

func rankOf(of map[schema.GroupKind]rank, kind schema.GroupKind) rank {
	if r, found := of[kind]; found {
		return r
	}
	return others
}

// Order sorts objects into the order in which they are applied: namespaces and
// definitions of kinds, then what pods need, workloads, custom resources, and what acts
// on all of them. Objects of one rank stay in the order of the input. Deletion goes the
// other way.
func Order(infos []resource.Info) {
	of := ranks()
	sorting.Stable(infos, func(a, b resource.Info) int {
		return cmp.Compare(rankOf(of, kindOf(a)), rankOf(of, kindOf(b)))
	})
}

// kindOf returns what an object is, if the server serves it yet or not.
func kindOf(info resource.Info) schema.GroupKind {
	if info.Mapping.Kind != "" {
		return info.Mapping.GVK().GroupKind()
	}
	return info.Object.GroupVersionKind().GroupKind()
}
