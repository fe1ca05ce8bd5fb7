package standalone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller/namespaces"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// A resource is what discovery says of a resource, in the version that the server prefers.
type resource struct {
	client.Resource[client.Object]
	verbs []string
}

func (r resource) can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(r.verbs, v) })
}

// A discovered is what discovery says.
type discovered struct {
	resources []resource            // without subresources
	stale     []schema.GroupVersion // versions whose resources are not known now
}

func (d *discovered) find(gr schema.GroupResource) (resource, bool) {
	i := slices.IndexFunc(d.resources, func(r resource) bool { return r.GroupResource() == gr })
	if i < 0 {
		return resource{}, false
	}
	return d.resources[i], true
}

// A raw makes requests for documents. [client.REST] is one.
type raw interface {
	Do(ctx context.Context, r client.RawRequest) (*http.Response, error)
}

const (
	inAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

	// maxDiscovery is far more than the discovery of any cluster takes.
	maxDiscovery = 64 << 20
)

// discover reads the documents of discovery.
func discover(ctx context.Context, server raw) (*discovered, error) {
	d := &discovered{}
	for _, path := range []string{"/api", "/apis"} {
		list, err := readDocument(ctx, server, path)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			d.add(&list.Items[i])
		}
	}
	return d, nil
}

func readDocument(ctx context.Context, server raw, path string) (*discoveryv2.APIGroupDiscoveryList, error) {
	resp, err := server.Do(ctx, client.RawRequest{Path: path, Accept: inAggregated})
	if apierrors.IsNotAcceptable(err) {
		return nil, fmt.Errorf("%w: %w", errTooOld, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	list := &discoveryv2.APIGroupDiscoveryList{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDiscovery)).Decode(list); err != nil {
		return nil, fmt.Errorf("reading the server's %s: %w", path, err)
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("%w: %s is a %s", errTooOld, path, list.Kind)
	}
	return list, nil
}

// errTooOld is the error for servers before v1.30.
var errTooOld = errors.New("the server does not serve aggregated discovery (apidiscovery.k8s.io/v2)")

// add adds a group, whose versions are in the order of the server's preference.
func (d *discovered) add(g *discoveryv2.APIGroupDiscovery) {
	seen := map[string]bool{}
	for _, v := range g.Versions {
		gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
		if v.Freshness == discoveryv2.DiscoveryFreshnessStale {
			d.stale = append(d.stale, gv)
		}
		for _, r := range v.Resources {
			if r.ResponseKind == nil || r.ResponseKind.Kind == "" || seen[r.Resource] {
				continue
			}
			seen[r.Resource] = true
			d.resources = append(d.resources, resource{client.Resource[client.Object]{
				GroupVersionResource: gv.WithResource(r.Resource), Kind: r.ResponseKind.Kind, Namespaced: r.Scope == discoveryv2.ScopeNamespace,
			}, r.Verbs})
		}
	}
}

// followed reports whether the objects of a resource can be followed and deleted. The Events of events.k8s.io are those of the
// core group.
func (r resource) followed() bool {
	return r.can("list", "watch", "delete") && r.Group != eventsv1.GroupName
}

// The resources by which it is known that discovery has changed.
var (
	definitionKind = client.Resource[client.Object]{
		GroupVersionResource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		Kind:                 "CustomResourceDefinition",
	}
	serviceKind = client.Resource[client.Object]{
		GroupVersionResource: schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
		Kind:                 "APIService",
	}
)

// A definition is the part of a CustomResourceDefinition that names served versions.
type definition struct {
	Spec struct {
		Group    string `json:"group"`
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions    []condition `json:"conditions"`
		AcceptedNames struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"acceptedNames"`
	} `json:"status"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

func (d *definition) resource() schema.GroupResource {
	return schema.GroupResource{Group: d.Spec.Group, Resource: d.Status.AcceptedNames.Plural}
}

// established reports whether the server serves the resource.
func (d *definition) established() bool {
	return slices.Contains(d.Status.Conditions, condition{"Established", "True"})
}

// in reports whether discovery agrees with a definition.
func (d *definition) in(all *discovered) bool {
	r, ok := all.find(d.resource())
	serves := func(version string) bool {
		for _, v := range d.Spec.Versions {
			if v.Served && (v.Name == version || version == "") {
				return true
			}
		}
		return false
	}
	if !ok {
		return !serves("")
	}
	return r.Kind == d.Status.AcceptedNames.Kind && serves(r.Version)
}

// agrees reports whether discovery has the resources that are established, and none whose definition was deleted. Known are the
// resources that were defined; agrees adds to it.
func (d *discovered) agrees(defined []*definition, known map[schema.GroupResource]bool) bool {
	agrees := true
	now := map[schema.GroupResource]bool{}
	for _, def := range defined {
		if !def.established() {
			continue
		}
		now[def.resource()], known[def.resource()] = true, true
		agrees = agrees && def.in(d)
	}
	for gr := range known {
		if now[gr] {
			continue
		}
		if _, ok := d.find(gr); ok {
			agrees = false
		} else {
			delete(known, gr)
		}
	}
	return agrees
}

// A service is the part of an APIService that says which server serves a version.
type service struct {
	Spec struct {
		Group   string         `json:"group"`
		Version string         `json:"version"`
		Service map[string]any `json:"service"`
	} `json:"spec"`
}

func (s *service) version() schema.GroupVersion {
	return schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
}

// parse reads a part of an object. The other fields are ignored.
func parse[T any](obj client.Object) (*T, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, json.Unmarshal(data, out)
}

func parseAll[T any](objs []client.Object) ([]*T, error) {
	var all []*T
	for _, obj := range objs {
		one, err := parse[T](obj)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", obj.GetName(), err)
		}
		all = append(all, one)
	}
	return all, nil
}

// A catalog has the resources of a server: the resources that it serves by itself, which stay for as long as this program
// runs, and the others, which come and go.
type catalog struct {
	server raw
	own    []client.Resource[client.Object]

	mu      sync.Mutex
	now     []cache.Resource              // guarded by mu; the others
	defined map[schema.GroupResource]bool // guarded by mu; the custom resources among them, and custom resources that discovery lacks
	changed chan struct{}                 // guarded by mu; closed by the next change
}

// newCatalog reads a server's resources.
func newCatalog(ctx context.Context, api client.Interface, server raw) (*catalog, error) {
	crds, err := listAll[definition](ctx, api, definitionKind)
	if err != nil {
		return nil, err
	}
	services, err := listAll[service](ctx, api, serviceKind)
	if err != nil {
		return nil, err
	}
	all, err := discover(ctx, server)
	if err != nil {
		return nil, err
	}
	c := &catalog{server: server, defined: map[schema.GroupResource]bool{}, changed: make(chan struct{})}
	c.define(crds)
	comes := func(r resource) bool {
		return slices.ContainsFunc(crds, func(d *definition) bool { return d.resource() == r.GroupResource() }) ||
			slices.ContainsFunc(services, func(s *service) bool { return s.Spec.Service != nil && s.version() == r.GroupVersion() })
	}
	for _, r := range all.resources {
		if r.followed() && !comes(r) {
			c.own = append(c.own, r.Resource)
		}
	}
	c.now = c.others(all)
	return c, nil
}

// listAll lists a resource. A server without the resource has no objects of it.
func listAll[T any](ctx context.Context, api client.Interface, r client.Resource[client.Object]) ([]*T, error) {
	objs, _, err := r.List(ctx, api, "", metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.GroupResource(), err)
	}
	return parseAll[T](objs)
}

// isOwn reports whether the server itself serves a resource.
func (c *catalog) isOwn(gr schema.GroupResource) bool {
	return slices.ContainsFunc(c.own, func(o client.Resource[client.Object]) bool { return o.GroupResource() == gr })
}

// define records custom resources.
func (c *catalog) define(crds []*definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range crds {
		if d.established() {
			c.defined[d.resource()] = true
		}
	}
}

// agrees reports whether discovery agrees with the definitions of custom resources.
func (c *catalog) agrees(all *discovered, crds []*definition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return all.agrees(crds, c.defined)
}

// others returns the resources that come and go. Of versions that are not known now it returns the resources from before. Resources
// without a definition are those of other servers.
func (c *catalog) others(all *discovered) []cache.Resource {
	var found []cache.Resource
	for _, r := range all.resources {
		if r.followed() && !c.isOwn(r.GroupResource()) {
			found = append(found, cache.Resource{Resource: r.Resource, Elsewhere: !c.defined[r.GroupResource()], Creatable: r.can("create")})
		}
	}
	for _, r := range c.now {
		if _, ok := all.find(r.GroupResource()); !ok && slices.Contains(all.stale, r.GroupVersion()) {
			found = append(found, r)
		}
	}
	sorting.Slice(found, func(a, b cache.Resource) int {
		return strings.Compare(a.String(), b.String())
	})
	return found
}

// Served implements [cache.Served].
func (c *catalog) Served() ([]cache.Resource, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.changed
}

// read reads discovery again.
func (c *catalog) read(ctx context.Context) (*discovered, error) {
	all, err := discover(ctx, c.server)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.others(all); !slices.Equal(now, c.now) {
		c.now = now
		close(c.changed)
		c.changed = make(chan struct{})
	}
	return all, nil
}

// elsewhere deletes a namespace's objects of resources that the server does not serve by itself. It implements
// [namespaces.Others]: caches of such resources may lack the youngest.
type elsewhere struct {
	catalog *catalog
	client  client.Interface
}

// emptyTimeout is how long one request of elsewhere may take.
const emptyTimeout = 10 * time.Second

// Empty implements [namespaces.Others]. It works on all versions at the same time, so that a server that hangs does not delay the
// deletion at others.
func (e elsewhere) Empty(ctx context.Context, namespace string) (map[string][]client.Object, []error) {
	all, err := e.catalog.read(ctx)
	if err != nil {
		return nil, []error{err}
	}
	versions := map[schema.GroupVersion][]resource{}
	for _, r := range all.resources {
		if r.Namespaced && r.can("list", "delete") && r.Group != eventsv1.GroupName && !e.catalog.isOwn(r.GroupResource()) {
			versions[r.GroupVersion()] = append(versions[r.GroupVersion()], r)
		}
	}
	var mu sync.Mutex
	var errs []error                     // guarded by mu
	left := map[string][]client.Object{} // guarded by mu
	g := run.NewGroup(ctx, 0)
	for _, resources := range versions {
		g.Go(func(ctx context.Context) {
			for _, r := range resources {
				rest, err := e.empty(ctx, r.Resource, namespace)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				}
				if len(rest) > 0 {
					left[r.GroupResource().String()] = rest
				}
				mu.Unlock()
				if errors.Is(err, context.DeadlineExceeded) {
					return // the server hangs
				}
			}
		})
	}
	g.Wait()
	if len(all.stale) > 0 {
		unknown := &namespaces.DiscoveryError{}
		for _, gv := range all.stale {
			unknown.Versions = append(unknown.Versions, gv.String())
		}
		slices.Sort(unknown.Versions)
		errs = append(errs, unknown)
	}
	return left, errs
}

// empty asks for the deletion of the objects of a resource, and returns the objects that are left.
func (e elsewhere) empty(ctx context.Context, r client.Resource[client.Object], namespace string) ([]client.Object, error) {
	list := func() ([]client.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
		defer cancel()
		objs, _, err := r.List(ctx, e.client, namespace, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil // it is not served any more
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		return objs, nil
	}
	remove := func(obj client.Object) error {
		ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
		defer cancel()
		background := metav1.DeletePropagationBackground
		err := r.Delete(ctx, e.client, namespace, obj.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(obj.GetUID())),
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	objs, err := list()
	if err != nil || len(objs) == 0 {
		return nil, err
	}
	var errs []error
	for _, obj := range objs {
		if obj.GetDeletionTimestamp() != nil {
			continue
		}
		if err := remove(obj); err != nil {
			if errs = append(errs, err); errors.Is(err, context.DeadlineExceeded) {
				break
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return objs, err
	}
	return list()
}
