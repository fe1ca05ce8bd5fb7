package aggregation

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	apidiscovery "k8s.io/api/apidiscovery/v2"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

// Objects reads stored objects, which are shared. One that does not exist is a NotFound status error.
type Objects interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error)
}

// An API is the part of the API server's in-process client that an Aggregator uses. Returned objects are shared and not changed
// here.
type API interface {
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error]
	Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error)
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error)
	Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error
}

// Options configures an [Aggregator]. All fields but Refuse, Dial and Log are required.
type Options struct {
	Catalog *catalog.Catalog
	BuiltIn *catalog.Snapshot // the kinds that every cluster has
	Objects Objects

	// Certificate returns the client certificate by which other servers know this one.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

	// Refuse returns an error for an address that is not dialed, beside the addresses that never are. Nil means that there are none.
	Refuse func(context.Context, netip.Addr) error

	// Dial connects to servers. Nil means that of a net.Dialer that refuses addresses that are not global unicast addresses.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Log *slog.Logger // nil means slog.Default
}

// An Aggregator knows which other servers serve versions of groups. It is safe for concurrent use.
type Aggregator struct {
	opts Options
	via  string // names this server in the header Via
	base map[schema.GroupVersion]bool

	ready  chan struct{}
	dirty  run.Bell // rung when stored APIServices have changed
	routes atomic.Pointer[map[schema.GroupVersion]*Service]
	remote atomic.Pointer[Remote]

	mu      sync.Mutex
	stored  map[string]*registrationv1.APIService // guarded by mu; shared objects
	remotes map[string]*watched                   // guarded by mu; by the name of the APIService
	changed chan struct{}                         // guarded by mu; closed when remote is replaced
}

// A watched is a Service and its state.
type watched struct {
	*Service
	described description
	fresh     bool     // described is the server's present answer
	wake      run.Bell // rung when something has changed
	stop      context.CancelFunc
}

const apiServices = "apiservices"

var resource = registrationv1.SchemeGroupVersion.WithResource(apiServices)

// manager is the field manager of the writes, as upstream's.
const manager = "kube-aggregator"

// New returns an Aggregator that knows the stored APIServices. It does not start goroutines; call [Aggregator.Run].
func New(ctx context.Context, opts Options) (*Aggregator, error) {
	if opts.Catalog == nil || opts.BuiltIn == nil || opts.Objects == nil || opts.Certificate == nil {
		return nil, errors.New("aggregation: Options needs Catalog, BuiltIn, Objects and Certificate")
	}
	if opts.Dial == nil {
		opts.Dial = dial(opts.Refuse)
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it never fails
	a := &Aggregator{
		opts: opts, via: "1.1 sampan-" + hex.EncodeToString(id), base: baseOf(opts.BuiltIn),
		ready: make(chan struct{}), dirty: run.NewBell(),
		stored: map[string]*registrationv1.APIService{}, remotes: map[string]*watched{}, changed: make(chan struct{}),
	}
	objects, err := opts.Objects.List(ctx, resource, "", nil)
	if err != nil {
		return nil, fmt.Errorf("reading the APIServices: %w", err)
	}
	for _, o := range objects {
		if s, ok := o.(*registrationv1.APIService); ok {
			a.stored[s.Name] = s
		}
	}
	a.route(nil)
	return a, nil
}

// Ready is closed when the APIServices of the versions that are served here were written, as far as they could be.
func (a *Aggregator) Ready() <-chan struct{} { return a.ready }

// Remote returns the versions that other servers serve now.
func (a *Aggregator) Remote() *Remote {
	if a == nil {
		return nil
	}
	return a.remote.Load()
}

// Watch returns the versions that other servers serve now, and a channel that is closed when they change.
func (a *Aggregator) Watch() (*Remote, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.remote.Load(), a.changed
}

// Of returns the Service of a version of a group, or nil if it is served here or not at all. A may be nil.
func (a *Aggregator) Of(gv schema.GroupVersion) *Service {
	if a == nil {
		return nil
	}
	return (*a.routes.Load())[gv]
}

// Route returns the Service of a path: /apis/GROUP/VERSION and everything below it.
func (a *Aggregator) Route(path string) *Service {
	if a == nil || len(*a.routes.Load()) == 0 {
		return nil
	}
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return nil
	}
	group, rest, _ := strings.Cut(rest, "/")
	version, _, _ := strings.Cut(rest, "/")
	return a.Of(schema.GroupVersion{Group: group, Version: version})
}

// served reports whether an APIService is that of another server. Versions that every cluster has are served here, whatever
// their APIService says: no user can take them over.
func (a *Aggregator) served(s *registrationv1.APIService) bool {
	gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
	return s.Spec.Service != nil && s.Spec.Service.Port != nil && s.DeletionTimestamp == nil && gv.Group != "" && s.Name == nameOf(gv) &&
		(!a.base[gv] || gv.Group == metricsGroup)
}

