package controller_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
)

// TestObjectSetAsideIsNotReconciled leaves a mark as a process that ends does, and checks that the next loop goes on with the
// other objects, and with that one when it has been changed.
func TestObjectSetAsideIsNotReconciled(t *testing.T) {
	dir := t.TempDir()
	objects := map[string]client.Object{}
	for _, name := range []string{"large", "other"} {
		objects[name] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 1},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Args: []string{strings.Repeat("x", quarantine.LeastSize)}}}},
		}
	}
	open := func() *quarantine.Quarantine {
		q, err := quarantine.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	if _, ok := open().Begin("test", objects["large"].(quarantine.Object)); !ok {
		t.Fatal("a new object is set aside")
	}
	synctest.Test(t, func(t *testing.T) {
		done := map[string]int{}
		l := controller.New(controller.Options{
			Name: "test", Workers: 1, Quarantine: open(),
			Object: func(key controller.Key) client.Object { return objects[key.Name] },
			Reconcile: func(_ context.Context, key controller.Key) (controller.Result, error) {
				done[key.Name]++
				return controller.Result{}, nil
			},
		})
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = l.Run(ctx) })
		for name := range objects {
			l.Add(controller.Key{Name: name})
		}
		synctest.Wait()
		if done["large"] != 0 || done["other"] != 1 {
			t.Errorf("reconciled %v, want other alone", done)
		}
		objects["large"].SetLabels(map[string]string{"a": "b"})
		l.Add(controller.Key{Name: "large"})
		synctest.Wait()
		if done["large"] != 1 {
			t.Errorf("reconciled %v after the change", done)
		}
	})
}
