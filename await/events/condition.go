package events

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// A Condition is one entry of status.conditions, of whatever kind.
type Condition struct {
	Kind, Status, Reason, Message string
	Observed                      int64 // observedGeneration; 0 if it is not set
}

// String returns the condition as text for a cause: "Ready=False: Reason: message".
func (c Condition) String() string {
	return strings.TrimSuffix(c.Kind+"="+c.Status+": "+Reason(c.Reason, c.Message), ": ")
}

// Conditions returns the status.conditions of an object, in their order.
func Conditions(object map[string]any) []Condition {
	list, _, _ := unstructured.NestedFieldNoCopy(object, "status", "conditions")
	entries, _ := list.([]any)
	var all []Condition
	for _, e := range entries {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string {
			switch v := m[key].(type) {
			case string:
				return v
			case bool: // of custom resources that do not follow the conventions
				return strconv.FormatBool(v)
			}
			return ""
		}
		observed, _ := whole(m["observedGeneration"])
		all = append(all, Condition{text("type"), text("status"), text("reason"), text("message"), observed})
	}
	return all
}

// ObservedGeneration returns status.observedGeneration, if there is one.
func ObservedGeneration(object map[string]any) (int64, bool) {
	v, found, err := unstructured.NestedFieldNoCopy(object, "status", "observedGeneration")
	if !found || err != nil {
		return 0, false
	}
	return whole(v)
}

func whole(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case float64: // an object that was decoded by encoding/json
		return int64(n), true
	}
	return 0, false
}

// Common reports whether a condition is one that many kinds have by convention. On a kind of Kubernetes that does not have it,
// it is a mistake of the user.
func Common(condition string) bool {
	for _, c := range []string{"Ready", "Available", "Complete", "Completed", "Failed", "Succeeded", "Bound", "Scheduled", "Running"} {
		if strings.EqualFold(c, condition) {
			return true
		}
	}
	return false
}

// HasConditions reports whether an object, on which Kubernetes writes no conditions, has a field for those of others.
func HasConditions(obj client.Object) bool {
	return client.KindOf(obj).GroupKind() == schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
}

// KnownConditions returns the condition types that Kubernetes writes on objects of a kind, and whether it is one of its own
// kinds for which that is known. Nodes are not: many programs write conditions on them. A pod has also types with a domain
// prefix, and those in its readiness gates. Other controllers may write further types on every kind that has conditions.
func KnownConditions(obj client.Object) (known []string, closed bool) {
	if p, ok := obj.(*corev1.Pod); ok {
		known = []string{"Ready", "ContainersReady", "Initialized", "PodScheduled", "PodReadyToStartContainers", "DisruptionTarget", "PodResizePending", "PodResizeInProgress", "AllContainersRestarting"}
		for _, g := range p.Spec.ReadinessGates {
			known = append(known, string(g.ConditionType))
		}
		return known, true
	}
	switch client.KindOf(obj).GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return []string{"Available", "Progressing", "ReplicaFailure", "RolledBack", "CanariesHeld"}, true
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Kind: "ReplicationController"}:
		return []string{"ReplicaFailure"}, true
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		return []string{"Progressing"}, true
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return []string{"Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"}, true
	case schema.GroupKind{Kind: "Namespace"}:
		return []string{
			"NamespaceDeletionDiscoveryFailure", "NamespaceDeletionContentFailure", "NamespaceDeletionGroupVersionParsingFailure",
			"NamespaceContentRemaining", "NamespaceFinalizersRemaining",
		}, true
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		return []string{"Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError", "ModifyVolumeError", "ModifyingVolume", "Unused"}, true
	case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:
		return []string{"AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"}, true
	case schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}:
		return []string{"DisruptionAllowed"}, true
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return []string{"Established", "NamesAccepted", "NonStructuralSchema", "Terminating", "KubernetesAPIApprovalPolicyConformant", "StorageMigrating"}, true
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return []string{"Available"}, true
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, schema.GroupKind{Group: "batch", Kind: "CronJob"},
		schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}, schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"},
		schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"},
		schema.GroupKind{Kind: "ConfigMap"}, schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "ServiceAccount"},
		schema.GroupKind{Kind: "Endpoints"}, schema.GroupKind{Kind: "PersistentVolume"},
		schema.GroupKind{Kind: "ResourceQuota"}, schema.GroupKind{Kind: "LimitRange"}:
		return nil, true
	}
	return nil, false
}
