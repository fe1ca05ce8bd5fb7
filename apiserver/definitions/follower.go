package definitions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/apiextensions"
	"github.com/sampan-io/sampan/catalog/custom"
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

	// Of the goroutine that runs, after Load.
	known  map[string]*entry            // by the name of the definition
	groups map[string]map[string]*entry // the same, by the group and the name

	mu     sync.Mutex
	ending map[types.UID]*catalog.Kind // guarded by mu; the kinds of definitions whose objects are being deleted, nil for a definition without
	judged map[types.UID]int64         // guarded by mu; the generation of each definition that was judged last
	next   chan struct{}               // guarded by mu; closed at the next judgement
}

// An entry is a definition.
type entry struct {
	stored *definition   // without its schemas: see summary
	names  names         // accepted
	kind   *catalog.Kind // that is served; nil if none is
	hook   Webhook       // of kind; nil if it has none
	failed string        // why it has no kind although the names are accepted
	ending bool          // its objects are being deleted
}

// summary returns what judgements of other definitions, and the next one of d, need of d. Schemas are most of a definition,
// and take many times the memory of their encoding.
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
	return &Follower{opts: o, ready: make(chan struct{}), known: map[string]*entry{}, groups: map[string]map[string]*entry{}, ending: map[types.UID]*catalog.Kind{}, judged: map[types.UID]int64{}, next: make(chan struct{})}
}

// Use completes the options, before Run.
func (f *Follower) Use(api API, instances Instances) { f.opts.API, f.opts.Instances = api, instances }

// Ready is closed when Run has judged the definitions that are stored.
func (f *Follower) Ready() <-chan struct{} { return f.ready }

// Load serves the kinds of definitions that were established before, so that their objects are served from the first
// request on. The definitions are shared, and none is kept.
func (f *Follower) Load(defs iter.Seq[*definition]) {
	var add []*catalog.Kind
	for d := range defs {
		e := &entry{stored: summary(d), names: d.Status.AcceptedNames}
		f.remember(d.Name, e)
		if !established(d) {
			continue
		}
		if f.build(d, e); e.kind != nil && !f.shadows(e.kind) {
			add = append(add, e.kind)
		}
	}
	if err := f.opts.Catalog.Replace(nil, add); err == nil {
		return
	}
	// One of them does not fit the others: find it.
	for _, e := range f.known {
		if e.kind == nil {
			continue
		}
		if err := f.opts.Catalog.Replace(nil, []*catalog.Kind{e.kind}); err != nil {
			f.opts.Log.Error("a stored custom resource is not served", "definition", e.stored.Name, "err", err)
			e.drop()
		}
	}
}

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

// drop forgets the kind.
func (e *entry) drop() {
	e.kind = nil
	if e.hook != nil {
		e.hook.Close()
		e.hook = nil
	}
}

// retryAfter is the pause after a failure, such as a full disk.
var retryAfter = run.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second}

