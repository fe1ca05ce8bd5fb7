package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures the controllers. Client is required.
type Options struct {
	controller.Config

	// Resources are all resources that the cluster serves, without subresources. Their objects are deleted with
	// their namespace.
	Resources []client.Resource[client.Object]

	// Others deletes the objects of groups that other servers serve. Nil means that there are none.
	Others Others

	// Custom has the objects of the custom resources. Those of other servers are left to Others. It may be nil.
	Custom *cache.Dynamic

	// RootCA is the certificate of the API server's authority in PEM, which is written to the ConfigMap
	// kube-root-ca.crt of every namespace. If it is empty, there is no such ConfigMap.
	RootCA []byte

	// Roots replaces RootCA if the certificates may change.
	Roots Roots
}

// Others deletes the objects of groups that other servers serve.
type Others interface {
	// Empty asks for the deletion of a namespace's contents and returns the rest, by resource, and an error for
	// each resource that has one. A [DiscoveryError] says that not all resources are known.
	Empty(ctx context.Context, namespace string) (left map[string][]client.Object, failures []error)
}

// A DiscoveryError says of which versions of groups the resources are not known.
type DiscoveryError struct{ Versions []string }

// Error implements error.
func (e *DiscoveryError) Error() string {
	var words []string
	for _, v := range e.Versions {
		words = append(words, v+": stale GroupVersion discovery: "+v)
	}
	return "unable to retrieve the complete list of server APIs: " + strings.Join(words, ", ")
}

// Roots are the certificates of the API server's authority.
type Roots interface {
	CertificatePEM() []byte
	OnChange(func()) // has a function called after each change
}

// Tasks returns the controllers. Their tasks must run together, as one stage.
func Tasks(opts Options) []run.Task {
	var caches run.Task
	opts.Config, caches = opts.WithDefaults()
	spaces := cache.Of(opts.Caches, client.Namespaces, nil)
	return []run.Task{caches, newAccounts(opts, spaces), newRootCerts(opts, spaces), newNamespaces(opts, spaces)}
}

// A contents is the objects of one namespaced resource.
type contents struct {
	client.Resource[client.Object]
	cache *cache.Cache[client.Object] // nil for Events, which are too many to follow

	custom bool // it may go at any time, so its cache cannot be waited for
}

// namespaces deletes the objects in namespaces that are being deleted, and then the namespaces.
type namespaces struct {
	client client.Interface
	all    []contents
	others Others         // or nil
	custom *cache.Dynamic // may be nil
	spaces *cache.Cache[*corev1.Namespace]
	loop   *controller.Loop
}

func newNamespaces(opts Options, spaces *cache.Cache[*corev1.Namespace]) run.Task {
	n := &namespaces{client: opts.For("namespace-controller").Client, others: opts.Others, custom: opts.Custom, spaces: spaces}
	needs := []<-chan struct{}{spaces.Ready()}
	for _, r := range opts.Resources {
		if !r.Namespaced {
			continue
		}
		k := contents{Resource: r}
		if r.Resource != client.Events.Resource {
			k.cache = cache.Of(opts.Caches, r, nil)
			needs = append(needs, k.cache.Ready())
		}
		n.all = append(n.all, k)
	}
	n.loop = controller.New(controller.Options{
		Name: "namespaces", Reconcile: n.reconcile, Workers: opts.Workers, Log: opts.Log,
		Needs: needs, Object: controller.ObjectOf(spaces), Quarantine: opts.Quarantine,
	})
	spaces.Subscribe(func(_, after *corev1.Namespace) {
		if after != nil && after.DeletionTimestamp != nil {
			n.loop.Add(controller.Key{Name: after.Name})
		}
	})
	for _, k := range n.all {
		if k.cache == nil {
			continue
		}
		k.cache.Subscribe(n.changed)
	}
	if opts.Custom != nil {
		opts.Custom.Subscribe(func(_ cache.Resource, before, after client.Object) { n.changed(before, after) }, nil)
	}
	return n.loop.Task()
}

