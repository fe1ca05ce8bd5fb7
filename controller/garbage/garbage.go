package garbage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// collector deletes objects whose owners do not exist any more, and the dependents of owners that are being deleted.
type collector struct {
	client  client.Interface
	all     *objects
	foreign *foreign
	ended   *ended
	events  *client.Recorder
	loop    *controller.Loop
	others  *others
}

// Account is the service account as which the collector acts.
const Account = "generic-garbage-collector"

// Options configures the controller. Client is required.
type Options struct {
	controller.Config

	// Resources are all resources that the cluster serves, without subresources. Owners and dependents are looked
	// for among their objects.
	Resources []client.Resource[client.Object]

	// Custom has the objects of the custom resources and of the resources of other servers, with [Indexes]. It may be nil.
	Custom *cache.Dynamic
}

// Tasks returns the controller. Its tasks must run together, as one stage.
func Tasks(opts Options) []run.Task {
	var caches run.Task
	opts.Config, caches = opts.WithDefaults()
	opts.Config = opts.For(Account)
	all := newObjects(opts)
	g := &collector{client: opts.Client, all: all, foreign: newForeign(opts.Resources), ended: newEnded(), events: client.NewRecorder(opts.Client, "garbage-collector", "", opts.Log)}
	g.loop = controller.New(controller.Options{
		Name: "garbage-collector", Reconcile: g.reconcile, Workers: max(opts.Workers, 8), Log: opts.Log, Needs: all.ready(),
		Object: all.object, Quarantine: opts.Quarantine,
	})
	g.others = newOthers(opts, g)
	for _, k := range all.kinds {
		if k.Cache == nil {
			continue
		}
		k.Subscribe(func(before, after client.Object) { g.changed(k, before, after) })
	}
	if opts.Custom != nil {
		opts.Custom.Subscribe(func(r cache.Resource, before, after client.Object) {
			g.changed(&kindCache{res: r.Resource, custom: true, elsewhere: r.Elsewhere}, before, after)
		}, g.moved)
	}
	return []run.Task{caches, {Name: "garbage-collector-events", Run: g.events.Run}, g.loop.Task(), g.others.loop.Task()}
}

// moved queues the dependents of a kind that came or went: their owners can be looked for now, or not any more.
func (g *collector) moved(r cache.Resource, _ bool) {
	for _, key := range g.foreign.of(r.GVK().GroupKind()) {
		g.loop.Add(key)
	}
}

// changed queues the objects that a change of an object may affect: itself, its owners and its dependents.
func (g *collector) changed(k *kindCache, before, after client.Object) {
	g.foreign.changed(k, before, after)
	switch {
	case after == nil:
		dependents := g.all.dependents(string(before.GetUID()))
		if k.custom && !k.elsewhere && len(dependents) > 0 {
			g.ended.add(item{k, before})
		}
		for _, d := range dependents {
			g.loop.Add(d.key())
		}
		if k.res.GroupResource() == definitions {
			for _, key := range g.foreign.inGroup(before.GetName()) {
				g.loop.Add(key) // if the kind is not served any more, only now are its objects certainly gone
			}
		}
		g.wakeOwners(before.GetOwnerReferences())
		g.forgetOwners(before.GetOwnerReferences())
	case before == nil:
		if k.custom {
			g.ended.forget(after.GetUID())
		}
		if len(after.GetOwnerReferences()) > 0 || deletingDependents(after) || orphaning(after) {
			g.loop.Add(item{k, after}.key())
		}
	default:
		moved := !equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
		if moved {
			g.wakeOwners(before.GetOwnerReferences()) // one that waited may not have to any longer
			g.forgetOwners(before.GetOwnerReferences())
		}
		if moved || deletingDependents(after) != deletingDependents(before) || orphaning(after) != orphaning(before) {
			g.loop.Add(item{k, after}.key())
		}
	}
}

func (g *collector) wakeOwners(refs []metav1.OwnerReference) {
	for _, ref := range refs {
		if owner, ok := g.all.byUID(string(ref.UID)); ok && owner.GetDeletionTimestamp() != nil {
			g.loop.Add(owner.key())
		}
	}
}

// forgetOwners drops the records of owners that are gone and that no object names any more.
func (g *collector) forgetOwners(refs []metav1.OwnerReference) {
	for _, ref := range refs {
		if g.ended.has(ref.UID) && len(g.all.dependents(string(ref.UID))) == 0 {
			g.ended.forget(ref.UID)
		}
	}
}

func (g *collector) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	it, ok := g.all.find(key)
	if !ok {
		return controller.Result{}, nil
	}
	if len(g.serversOf(it)) > 0 {
		g.others.loop.Add(key)
		return controller.Result{}, nil
	}
	return controller.Result{}, g.process(ctx, it)
}

