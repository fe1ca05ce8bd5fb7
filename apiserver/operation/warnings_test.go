package operation_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// warner is a plug-in that warns in both steps of each write, and may refuse it in the second.
type warner struct{ refuses bool }

func (*warner) Name() string { return "Warner" }

func (*warner) Admit(_ context.Context, a *admission.Attributes) error {
	a.Warnings = append(a.Warnings, "admitted")
	return nil
}

func (w *warner) Validate(_ context.Context, a *admission.Attributes) error {
	a.Warnings = append(a.Warnings, "validated")
	if w.refuses {
		return apierrors.NewForbidden(a.Kind.GR(), a.Name, errors.New("refused"))
	}
	return nil
}

// TestWarningsReachTheClient checks that each kind of write returns the warnings of plug-ins, whatever becomes of it.
func TestWarningsReachTheClient(t *testing.T) {
	w := &warner{}
	o, c, st := open(t, w)
	ctx := t.Context()
	target := func(resource, name, sub string) operation.Target {
		kind := c.Resource(corev1.SchemeGroupVersion.WithResource(resource))
		out := operation.Target{User: &auth.User{Name: "boss"}, Kind: kind, Namespace: "default", Name: name}
		if sub != "" {
			out.Sub = kind.Subresource(sub)
		}
		return out
	}
	dry := []string{metav1.DryRunAll}
	create := func(obj runtime.Object, opts metav1.CreateOptions) (operation.Result, error) {
		resource := "configmaps"
		if _, ok := obj.(*corev1.Pod); ok {
			resource = "pods"
		}
		return o.Create(ctx, target(resource, "", ""), obj, opts)
	}
	remove := func(resource, name string, opts metav1.DeleteOptions) (operation.Result, error) {
		return o.Delete(ctx, target(resource, name, ""), opts)
	}
	patch := func(kind types.PatchType, body string) (operation.Result, error) {
		r, _, err := o.Patch(ctx, target("configmaps", "a", ""), kind, []byte(body), metav1.PatchOptions{FieldManager: "m"})
		return r, err
	}
	evict := func(name string, opts *metav1.DeleteOptions) (operation.Result, error) {
		body := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: opts}
		return o.Create(ctx, target("pods", name, "eviction"), body, metav1.CreateOptions{})
	}
	running := func(name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		c.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Default(p)
		return p
	}
	unreadable := func(resource, name string) {
		t.Helper()
		key := target(resource, name, "").Kind.Key("default", name)
		bad, err := codec.NewLoader(c).Decode(key, []byte("?"))
		if err == nil {
			_, err = st.Commit(ctx, store.Write{Key: key, Value: bad})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const applied = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"applied":"1"}}`
	unreadable("configmaps", "bad")
	steps := []struct {
		name    string
		refuses bool
		fails   bool
		do      func() (operation.Result, error)
	}{
		{"creation", false, false, func() (operation.Result, error) { return create(configMap("a", "1"), metav1.CreateOptions{}) }},
		{"dry run of a creation", false, false, func() (operation.Result, error) {
			return create(configMap("b", "1"), metav1.CreateOptions{DryRun: dry})
		}},
		{"creation of what exists", false, true, func() (operation.Result, error) { return create(configMap("a", "1"), metav1.CreateOptions{}) }},
		{"refused creation", true, true, func() (operation.Result, error) { return create(configMap("b", "1"), metav1.CreateOptions{}) }},
		{"update", false, false, func() (operation.Result, error) {
			return o.Update(ctx, target("configmaps", "a", ""), configMap("a", "2"), metav1.UpdateOptions{})
		}},
		{"update that changes nothing", false, false, func() (operation.Result, error) {
			return o.Update(ctx, target("configmaps", "a", ""), configMap("a", "2"), metav1.UpdateOptions{})
		}},
		{"refused update", true, true, func() (operation.Result, error) {
			return o.Update(ctx, target("configmaps", "a", ""), configMap("a", "3"), metav1.UpdateOptions{})
		}},
		{"apply", false, false, func() (operation.Result, error) { return patch(types.ApplyYAMLPatchType, applied) }},
		{"apply that changes nothing", false, false, func() (operation.Result, error) { return patch(types.ApplyYAMLPatchType, applied) }},
		{"patch that changes nothing", false, false, func() (operation.Result, error) { return patch(types.MergePatchType, `{}`) }},
		{"dry run of a deletion", false, false, func() (operation.Result, error) {
			return remove("configmaps", "a", metav1.DeleteOptions{DryRun: dry})
		}},
		{"refused deletion", true, true, func() (operation.Result, error) { return remove("configmaps", "a", metav1.DeleteOptions{}) }},
		{"deletion", false, false, func() (operation.Result, error) { return remove("configmaps", "a", metav1.DeleteOptions{}) }},
		{"refused deletion of what cannot be read", true, true, func() (operation.Result, error) { return remove("configmaps", "bad", metav1.DeleteOptions{}) }},
		{"deletion of what cannot be read", false, false, func() (operation.Result, error) { return remove("configmaps", "bad", metav1.DeleteOptions{}) }},
		{"creation of a pod", false, false, func() (operation.Result, error) { return create(running("p"), metav1.CreateOptions{}) }},
		{"dry run of a graceful deletion", false, false, func() (operation.Result, error) { return remove("pods", "p", metav1.DeleteOptions{DryRun: dry}) }},
		{"refused eviction", true, true, func() (operation.Result, error) { return evict("p", nil) }},
		{"dry run of an eviction", false, false, func() (operation.Result, error) { return evict("p", &metav1.DeleteOptions{DryRun: dry}) }},
		{"eviction", false, false, func() (operation.Result, error) { return evict("p", nil) }},
		{"second deletion", false, false, func() (operation.Result, error) { return remove("pods", "p", metav1.DeleteOptions{}) }},
		{"binding of a bound pod", false, true, func() (operation.Result, error) {
			body := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
			return o.Create(ctx, target("pods", "p", "binding"), body, metav1.CreateOptions{})
		}},
		{"refused connection", true, true, func() (operation.Result, error) {
			at := target("pods", "p", "exec")
			item, err := o.Lookup(ctx, &at)
			if err != nil {
				t.Fatal(err)
			}
			warnings, err := o.AdmitConnect(ctx, &at, item, &corev1.PodExecOptions{})
			return operation.Result{Warnings: warnings}, err
		}},
		{"deletion of many", false, false, func() (operation.Result, error) {
			all := target("pods", "", "")
			l, err := o.DeleteCollection(ctx, all, metav1.ListOptions{}, metav1.DeleteOptions{})
			return operation.Result{Warnings: l.Warnings(&all)}, err
		}},
		{"refused deletion of many", true, true, func() (operation.Result, error) {
			all := target("pods", "", "")
			l, err := o.DeleteCollection(ctx, all, metav1.ListOptions{}, metav1.DeleteOptions{})
			return operation.Result{Warnings: l.Warnings(&all)}, err
		}},
	}
	for _, tt := range steps {
		w.refuses = tt.refuses
		r, err := tt.do()
		if (err != nil) != tt.fails {
			t.Errorf("%s: error %v", tt.name, err)
		}
		for _, want := range []string{"admitted", "validated"} {
			if !slices.Contains(r.Warnings, want) && !(tt.name == "binding of a bound pod" && want == "validated") {
				t.Errorf("%s: warnings %q, want %q", tt.name, r.Warnings, want)
			}
		}
	}
}

// TestTokensWarn checks the warnings of a subresource whose body is answered and not stored.
func TestTokensWarn(t *testing.T) {
	w := &warner{}
	o, c, _ := openWith(t, operation.Options{Admission: []admission.Plugin{w}, Issue: map[catalog.Handler]operation.IssueHandler{
		catalog.ServiceAccountToken: func(_ context.Context, _ catalog.Object, body runtime.Object) (runtime.Object, error) {
			return body, nil
		},
	}})
	accounts := operation.Target{User: &auth.User{Name: "boss"}, Kind: c.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")), Namespace: "default"}
	if _, err := o.Create(t.Context(), accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	accounts.Name, accounts.Sub = "a", accounts.Kind.Subresource("token")
	for _, w.refuses = range []bool{false, true} {
		body, _ := accounts.NewBody()
		r, err := o.Create(t.Context(), accounts, body, metav1.CreateOptions{})
		if (err != nil) != w.refuses || !slices.Equal(r.Warnings, []string{"admitted", "validated"}) {
			t.Errorf("refused %t: warnings %q, error %v", w.refuses, r.Warnings, err)
		}
	}
}
