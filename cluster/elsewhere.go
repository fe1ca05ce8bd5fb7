package cluster

import (
	"context"
	"iter"
	"net"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller/namespaces"
	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/run"
)

// elsewhere is the contents of other servers, for the controllers of all resources.
type elsewhere struct{ aggregator *aggregation.Aggregator }

// Empty implements [namespaces.Others].
func (e elsewhere) Empty(ctx context.Context, namespace string) (map[string][]client.Object, []error) {
	user := accountUser("namespace-controller")
	c := e.aggregator.Empty(ctx, &user, namespace)
	left := map[string][]client.Object{}
	for resource, items := range c.Left {
		for i := range items {
			left[resource.String()] = append(left[resource.String()], &items[i])
		}
	}
	if len(c.Stale) > 0 {
		err := &namespaces.DiscoveryError{}
		for _, gv := range c.Stale {
			err.Versions = append(err.Versions, gv.String())
		}
		c.Errors = append(c.Errors, err)
	}
	return left, c.Errors
}

// Served implements [cache.Served]: each resource in the version of the highest priority. As with upstream, only resources that
// can be listed, watched and deleted are of interest.
func (e elsewhere) Served() (all []cache.Resource, changed <-chan struct{}) {
	remote, changed := e.aggregator.Watch()
	seen := map[schema.GroupResource]bool{}
	for _, v := range remote.Versions() {
		for i := range v.Document.Resources {
			r := &v.Document.Resources[i]
			gvr := v.WithResource(r.Resource)
			can := func(verb string) bool { return slices.Contains(r.Verbs, verb) }
			if seen[gvr.GroupResource()] || r.ResponseKind.Kind == "" || !can("list") || !can("watch") || !can("delete") {
				continue
			}
			seen[gvr.GroupResource()] = true
			all = append(all, cache.Resource{
				Resource:  client.Resource[client.Object]{GroupVersionResource: gvr, Kind: r.ResponseKind.Kind, Namespaced: r.Scope == "Namespaced"},
				Elsewhere: true, Creatable: can("create"),
			})
		}
	}
	return all, changed
}

// A routed client makes requests for the resources of other servers over HTTP, because the local client has only those of this
// one.
type routed struct {
	local, others client.Interface
	aggregator    *aggregation.Aggregator
}

// to returns the client for a resource.
func (r routed) to(gvr schema.GroupVersionResource) client.Interface {
	if r.aggregator.Of(gvr.GroupVersion()) != nil {
		return r.others
	}
	return r.local
}

// Get implements [client.Interface]; the other methods do, too.
func (r routed) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (runtime.Object, error) {
	return r.to(gvr).Get(ctx, gvr, namespace, name, subresource)
}

func (r routed) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	return r.to(gvr).List(ctx, gvr, namespace, opts)
}

func (r routed) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return r.to(gvr).Watch(ctx, gvr, namespace, opts)
}

func (r routed) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	return r.to(gvr).Create(ctx, gvr, namespace, name, obj, opts, subresource)
}

func (r routed) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error) {
	return r.to(gvr).Update(ctx, gvr, namespace, name, obj, opts, subresource)
}

func (r routed) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error) {
	return r.to(gvr).Patch(ctx, gvr, namespace, name, kind, patch, opts, subresource)
}

func (r routed) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	return r.to(gvr).Delete(ctx, gvr, namespace, name, opts)
}

// inside returns a client that reads metadata over HTTP from a handler in this process, and the task that serves it. So the
// requests are authorized, audited and counted like those of other clients.
func inside(name string, handler http.Handler) (*client.REST, run.Task, error) {
	l := inprocess.New()
	server := &http.Server{Handler: handler} // its only client is below
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
	task := run.Task{Name: "API for " + name, Run: func(ctx context.Context) error {
		defer transport.CloseIdleConnections()
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(l); ctx.Err() == nil {
			return err
		}
		return nil
	}}
	c, err := client.NewREST(&rest.Config{Host: "http://in-process", Transport: transport}, client.RESTOptions{Metadata: true, UserAgent: "kube-controller-manager"})
	return c, task, err
}
