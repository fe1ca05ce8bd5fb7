package definitions

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/apiextensions"
	"github.com/sampan-io/sampan/internal/run"
)

// API reads and writes definitions. Objects that come out are shared.
type API interface {
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error]
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error)
}

// Instances are the stored objects of custom resources.
type Instances interface {
	// Delete asks for the deletion of all objects of a kind.
	Delete(ctx context.Context, kind *catalog.Kind) error

	// Gone blocks until there are no objects of the kind.
	Gone(ctx context.Context, kind *catalog.Kind) error

	// Discard removes all remaining records of the kind.
	Discard(ctx context.Context, kind *catalog.Kind) error
}

// Options configures a [Follower]. All but Webhook and Log are required to run it; Load needs only the catalog.
type Options struct {
	Catalog   *catalog.Catalog
	API       API
	Instances Instances

	// Webhook returns a client for a conversion webhook. It does not connect. Nil means that webhooks cannot be called.
	Webhook func(*apiextensionsv1.WebhookClientConfig) (Webhook, error)

	Log *slog.Logger // nil means slog.Default
}

// A Follower keeps the catalog equal to the definitions.
type Follower struct {
	opts  Options
	ready chan struct{}

	turn   sync.Mutex                   // held while a definition is handled; taken before mu
	known  map[string]*entry            // guarded by turn after Load; by the name of the definition
	groups map[string]map[string]*entry // guarded by turn after Load; the same, by the group and the name
	judge  *judge                       // guarded by turn; nil while another server judges

	mu      sync.Mutex
	restart func()              // guarded by mu; lets Run list the definitions again
	judged  map[types.UID]int64 // guarded by mu; the generation of each definition that was judged last
	next    chan struct{}       // guarded by mu; closed at the next judgement
}

// An entry is a definition.
type entry struct {
	stored *definition   // without its schemas: see summary
	names  names         // accepted
	kind   *catalog.Kind // that is served; nil if none is
	hook   Webhook       // of kind; nil if it has none
	failed string        // why it has no kind although the names are accepted
	judge  *judge        // that has judged it last; nil: none has
	ending bool          // it is being deleted: its objects go before it

	failures  int  // in a row to write its status
	repeating bool // it will be judged once more after a pause
}

// summary returns what judgements of other definitions, and the next one of d, need of d. Schemas are most of a
// definition, and take many times the memory of their encoding.
func summary(d *definition) *definition {
	return &definition{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, UID: d.UID, Generation: d.Generation},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: d.Spec.Group},
		Status:     *d.Status.DeepCopy(),
	}
}

var resource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// New returns a follower that has not started.
func New(o Options) *Follower {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Follower{
		opts: o, ready: make(chan struct{}), restart: func() {},
		known: map[string]*entry{}, groups: map[string]map[string]*entry{},
		judged: map[types.UID]int64{}, next: make(chan struct{}),
	}
}

// Use completes the options, before Run.
func (f *Follower) Use(api API, instances Instances) { f.opts.API, f.opts.Instances = api, instances }

// Ready is closed when Run has judged the definitions that are stored.
func (f *Follower) Ready() <-chan struct{} { return f.ready }

// remember makes e the entry of a definition. A definition never changes its group.
func (f *Follower) remember(name string, e *entry) {
	f.known[name] = e
	group := groupOf(name)
	if f.groups[group] == nil {
		f.groups[group] = map[string]*entry{}
	}
	f.groups[group][name] = e
}

// groupOf returns the group in the name of a definition, which is PLURAL.GROUP.
func groupOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}

// retryAfter is the pause after a failure, such as a full disk.
var retryAfter = run.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second}

// Run serves the definitions until ctx is over, and judges them while [Follower.Judge] runs.
func (f *Follower) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		began, err := f.once(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if began {
			failures = 0
		}
		failures++
		f.opts.Log.WarnContext(ctx, "following definitions of custom resources", "err", err)
		run.Pause(ctx, retryAfter.Pause(failures))
	}
	return nil
}

