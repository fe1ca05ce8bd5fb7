package await

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// kinds are the kinds with rules of their own. To add a kind, write a file with its rules and add a line here. All other
// kinds are judged by judgeGeneric.
var kinds = []kindRules{
	podRules,
	replicationControllerRules,
	replicaSetRules,
	deploymentRules,
	statefulSetRules,
	daemonSetRules,
	jobRules,
	cronJobRules,
	serviceRules,
	claimRules,
	namespaceRules,
	nodeRules,
	ingressRules,
	autoscalerRules,
	oldAutoscalerRules,
	disruptionBudgetRules,
	definitionRules,
	apiServiceRules,
}

// rules are the rules of a kind whose objects have the type T. Only judge is required.
type rules[T client.Object] struct {
	judge func(d Degree, o T, v *view) (Verdict, error)

	// ended reports whether an object has ended for good, and how.
	ended func(o T) (why string, over bool)
	// place is called when a forest adds or updates the node n of an object, before its owners.
	place func(f *forest, n *node, o T)
	// slim returns a copy of an object without the fields that no verdict needs.
	slim func(o T) client.Object
	// parts returns the nodes that hold an object up and that are reported; nil reports all of troubled.
	parts func(d Degree, o T, troubled []*node) []*node
	// explain follows the objects that can explain why an object is not done, beside its events.
	explain func(x *explainer, o T)

	// revision returns to which revision an object belongs whose controller is of this kind.
	revision func(part client.Object) string
	// served says that Services select objects of this kind, or their pods.
	served bool
}

// kindRules are the rules of one kind.
type kindRules struct {
	schema.GroupVersionKind
	object reflect.Type // of its objects; a pointer
	rules[client.Object]
}

// rulesFor returns the table entry of a kind.
func rulesFor[T client.Object](gvk schema.GroupVersionKind, r rules[T]) kindRules {
	k := kindRules{GroupVersionKind: gvk, object: reflect.TypeFor[T]()}
	k.revision, k.served = r.revision, r.served
	k.judge = func(d Degree, o client.Object, v *view) (Verdict, error) { return r.judge(d, o.(T), v) }
	if r.ended != nil {
		k.ended = func(o client.Object) (string, bool) { return r.ended(o.(T)) }
	}
	if r.place != nil {
		k.place = func(f *forest, n *node, o client.Object) { r.place(f, n, o.(T)) }
	}
	if r.slim != nil {
		k.slim = func(o client.Object) client.Object { return r.slim(o.(T)) }
	}
	if r.parts != nil {
		k.parts = func(d Degree, o client.Object, troubled []*node) []*node { return r.parts(d, o.(T), troubled) }
	}
	if r.explain != nil {
		k.explain = func(x *explainer, o client.Object) { r.explain(x, o.(T)) }
	}
	return k
}

// rulesOf returns the rules for an object; none if its kind has no entry, or if o is nil.
func rulesOf(o client.Object) (r rules[client.Object]) {
	t := reflect.TypeOf(o)
	u, isUnstructured := o.(*unstructured.Unstructured)
	for i := range kinds {
		k := &kinds[i]
		if k.object == t && (!isUnstructured || k.GroupKind() == u.GroupVersionKind().GroupKind()) {
			return k.rules
		}
	}
	return r
}

// builtin returns a new object of the Go type of a built-in kind, nil for other kinds.
func builtin(gvk schema.GroupVersionKind) client.Object {
	obj, err := client.Scheme().New(gvk)
	if err == nil {
		o, _ := obj.(client.Object)
		return o
	}
	for i := range kinds { // a few kinds are not in the client's scheme
		if k := &kinds[i]; k.GroupVersionKind == gvk && k.object != reflect.TypeFor[*unstructured.Unstructured]() {
			o, _ := reflect.TypeAssert[client.Object](reflect.New(k.object.Elem()))
			return o
		}
	}
	return nil
}