// route makes routes and documents equal to the stored APIServices. start, if it is not nil, begins to follow a Service. The
// caller holds mu, or is New.
func (a *Aggregator) route(start func(*watched)) {
	for name, w := range a.remotes {
		if now := a.stored[name]; now == nil || !a.served(now) || !sameServer(&now.Spec, &w.spec) {
			if w.stop != nil {
				w.stop()
			}
			w.close()
			delete(a.remotes, name)
		}
	}
	routes := map[schema.GroupVersion]*Service{}
	for name, o := range a.stored {
		if !a.served(o) {
			continue
		}
		w := a.remotes[name]
		if w == nil {
			w = &watched{Service: a.newService(o), wake: run.NewBell()}
			w.described.document = apidiscovery.APIVersionDiscovery{Version: o.Spec.Version}
			a.remotes[name] = w
		}
		if w.stop == nil && start != nil {
			start(w)
		}
		routes[w.gv] = w.Service
	}
	a.routes.Store(&routes)
	a.publish()
}

// sameServer reports whether two specifications name the same server in the same way.
func sameServer(a, b *registrationv1.APIServiceSpec) bool {
	return a.InsecureSkipTLSVerify == b.InsecureSkipTLSVerify && apiequality.Semantic.DeepEqual(a.Service, b.Service) && string(a.CABundle) == string(b.CABundle)
}

// publish updates the documents of other servers. The caller holds mu, or is New.
func (a *Aggregator) publish() {
	var all []Version
	for name, w := range a.remotes {
		spec := &a.stored[name].Spec
		v := Version{
			GroupVersion: w.gv, GroupPriority: spec.GroupPriorityMinimum, VersionPriority: spec.VersionPriority,
			Document: w.described.document, OpenAPI: w.described.openAPI, Swagger: w.described.swagger,
		}
		v.Document.Freshness = apidiscovery.DiscoveryFreshnessStale
		if w.fresh {
			v.Document.Freshness = apidiscovery.DiscoveryFreshnessCurrent
		}
		all = append(all, v)
	}
	now := sorted(all)
	now.local = a.changedPriorities()
	if old := a.remote.Load(); old != nil && apiequality.Semantic.DeepEqual(old.versions, now.versions) && maps.Equal(old.local, now.local) {
		return
	}
	a.remote.Store(now)
	close(a.changed)
	a.changed = make(chan struct{})
}

// changedPriorities returns the priorities of versions that are served here and whose APIService has not the priority of custom
// resources. The caller holds mu, or is New.
func (a *Aggregator) changedPriorities() map[schema.GroupVersion]priority {
	changed := map[schema.GroupVersion]priority{}
	for _, s := range a.stored {
		gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
		if p := (priority{s.Spec.GroupPriorityMinimum, s.Spec.VersionPriority}); s.Spec.Service == nil && s.Name == nameOf(gv) && !a.base[gv] && p != custom {
			changed[gv] = p
		}
	}
	return changed
}

// Run keeps the APIServices of the versions that are served here, and follows those of other servers, until ctx is over. It may
// be called once. It writes by api.
func (a *Aggregator) Run(ctx context.Context, api API) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		for failures := 0; ctx.Err() == nil; failures++ {
			if a.follow(ctx, api, g) {
				failures = 0
			}
			run.Pause(ctx, backoff.Pause(failures))
		}
	})
	a.register(ctx, api)
	return nil
}

var backoff = run.Backoff{First: time.Second, Max: 30 * time.Second}

// follow takes the stored APIServices and their changes, until the watch ends. It reports whether it has received anything.
func (a *Aggregator) follow(ctx context.Context, api API, g *run.Group) (received bool) {
	start := func(w *watched) {
		var mine context.Context
		mine, w.stop = context.WithCancel(ctx)
		g.Go(func(context.Context) { a.keep(mine, api, w) })
	}
	objects, meta, err := api.List(ctx, resource, "", metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			a.opts.Log.WarnContext(ctx, "cannot list APIServices", "err", err)
		}
		return false
	}
	a.update(start, func() {
		clear(a.stored)
		for _, o := range objects {
			if s, ok := o.(*registrationv1.APIService); ok {
				a.stored[s.Name] = s
			}
		}
	})
	for ev, err := range api.Watch(ctx, resource, "", metav1.ListOptions{ResourceVersion: meta.ResourceVersion}) {
		if err != nil {
			return true
		}
		s, ok := ev.Object.(*registrationv1.APIService)
		if !ok {
			continue
		}
		a.update(start, func() {
			if ev.Type == watch.Deleted {
				delete(a.stored, s.Name)
				return
			}
			a.stored[s.Name] = s
		})
	}
	return true
}

// update changes what is stored and follows from it.
func (a *Aggregator) update(start func(*watched), f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.route(start)
	a.dirty.Ring()
}

