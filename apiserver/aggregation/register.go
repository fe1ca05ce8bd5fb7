package aggregation

import (
	"cmp"
	"maps"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/apiregistration"
)

// managedLabel marks the APIServices that are kept, as upstream's aggregator does: "onstart" those of the groups that every
// cluster has, "true" those of custom resources.
const (
	managedLabel   = "kube-aggregator.kubernetes.io/automanaged"
	managedOnStart = "onstart"
	managedAlways  = "true"
)

// metricsGroup is computed here unless the user installs a server for it. It has no APIService of its own, so that one can be
// created.
const metricsGroup = "metrics.k8s.io"

// unregistered reports whether the versions of a group have no APIService of their own. That of APIServices has none with
// upstream either.
func unregistered(group string) bool {
	return group == metricsGroup || group == registrationv1.GroupName
}

// A priority is that of a group among groups and that of a version in it.
type priority struct{ group, version int32 }

// custom is the priority of custom resources, as upstream's.
var custom = priority{1000, 100}

// computedMetrics is the priority of the metrics that are computed here: that of metrics-server in its manifest.
var computedMetrics = priority{100, 100}

// groupPriorities are upstream's. Newer groups come behind all of these.
var groupPriorities = map[string]int32{
	registrationv1.GroupName: 20000,
	"":                       18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700, "authorization.k8s.io": 17600,
	"autoscaling": 17500, "batch": 17400, "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100,
	"rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800, "apiextensions.k8s.io": 16700,
	"admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600, "coordination.k8s.io": 16500, "node.k8s.io": 16300,
	"resource.k8s.io": 16200, "discovery.k8s.io": 16200, "flowcontrol.apiserver.k8s.io": 16100,
	"internal.apiserver.k8s.io": 16000, "storagemigration.k8s.io": 15800, "lifecycle.k8s.io": 15700,
}

const lastGroupPriority = 15600

// versionPriorities are upstream's where they are not those of their stage.
var versionPriorities = map[schema.GroupVersion]int32{
	{Group: "", Version: "v1"}:                                  1,
	{Group: "autoscaling", Version: "v2"}:                       30,
	{Group: "resource.k8s.io", Version: "v1"}:                   21,
	{Group: "resource.k8s.io", Version: "v1beta2"}:              15,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:      21,
	{Group: "discovery.k8s.io", Version: "v1beta1"}:             12,
	{Group: "admissionregistration.k8s.io", Version: "v1beta1"}: 12,
	{Group: "events.k8s.io", Version: "v1beta1"}:                5,
	{Group: "scheduling.k8s.io", Version: "v1alpha3"}:           3,
	{Group: "coordination.k8s.io", Version: "v1beta1"}:          13,
	{Group: "coordination.k8s.io", Version: "v1alpha2"}:         12,
	{Group: "authentication.k8s.io", Version: "v1alpha1"}:       1,
	{Group: "certificates.k8s.io", Version: "v1alpha1"}:         1,
	{Group: "storage.k8s.io", Version: "v1alpha1"}:              1,
	{Group: "node.k8s.io", Version: "v1alpha1"}:                 1,
	{Group: "resource.k8s.io", Version: "v1alpha3"}:             1,
	{Group: "lifecycle.k8s.io", Version: "v1alpha1"}:            1,
}

const (
	stableVersionPriority = 15
	otherVersionPriority  = 9
)

// priorityOf returns the priority of a version that every cluster has.
func priorityOf(gv schema.GroupVersion) priority {
	version := int32(otherVersionPriority)
	if gv.Version == "v1" || gv.Version == "v2" {
		version = stableVersionPriority
	}
	return priority{cmp.Or(groupPriorities[gv.Group], lastGroupPriority), cmp.Or(versionPriorities[gv], version)}
}

// nameOf returns the name of the APIService of a version of a group.
func nameOf(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// wanted returns the APIServices of the versions that are served here, by name. Base has the versions of every
// cluster.
func wanted(base map[schema.GroupVersion]bool, now *catalog.Snapshot) map[string]*registrationv1.APIService {
	all := map[string]*registrationv1.APIService{}
	for _, k := range now.Kinds() {
		gv := k.GroupVersion()
		if unregistered(gv.Group) || all[nameOf(gv)] != nil {
			continue
		}
		p, managed := custom, managedAlways
		if base[gv] {
			p, managed = priorityOf(gv), managedOnStart
		}
		all[nameOf(gv)] = &registrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: nameOf(gv), Labels: map[string]string{managedLabel: managed}},
			Spec: registrationv1.APIServiceSpec{
				Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.group, VersionPriority: p.version,
			},
		}
	}
	return all
}

// baseOf returns the versions that are in the catalog from the beginning.
func baseOf(now *catalog.Snapshot) map[schema.GroupVersion]bool {
	all := map[schema.GroupVersion]bool{}
	for _, k := range now.Kinds() {
		all[k.GroupVersion()] = true
	}
	return all
}

// A change brings a stored APIService to its wanted state.
type change struct {
	create, update, status, remove *registrationv1.APIService // one of them
}

// changes returns the needed writes. Versions that every cluster has are served here whatever their APIService says, so it
// always says that. One of custom resources belongs to a user once it lacks the label, as with upstream.
func changes(want, stored map[string]*registrationv1.APIService) (all []change) {
	for name, w := range want {
		have := stored[name]
		switch {
		case have == nil:
			all = append(all, change{create: w})
		case w.Labels[managedLabel] == managedAlways && have.Labels[managedLabel] == "":
		case !apiequality.Semantic.DeepEqual(have.Spec, w.Spec) || have.Labels[managedLabel] != w.Labels[managedLabel]:
			fresh := have.DeepCopy()
			fresh.Spec = w.Spec
			fresh.Labels = maps.Clone(have.Labels)
			if fresh.Labels == nil {
				fresh.Labels = map[string]string{}
			}
			fresh.Labels[managedLabel] = w.Labels[managedLabel]
			all = append(all, change{update: fresh})
		}
	}
	for name, have := range stored {
		if want[name] == nil && have.Labels[managedLabel] != "" {
			all = append(all, change{remove: have})
			continue
		}
		if now, changed := setCondition(have, apiregistration.Local()); have.Spec.Service == nil && changed {
			all = append(all, change{status: now})
		}
	}
	return all
}
