package discovery

import (
	"cmp"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/internal/sorting"
)

// A rank is the place of a group among others, as upstream's: clients such as kubectl take the first group that has a resource of the name that a
// user writes. Groups are sorted by priority, and groups of one priority by name.
type rank struct {
	priority int32
	name     string
}

func (r rank) compare(other rank) int {
	return cmp.Or(-cmp.Compare(r.priority, other.priority), cmp.Compare(r.name, other.name))
}

// rankOf returns the place of a group: that of its version with the highest priority. The list of groups has that of upstream's
// list of APIServices, whose names begin with the version; the aggregated document goes by the names of groups.
func rankOf(remote *aggregation.Remote, group string, versions []string, byAPIService bool) rank {
	var best rank
	for i, v := range versions {
		r := rank{name: group}
		r.priority, _ = remote.Priority(schema.GroupVersion{Group: group, Version: v})
		if byAPIService {
			r.name = v + "." + group
		}
		if i == 0 || r.compare(best) < 0 {
			best = r
		}
	}
	return best
}

// compareVersions returns the order of two versions of a group: that of their priorities, and then that of their names, v2 before
// v1 before v1beta1.
func compareVersions(remote *aggregation.Remote, group, a, b string) int {
	_, first := remote.Priority(schema.GroupVersion{Group: group, Version: a})
	_, second := remote.Priority(schema.GroupVersion{Group: group, Version: b})
	return cmp.Or(-cmp.Compare(first, second), -version.CompareKubeAwareVersionStrings(a, b))
}

// withVersions adds the versions of other servers to the aggregated document, which it changes and sorts. They take the place of
// versions of the same name.
func withVersions(doc *apidiscovery.APIGroupDiscoveryList, remote *aggregation.Remote) *apidiscovery.APIGroupDiscoveryList {
	for _, v := range remote.Versions() {
		at := slices.IndexFunc(doc.Items, func(g apidiscovery.APIGroupDiscovery) bool { return g.Name == v.Group })
		if at < 0 {
			at = len(doc.Items)
			doc.Items = append(doc.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: v.Group}})
		}
		g := &doc.Items[at]
		g.Versions = slices.DeleteFunc(g.Versions, func(a apidiscovery.APIVersionDiscovery) bool { return a.Version == v.Version })
		g.Versions = append(g.Versions, v.Document)
	}
	ranks := map[string]rank{}
	for i := range doc.Items {
		g := &doc.Items[i]
		sorting.Slice(g.Versions, func(a, b apidiscovery.APIVersionDiscovery) int {
			return compareVersions(remote, g.Name, a.Version, b.Version)
		})
		var versions []string
		for j := range g.Versions {
			versions = append(versions, g.Versions[j].Version)
		}
		ranks[g.Name] = rankOf(remote, g.Name, versions, false)
	}
	sorting.Slice(doc.Items, func(a, b apidiscovery.APIGroupDiscovery) int { return ranks[a.Name].compare(ranks[b.Name]) })
	return doc
}

// withGroups adds the groups of other servers to the list of groups, which it changes and sorts.
func withGroups(doc *metav1.APIGroupList, remote *aggregation.Remote) *metav1.APIGroupList {
	for _, v := range remote.Versions() {
		at := slices.IndexFunc(doc.Groups, func(g metav1.APIGroup) bool { return g.Name == v.Group })
		if at < 0 {
			at = len(doc.Groups)
			doc.Groups = append(doc.Groups, metav1.APIGroup{Name: v.Group})
		}
		addVersion(&doc.Groups[at], v)
	}
	ranks := map[string]rank{}
	for i := range doc.Groups {
		g := &doc.Groups[i]
		sortVersions(g, remote)
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Version)
		}
		ranks[g.Name] = rankOf(remote, g.Name, versions, true)
	}
	sorting.Slice(doc.Groups, func(a, b metav1.APIGroup) int { return ranks[a.Name].compare(ranks[b.Name]) })
	return doc
}

// withGroup adds the versions of other servers to a group, which is nil if this server has no such group, and sorts them.
func withGroup(doc *metav1.APIGroup, name string, remote *aggregation.Remote) *metav1.APIGroup {
	for _, v := range remote.Versions() {
		if v.Group != name {
			continue
		}
		if doc == nil {
			doc = &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
		}
		addVersion(doc, v)
	}
	if doc != nil {
		sortVersions(doc, remote)
	}
	return doc
}

func addVersion(g *metav1.APIGroup, v aggregation.Version) {
	g.Versions = slices.DeleteFunc(g.Versions, func(a metav1.GroupVersionForDiscovery) bool { return a.Version == v.Version })
	g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
}

func sortVersions(g *metav1.APIGroup, remote *aggregation.Remote) {
	sorting.Slice(g.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
		return compareVersions(remote, g.Name, a.Version, b.Version)
	})
	g.PreferredVersion = g.Versions[0]
}
