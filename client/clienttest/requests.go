package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// Get implements [client.Interface].
func (s *Server) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (runtime.Object, error) {
	sh, err := s.enter(ctx, Request{Verb: "get", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource})
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	obj, err := sh.find(namespace, name)
	if err != nil {
		return nil, err
	}
	switch {
	case subresource == "", subresource == "status" && sh.status:
		return obj, nil
	case subresource == "scale":
		if rc, ok := obj.(*corev1.ReplicationController); ok {
			return scaleOf(rc), nil
		}
	}
	return nil, notServed("get", gvr, name)
}

// List implements [client.Interface].
func (s *Server) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	sh, err := s.enter(ctx, Request{Verb: "list", GroupVersionResource: gvr, Namespace: namespace})
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	defer s.mu.Unlock()
	var p page
	if opts.Continue != "" {
		known := false
		if p, known = s.pages[opts.Continue]; !known {
			return nil, metav1.ListMeta{}, apierrors.NewResourceExpired("the continue token is not known")
		}
	} else {
		match, err := sh.matcher(namespace, opts)
		if err != nil {
			return nil, metav1.ListMeta{}, err
		}
		if rv, err := parse(opts.ResourceVersion); err != nil {
			return nil, metav1.ListMeta{}, err
		} else if rv > s.revision {
			return nil, metav1.ListMeta{}, apierrors.NewTimeoutError("Too large resource version", 1)
		}
		p.revision = s.revision
		for _, o := range sh.sorted(namespace) {
			if match(o) {
				p.items = append(p.items, o)
			}
		}
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(p.revision, 10)}
	if limit := int(opts.Limit); limit > 0 && len(p.items) > limit {
		rest := page{p.items[limit:], p.revision}
		left := int64(len(rest.items))
		meta.Continue, meta.RemainingItemCount = "page-"+rand.String(10), &left
		s.pages[meta.Continue] = rest
		p.items = p.items[:limit]
	}
	return slices.Clone(p.items), meta, nil
}