// changed queues the namespace of an object if it is being deleted.
func (n *namespaces) changed(before, after client.Object) {
	if ns, ok := n.spaces.Get("", controller.KeyOfEither(before, after).Namespace); ok && ns.DeletionTimestamp != nil {
		n.loop.Add(controller.Key{Name: ns.Name})
	}
}

// contents returns all namespaced resources.
func (n *namespaces) contents() []contents {
	all := slices.Clone(n.all)
	for _, f := range n.custom.All() {
		if f.Namespaced && !f.Elsewhere { // see Others
			all = append(all, contents{f.Resource.Resource, f.Cache, true})
		}
	}
	return all
}

// reconcile removes the pods of a namespace first, and everything else only when no pod is left (KEP-5080): a pod
// that is still running keeps its dependencies, such as the network policy that confines it.
func (n *namespaces) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	ns, ok := n.spaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return controller.Result{}, nil
	}
	isPods := func(k contents) bool { return k.GroupResource().String() == client.Pods.Resource }
	elsewhere := false // objects are left whose deletion is not watched
	left, failures := n.emptyAll(ctx, ns.Name, isPods)
	if len(failures) == 0 && len(left) == 0 {
		left, failures = n.emptyAll(ctx, ns.Name, func(k contents) bool { return !isPods(k) })
		if n.others != nil {
			more, errs := n.others.Empty(ctx, ns.Name)
			maps.Copy(left, more)
			failures, elsewhere = append(failures, errs...), len(more) > 0
		}
	}
	if ctx.Err() != nil {
		return controller.Result{}, nil
	}
	if len(failures) == 0 && len(left) == 0 {
		if len(ns.Spec.Finalizers) > 1 || len(ns.Finalizers) > 0 {
			// The namespace stays because of others. Its conditions say that its content is not the reason.
			if err := n.writeConditions(ctx, ns, nil, nil); err != nil {
				return controller.Result{}, err
			}
			if ns, ok = n.spaces.Get("", key.Name); !ok {
				return controller.Result{}, nil
			}
		}
		return controller.Result{}, n.finalize(ctx, ns)
	}
	if err := n.writeConditions(ctx, ns, failures, left); err != nil {
		failures = append(failures, err)
	}
	if _, ok := left[client.Events.Resource]; ok && len(failures) == 0 {
		return controller.Result{}, controller.Again("events are left") // their deletion is not watched
	}
	if elsewhere && len(failures) == 0 {
		return controller.Result{}, controller.Again("objects of other servers are left")
	}
	return controller.Result{}, errors.Join(failures...)
}

// emptyAll empties a namespace of the kinds that are chosen, and returns the objects left, by resource, and an error for
// each kind that has one.
func (n *namespaces) emptyAll(ctx context.Context, namespace string, chosen func(contents) bool) (map[string][]client.Object, []error) {
	var errs []error
	left := map[string][]client.Object{}
	for _, k := range n.contents() {
		if !chosen(k) {
			continue
		}
		rest, err := n.empty(ctx, k, namespace)
		if err != nil {
			errs = append(errs, err)
		}
		if len(rest) > 0 {
			left[k.GroupResource().String()] = rest
		}
	}
	return left, errs
}

