package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/sorting"
)

// groupVersions returns the catalog's, in its order, which is the order of
// preference. Versions of groups without Go types are preferred as their names say: v2 to v1 to v1beta1.
func groupVersions(c *catalog.Snapshot) []schema.GroupVersion {
	all := slices.Clone(c.GroupVersions())
	places := map[string][]int{} // of the versions of such a group
	for i, gv := range all {
		if c.In(gv)[0].Untyped() {
			places[gv.Group] = append(places[gv.Group], i)
		}
	}
	for _, at := range places {
		if len(at) < 2 {
			continue
		}
		var gvs []schema.GroupVersion
		for _, i := range at {
			gvs = append(gvs, all[i])
		}
		sorting.Slice(gvs, func(a, b schema.GroupVersion) int {
			return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		for n, i := range at {
			all[i] = gvs[n]
		}
	}
	return all
}

func kinds(c *catalog.Snapshot, gv schema.GroupVersion) []*catalog.Kind {
	return slices.SortedFunc(slices.Values(c.In(gv)), func(a, b *catalog.Kind) int { return cmp.Compare(a.Resource, b.Resource) })
}

// aliases returns the resources below which bodies of subresources can be posted, as kinds of which none is stored.
func aliases(c *catalog.Snapshot, gv schema.GroupVersion) []*catalog.Kind {
	var ks []*catalog.Kind
	for _, k := range kinds(c, gv) {
		for _, s := range k.Subresources {
			if a, ok := s.Shape.(catalog.Action); ok && a.Alias != "" {
				ks = append(ks, &catalog.Kind{
					GroupVersionKind: a.Kind, Resource: a.Alias, Singular: strings.ToLower(a.Kind.Kind), Namespaced: k.Namespaced, Verbs: s.Verbs,
				})
			}
		}
	}
	return ks
}

func verbs(vs []string) metav1.Verbs {
	if vs == nil {
		vs = catalog.StandardVerbs
	}
	return slices.Sorted(slices.Values(vs))
}

// verbsOf returns the verbs of a kind. If its definition is being deleted, nothing can be created or changed.
func verbsOf(c *catalog.Snapshot, k *catalog.Kind) metav1.Verbs {
	if c.Ending(k) {
		return metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	}
	return verbs(k.Verbs)
}

// coreVersions is what /api answers.
func coreVersions(c *catalog.Snapshot) *metav1.APIVersions {
	doc := &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
	for _, gv := range groupVersions(c) {
		if gv.Group == "" {
			doc.Versions = append(doc.Versions, gv.Version)
		}
	}
	return doc
}

// groupList is what /apis answers.
func groupList(c *catalog.Snapshot) *metav1.APIGroupList {
	doc := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	places := map[string]int{}
	for _, gv := range groupVersions(c) {
		if gv.Group == "" {
			continue
		}
		at, found := places[gv.Group]
		if !found {
			at = len(doc.Groups)
			places[gv.Group] = at
			doc.Groups = append(doc.Groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}})
		}
		g := &doc.Groups[at]
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	return doc
}

// group is what /apis/GROUP answers; nil if there is no such group.
func group(c *catalog.Snapshot, name string) *metav1.APIGroup {
	doc := &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
	for _, gv := range groupVersions(c) {
		if gv.Group == name {
			doc.Versions = append(doc.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
		}
	}
	if doc.Versions == nil {
		return nil
	}
	doc.PreferredVersion = doc.Versions[0]
	return doc
}

// resourceList is what /api/v1 and /apis/GROUP/VERSION answer; nil if there is no
// such version.
func resourceList(c *catalog.Snapshot, gv schema.GroupVersion) *metav1.APIResourceList {
	doc := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range aliases(c, gv) {
		doc.APIResources = append(doc.APIResources, metav1.APIResource{
			Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: verbs(k.Verbs),
		})
	}
	for _, k := range kinds(c, gv) {
		doc.APIResources = append(doc.APIResources, metav1.APIResource{
			Name:               k.Resource,
			SingularName:       k.Singular,
			Namespaced:         k.Namespaced,
			Kind:               k.Kind,
			Verbs:              verbsOf(c, k),
			ShortNames:         k.ShortNames,
			Categories:         k.Categories,
			StorageVersionHash: storageHash(k),
		})
		for _, s := range subresources(k) {
			kind := k.BodyKind(&s)
			r := metav1.APIResource{Name: k.Resource + "/" + s.Name, Namespaced: k.Namespaced, Kind: kind.Kind, Verbs: verbs(s.Verbs)}
			if kind.GroupVersion() != gv {
				r.Group, r.Version = kind.Group, kind.Version
			}
			doc.APIResources = append(doc.APIResources, r)
		}
	}
	if doc.APIResources == nil {
		return nil
	}
	return doc
}

// subresources returns the subresources of k by name.
func subresources(k *catalog.Kind) []catalog.Subresource {
	return sorting.Sorted(slices.Values(k.Subresources), func(a, b catalog.Subresource) int { return cmp.Compare(a.Name, b.Name) })
}

// storageHash returns a hash that changes when the stored form of a kind may have changed, or ""
// for a kind that is not stored.
func storageHash(k *catalog.Kind) string {
	if k.Answered() {
		return ""
	}
	gvk := k.Hub().GroupVersionKind
	sum := sha256.Sum256([]byte(gvk.Group + "/" + gvk.Version + "/" + gvk.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// aggregated is everything in the core group, or in all others.
func aggregated(c *catalog.Snapshot, core bool) *apidiscovery.APIGroupDiscoveryList {
	doc := &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscovery.APIGroupDiscovery{},
	}
	places := map[string]int{}
	for _, gv := range groupVersions(c) {
		if (gv.Group == "") != core {
			continue
		}
		served := apidiscovery.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, k := range slices.Concat(aliases(c, gv), kinds(c, gv)) {
			served.Resources = append(served.Resources, aggregatedResource(c, k))
		}
		i, found := places[gv.Group]
		if !found {
			i = len(doc.Items)
			places[gv.Group] = i
			doc.Items = append(doc.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}})
		}
		doc.Items[i].Versions = append(doc.Items[i].Versions, served)
	}
	return doc
}

func aggregatedResource(c *catalog.Snapshot, k *catalog.Kind) apidiscovery.APIResourceDiscovery {
	kind := metav1.GroupVersionKind(k.GroupVersionKind)
	r := apidiscovery.APIResourceDiscovery{
		Resource:         k.Resource,
		ResponseKind:     &kind,
		Scope:            apidiscovery.ScopeCluster,
		SingularResource: k.Singular,
		Verbs:            verbsOf(c, k),
		ShortNames:       k.ShortNames,
		Categories:       k.Categories,
	}
	if k.Namespaced {
		r.Scope = apidiscovery.ScopeNamespace
	}
	for _, s := range subresources(k) {
		kind := metav1.GroupVersionKind(k.BodyKind(&s))
		r.Subresources = append(r.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: s.Name, ResponseKind: &kind, Verbs: verbs(s.Verbs)})
	}
	return r
}