// register keeps the APIServices of the versions that are served here.
func (a *Aggregator) register(ctx context.Context, api API) {
	failures, first := 0, true
	for ctx.Err() == nil {
		now := a.opts.Catalog.Snapshot()
		a.mu.Lock()
		due := changes(wanted(a.base, now), a.stored)
		a.mu.Unlock()
		ok := len(due) == 0 || a.write(ctx, api, due)
		if first {
			close(a.ready) // a record that cannot be written must not keep the cluster from starting
			first = false
		}
		if !ok {
			failures++
			run.Pause(ctx, backoff.Pause(failures))
			continue
		}
		failures = 0
		select {
		case <-ctx.Done():
		case <-a.dirty:
		case <-now.Replaced():
		}
	}
}

// write makes changes at once, so that they share a sync of the disk. It reports whether all were made or need not be.
func (a *Aggregator) write(ctx context.Context, api API, due []change) bool {
	var failed atomic.Bool
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, c := range due {
		g.Go(func(ctx context.Context) {
			var err error
			name := ""
			switch {
			case c.create != nil:
				name = c.create.Name
				_, err = api.Create(ctx, resource, "", "", c.create, metav1.CreateOptions{FieldManager: manager}, "")
			case c.update != nil:
				name = c.update.Name
				_, err = api.Update(ctx, resource, "", name, c.update, metav1.UpdateOptions{FieldManager: manager}, "")
			case c.status != nil:
				name = c.status.Name
				_, err = api.Update(ctx, resource, "", name, c.status, metav1.UpdateOptions{FieldManager: manager}, "status")
			default:
				name = c.remove.Name
				uid := c.remove.UID
				err = api.Delete(ctx, resource, "", name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			}
			// Later writes come with the watch.
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				failed.Store(true)
				a.opts.Log.WarnContext(ctx, "cannot write an APIService", "apiservice", name, "err", err)
			}
		})
	}
	g.Wait()
	return !failed.Load()
}

// recheck is how often a server is asked whether it is still there, as upstream's: nothing else reports that.
const recheck = 30 * time.Second

// keep checks a Service when something changes and from time to time, and writes its condition, until ctx is over.
func (a *Aggregator) keep(ctx context.Context, api API, w *watched) {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	ref := w.spec.Service
	g.Go(func(ctx context.Context) {
		wakeBy(ctx, api, w.wake, corev1.SchemeGroupVersion.WithResource("services"), ref.Namespace, metav1.ListOptions{FieldSelector: "metadata.name=" + ref.Name})
	})
	g.Go(func(ctx context.Context) {
		wakeBy(ctx, api, w.wake, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), ref.Namespace,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + ref.Name})
	})
	failures := 0
	for ctx.Err() == nil {
		pause := recheck
		if a.checkNow(ctx, api, w) {
			failures = 0
		} else {
			failures++
			pause = backoff.Pause(failures)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.wake:
		}
		timer.Stop()
	}
}

// wakeBy rings wake when an object of a selection changes, until ctx is over.
func wakeBy(ctx context.Context, api API, wake run.Bell, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) {
	for ctx.Err() == nil {
		for _, err := range api.Watch(ctx, gvr, namespace, opts) {
			if err != nil {
				break
			}
			wake.Ring()
		}
		run.Pause(ctx, backoff.First)
	}
}

// checkNow checks a Service once, reads its documents, and writes its condition. It reports whether all is well.
func (a *Aggregator) checkNow(ctx context.Context, api API, w *watched) bool {
	condition, address := w.check(ctx)
	if ctx.Err() != nil {
		return false
	}
	ok := condition.Status == registrationv1.ConditionTrue
	w.available.Store(ok)
	a.mu.Lock()
	before, o := w.described, a.stored[w.name]
	a.mu.Unlock()
	now := before
	if ok {
		var err error
		if now, err = w.describe(ctx, address, before); err != nil {
			ok = false
			a.opts.Log.InfoContext(ctx, "no discovery document of an APIService", "apiservice", w.name, "err", err)
		}
	} else {
		now.openAPI = "" // it would be asked for in vain
	}
	if ctx.Err() != nil {
		return false
	}
	a.mu.Lock()
	w.described, w.fresh = now, ok
	if a.remotes[w.name] == w {
		a.publish()
	}
	a.mu.Unlock()
	if o == nil {
		return ok
	}
	fresh, changed := setCondition(o, condition)
	if !changed {
		return ok
	}
	_, err := api.Update(ctx, resource, "", w.name, fresh, metav1.UpdateOptions{FieldManager: manager}, "status")
	if err != nil && ctx.Err() == nil {
		// A conflict is that of a change which the watch brings; the condition is written with the next check.
		a.opts.Log.DebugContext(ctx, "cannot write the condition of an APIService", "apiservice", w.name, "err", err)
		return false
	}
	return ok
}
