package operation_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/managed"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// rights allow everything, except for the user "guest", who may get objects.
type rights struct{}

func (rights) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: a.User.Name != "guest" || a.Verb == operation.VerbGet}
}

// finished is a plug-in that counts its functions at the end of writes.
type finished struct{ committed, failed int }

func (*finished) Name() string { return "Finished" }

func (f *finished) Validate(_ context.Context, a *admission.Attributes) error {
	a.Done = append(a.Done, func(committed bool) {
		if committed {
			f.committed++
		} else {
			f.failed++
		}
	})
	return nil
}

// open returns operations on a store in memory that runs until the test ends.
func open(t *testing.T, plugins ...admission.Plugin) (*operation.Operations, *catalog.Catalog, *store.Store) {
	t.Helper()
	return openWith(t, operation.Options{Admission: plugins})
}

// openWith is open with other options than those of the store.
func openWith(t *testing.T, opts operation.Options) (*operation.Operations, *catalog.Catalog, *store.Store) {
	t.Helper()
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), nil, store.Options{Decode: codec.NewLoader(c).Decode, Terms: codec.Terms})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
	t.Cleanup(g.Stop)
	<-st.Ready()
	opts.Store, opts.Catalog, opts.Authorizer, opts.Managers = st, c, rights{}, managed.New(openapi.NewTypes(c))
	o, err := operation.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return o, c, st
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": value}}
}

// TestOperations performs each operation on an object, without a server.
func TestOperations(t *testing.T) {
	ends := &finished{}
	o, c, st := open(t, ends)
	target := func(user, name string) operation.Target {
		return operation.Target{User: &auth.User{Name: user}, Kind: c.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")), Namespace: "default", Name: name}
	}
	ctx := t.Context()
	made, err := o.Create(ctx, target("boss", ""), configMap("a", "1"), metav1.CreateOptions{})
	if err != nil || !made.Created || made.Item.Object().GetUID() == "" {
		t.Fatalf("create: %+v, %v", made, err)
	}
	changes, err := o.Watch(ctx, target("boss", ""), metav1.ListOptions{ResourceVersion: made.Item.ResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Create(ctx, target("boss", ""), configMap("a", "1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v", err)
	}
	got, err := o.Get(ctx, target("guest", "a"), metav1.GetOptions{})
	if err != nil || got.Item != made.Item {
		t.Errorf("get: %v, %v; want what was created", got, err)
	}

	before := st.Revision()
	same, err := o.Update(ctx, target("boss", "a"), configMap("a", "1"), metav1.UpdateOptions{})
	if err != nil || same.Item.Revision() != made.Item.Revision() || st.Revision() != before {
		t.Errorf("an update that changes nothing: revision %d of the store, was %d: %v", st.Revision(), before, err)
	}
	patched, _, err := o.Patch(ctx, target("boss", "a"), types.MergePatchType, []byte(`{"data":{"key":"2"}}`), metav1.PatchOptions{})
	if err != nil || patched.Object().(*corev1.ConfigMap).Data["key"] != "2" {
		t.Errorf("patch: %+v, %v", patched, err)
	}
	stale := configMap("a", "3")
	stale.ResourceVersion = made.Item.ResourceVersion()
	if _, err := o.Update(ctx, target("boss", "a"), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an earlier version: %v", err)
	}
	if _, err := o.Update(ctx, target("guest", "a"), configMap("a", "4"), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("update by a user who may only read: %v", err)
	}

	list, err := o.List(ctx, target("boss", ""), metav1.ListOptions{FieldSelector: "metadata.name=a"})
	if err != nil || len(list.Items) != 1 || list.Items[0] != patched.Item {
		t.Errorf("list: %+v, %v", list, err)
	}
	if _, err := o.List(ctx, target("boss", ""), metav1.ListOptions{FieldSelector: "spec.x=a"}); !apierrors.IsBadRequest(err) {
		t.Errorf("list by a field that configmaps do not have: %v", err)
	}
	if _, err := o.Delete(ctx, target("boss", "a"), metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := o.Get(ctx, target("boss", "a"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the delete: %v", err)
	}

	// The first creation, the patch and the deletion were committed. The second creation and the update that changes nothing
	// were not, and plug-ins were not asked about the others.
	if ends.committed != 3 || ends.failed != 2 {
		t.Errorf("%d writes ended as committed and %d as failed, want 3 and 2", ends.committed, ends.failed)
	}
	want := []watch.EventType{watch.Modified, watch.Deleted}
	for change, err := range changes {
		if err != nil {
			t.Fatal(err)
		}
		if change.Type == "" { // all changes so far have come
			t.Fatalf("no change %s", want[0])
		}
		if change.Type != want[0] || change.Item.Object().GetName() != "a" {
			t.Errorf("change %s, want %s", change, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			break
		}
	}
}

// TestOperationsAnswerWithStatusErrors checks that a fault of the store is an API status error.
func TestOperationsAnswerWithStatusErrors(t *testing.T) {
	o, c, _ := open(t)
	pods := operation.Target{User: &auth.User{Name: "boss"}, Kind: c.Resource(corev1.SchemeGroupVersion.WithResource("pods")), Namespace: "default"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, future := o.List(ctx, pods, metav1.ListOptions{ResourceVersion: "1000000"})
	_, token := o.List(t.Context(), pods, metav1.ListOptions{Continue: "x"})
	_, selector := o.List(t.Context(), pods, metav1.ListOptions{LabelSelector: "a in"})
	_, verb := o.Create(t.Context(), operation.Target{User: pods.User, Kind: pods.Kind, Sub: pods.Kind.Subresource("status"), Namespace: "default", Name: "a"}, &corev1.Pod{}, metav1.CreateOptions{})
	for what, err := range map[string]error{"a revision of the future": future, "a wrong token": token, "a wrong selector": selector, "a verb that is not served": verb} {
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
			t.Errorf("%s: %v (%T), want an API status error", what, err, err)
		}
	}
}