// Watch implements [client.Interface].
func (s *Server) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		sh, err := s.enter(ctx, Request{Verb: "watch", GroupVersionResource: gvr, Namespace: namespace})
		if err != nil {
			yield(watch.Event{}, err)
			return
		}
		epoch := s.epoch
		initial, after, match, err := s.begin(sh, namespace, opts)
		s.mu.Unlock()
		if err != nil {
			yield(watch.Event{}, err)
			return
		}
		for _, e := range initial {
			if !yield(e, nil) {
				return
			}
		}
		for {
			s.mu.Lock()
			changed, cause, over := s.changed, s.broken[epoch], epoch != s.epoch
			expired := after < sh.floor
			news := sh.history[min(len(sh.history), searchChange(sh.history, after)):]
			now := s.revision
			s.mu.Unlock()
			if over {
				yield(watch.Event{}, cause)
				return
			}
			if expired {
				yield(watch.Event{}, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", after)))
				return
			}
			for _, c := range news {
				if e, ok := eventOf(c, match); ok && !yield(e, nil) {
					return
				}
			}
			after = now
			select {
			case <-changed:
			case <-ctx.Done():
				yield(watch.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// searchChange returns the index of the first change after a revision.
func searchChange(history []change, after uint64) int {
	i, _ := slices.BinarySearchFunc(history, after+1, func(c change, r uint64) int {
		switch {
		case c.revision < r:
			return -1
		case c.revision > r:
			return 1
		}
		return 0
	})
	return i
}

// begin returns the first events of a watch and the revision after which it goes on. mu is held.
func (s *Server) begin(sh *collection, namespace string, opts metav1.ListOptions) ([]watch.Event, uint64, func(client.Object) bool, error) {
	match, err := sh.matcher(namespace, opts)
	if err != nil {
		return nil, 0, nil, err
	}
	after, err := parse(opts.ResourceVersion)
	if err != nil {
		return nil, 0, nil, err
	}
	wish := opts.SendInitialEvents
	if wish != nil {
		if s.noInitial {
			return nil, 0, nil, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
		}
		if opts.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
			return nil, 0, nil, apierrors.NewBadRequest("sendInitialEvents needs resourceVersionMatch NotOlderThan")
		}
	}
	if after > s.revision {
		return nil, 0, nil, apierrors.NewTimeoutError("Too large resource version", 1)
	}
	if wish == nil && after > 0 || wish != nil && !*wish && after > 0 {
		if after < sh.floor {
			return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", after))
		}
		return nil, after, match, nil
	}
	var initial []watch.Event
	if wish == nil || *wish {
		for _, o := range sh.sorted(namespace) {
			if match(o) {
				initial = append(initial, watch.Event{Type: watch.Added, Object: o})
			}
		}
	}
	if wish != nil && *wish && opts.AllowWatchBookmarks {
		end := sh.new()
		end.SetResourceVersion(strconv.FormatUint(s.revision, 10))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		initial = append(initial, watch.Event{Type: watch.Bookmark, Object: end})
	}
	return initial, s.revision, match, nil
}

// Create implements [client.Interface].
func (s *Server) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	r := Request{Verb: "create", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource, Object: obj}
	if o, ok := obj.(client.Object); ok && name == "" {
		r.Name = o.GetName()
	}
	sh, err := s.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if subresource == "binding" && gvr == client.Pods.GroupVersionResource {
		return s.bind(sh, namespace, name, obj)
	}
	o, ok := obj.(client.Object)
	if !ok || subresource != "" || client.KindOf(obj) != sh.gvk {
		return nil, notServed("create", gvr, name)
	}
	o = o.DeepCopyObject().(client.Object) // a copy has the same type
	if err := s.prepareCreate(sh, namespace, o); err != nil {
		return nil, err
	}
	if len(opts.DryRun) > 0 {
		return o, nil
	}
	return s.commit(sh, o, nil), nil
}

func (s *Server) prepareCreate(sh *collection, namespace string, o client.Object) error {
	if sh.namespaced {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		if o.GetNamespace() != namespace || namespace == "" {
			return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}
		ns, _ := s.collections[client.Namespaces.GroupVersionResource].objects[types.NamespacedName{Name: namespace}].(*corev1.Namespace)
		if ns == nil {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
		}
		if ns.DeletionTimestamp != nil && sh.gvr != client.Events.GroupVersionResource {
			err := apierrors.NewForbidden(sh.gvr.GroupResource(), o.GetName(),
				fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
				Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", namespace), Field: "metadata.namespace",
			})
			return err
		}
	}
	if o.GetName() == "" {
		if o.GetGenerateName() == "" {
			return apierrors.NewInvalid(sh.gvk.GroupKind(), "", nil)
		}
		o.SetName(o.GetGenerateName() + rand.String(5))
	}
	if o.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if sh.objects[keyOf(o)] != nil {
		return apierrors.NewAlreadyExists(sh.gvr.GroupResource(), o.GetName())
	}
	o.SetUID("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetGeneration(0)
	if sh.status && sh.gvr != client.Nodes.GroupVersionResource { // a node is born with its status
		clearField(o, "Status")
	}
	switch o := o.(type) {
	case *corev1.Namespace:
		activate(o)
	case *corev1.Pod:
		o.Status.Phase = corev1.PodPending
	}
	s.born(sh.kind, o)
	return nil
}

func (s *Server) bind(sh *collection, namespace, name string, body runtime.Object) (runtime.Object, error) {
	b, ok := body.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is not a Binding", body))
	}
	if name == "" {
		name = b.Name
	}
	old, err := sh.find(namespace, name)
	if err != nil {
		return nil, err
	}
	pod := old.DeepCopyObject().(*corev1.Pod) // the collection holds pods
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(corev1.Resource("pods/binding"), name, fmt.Errorf(format, args...))
	}
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return nil, conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, pod.UID)
	case pod.DeletionTimestamp != nil:
		return nil, conflict("pod %s is being deleted, cannot be assigned to a host", name)
	case pod.Spec.NodeName != "":
		return nil, conflict("pod %s is already assigned to node %q", name, pod.Spec.NodeName)
	}
	pod.Spec.NodeName = b.Target.Name
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	})
	s.commit(sh, pod, old)
	return &metav1.Status{Status: metav1.StatusSuccess, Code: 201}, nil
}

// Update implements [client.Interface].
func (s *Server) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error) {
	sh, err := s.enter(ctx, Request{Verb: "update", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource, Object: obj})
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	old, err := sh.find(namespace, name)
	if err != nil {
		return nil, err
	}
	return s.replace(sh, old, obj, subresource, len(opts.DryRun) > 0)
}

