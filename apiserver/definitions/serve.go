package definitions

import (
	"errors"
	"iter"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/custom"
	"github.com/sampan-io/sampan/internal/run"
)

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

// drop forgets the kind.
func (e *entry) drop() {
	e.kind = nil
	if e.hook != nil {
		e.hook.Close()
		e.hook = nil
	}
}

// obey serves the kind of a definition as its status says: another server judges. The caller holds turn.
func (f *Follower) obey(d *definition, e *entry, before *definition) {
	oldNames := e.names
	e.names = d.Status.AcceptedNames
	switch {
	case !established(d):
		f.serve(e, nil, nil)
	case e.kind == nil || before == nil || before.Generation != d.Generation || !equality.Semantic.DeepEqual(oldNames, e.names):
		f.install(d, e)
	}
}

// decided reports whether a server has judged d, or an earlier generation of it.
func decided(d *definition) bool {
	return apihelpers.FindCRDCondition(d, apiextensionsv1.NamesAccepted) != nil
}

// endCreations lets no more objects of a definition that is being deleted come, and keeps its kind for the present
// ones. The caller holds turn.
func (f *Follower) endCreations(d *definition, e *entry, before *definition) {
	if e.kind == nil && established(d) || e.kind != nil && before != nil && respecified(before, e, d) {
		f.install(d, e)
	}
	if e.ending = true; e.kind != nil {
		f.opts.Catalog.End(e.kind)
	}
}

// respecified reports whether the spec of a definition that is being deleted has changed, for example because its
// conversion webhook is gone and its objects cannot be deleted without another one. The deletion itself makes one
// generation.
func respecified(before *definition, e *entry, d *definition) bool {
	judged := before.Generation
	if !e.ending {
		judged++
	}
	return d.Generation > judged
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

// install serves the kind of d in place of its present one. If that fails, a definition that is being deleted keeps
// its kind.
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

var errNoWebhook = errors.New("webhooks cannot be called")

func (f *Follower) webhook(c *apiextensionsv1.WebhookConversion) (Webhook, error) {
	if f.opts.Webhook == nil || c == nil || c.ClientConfig == nil {
		return nil, errNoWebhook
	}
	return f.opts.Webhook(c.ClientConfig)
}