// Run follows the definitions until ctx is over.
func (f *Follower) Run(ctx context.Context) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for failures := 0; ctx.Err() == nil; {
		began, err := f.once(ctx, g)
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

// once judges all definitions and then each that changes, until the watch ends. It reports whether it has come so far.
func (f *Follower) once(ctx context.Context, g *run.Group) (began bool, err error) {
	revision, err := f.catchUp(ctx, g)
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
			freed := f.known[d.Name]
			f.forget(d.Name)
			if freed != nil {
				err = f.reconsider(ctx, g, freed.stored)
			}
		case ev.Type == watch.Added || ev.Type == watch.Modified:
			err = f.changed(ctx, g, d)
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// page is how many definitions are decoded at the same time. A decoded one takes ten times the memory of its record.
const page = 50

// catchUp judges all stored definitions, and returns the revision of the list.
func (f *Follower) catchUp(ctx context.Context, g *run.Group) (revision string, err error) {
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
			if err := f.changed(ctx, g, d); err != nil {
				return "", err
			}
		}
		revision, opts.Continue = meta.ResourceVersion, meta.Continue
		if opts.Continue == "" {
			break
		}
	}
	for name, e := range maps.Clone(f.known) {
		if stored[name] {
			continue
		}
		f.forget(name)
		if err := f.reconsider(ctx, g, e.stored); err != nil {
			return "", err
		}
	}
	return revision, nil
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

// reconsider judges again the definitions in the group of one that has given back names.
func (f *Follower) reconsider(ctx context.Context, g *run.Group, freed *definition) error {
	for name, e := range maps.Clone(f.groups[groupOf(freed.Name)]) {
		if name == freed.Name || apihelpers.IsCRDConditionTrue(e.stored, apiextensionsv1.NamesAccepted) {
			continue
		}
		d, err := f.read(ctx, name)
		if err == nil && d != nil {
			err = f.changed(ctx, g, d)
		}
		if err != nil {
			return err
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

// changed judges a definition, and records that.
func (f *Follower) changed(ctx context.Context, g *run.Group, d *definition) error {
	err := f.judge(ctx, g, d)
	if err == nil {
		f.note(d)
	}
	return err
}

// judge serves the kind of a definition, and then writes its status.
func (f *Follower) judge(ctx context.Context, g *run.Group, d *definition) error {
	e := f.known[d.Name]
	if e != nil && e.stored.UID != d.UID {
		f.forget(d.Name)
		e = nil
	}
	first := e == nil
	if first {
		e = &entry{names: d.Status.AcceptedNames}
		f.remember(d.Name, e)
	}
	before := e.stored
	e.stored = summary(d)
	if d.DeletionTimestamp != nil && apihelpers.CRDHasFinalizer(d, apiextensions.Finalizer) {
		if e.kind == nil && established(d) || e.kind != nil && respecified(before, e, d) {
			f.install(d, e)
		}
		e.ending = true
		return f.end(ctx, g, d, e.kind)
	}
	copied := *d
	next := &copied // its spec is shared
	next.Status = *d.Status.DeepCopy()
	oldNames := e.names
	accepted, namesAccepted := accept(&d.Spec.Names, &e.names, f.othersOf(d))
	e.names, next.Status.AcceptedNames = accepted, accepted
	changed := !equality.Semantic.DeepEqual(d.Status.AcceptedNames, accepted)
	changed = set(next, &namesAccepted) || changed
	if c := approval(d); c != nil {
		changed = set(next, c) || changed
	}
	if first || before == nil || before.Generation != d.Generation {
		if c := structural(d); c != nil {
			changed = set(next, c) || changed
		} else if apihelpers.FindCRDCondition(d, apiextensionsv1.NonStructuralSchema) != nil {
			apihelpers.RemoveCRDCondition(next, apiextensionsv1.NonStructuralSchema)
			changed = true
		}
	}
	if namesAccepted.Status == apiextensionsv1.ConditionTrue || established(d) {
		if e.kind == nil || before == nil || before.Generation != d.Generation || !equality.Semantic.DeepEqual(oldNames, accepted) {
			f.install(next, e)
		}
	}
	c := condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "NotAccepted", Message: "not all names are accepted"}
	switch {
	case e.kind != nil:
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"
	case e.failed != "":
		c.Reason, c.Message = "NotInstalled", e.failed
	}
	if old := apihelpers.FindCRDCondition(d, apiextensionsv1.Established); old == nil || old.Status != apiextensionsv1.ConditionTrue || e.kind == nil {
		changed = set(next, &c) || changed
	}
	if !changed {
		return nil
	}
	if err := f.write(ctx, next); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(oldNames, accepted) && !first {
		return f.reconsider(ctx, g, d)
	}
	return nil
}

// respecified reports whether the spec of a definition that is being deleted has changed, for example because its conversion
// webhook is gone and its objects cannot be deleted without another one. The deletion itself makes one generation.
func respecified(before *definition, e *entry, d *definition) bool {
	judged := before.Generation
	if !e.ending {
		judged++
	}
	return d.Generation > judged
}

// write writes the status of d, whose spec is shared, unless the definition has changed in the meantime: then it is judged again.
func (f *Follower) write(ctx context.Context, d *definition) error {
	_, err := f.opts.API.Update(ctx, resource, "", d.Name, d.DeepCopy(), metav1.UpdateOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// othersOf returns the names that others have in the group of a definition.
func (f *Follower) othersOf(d *definition) taken {
	t := newTaken()
	for name, e := range f.groups[groupOf(d.Name)] {
		if name != d.Name && e.stored != nil {
			t.add(&e.names)
		}
	}
	kinds := f.opts.Catalog.Snapshot()
	for _, gv := range kinds.GroupVersions() {
		if gv.Group != d.Spec.Group {
			continue
		}
		for _, k := range kinds.In(gv) {
			if !k.Untyped() {
				t.add(&names{Plural: k.Resource, Singular: k.Singular, ShortNames: k.ShortNames, Kind: k.Kind, ListKind: k.Kind + "List"})
			}
		}
	}
	delete(t.resources, "")
	delete(t.kinds, "")
	return t
}

// shadows reports whether the kind would take the place of one that has a Go type.
func (f *Follower) shadows(kind *catalog.Kind) bool {
	for _, k := range f.opts.Catalog.Snapshot().Hubs() {
		if k.Group == kind.Group && !k.Untyped() && (k.Resource == kind.Resource || k.Kind == kind.Kind) {
			return true
		}
	}
	return false
}

// install serves the kind of d in place of its present one. If that fails, a definition that is being deleted keeps its kind.
func (f *Follower) install(d *definition, e *entry) {
	fresh := &entry{stored: d}
	f.build(d, fresh)
	if fresh.kind != nil && f.shadows(fresh.kind) {
		fresh.drop()
		fresh.failed = "a built-in resource has the same name"
	}
	if e.failed = fresh.failed; fresh.kind == nil {
		f.opts.Log.Warn("a custom resource is not served", "definition", d.Name, "err", fresh.failed)
		if e.kind != nil && d.DeletionTimestamp != nil {
			return // its objects are still to be deleted
		}
	}
	if fresh.kind != nil && d.DeletionTimestamp != nil {
		f.opts.Catalog.End(fresh.kind) // before it is served, so that no creation is let through
	}
	f.serve(e, fresh.kind, fresh.hook)
}

// serve replaces the kind of an entry.
func (f *Follower) serve(e *entry, kind *catalog.Kind, hook Webhook) {
	var out, add []*catalog.Kind
	if e.kind != nil {
		out = append(out, e.kind)
	}
	if kind != nil {
		add = append(add, kind)
	}
	if len(out)+len(add) == 0 {
		return
	}
	if err := f.opts.Catalog.Replace(out, add); err != nil {
		e.failed = err.Error()
		if hook != nil {
			hook.Close()
		}
		if e.kind != nil {
			_ = f.opts.Catalog.Replace(out, nil) // to take out is always possible
		}
		e.drop()
		return
	}
	if e.hook != nil {
		e.hook.Close()
	}
	e.kind, e.hook = kind, hook
}

// build makes the kind of d, and the client of its webhook.
func (f *Follower) build(d *definition, e *entry) {
	var converter custom.Converter = custom.Unconverted{}
	if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		hook, err := f.webhook(c.Webhook)
		if err != nil {
			converter = noConverter{err}
		} else {
			e.hook = hook
			converter = &byWebhook{hook: hook, reviews: c.Webhook.ConversionReviewVersions}
		}
	}
	all := checked{Converter: converter, versions: map[schema.GroupVersion]bool{}}
	for _, v := range d.Spec.Versions {
		all.versions[schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}] = true
	}
	err := run.Catch(func() (err error) {
		e.kind, err = custom.Kind(d, converter)
		return err
	})
	if err != nil {
		e.drop()
		e.failed = err.Error()
		return
	}
	e.kind.Convert = conversion(all)
}

// conversion makes a [catalog.Kind.Convert].
func conversion(c custom.Converter) func(context.Context, []catalog.Object, schema.GroupVersion) ([]catalog.Object, error) {
	return func(ctx context.Context, objs []catalog.Object, to schema.GroupVersion) ([]catalog.Object, error) {
		in, err := untyped(objs)
		if err != nil {
			return nil, err
		}
		converted, err := c.Convert(ctx, in, to)
		if err != nil {
			return nil, err
		}
		out := make([]catalog.Object, len(converted))
		for i, obj := range converted {
			out[i] = obj
		}
		return out, nil
	}
}

var errNoWebhook = errors.New("webhooks cannot be called")

func (f *Follower) webhook(c *apiextensionsv1.WebhookConversion) (Webhook, error) {
	if f.opts.Webhook == nil || c == nil || c.ClientConfig == nil {
		return nil, errNoWebhook
	}
	return f.opts.Webhook(c.ClientConfig)
}

// end deletes the objects of a definition that is being deleted, and then lets that go.
func (f *Follower) end(ctx context.Context, g *run.Group, d *definition, kind *catalog.Kind) error {
	f.mu.Lock()
	_, busy := f.ending[d.UID]
	f.ending[d.UID] = kind
	f.mu.Unlock()
	if busy {
		return nil
	}
	if kind != nil {
		f.opts.Catalog.End(kind)
	}
	g.Go(func(ctx context.Context) {
		defer func() {
			f.mu.Lock()
			delete(f.ending, d.UID)
			f.mu.Unlock()
		}()
		for failures := 1; ctx.Err() == nil; failures++ {
			err := run.Catch(func() error { return f.finalize(ctx, d.Name, d.UID, f.endingKind(d.UID)) })
			if err == nil || ctx.Err() != nil {
				return
			}
			f.opts.Log.WarnContext(ctx, "deleting the objects of a custom resource", "definition", d.Name, "err", err)
			_ = f.report(ctx, d.Name, d.UID, terminating(true, "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", err)), false)
			run.Pause(ctx, retryAfter.Pause(failures))
		}
	})
	return nil
}

// endingKind returns the present kind of a definition that is being deleted: a change of the definition replaces it.
func (f *Follower) endingKind(uid types.UID) *catalog.Kind {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ending[uid]
}

// finalize deletes all objects, waits until they are gone, and takes the finalizer away.
func (f *Follower) finalize(ctx context.Context, name string, uid types.UID, kind *catalog.Kind) error {
	if err := f.report(ctx, name, uid, terminating(true, "InstanceDeletionInProgress", "CustomResource deletion is in progress"), false); err != nil {
		return err
	}
	if kind == nil {
		return f.report(ctx, name, uid, terminating(false, "NeverEstablished", "resource was never established"), true)
	}
	if err := f.opts.Instances.Delete(ctx, kind); err != nil {
		return err
	}
	if err := f.opts.Instances.Gone(ctx, kind); err != nil {
		return err
	}
	if err := f.opts.Instances.Discard(ctx, kind); err != nil {
		return err
	}
	return f.report(ctx, name, uid, terminating(false, "InstanceDeletionCompleted", "removed all instances"), true)
}

// report writes how far the deletion of a definition is, and takes its finalizer away when it is done.
func (f *Follower) report(ctx context.Context, name string, uid types.UID, c condition, done bool) error {
	for {
		d, err := f.read(ctx, name)
		if err != nil || d == nil || d.UID != uid {
			return err
		}
		next := d.DeepCopy()
		changed := set(next, &c)
		if done {
			apihelpers.CRDRemoveFinalizer(next, apiextensions.Finalizer)
			changed = true
		}
		if !changed {
			return nil
		}
		_, err = f.opts.API.Update(ctx, resource, "", name, next, metav1.UpdateOptions{}, "status")
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err) && ctx.Err() == nil:
			continue
		}
		return err
	}
}
