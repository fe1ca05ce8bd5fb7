package quotas

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An Object is an API object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// A Resource has the rules by which the objects of one resource count.
type Resource struct {
	schema.GroupResource
	rules
}

// rules are what differs between resources.
type rules struct {
	counts  func(corev1.ResourceName) bool
	usage   func(obj Object, now time.Time) corev1.ResourceList
	inScope func(corev1.ScopedResourceSelectorRequirement, Object) bool // nil: no scope includes such objects
	missing func([]corev1.ResourceName, Object) error                   // nil: objects need not specify anything
	expires func(Object) time.Time                                      // nil: usage does not depend on the time
}

// Of returns the rules of a namespaced resource, and false if its objects are never counted: Events.
func Of(gr schema.GroupResource) (Resource, bool) {
	r := Resource{GroupResource: gr}
	switch gr {
	case schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: eventsv1.GroupName, Resource: "events"}:
		return r, false
	case schema.GroupResource{Resource: "pods"}:
		r.rules = rules{counts: countsForPods, usage: podUsage, inScope: podInScope, missing: podMissing, expires: podExpires}
	case schema.GroupResource{Resource: "services"}:
		r.rules = rules{counts: countsForServices, usage: serviceUsage}
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		r.rules = rules{counts: countsForClaims, usage: claimUsage, inScope: claimInScope}
	case schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}:
		r.rules = rules{counts: countsForDeviceClaims, usage: deviceClaimUsage}
	default:
		r.rules = counted(gr)
	}
	return r, true
}

// counted returns the rules of a resource whose objects are only counted. It is called for each write, and the rules seldom.
func counted(gr schema.GroupResource) rules {
	return rules{
		counts: func(name corev1.ResourceName) bool { return slices.Contains(countNames(gr), name) },
		usage: func(Object, time.Time) corev1.ResourceList {
			used := corev1.ResourceList{}
			for _, name := range countNames(gr) {
				used[name] = number(1)
			}
			return used
		},
	}
}

// countNames returns the names for the number of objects of a resource. A few have one from before count/ names.
func countNames(gr schema.GroupResource) []corev1.ResourceName {
	names := []corev1.ResourceName{objectCount(gr)}
	if gr.Group == "" {
		switch old := corev1.ResourceName(gr.Resource); old {
		case corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceReplicationControllers, corev1.ResourceSecrets:
			names = append(names, old)
		}
	}
	return names
}

// objectCount returns the name for the number of objects of a resource: count/deployments.apps.
func objectCount(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + gr.String())
}

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// Names returns the names in hard that objects of the resource count towards, sorted.
func (r Resource) Names(hard corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name := range hard {
		if r.counts(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Usage returns what obj uses now, under all names that a quota may have for it.
func (r Resource) Usage(obj Object, now time.Time) corev1.ResourceList { return r.usage(obj, now) }

// Includes reports whether all scopes of a quota include obj.
func (r Resource) Includes(q *corev1.ResourceQuotaSpec, obj Object) bool {
	for _, scope := range q.Scopes {
		if r.inScope == nil || !r.inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, obj) {
			return false
		}
	}
	if q.ScopeSelector != nil {
		for _, s := range q.ScopeSelector.MatchExpressions {
			if r.inScope == nil || !r.inScope(s, obj) {
				return false
			}
		}
	}
	return true
}

// Missing returns an error if obj does not specify a value without which these names of a quota can't be counted.
func (r Resource) Missing(names []corev1.ResourceName, obj Object) error {
	if r.missing == nil {
		return nil
	}
	return r.missing(names, obj)
}

// selects reports whether a requirement holds for an object with these values: for In and NotIn if it holds for one of
// them.
func selects(s corev1.ScopedResourceSelectorRequirement, values ...string) bool {
	listed := func(v string) bool { return slices.Contains(s.Values, v) }
	switch s.Operator {
	case corev1.ScopeSelectorOpExists:
		return len(values) > 0
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(values) == 0
	case corev1.ScopeSelectorOpIn:
		return slices.ContainsFunc(values, listed)
	case corev1.ScopeSelectorOpNotIn:
		return len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return !listed(v) })
	}
	return false
}
