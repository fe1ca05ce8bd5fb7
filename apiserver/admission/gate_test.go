package admission_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
)

// A namespace is not marked as deleted while a creation in it is on its way to the
// store, and nothing comes in while the mark is: what is emptied afterwards is all.
func TestCreationsAndTheEndOfTheirNamespace(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: meta("", "n")}
	p := admission.NewNamespaceLifecycle(newMemory(map[string]catalog.Object{"namespaces//n": ns, "namespaces//other": ns}))
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	creation := func(namespace string) *admission.Attributes {
		return &admission.Attributes{Operation: admission.Create, Kind: podKind(), Namespace: namespace, Object: &corev1.Pod{ObjectMeta: meta(namespace, "p")}}
	}
	deletion := func() *admission.Attributes {
		return &admission.Attributes{Operation: admission.Delete, Kind: namespaceKind(), Name: "n", Old: ns}
	}
	admitted := func(ctx context.Context, a *admission.Attributes) bool {
		t.Helper()
		err := p.Admit(ctx, a)
		if err != nil && !apierrors.IsTimeout(err) {
			t.Fatalf("Admit = %v, want a timeout or nothing", err)
		}
		return err == nil
	}

	first, second := creation("n"), creation("n")
	if !admitted(impatient, first) || !admitted(impatient, second) {
		t.Fatal("creations wait for each other")
	}
	for _, a := range []*admission.Attributes{first, second} {
		if admitted(impatient, deletion()) {
			t.Fatal("the namespace is deleted under a creation")
		}
		a.Finish(true)
	}
	d := deletion()
	if !admitted(impatient, d) {
		t.Fatal("the deletion waits for creations that have ended, or for a deletion that gave up")
	}
	if admitted(impatient, creation("n")) || admitted(impatient, deletion()) {
		t.Fatal("something passes a deletion under way")
	}
	if !admitted(impatient, creation("other")) {
		t.Fatal("another namespace is concerned")
	}
	dry := creation("n")
	if dry.DryRun = true; !admitted(impatient, dry) {
		t.Fatal("a creation waits that writes nothing")
	}
	d.Finish(false)
	if a := creation("n"); !admitted(impatient, a) {
		t.Fatal("a deletion that failed is waited for")
	}
}