// process brings an item to its next state.
func (g *collector) process(ctx context.Context, it item) error {
	if orphaning(it) {
		return g.orphan(ctx, it)
	}
	if deletingDependents(it) {
		return g.foreground(ctx, it)
	}
	if it.GetDeletionTimestamp() != nil {
		return nil // it is going; nothing more can be done to it
	}
	return g.collect(ctx, it)
}

// orphan frees the dependents of an object and then the object. The caches may not have
// the youngest dependents yet, and to miss one is to kill it: the server is asked. Those at other servers are known from
// the caches alone, as with upstream's collector: a server that does not answer must not keep all owners. So are those in
// other namespaces than the owner, which have invalid references.
func (g *collector) orphan(ctx context.Context, owner item) error {
	uid := string(owner.GetUID())
	var errs []error
	for _, k := range g.all.all() {
		if k.Cache == nil {
			continue
		}
		objs := k.ByIndex(byOwner, uid)
		if !k.elsewhere && (owner.GetNamespace() == "" || k.res.Namespaced) {
			listed, _, err := k.res.List(ctx, g.client, owner.GetNamespace(), metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list %s: %w", k.name(), err)
			}
			if owner.GetNamespace() != "" {
				objs = slices.DeleteFunc(slices.Clone(objs), func(o client.Object) bool { return o.GetNamespace() == owner.GetNamespace() })
				listed = append(listed, objs...)
			}
			objs = listed
		}
		for _, o := range objs {
			if refs := withoutOwner(o, uid); len(refs) < len(o.GetOwnerReferences()) {
				errs = append(errs, g.setOwners(ctx, item{k, o}, refs))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return g.patch(ctx, owner, map[string]any{"finalizers": without(owner, metav1.FinalizerOrphanDependents)})
}

// foreground wakes the dependents of an object that waits for them, and frees it when
// none holds it up any more.
func (g *collector) foreground(ctx context.Context, owner item) error {
	held := false
	for _, d := range g.all.dependents(string(owner.GetUID())) {
		held = held || blocks(d, string(owner.GetUID()))
		if d.GetDeletionTimestamp() == nil {
			g.loop.Add(d.key())
		}
	}
	if held {
		return nil
	}
	return g.patch(ctx, owner, map[string]any{"finalizers": without(owner, metav1.FinalizerDeleteDependents)})
}

// collect deletes an object that no owner holds, or drops the references to owners
// that are no more.
func (g *collector) collect(ctx context.Context, it item) error {
	refs := it.GetOwnerReferences()
	if len(refs) == 0 {
		return nil
	}
	g.reportNamespaces(it)
	states := make([]ownerState, len(refs))
	for i, ref := range refs {
		var err error
		if states[i], err = g.stateOf(ctx, it, ref); err != nil {
			return err
		}
	}
	dependents := g.all.dependents(string(it.GetUID()))
	v := judge(it, states, len(dependents) > 0)
	if !v.delete {
		if len(v.keep) == len(refs) {
			return nil
		}
		return g.setOwners(ctx, it, v.keep)
	}
	if v.foreground && slices.ContainsFunc(dependents, func(d item) bool { return deletingDependents(d) }) {
		// Owners in a circle would wait for each other for ever.
		if err := g.setOwners(ctx, it, unblocked(it)); err != nil {
			return err
		}
		it, _ = g.all.find(it.key())
		if it.Object == nil {
			return nil
		}
	}
	policy := v.policy(it)
	version := it.GetResourceVersion()
	err := g.delete(ctx, it, policy, &version) // garbage-G1
	if apierrors.IsConflict(err) && g.hasOwnersStill(ctx, it) {
		err = g.delete(ctx, it, policy, nil) // updates that have nothing to do with owners must not delay it for ever
	}
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("collect %s %s/%s: %w", it.kind.name(), it.GetNamespace(), it.GetName(), err)
	}
	return it.kind.AwaitDeletion(ctx, it.Object)
}

func (g *collector) delete(ctx context.Context, it item, policy metav1.DeletionPropagation, version *string) error {
	uid := it.GetUID()
	err := g.client.Delete(ctx, it.kind.res.GroupVersionResource, it.GetNamespace(), it.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: version},
	})
	g.others.answered(ctx, it.kind)
	return err
}

// hasOwnersStill reports whether the server's object still has the owner references of the item.
func (g *collector) hasOwnersStill(ctx context.Context, it item) bool {
	obj, err := g.client.Get(ctx, it.kind.res.GroupVersionResource, it.GetNamespace(), it.GetName(), "")
	g.others.answered(ctx, it.kind)
	now, ok := obj.(client.Object)
	return err == nil && ok && now.GetUID() == it.GetUID() && equality.Semantic.DeepEqual(now.GetOwnerReferences(), it.GetOwnerReferences())
}

