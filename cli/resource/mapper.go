package resource

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// A Mapping is one resource that the server serves.
type Mapping struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool

	Singular   string
	ShortNames []string
	Categories []string
	Verbs      []string
}

// MappingOf returns the mapping of a built-in resource without asking.
func MappingOf[T client.Object](r client.Resource[T]) Mapping {
	return Mapping{GroupVersionResource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced}
}

// Path returns the path of a collection, or of an object if name is not empty.
func (m Mapping) Path(namespace, name string) string {
	p := "/api/" + m.Version
	if m.Group != "" {
		p = "/apis/" + m.Group + "/" + m.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + m.Resource
	if name != "" {
		p += "/" + name
	}
	return p
}

// GVK returns the kind of the resource's objects.
func (m Mapping) GVK() schema.GroupVersionKind { return m.GroupVersion().WithKind(m.Kind) }

// Can reports whether the resource serves a verb.
func (m Mapping) Can(verb string) bool { return slices.Contains(m.Verbs, verb) }

// Called returns kind/name, or kind.group/name, as kubectl prints objects.
func (m Mapping) Called(name string) string {
	s := strings.ToLower(m.Kind)
	if m.Group != "" {
		s += "." + m.Group
	}
	return s + "/" + name
}

// answers reports whether the user may mean this resource by a name.
func (m Mapping) answers(name string) bool {
	return m.Resource == name || m.Singular == name || strings.ToLower(m.Kind) == name || slices.Contains(m.ShortNames, name)
}

// A Server answers raw requests; *client.REST is one.
type Server interface {
	Do(ctx context.Context, r client.RawRequest) (*http.Response, error)
}

// A Mapper has the served resources, from the server's discovery documents. It is
// not safe for concurrent use.
type Mapper struct {
	server   Server
	versions map[schema.GroupVersion][]Mapping // the versions requested so far
	groups   []schema.GroupVersion             // all served versions, the server's preferred ones first
	loaded   bool                              // groups is known

	// Limit is how long an answer may take; 0 means discoveryLimit. It is not to be
	// changed after the first question.
	Limit time.Duration
}

// discoveryLimit is the timeout of a discovery request, as for client-go's clients: a
// server that accepts a connection and never responds must not block forever.
const discoveryLimit = 32 * time.Second

// NewMapper returns a mapper that has asked nothing yet.
func NewMapper(s Server) *Mapper {
	return &Mapper{server: s, versions: map[schema.GroupVersion][]Mapping{}}
}

// NewStaticMapper returns a mapper of a fixed list of resources, which sends no requests.
func NewStaticMapper(served []Mapping) *Mapper {
	m := &Mapper{versions: map[schema.GroupVersion][]Mapping{}, loaded: true}
	for _, r := range served {
		gv := r.GroupVersion()
		if _, known := m.versions[gv]; !known && gv != core {
			m.groups = append(m.groups, gv)
		}
		m.versions[gv] = append(m.versions[gv], r)
	}
	return m
}

var core = schema.GroupVersion{Version: "v1"}

// A NoKindError says that the server serves no such kind.
type NoKindError struct {
	Kind schema.GroupVersionKind
	Near []string // kinds that it does serve and that may have been meant
}

func (e *NoKindError) Error() string {
	return fmt.Sprintf("no matches for kind %q in version %q: the server does not serve it; check both", e.Kind.Kind, e.Kind.GroupVersion()) + didYouMean(e.Near)
}

// A NoTypeError says that the server serves nothing by this name.
type NoTypeError struct {
	Name string
	Near []string // names of types that it does serve and that may have been meant
}

func (e *NoTypeError) Error() string {
	return fmt.Sprintf("the server doesn't have a resource type %q", e.Name) + didYouMean(e.Near)
}

// ByKind returns the resource of a kind, or a [*NoKindError].
func (m *Mapper) ByKind(ctx context.Context, kind schema.GroupVersionKind) (Mapping, error) {
	served, err := m.version(ctx, kind.GroupVersion())
	if err != nil {
		return Mapping{}, err
	}
	for _, r := range served {
		if r.Kind == kind.Kind {
			return r, nil
		}
	}
	return Mapping{}, &NoKindError{kind, m.kindsNear(ctx, kind)}
}

// Forget drops the cached discovery, such as after a CustomResourceDefinition was created.
func (m *Mapper) Forget() {
	m.versions, m.groups, m.loaded = map[schema.GroupVersion][]Mapping{}, nil, false
}

// meant returns what a user means by a word: a resource, or those of a category.
func (m *Mapper) meant(ctx context.Context, word string) ([]Mapping, error) {
	if word == "all" { // asked for most; nothing else may be called that
		return m.ByCategory(ctx, word)
	}
	mapping, err := m.ByName(ctx, word)
	if _, ok := errors.AsType[*NoTypeError](err); !ok {
		return []Mapping{mapping}, err
	}
	of, failure := m.ByCategory(ctx, strings.ToLower(word))
	if failure != nil || len(of) == 0 {
		return nil, err
	}
	return of, nil
}

// ByGroupKind returns the resource of a kind in the version of its group that the server
// prefers, or a [*NoTypeError].
func (m *Mapper) ByGroupKind(ctx context.Context, kind schema.GroupKind) (Mapping, error) {
	if kind.Group != "" {
		if err := m.load(ctx); err != nil {
			return Mapping{}, err
		}
	}
	for _, gv := range append([]schema.GroupVersion{core}, m.groups...) {
		if gv.Group != kind.Group {
			continue
		}
		served, err := m.version(ctx, gv)
		if err != nil {
			return Mapping{}, err
		}
		for _, r := range served {
			if r.Kind == kind.Kind {
				return r, nil
			}
		}
	}
	return Mapping{}, &NoTypeError{Name: kind.String()}
}

// ByName returns the resource that a user means by a plural, singular or short
// name, or a kind, optionally followed by .GROUP or .VERSION.GROUP; or a
// [*NoTypeError]. A name that several groups serve means the core group's, then
// that of the group that the server names first.
func (m *Mapper) ByName(ctx context.Context, name string) (Mapping, error) {
	word, group, qualified := strings.Cut(strings.ToLower(name), ".")
	if !qualified {
		served, err := m.version(ctx, core)
		if err != nil {
			return Mapping{}, err
		}
		for _, r := range served {
			if r.answers(word) {
				return r, nil
			}
		}
	}
	if err := m.load(ctx); err != nil {
		return Mapping{}, err
	}
	version, versioned, _ := strings.Cut(group, ".")
	groups := m.groups
	if qualified { // pods.v1. is the core group's
		groups = append([]schema.GroupVersion{core}, groups...)
	}
	for _, gv := range groups {
		if qualified && gv.Group != group && (gv.Group != versioned || gv.Version != version) {
			continue
		}
		served, err := m.version(ctx, gv)
		if apierrors.IsServiceUnavailable(err) {
			continue // an aggregated API whose server is down must not hide the others
		}
		if err != nil {
			return Mapping{}, err
		}
		for _, r := range served {
			if r.answers(word) {
				return r, nil
			}
		}
	}
	return Mapping{}, &NoTypeError{name, m.typesNear(ctx, word)}
}

// ByCategory returns the resources of a category such as "all", in the server's
// order.
func (m *Mapper) ByCategory(ctx context.Context, category string) ([]Mapping, error) {
	if err := m.load(ctx); err != nil {
		return nil, err
	}
	var found []Mapping
	seen := map[schema.GroupResource]bool{}
	for _, gv := range append([]schema.GroupVersion{core}, m.groups...) {
		served, err := m.version(ctx, gv)
		if apierrors.IsServiceUnavailable(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, r := range served {
			if slices.Contains(r.Categories, category) && !seen[r.GroupResource()] {
				seen[r.GroupResource()] = true
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// version returns the resources of one group version; nothing if there is no such.
func (m *Mapper) version(ctx context.Context, gv schema.GroupVersion) ([]Mapping, error) {
	if served, known := m.versions[gv]; known || m.server == nil {
		return served, nil
	}
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	var list metav1.APIResourceList
	err := m.get(ctx, path, "application/json", &list)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	var served []Mapping
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		served = append(served, Mapping{
			GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced,
			Singular: r.SingularName, ShortNames: r.ShortNames, Categories: r.Categories, Verbs: r.Verbs,
		})
	}
	m.versions[gv] = served
	return served, nil
}

const (
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

	// maxDiscovery is far more than the discovery of any cluster takes.
	maxDiscovery = 64 << 20
)

// load reads all groups, and their resources if the server returns both in one
// response (aggregated discovery).
func (m *Mapper) load(ctx context.Context) error {
	if m.loaded {
		return nil
	}
	var doc struct {
		metav1.TypeMeta
		Items  []discoveryv2.APIGroupDiscovery
		Groups []metav1.APIGroup
	}
	if err := m.get(ctx, "/apis", aggregated, &doc); err != nil {
		return err
	}
	for _, g := range doc.Groups {
		first := schema.GroupVersion{Group: g.Name, Version: g.PreferredVersion.Version}
		m.groups = append(m.groups, first)
		for _, v := range g.Versions {
			if v.Version != first.Version {
				m.groups = append(m.groups, schema.GroupVersion{Group: g.Name, Version: v.Version})
			}
		}
	}
	for _, g := range doc.Items {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			m.groups = append(m.groups, gv)
			if v.Freshness == discoveryv2.DiscoveryFreshnessStale && len(v.Resources) == 0 {
				continue
			}
			var served []Mapping
			for _, r := range v.Resources {
				kind := ""
				if r.ResponseKind != nil {
					kind = r.ResponseKind.Kind
				}
				served = append(served, Mapping{
					GroupVersionResource: gv.WithResource(r.Resource), Kind: kind, Namespaced: r.Scope == discoveryv2.ScopeNamespace,
					Singular: r.SingularResource, ShortNames: r.ShortNames, Categories: r.Categories, Verbs: r.Verbs,
				})
			}
			m.versions[gv] = served
		}
	}
	m.loaded = true
	return nil
}

func (m *Mapper) get(ctx context.Context, path, accept string, into any) error {
	resp, err := m.server.Do(ctx, client.RawRequest{Path: path, Accept: accept, Limit: cmp.Or(m.Limit, discoveryLimit)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDiscovery)).Decode(into); err != nil {
		return fmt.Errorf("reading the server's %s: %w", path, err)
	}
	return nil
}
