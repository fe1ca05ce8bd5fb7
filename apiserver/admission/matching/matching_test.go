package matching_test

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/matching"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/store"
)

// namespaces has the labels of a few namespaces.
type namespaces map[string]map[string]string

func (n namespaces) Get(_ context.Context, gvr schema.GroupVersionResource, _, name string) (catalog.Object, error) {
	labels, ok := n[name]
	if !ok || gvr.Resource != "namespaces" {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
}

func (namespaces) List(context.Context, schema.GroupVersionResource, string, fields.Set) ([]catalog.Object, error) {
	return nil, nil
}

func (namespaces) Holders(context.Context, schema.GroupVersionResource, string) ([]catalog.Object, error) {
	return nil, nil
}

func (n namespaces) Await(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	return n.Get(ctx, gvr, namespace, name)
}

func (namespaces) Changes(context.Context, schema.GroupVersionResource, string, store.Revision) (admission.Changes, error) {
	return admission.Changes{}, nil
}

func all(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rule(ops, groups, versions, resources string, scope admissionregistrationv1.ScopeType, names ...string) admissionregistrationv1.NamedRuleWithOperations {
	r := admissionregistrationv1.NamedRuleWithOperations{ResourceNames: names}
	r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(ops)}
	r.APIGroups, r.APIVersions, r.Resources = []string{groups}, []string{versions}, []string{resources}
	if scope != "" {
		r.Scope = &scope
	}
	return r
}

func labelled(labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
}

func TestMatch(t *testing.T) {
	c := all(t)
	pods := c.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	spaces := c.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	nodes := c.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	scalers := c.Resource(schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"})
	hooks := map[string]string{"hooks": "on"}
	stored := namespaces{"on": hooks, "off": nil}
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	selector := &metav1.LabelSelector{MatchLabels: hooks}
	type rules = []admissionregistrationv1.NamedRuleWithOperations
	every := rules{rule("*", "*", "*", "*/*", "")}

	for name, c := range map[string]struct {
		by   matching.Constraint
		a    admission.Attributes
		want string // the version, or "" if it does not match
		err  bool
	}{
		"a plain rule":            {by: matching.Constraint{Rules: rules{rule("CREATE", "", "v1", "pods", "")}}, a: admission.Attributes{Kind: pods, Operation: admission.Create}, want: "v1"},
		"another operation":       {by: matching.Constraint{Rules: rules{rule("CREATE", "", "v1", "pods", "")}}, a: admission.Attributes{Kind: pods, Operation: admission.Update}},
		"another group":           {by: matching.Constraint{Rules: rules{rule("*", "apps", "v1", "pods", "")}}, a: admission.Attributes{Kind: pods}},
		"no rules":                {a: admission.Attributes{Kind: pods}},
		"no rules of a binding":   {by: matching.Constraint{Always: true}, a: admission.Attributes{Kind: pods}, want: "v1"},
		"not a subresource":       {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*", "")}}, a: admission.Attributes{Kind: pods, Subresource: "status"}},
		"any subresource":         {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "pods/*", "")}}, a: admission.Attributes{Kind: pods, Subresource: "status"}, want: "v1"},
		"one subresource":         {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*/scale", "")}}, a: admission.Attributes{Kind: pods, Subresource: "status"}},
		"excluded":                {by: matching.Constraint{Rules: every, Excluded: rules{rule("*", "", "v1", "pods", "")}}, a: admission.Attributes{Kind: pods}},
		"excluded elsewhere":      {by: matching.Constraint{Rules: every, Excluded: rules{rule("*", "", "v1", "secrets", "")}}, a: admission.Attributes{Kind: pods}, want: "v1"},
		"a name":                  {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*", "", "a")}}, a: admission.Attributes{Kind: pods, Name: "a"}, want: "v1"},
		"another name":            {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*", "", "a")}}, a: admission.Attributes{Kind: pods, Name: "b"}},
		"a name that is made":     {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*", "", "a")}}, a: admission.Attributes{Kind: pods, Name: "a", Generated: true}},
		"scope Namespaced":        {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*", "Namespaced")}}, a: admission.Attributes{Kind: nodes}},
		"scope of a Namespace":    {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*", "Cluster")}}, a: admission.Attributes{Kind: spaces, Name: "on"}, want: "v1"},
		"scope Cluster":           {by: matching.Constraint{Rules: rules{rule("*", "*", "*", "*", "Cluster")}}, a: admission.Attributes{Kind: pods, Namespace: "on"}},
		"Exact":                   {by: matching.Constraint{Rules: rules{rule("*", "autoscaling", "v2", "*", "")}, MatchPolicy: &exact}, a: admission.Attributes{Kind: scalers.Hub(), Served: scalers}},
		"Equivalent":              {by: matching.Constraint{Rules: rules{rule("*", "autoscaling", "v2", "*", "")}, MatchPolicy: &equivalent}, a: admission.Attributes{Kind: scalers.Hub(), Served: scalers}, want: "v2"},
		"Equivalent, as asked":    {by: matching.Constraint{Rules: rules{rule("*", "autoscaling", "*", "*", "")}, MatchPolicy: &equivalent}, a: admission.Attributes{Kind: scalers.Hub(), Served: scalers}, want: "v1"},
		"Equivalent, excluded":    {by: matching.Constraint{Rules: every, Excluded: rules{rule("*", "autoscaling", "v2", "*", "")}, MatchPolicy: &equivalent}, a: admission.Attributes{Kind: scalers.Hub(), Served: scalers}},
		"a namespace":             {by: matching.Constraint{Rules: every, NamespaceSelector: selector}, a: admission.Attributes{Kind: pods, Namespace: "on"}, want: "v1"},
		"another namespace":       {by: matching.Constraint{Rules: every, NamespaceSelector: selector}, a: admission.Attributes{Kind: pods, Namespace: "off"}},
		"an absent namespace":     {by: matching.Constraint{Rules: every, NamespaceSelector: selector}, a: admission.Attributes{Kind: pods, Namespace: "gone"}, err: true},
		"absent, not concerned":   {by: matching.Constraint{Rules: rules{rule("*", "", "v1", "nodes", "")}, NamespaceSelector: selector}, a: admission.Attributes{Kind: pods, Namespace: "gone"}},
		"a node has no namespace": {by: matching.Constraint{Rules: every, NamespaceSelector: selector}, a: admission.Attributes{Kind: nodes}, want: "v1"},
		"a new Namespace":         {by: matching.Constraint{Rules: every, NamespaceSelector: selector}, a: admission.Attributes{Kind: spaces, Name: "new", Operation: admission.Create, Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: hooks}}}, want: "v1"},
		"a Namespace without it":  {by: matching.Constraint{Rules: every, NamespaceSelector: selector}, a: admission.Attributes{Kind: spaces, Name: "on", Operation: admission.Update, Object: &corev1.Namespace{}}},
		"a Namespace's deletion":  {by: matching.Constraint{Rules: every, NamespaceSelector: selector}, a: admission.Attributes{Kind: spaces, Name: "on", Operation: admission.Delete}, want: "v1"},
		"the new object":          {by: matching.Constraint{Rules: every, ObjectSelector: selector}, a: admission.Attributes{Kind: pods, Object: labelled(hooks), Old: labelled(nil)}, want: "v1"},
		"the old object":          {by: matching.Constraint{Rules: every, ObjectSelector: selector}, a: admission.Attributes{Kind: pods, Object: labelled(nil), Old: labelled(hooks)}, want: "v1"},
		"neither":                 {by: matching.Constraint{Rules: every, ObjectSelector: selector}, a: admission.Attributes{Kind: pods, Object: labelled(nil)}},
		"no object":               {by: matching.Constraint{Rules: every, ObjectSelector: selector}, a: admission.Attributes{Kind: pods, Operation: admission.Connect}},
		"a broken selector":       {by: matching.Constraint{Rules: every, ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "like"}}}}, a: admission.Attributes{Kind: pods, Object: labelled(nil)}, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.a.Operation == "" {
				c.a.Operation = admission.Update
			}
			in, err := matching.Compile(&c.by).Match(t.Context(), &c.a, stored)
			got := ""
			if in != nil {
				got = in.Version
			}
			if got != c.want || (err != nil) != c.err {
				t.Errorf("Match: %q, %v; want %q, error %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestExempt(t *testing.T) {
	own := admission.Attributes{Kind: &catalog.Kind{GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")}}
	inner := admission.Attributes{Kind: all(t).Resource(corev1.SchemeGroupVersion.WithResource("pods")), Inner: true}
	other := inner
	other.Inner = false
	if !matching.Exempt(&own) || !matching.Exempt(&inner) || matching.Exempt(&other) {
		t.Error("Exempt: want true for the configuration and a part of another request, false for a pod")
	}
}