// stateOf finds out how an owner is doing. An owner is the object that has the kind, the name and the UID of the reference, in the
// namespace of the dependent. That it does not exist is believed only when the server says so.
func (g *collector) stateOf(ctx context.Context, dependent item, ref metav1.OwnerReference) (ownerState, error) {
	kind := g.all.kindOf(ref)
	if kind == nil {
		return g.stateOfKindless(ctx, dependent, ref)
	}
	namespace := ""
	if kind.res.Namespaced {
		if namespace = dependent.GetNamespace(); namespace == "" {
			return unknown, nil // no reference of an object of the cluster can say in which namespace the owner is
		}
	}
	if kind.Cache != nil {
		if owner, ok := kind.Get(namespace, ref.Name); ok && owner.GetUID() == ref.UID {
			return stateOfFound(owner), nil
		}
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return unknown, nil // kindOf finds no kind for it
	}
	obj, err := g.client.Get(ctx, gv.WithResource(kind.res.Resource), namespace, ref.Name, "")
	g.others.answered(ctx, kind)
	switch {
	case !apierrors.IsNotFound(err) && err != nil:
		return unknown, fmt.Errorf("look for owner %s %s/%s: %w", kind.name(), namespace, ref.Name, err)
	case err != nil && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return absent, nil
	case err != nil && gv != kind.res.GroupVersion():
		return unknown, nil // the kind is not served in the version of the reference
	case err != nil: // the server, or one in front of it, does not know the path
		return unknown, fmt.Errorf("look for owner %s %s/%s: %w", kind.name(), namespace, ref.Name, err)
	}
	owner, ok := obj.(client.Object)
	if !ok || owner.GetUID() != ref.UID {
		return absent, nil
	}
	return stateOfFound(owner), nil
}

func stateOfFound(owner client.Object) ownerState {
	if deletingDependents(owner) {
		return waiting
	}
	return solid
}

// stateOfKindless returns the state of an owner whose kind is not served. It is absent only if the collector has seen it, and the
// definition of its kind was deleted, and all objects with it. Objects of a definition that does not serve its versions any more are
// still stored.
func (g *collector) stateOfKindless(ctx context.Context, dependent item, ref metav1.OwnerReference) (ownerState, error) {
	resource, ok := g.ended.find(dependent, ref)
	if !ok {
		return unknown, nil
	}
	_, err := g.client.Get(ctx, apiextensionsv1.SchemeGroupVersion.WithResource(definitions.Resource), "", resource.String(), "")
	switch {
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return absent, nil
	case err != nil:
		return unknown, fmt.Errorf("look for the definition of %s: %w", resource, err)
	}
	return unknown, nil
}

// reportNamespaces records an event about the first owner that is in another namespace than its dependent, in the words of
// upstream's collector. The UID alone identifies the owner here.
func (g *collector) reportNamespaces(it item) {
	for _, ref := range it.GetOwnerReferences() {
		owner, ok := g.all.byUID(string(ref.UID))
		if !ok || owner.GetNamespace() == "" || owner.GetNamespace() == it.GetNamespace() {
			continue
		}
		g.events.Event(typed(it), corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
			"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			ref.APIVersion, ref.Kind, it.GetNamespace(), ref.Name, ref.UID, it.GetNamespace())
		return
	}
}

// typed returns the object of an item with its kind.
func typed(it item) client.Object {
	if client.KindOf(it.Object).Kind != "" {
		return it.Object
	}
	obj := it.DeepCopyObject().(client.Object) // a copy has the same type
	obj.GetObjectKind().SetGroupVersionKind(it.kind.res.GVK())
	return obj
}

func (g *collector) setOwners(ctx context.Context, it item, refs []metav1.OwnerReference) error {
	return g.patch(ctx, it, map[string]any{"ownerReferences": refs})
}

// patch merges meta into the metadata of an item, if that is unchanged.
func (g *collector) patch(ctx context.Context, it item, meta map[string]any) error {
	meta["uid"], meta["resourceVersion"] = it.GetUID(), it.GetResourceVersion()
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	obj, err := g.client.Patch(ctx, it.kind.res.GroupVersionResource, it.GetNamespace(), it.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, "")
	g.others.answered(ctx, it.kind)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patch %s %s/%s: %w", it.kind.name(), it.GetNamespace(), it.GetName(), err)
	}
	now, ok := obj.(client.Object)
	if !ok || now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 {
		return nil // the object was deleted with its last finalizer, and the answer need not have the revision of that
	}
	return it.kind.Await(ctx, now.GetResourceVersion())
}