// empty asks for the deletion of a namespace's objects of a kind and returns those
// then left. That nothing is left is believed only when the server says so (namespaces-N1).
func (n *namespaces) empty(ctx context.Context, k contents, namespace string) ([]client.Object, error) {
	objs := k.cached(namespace)
	if len(objs) == 0 {
		var err error
		if objs, err = n.list(ctx, k, namespace); err != nil || len(objs) == 0 {
			return nil, err
		}
	}
	background := metav1.DeletePropagationBackground // the default of some kinds would orphan
	var errs []error
	for _, o := range objs {
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		uid := o.GetUID()
		err := n.client.Delete(ctx, k.GroupVersionResource, namespace, o.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, err)
			continue
		}
		if k.cache != nil && !k.custom {
			errs = append(errs, k.cache.AwaitDeletion(ctx, o))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if left := k.cached(namespace); len(left) > 0 && !k.custom {
		return left, nil
	}
	return n.list(ctx, k, namespace)
}

// cached returns the cached objects in a namespace, if there is a cache.
func (k contents) cached(namespace string) []client.Object {
	if k.cache == nil {
		return nil
	}
	return k.cache.List(namespace)
}

func (n *namespaces) list(ctx context.Context, k contents, namespace string) ([]client.Object, error) {
	objs, _, err := k.List(ctx, n.client, namespace, metav1.ListOptions{})
	if k.custom && apierrors.IsNotFound(err) {
		return nil, nil // its definition is gone, and so are they
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", k.GroupResource().String(), err)
	}
	return objs, nil
}

func (n *namespaces) finalize(ctx context.Context, ns *corev1.Namespace) error {
	fresh := ns.DeepCopy()
	fresh.Spec.Finalizers = slices.DeleteFunc(fresh.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err := client.Namespaces.Update(ctx, n.client, fresh, "finalize")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finalize namespace %s: %w", ns.Name, err)
	}
	return nil
}

func (n *namespaces) writeConditions(ctx context.Context, ns *corev1.Namespace, failures []error, left map[string][]client.Object) error {
	fresh := ns.DeepCopy()
	fresh.Status.Conditions = namespaceConditions(ns.Status.Conditions, failures, left, time.Now())
	if equality.Semantic.DeepEqual(fresh.Status, ns.Status) {
		return nil
	}
	now, err := client.Namespaces.Update(ctx, n.client, fresh, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write status of namespace %s: %w", ns.Name, err)
	}
	return n.spaces.Await(ctx, now.ResourceVersion)
}

// namespaceConditions says, in the words that users of Kubernetes know, what holds up
// the end of a namespace.
func namespaceConditions(have []corev1.NamespaceCondition, failures []error, left map[string][]client.Object, now time.Time) []corev1.NamespaceCondition {
	var remaining []string
	held := map[string]int{} // objects per finalizer
	for _, name := range slices.Sorted(maps.Keys(left)) {
		remaining = append(remaining, fmt.Sprintf("%s has %d resource instances", withDot(name), len(left[name])))
		for _, o := range left[name] {
			for _, f := range o.GetFinalizers() {
				held[f]++
			}
		}
	}
	var finalizers []string
	for _, f := range slices.Sorted(maps.Keys(held)) {
		finalizers = append(finalizers, fmt.Sprintf("%s in %d resource instances", f, held[f]))
	}
	failed, undiscovered := "", ""
	var words []string
	for _, err := range failures {
		if d, ok := errors.AsType[*DiscoveryError](err); ok {
			undiscovered = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(d.Versions), d)
			continue
		}
		words = append(words, err.Error())
	}
	if len(words) > 0 {
		slices.Sort(words)
		failed = fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(words), strings.Join(words, ", "))
	}
	conditions := slices.Clone(have)
	set := func(kind corev1.NamespaceConditionType, trouble, troubleReason, fineReason, fine string) {
		c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: fineReason, Message: fine, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
		if trouble != "" {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, troubleReason, trouble
		}
		i := slices.IndexFunc(conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
		if i < 0 {
			conditions = append(conditions, c)
			return
		}
		if conditions[i].Status == c.Status {
			c.LastTransitionTime = conditions[i].LastTransitionTime
		}
		conditions[i] = c
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, undiscovered, "DiscoveryFailed", "ResourcesDiscovered", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, failed, "ContentDeletionFailed", "ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	set(corev1.NamespaceContentRemaining, prefixed("Some resources are remaining: ", remaining), "SomeResourcesRemain", "ContentRemoved", "All content successfully removed")
	set(corev1.NamespaceFinalizersRemaining, prefixed("Some content in the namespace has finalizers remaining: ", finalizers), "SomeFinalizersRemain", "ContentHasNoFinalizers", "All content-preserving finalizers finished")
	return conditions
}

func prefixed(prefix string, parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return prefix + strings.Join(parts, ", ")
}

// withDot writes a resource as upstream does here: "pods." and "jobs.batch".
func withDot(resource string) string {
	if strings.Contains(resource, ".") {
		return resource
	}
	return cmp.Or(resource, "?") + "."
}
