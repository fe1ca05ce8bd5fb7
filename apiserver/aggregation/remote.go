package aggregation

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/internal/sorting"
)

// A Remote is the set of versions that other servers serve, at one time. It is not changed; the same state has the same
// pointer.
type Remote struct {
	versions []Version
	local    map[schema.GroupVersion]priority // of versions served here whose APIService a user has changed
}

// Versions returns the versions of other servers: groups by priority, and in a group the versions by theirs. The slice must not
// be changed.
func (r *Remote) Versions() []Version {
	if r == nil {
		return nil
	}
	return r.versions
}

// Serves reports whether another server serves a version of a group.
func (r *Remote) Serves(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(r.Versions(), func(v Version) bool { return v.GroupVersion == gv })
}

// Has reports whether another server has said that it serves a resource.
func (r *Remote) Has(gv schema.GroupVersion, resource string) bool {
	for i := range r.Versions() {
		if v := &r.versions[i]; v.GroupVersion == gv {
			return slices.ContainsFunc(v.Document.Resources, func(d apidiscovery.APIResourceDiscovery) bool { return d.Resource == resource })
		}
	}
	return false
}

// A Version is a version of a group that another server serves.
type Version struct {
	schema.GroupVersion

	GroupPriority, VersionPriority int32

	// Document is the server's list of its resources, in the aggregated form. Without resources, and stale, if it has
	// not answered yet.
	Document apidiscovery.APIVersionDiscovery

	// OpenAPI is the relative URL of the OpenAPI v3 document, or empty.
	OpenAPI string

	// Swagger is the version's part of its OpenAPI v2 document, as it was read last. Nil if there is none.
	Swagger *Swagger
}

// Priority returns the priority of the group and that of the version of its APIService, or upstream's if it has none. Groups that
// no cluster has by itself are those of custom resources. R may be nil.
func (r *Remote) Priority(gv schema.GroupVersion) (group, version int32) {
	for _, v := range r.Versions() {
		if v.GroupVersion == gv {
			return v.GroupPriority, v.VersionPriority
		}
	}
	if r != nil {
		if p, ok := r.local[gv]; ok {
			return p.group, p.version
		}
	}
	switch {
	case gv.Group == metricsGroup:
		return computedMetrics.group, computedMetrics.version
	case groupPriorities[gv.Group] == 0:
		return custom.group, custom.version
	}
	p := priorityOf(gv)
	return p.group, p.version
}

// sorted returns versions in upstream's order: that of the highest priority of their groups, then that of versions.
func sorted(all []Version) *Remote {
	highest := map[string]int32{}
	for _, v := range all {
		highest[v.Group] = max(highest[v.Group], v.GroupPriority)
	}
	sorting.Slice(all, func(a, b Version) int {
		return cmp.Or(
			-cmp.Compare(highest[a.Group], highest[b.Group]), cmp.Compare(a.Group, b.Group),
			-cmp.Compare(a.VersionPriority, b.VersionPriority), -version.CompareKubeAwareVersionStrings(a.Version, b.Version),
		)
	})
	return &Remote{versions: all}
}

// decode reads JSON of another server, whose depth is bounded by the decoder.
func decode(data []byte, into any) error {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return errors.New("the answer is not a JSON object")
	}
	return json.Unmarshal(data, into)
}

// parseAggregated finds a version in the aggregated document of a server. An absent one has no resources, as with upstream.
func parseAggregated(data []byte, gv schema.GroupVersion) (apidiscovery.APIVersionDiscovery, error) {
	var list apidiscovery.APIGroupDiscoveryList
	found := apidiscovery.APIVersionDiscovery{Version: gv.Version}
	if err := decode(data, &list); err != nil {
		return found, err
	}
	for i := range list.Items {
		for _, v := range list.Items[i].Versions {
			if list.Items[i].Name == gv.Group && v.Version == gv.Version {
				found.Resources = sane(v.Resources)
			}
		}
	}
	return found, nil
}

// sane leaves out invalid entries, and fills in the fields that clients rely on.
func sane(all []apidiscovery.APIResourceDiscovery) []apidiscovery.APIResourceDiscovery {
	all = slices.DeleteFunc(all, func(r apidiscovery.APIResourceDiscovery) bool { return !named(r.Resource) })
	for i := range all {
		r := &all[i]
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{}
		}
		if r.Scope != apidiscovery.ScopeNamespace {
			r.Scope = apidiscovery.ScopeCluster
		}
		r.Subresources = slices.DeleteFunc(r.Subresources, func(s apidiscovery.APISubresourceDiscovery) bool { return !named(s.Subresource) })
		for j := range r.Subresources {
			if r.Subresources[j].ResponseKind == nil {
				r.Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	return all
}

// named reports whether a resource can have that name.
func named(s string) bool { return s != "" && len(s) <= 253 && !strings.ContainsAny(s, "/ \t\r\n%?") }

// parseList turns the document of one version into the aggregated form.
func parseList(data []byte, gv schema.GroupVersion) (apidiscovery.APIVersionDiscovery, error) {
	found := apidiscovery.APIVersionDiscovery{Version: gv.Version}
	var list metav1.APIResourceList
	if err := decode(data, &list); err != nil {
		return found, err
	}
	if list.Kind != "APIResourceList" {
		return found, fmt.Errorf("the answer is a %q, want an APIResourceList", list.Kind)
	}
	at := map[string]int{}
	kind := func(r *metav1.APIResource) *metav1.GroupVersionKind {
		k := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		if r.Group == "" && r.Version == "" {
			k.Group, k.Version = gv.Group, gv.Version
		}
		return k
	}
	for i := range list.APIResources {
		r := &list.APIResources[i]
		if !named(r.Name) {
			continue
		}
		scope := apidiscovery.ScopeCluster
		if r.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		at[r.Name] = len(found.Resources)
		found.Resources = append(found.Resources, apidiscovery.APIResourceDiscovery{
			Resource: r.Name, ResponseKind: kind(r), Scope: scope, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for i := range list.APIResources {
		r := &list.APIResources[i]
		parent, sub, ok := strings.Cut(r.Name, "/")
		j, known := at[parent]
		if !ok || !known || !named(sub) {
			continue
		}
		found.Resources[j].Subresources = append(found.Resources[j].Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource: sub, ResponseKind: kind(r), Verbs: r.Verbs,
		})
	}
	return found, nil
}

// parseOpenAPI finds the URL of a version's document in the index of a server.
func parseOpenAPI(data []byte, gv schema.GroupVersion) (string, error) {
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := decode(data, &index); err != nil {
		return "", err
	}
	path := "apis/" + gv.Group + "/" + gv.Version
	if url := index.Paths[path].URL; strings.HasPrefix(url, "/openapi/v3/"+path) && len(url) <= 1024 {
		return url, nil
	}
	return "", nil
}