// once handles all definitions and then each that changes, until the watch ends or this server begins to judge. It
// reports whether it has come to the watch.
func (f *Follower) once(ctx context.Context) (began bool, err error) {
	ctx, restart := context.WithCancel(ctx)
	defer restart()
	f.mu.Lock()
	f.restart = restart
	f.mu.Unlock()
	defer func() {
		if ctx.Err() != nil {
			err = nil // list again
		}
	}()
	revision, err := f.catchUp(ctx)
	if err != nil {
		return false, err
	}
	select {
	case <-f.ready:
	default:
		close(f.ready)
	}
	for ev, err := range f.opts.API.Watch(ctx, resource, "", metav1.ListOptions{ResourceVersion: revision}) {
		if err != nil {
			if apierrors.IsTimeout(err) || apierrors.IsResourceExpired(err) {
				err = nil // list again
			}
			return true, err
		}
		d, ok := ev.Object.(*definition)
		switch {
		case !ok:
		case ev.Type == watch.Deleted:
			err = f.removed(ctx, d.Name)
		case ev.Type == watch.Added || ev.Type == watch.Modified:
			f.changed(d)
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// page is how many definitions are decoded at the same time. A decoded one takes ten times the memory of its record.
const page = 50

// catchUp handles all stored definitions, and returns the revision of the list.
func (f *Follower) catchUp(ctx context.Context) (revision string, err error) {
	stored := map[string]bool{}
	opts := metav1.ListOptions{Limit: page}
	for {
		objs, meta, err := f.opts.API.List(ctx, resource, "", opts)
		if err != nil {
			return "", err
		}
		for _, obj := range objs {
			d := obj.(*definition)
			stored[d.Name] = true
			f.changed(d)
		}
		revision, opts.Continue = meta.ResourceVersion, meta.Continue
		if opts.Continue == "" {
			break
		}
	}
	for _, name := range f.names() {
		if !stored[name] {
			if err := f.removed(ctx, name); err != nil {
				return "", err
			}
		}
	}
	return revision, nil
}

// names returns the names of the definitions.
func (f *Follower) names() []string {
	f.turn.Lock()
	defer f.turn.Unlock()
	return slices.Collect(maps.Keys(f.known))
}

// changed handles a definition that is new or has changed: it serves its kind and, if this server judges, writes its
// status.
func (f *Follower) changed(d *definition) {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.handle(d)
}

// handle is changed for a caller that holds turn.
func (f *Follower) handle(d *definition) {
	e := f.known[d.Name]
	if e != nil && e.stored.UID != d.UID {
		f.forget(d.Name)
		e = nil
	}
	if e == nil {
		e = &entry{names: d.Status.AcceptedNames}
		f.remember(d.Name, e)
	}
	before := e.stored
	e.stored = summary(d)
	var err error
	switch judges := f.judge != nil; {
	case d.DeletionTimestamp != nil && apihelpers.CRDHasFinalizer(d, apiextensions.Finalizer):
		f.endCreations(d, e, before)
		if judges {
			f.judge.end(f, d, e.kind)
		}
	case judges:
		err = f.judge.decide(f, d, e, before)
	default:
		f.obey(d, e, before)
	}
	switch {
	case err == nil:
		e.failures = 0
		if f.judge != nil || decided(d) {
			f.note(d)
		}
	case f.judge.ctx.Err() == nil: // otherwise another server will judge
		f.judge.again(f, d.Name, e, err)
	}
}

// removed handles the end of a definition.
func (f *Follower) removed(ctx context.Context, name string) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	freed := f.known[name]
	if freed == nil {
		return nil
	}
	f.forget(name)
	if f.judge == nil {
		return nil
	}
	return f.reconsider(ctx, freed.stored)
}

// forget stops serving the kinds of a definition that is gone.
func (f *Follower) forget(name string) {
	if e := f.known[name]; e != nil {
		f.serve(e, nil, nil)
		f.mu.Lock()
		delete(f.judged, e.stored.UID)
		f.mu.Unlock()
	}
	delete(f.known, name)
	group := groupOf(name)
	if delete(f.groups[group], name); len(f.groups[group]) == 0 {
		delete(f.groups, group)
	}
}

// reconsider handles again the definitions in the group of one that has given back names.
func (f *Follower) reconsider(ctx context.Context, freed *definition) error {
	for name, e := range maps.Clone(f.groups[groupOf(freed.Name)]) {
		if name == freed.Name || apihelpers.IsCRDConditionTrue(e.stored, apiextensionsv1.NamesAccepted) {
			continue
		}
		d, err := f.read(ctx, name)
		if err != nil {
			return err
		}
		if d != nil {
			f.handle(d)
		}
	}
	return nil
}

// read returns the stored definition of that name, which is shared, or nil if there is none.
func (f *Follower) read(ctx context.Context, name string) (*definition, error) {
	objs, _, err := f.opts.API.List(ctx, resource, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil || len(objs) == 0 {
		return nil, err
	}
	return objs[0].(*definition), nil
}