// Patch implements [client.Interface].
func (s *Server) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error) {
	sh, err := s.enter(ctx, Request{Verb: "patch", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource, Patch: data})
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	old, err := sh.find(namespace, name)
	if err != nil {
		return nil, err
	}
	var view runtime.Object = old
	into := runtime.Object(sh.new())
	if rc, ok := old.(*corev1.ReplicationController); ok && subresource == "scale" {
		view, into = scaleOf(rc), &autoscalingv1.Scale{}
	}
	original, err := json.Marshal(view)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	patched, err := applyPatch(original, data, kind, into)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := json.Unmarshal(patched, into); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.replace(sh, old, into, subresource, len(opts.DryRun) > 0)
}

// replace writes in over old as the (sub)resource does. mu is held.
func (s *Server) replace(sh *collection, old client.Object, in runtime.Object, subresource string, dry bool) (runtime.Object, error) {
	conflict := func(why error) error {
		return apierrors.NewConflict(sh.gvr.GroupResource(), old.GetName(), why)
	}
	meta, ok := in.(client.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T cannot be written", in))
	}
	if rv := meta.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() {
		return nil, conflict(fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := meta.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, conflict(fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())) //nolint:staticcheck // the server's words
	}
	now := old.DeepCopyObject().(client.Object) // a copy has the same type
	switch {
	case subresource == "scale":
		scale, isScale := in.(*autoscalingv1.Scale)
		rc, isRC := now.(*corev1.ReplicationController)
		if !isScale || !isRC {
			return nil, notServed("update", sh.gvr, old.GetName())
		}
		rc.Spec.Replicas = &scale.Spec.Replicas
	case client.KindOf(in) != sh.gvk:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is a %v", client.KindOf(in)))
	case subresource == "":
		now = in.DeepCopyObject().(client.Object) // a copy has the same type
		now.GetObjectKind().SetGroupVersionKind(sh.gvk)
		now.SetName(old.GetName())
		now.SetNamespace(old.GetNamespace())
		now.SetUID(old.GetUID())
		now.SetCreationTimestamp(old.GetCreationTimestamp())
		now.SetDeletionTimestamp(old.GetDeletionTimestamp())
		now.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
		now.SetGeneration(old.GetGeneration())
		now.SetResourceVersion(old.GetResourceVersion())
		if sh.status {
			copyField(now, old, "Status")
		}
		if ns, ok := now.(*corev1.Namespace); ok {
			ns.Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers // the collection holds namespaces
		}
	case subresource == "status" && sh.status:
		copyField(now, meta, "Status")
		switch sh.gvr {
		case client.Deployments.GroupVersionResource: // their revision is written that way
			now.SetAnnotations(meta.GetAnnotations())
		case client.Services.GroupVersionResource: // so are marks and finalizers of load balancers
			now.SetAnnotations(meta.GetAnnotations())
			now.SetFinalizers(meta.GetFinalizers())
		}
	case subresource == "finalize" && sh.gvr == client.Namespaces.GroupVersionResource:
		now.(*corev1.Namespace).Spec.Finalizers = slices.Clone(in.(*corev1.Namespace).Spec.Finalizers) // checked by kind above
	default:
		return nil, notServed("update", sh.gvr, old.GetName())
	}
	if equality.Semantic.DeepEqual(now, old) {
		return answer(subresource, old), nil
	}
	if sh.generation && !equality.Semantic.DeepEqual(intent(now), intent(old)) {
		now.SetGeneration(old.GetGeneration() + 1)
	}
	if dry {
		return answer(subresource, now), nil
	}
	if gone(now) {
		s.drop(sh, now)
		return answer(subresource, now), nil
	}
	return answer(subresource, s.commit(sh, now, old)), nil
}

func answer(subresource string, obj client.Object) runtime.Object {
	if rc, ok := obj.(*corev1.ReplicationController); ok && subresource == "scale" {
		return scaleOf(rc)
	}
	return obj
}

// intent is what generation counts the changes of: everything but metadata and
// status.
func intent(obj client.Object) client.Object {
	o := obj.DeepCopyObject().(client.Object) // a copy has the same type
	clearField(o, "ObjectMeta")
	clearField(o, "Status")
	return o
}

// gone says that nothing holds an object any longer whose deletion was asked for.
func gone(obj client.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if grace := obj.GetDeletionGracePeriodSeconds(); grace != nil && *grace > 0 {
		return false
	}
	ns, ok := obj.(*corev1.Namespace)
	return !ok || len(ns.Spec.Finalizers) == 0
}

