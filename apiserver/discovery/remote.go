package discovery

import (
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/aggregation"
)

// insert puts what another server serves before the first element that has a lower priority.
func insert[T any](all []T, one T, priority int32, of func(T) int32) []T {
	i := slices.IndexFunc(all, func(t T) bool { return of(t) < priority })
	if i < 0 {
		i = len(all)
	}
	return slices.Insert(all, i, one)
}

// priorities returns the priority of each group: that of the versions of other servers, or that which it has here.
func priorities(remote *aggregation.Remote) func(group string) int32 {
	highest := map[string]int32{}
	for _, v := range remote.Versions() {
		highest[v.Group] = max(highest[v.Group], v.GroupPriority)
	}
	return func(group string) int32 { return max(highest[group], aggregation.GroupPriority(group)) }
}

// versionPriorities returns the priority of each version of a group.
func versionPriorities(remote *aggregation.Remote, group string) func(version string) int32 {
	return func(version string) int32 {
		for _, v := range remote.Versions() {
			if v.Group == group && v.Version == version {
				return v.VersionPriority
			}
		}
		return aggregation.VersionPriority(schema.GroupVersion{Group: group, Version: version})
	}
}

// withVersions adds the versions of other servers to the aggregated document, which it changes. They take the place of
// versions of the same name.
func withVersions(doc *apidiscovery.APIGroupDiscoveryList, remote *aggregation.Remote) *apidiscovery.APIGroupDiscoveryList {
	of := priorities(remote)
	for _, v := range remote.Versions() {
		at := slices.IndexFunc(doc.Items, func(g apidiscovery.APIGroupDiscovery) bool { return g.Name == v.Group })
		group := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: v.Group}}
		if at >= 0 {
			group = doc.Items[at]
			doc.Items = slices.Delete(doc.Items, at, at+1)
		}
		group.Versions = slices.DeleteFunc(group.Versions, func(a apidiscovery.APIVersionDiscovery) bool { return a.Version == v.Version })
		version := versionPriorities(remote, v.Group)
		group.Versions = insert(group.Versions, v.Document, v.VersionPriority, func(a apidiscovery.APIVersionDiscovery) int32 { return version(a.Version) })
		doc.Items = insert(doc.Items, group, of(v.Group), func(g apidiscovery.APIGroupDiscovery) int32 { return of(g.Name) })
	}
	return doc
}

// withGroups adds the groups of other servers to the list of groups, which it changes.
func withGroups(doc *metav1.APIGroupList, remote *aggregation.Remote) *metav1.APIGroupList {
	of := priorities(remote)
	for _, v := range remote.Versions() {
		at := slices.IndexFunc(doc.Groups, func(g metav1.APIGroup) bool { return g.Name == v.Group })
		group := metav1.APIGroup{Name: v.Group}
		if at >= 0 {
			group = doc.Groups[at]
			doc.Groups = slices.Delete(doc.Groups, at, at+1)
		}
		addVersion(&group, v, remote)
		doc.Groups = insert(doc.Groups, group, of(v.Group), func(g metav1.APIGroup) int32 { return of(g.Name) })
	}
	return doc
}

// withGroup adds the versions of other servers to a group, which is nil if this server has no such group.
func withGroup(doc *metav1.APIGroup, name string, remote *aggregation.Remote) *metav1.APIGroup {
	for _, v := range remote.Versions() {
		if v.Group != name {
			continue
		}
		if doc == nil {
			doc = &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
		}
		addVersion(doc, v, remote)
	}
	return doc
}

func addVersion(g *metav1.APIGroup, v aggregation.Version, remote *aggregation.Remote) {
	g.Versions = slices.DeleteFunc(g.Versions, func(a metav1.GroupVersionForDiscovery) bool { return a.Version == v.Version })
	one := metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version}
	version := versionPriorities(remote, v.Group)
	g.Versions = insert(g.Versions, one, v.VersionPriority, func(a metav1.GroupVersionForDiscovery) int32 { return version(a.Version) })
	g.PreferredVersion = g.Versions[0]
}
