package definitions

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/apiextensions"
	"github.com/sampan-io/sampan/internal/run"
)

// A judge is the part of a server that decides about definitions, while it does.
type judge struct {
	ctx   context.Context //nolint:containedctx // it is how long the server judges
	tasks *run.Group      // deletions of objects

	mu     sync.Mutex
	ending map[types.UID]*catalog.Kind // guarded by mu; the kinds whose objects are being deleted, nil for a definition without
}

// Judge decides which names definitions get, writes their statuses, and deletes the objects of definitions that are
// being deleted, until ctx is over. It works while Run does. Of the servers over one store, one may judge at a time;
// the others serve what the statuses say.
func (f *Follower) Judge(ctx context.Context) error {
	j := &judge{ctx: ctx, tasks: run.NewGroup(ctx, 0), ending: map[types.UID]*catalog.Kind{}}
	defer j.tasks.Stop()
	f.setJudge(j)
	defer f.setJudge(nil)
	f.mu.Lock()
	restart := f.restart
	f.mu.Unlock()
	restart()
	<-ctx.Done()
	return nil
}

// setJudge waits until no definition is being handled.
func (f *Follower) setJudge(j *judge) {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.judge = j
}

// decide serves the kind of a definition, and then writes its status. The caller holds turn.
func (j *judge) decide(f *Follower, d *definition, e *entry, before *definition) error {
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
	if respecified := before == nil || before.Generation != d.Generation; respecified || e.judge != j {
		if c := structural(d); c != nil {
			changed = set(next, c) || changed
		} else if apihelpers.FindCRDCondition(d, apiextensionsv1.NonStructuralSchema) != nil {
			apihelpers.RemoveCRDCondition(next, apiextensionsv1.NonStructuralSchema)
			changed = true
		}
	}
	e.judge = j
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
	switch err := f.write(j.ctx, next); {
	case apierrors.IsRequestEntityTooLargeError(err): // until it is changed: it is not established
		f.opts.Log.WarnContext(j.ctx, "the status of a definition does not fit", "definition", d.Name, "err", err)
		return nil
	case err != nil:
		return err
	}
	if !equality.Semantic.DeepEqual(oldNames, accepted) && before != nil {
		return f.reconsider(j.ctx, d)
	}
	return nil
}

// again judges a definition once more after a pause, because its status could not be written. Others do not wait for
// that. The caller holds turn.
func (j *judge) again(f *Follower, name string, e *entry, err error) {
	e.failures++
	e.judge = nil
	f.opts.Log.WarnContext(j.ctx, "writing the status of a definition; trying again", "definition", name, "err", err)
	if e.repeating {
		return
	}
	pause := retryAfter.Pause(e.failures)
	e.repeating = j.tasks.Go(func(ctx context.Context) {
		run.Pause(ctx, pause)
		f.turn.Lock()
		defer f.turn.Unlock()
		if e.repeating = false; ctx.Err() != nil || f.known[name] != e {
			return
		}
		switch d, err := f.read(ctx, name); {
		case err != nil && ctx.Err() == nil:
			j.again(f, name, e, err)
		case err == nil && d != nil:
			f.handle(d)
		}
	})
}

// write writes the status of d, whose spec is shared, unless the definition has changed in the meantime: then it is
// judged again.
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

// end deletes the objects of a definition that is being deleted, and then removes its finalizer. It does not wait for
// that. The caller holds turn.
func (j *judge) end(f *Follower, d *definition, kind *catalog.Kind) {
	j.mu.Lock()
	_, busy := j.ending[d.UID]
	j.ending[d.UID] = kind
	j.mu.Unlock()
	if busy {
		return
	}
	name, uid := d.Name, d.UID
	j.tasks.Go(func(ctx context.Context) {
		defer func() {
			j.mu.Lock()
			delete(j.ending, uid)
			j.mu.Unlock()
		}()
		for failures := 1; ctx.Err() == nil; failures++ {
			err := run.Catch(func() error { return f.finalize(ctx, name, uid, j.endingKind(uid)) })
			if err == nil || ctx.Err() != nil {
				return
			}
			f.opts.Log.WarnContext(ctx, "deleting the objects of a custom resource", "definition", name, "err", err)
			_ = f.report(ctx, name, uid, terminating(true, "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", err)), false)
			run.Pause(ctx, retryAfter.Pause(failures))
		}
	})
}

// endingKind returns the present kind of a definition that is being deleted: a change of the definition replaces it.
func (j *judge) endingKind(uid types.UID) *catalog.Kind {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ending[uid]
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

// report writes how far the deletion of a definition is, and takes its finalizer away when it is done. A definition
// that is so large that a condition does not fit goes without one.
func (f *Follower) report(ctx context.Context, name string, uid types.UID, c condition, done bool) error {
	for tooLarge := false; ; {
		d, err := f.read(ctx, name)
		if err != nil || d == nil || d.UID != uid {
			return err
		}
		next := d.DeepCopy()
		changed := !tooLarge && set(next, &c)
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
		case apierrors.IsRequestEntityTooLargeError(err) && !tooLarge:
			tooLarge = true
			continue
		case apierrors.IsConflict(err) && ctx.Err() == nil:
			continue
		}
		return err
	}
}