// Delete implements [client.Interface].
func (s *Server) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	sh, err := s.enter(ctx, Request{Verb: "delete", GroupVersionResource: gvr, Namespace: namespace, Name: name, Options: &opts})
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	old, err := sh.find(namespace, name)
	if err != nil {
		return err
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			return apierrors.NewConflict(gvr.GroupResource(), name, fmt.Errorf("Precondition failed: UID or resource version differs")) //nolint:staticcheck // the server's words
		}
	}
	if gvr == client.Namespaces.GroupVersionResource && slices.Contains(protected[:], name) {
		return apierrors.NewForbidden(gvr.GroupResource(), name, fmt.Errorf("this namespace may not be deleted"))
	}
	if len(opts.DryRun) > 0 {
		return nil
	}
	now := old.DeepCopyObject().(client.Object) // a copy has the same type
	grace := graceOf(now, opts.GracePeriodSeconds)
	if t := now.GetDeletionTimestamp(); t != nil {
		if g := now.GetDeletionGracePeriodSeconds(); g != nil {
			grace = min(grace, *g) // a deletion is made shorter, never longer
		}
	}
	hold(now, sh.kind, opts)
	if now.GetDeletionTimestamp() == nil || now.GetDeletionGracePeriodSeconds() == nil || *now.GetDeletionGracePeriodSeconds() != grace {
		due := metav1.NewTime(time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second))
		now.SetDeletionTimestamp(&due)
		now.SetDeletionGracePeriodSeconds(&grace)
		if sh.generation && old.GetDeletionTimestamp() == nil {
			now.SetGeneration(now.GetGeneration() + 1)
		}
	}
	if ns, ok := now.(*corev1.Namespace); ok {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
	switch {
	case gone(now):
		s.drop(sh, now)
	case !equality.Semantic.DeepEqual(now, old):
		s.commit(sh, now, old)
	}
	return nil
}

func graceOf(obj client.Object, asked *int64) int64 {
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
		return 0
	case pod.Spec.NodeName == "", pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return 0
	case asked != nil:
		return max(*asked, 0)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// hold leaves the finalizers that the propagation of a deletion asks for.
func hold(obj client.Object, k *kind, opts metav1.DeleteOptions) {
	policy := metav1.DeletePropagationBackground
	switch {
	case opts.PropagationPolicy != nil:
		policy = *opts.PropagationPolicy
	case opts.OrphanDependents != nil:
		if *opts.OrphanDependents {
			policy = metav1.DeletePropagationOrphan
		}
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	case k.orphan:
		policy = metav1.DeletePropagationOrphan
	}
	finalizers := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch policy {
	case metav1.DeletePropagationOrphan:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationBackground: // needs no mark
	}
	obj.SetFinalizers(finalizers)
}

func (sh *collection) find(namespace, name string) (client.Object, error) {
	if obj := sh.objects[types.NamespacedName{Namespace: namespace, Name: name}]; obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(sh.gvr.GroupResource(), name)
}

func (sh *collection) matcher(namespace string, opts metav1.ListOptions) (func(client.Object) bool, error) {
	byLabel, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, r := range byField.Requirements() {
		if _, err := field(sh.new(), r.Field); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return func(obj client.Object) bool {
		if namespace != "" && obj.GetNamespace() != namespace || !byLabel.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
		for _, r := range byField.Requirements() {
			have, err := field(obj, r.Field)
			if err != nil || (have == r.Value) == strings.HasPrefix(string(r.Operator), "!") {
				return false
			}
		}
		return true
	}, nil
}

func parse(revision string) (uint64, error) {
	if revision == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("Invalid value: " + strconv.Quote(revision))
	}
	return n, nil
}

func notServed(verb string, gvr schema.GroupVersionResource, name string) error {
	return apierrors.NewGenericServerResponse(404, verb, gvr.GroupResource(), name, "404 page not found", 0, true)
}

func scaleOf(rc *corev1.ReplicationController) *autoscalingv1.Scale {
	s := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: rc.Name, Namespace: rc.Namespace, UID: rc.UID,
			ResourceVersion: rc.ResourceVersion, CreationTimestamp: rc.CreationTimestamp,
		},
		Status: autoscalingv1.ScaleStatus{Replicas: rc.Status.Replicas, Selector: labels.SelectorFromSet(rc.Spec.Selector).String()},
	}
	if rc.Spec.Replicas != nil {
		s.Spec.Replicas = *rc.Spec.Replicas
	}
	return s
}
