package admission_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

func podOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo"}}}}
}

func quotas() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("resourcequotas")
}

func quotaOf(pods string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "q", UID: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}},
	}
}

// TestQuotaHoldsUnderConcurrency has 50 clients create pods against a quota of 10, while others delete half of them.
func TestQuotaHoldsUnderConcurrency(t *testing.T) {
	s := serve(t)
	if _, err := s.admin.Create(t.Context(), quotas(), "ship", "", quotaOf("10"), metav1.CreateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		objs, err := s.server.Reader().List(t.Context(), podKind().GVR(), "ship", nil)
		if err != nil {
			t.Error(err)
		}
		return len(objs)
	}
	var made, refused atomic.Int64
	zero := int64(0)
	g := run.NewGroup(t.Context(), 50)
	for i := range 50 {
		g.Go(func(ctx context.Context) {
			for j := range 20 {
				name := fmt.Sprintf("p-%d-%d", i, j)
				_, err := s.admin.Create(ctx, podKind().GVR(), "ship", "", podOf(name), metav1.CreateOptions{}, "")
				switch {
				case err == nil:
					made.Add(1)
				case apierrors.IsForbidden(err):
					refused.Add(1)
					continue
				default:
					t.Errorf("create: %v", err)
				}
				if n := count(); n > 10 {
					t.Errorf("%d pods in a quota of 10", n)
				}
				if i%2 == 0 {
					if err := s.admin.Delete(ctx, podKind().GVR(), "ship", name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
						t.Errorf("delete: %v", err)
					}
					made.Add(-1)
				}
			}
		})
	}
	g.Wait()
	if n := count(); int64(n) != made.Load() || refused.Load() == 0 {
		t.Errorf("%d pods, made %d, refused %d", n, made.Load(), refused.Load())
	}
	// Nothing is left charged: the rest of the quota can be used, and no more.
	for i := count(); i < 10; i++ {
		s.create(podOf(fmt.Sprintf("rest-%d", i)))
	}
	if _, err := s.admin.Create(t.Context(), podKind().GVR(), "ship", "", podOf("more"), metav1.CreateOptions{}, ""); !apierrors.IsForbidden(err) {
		t.Errorf("an 11th pod: %v", err)
	}
}

// TestQuotaChargesWritesUnderWay checks the account between the check of a write and its end.
func TestQuotaChargesWritesUnderWay(t *testing.T) {
	m := newMemory(map[string]catalog.Object{"resourcequotas/ship/q": quotaOf("2")})
	p := admission.NewResourceQuota(m)
	begin := func(name string) (*admission.Attributes, error) {
		pod := podOf(name)
		pod.UID, pod.ResourceVersion = types.UID(name), "1"
		a := creating(podKind(), pod)
		return a, p.Validate(t.Context(), a)
	}
	end := func(a *admission.Attributes) {
		m.put("pods", a.Object)
		a.Finish(true)
	}
	must := func(a *admission.Attributes, err error) *admission.Attributes {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	full := func(why string) {
		t.Helper()
		if _, err := begin("more"); !apierrors.IsForbidden(err) {
			t.Errorf("%s: err = %v, want Forbidden", why, err)
		}
	}
	a, b := must(begin("a")), must(begin("b"))
	full("two under way")
	b.Finish(false)
	b = must(begin("b"))
	full("one under way again")
	// Another write of the pod that was created ends first. The pod must not count twice.
	m.put("pods", a.Object)
	touch := updating(podKind(), a.Object, a.Object)
	touch.Subresource = "status"
	if err := p.Validate(t.Context(), touch); err != nil {
		t.Fatal(err)
	}
	touch.Finish(true)
	b.Finish(false)
	b = must(begin("b"))
	a.Finish(true)
	end(b)
	full("two stored")
	// What is deleted is free again as soon as that can be seen, by whichever server.
	m.remove("pods", "ship", "a")
	must(begin("c")).Finish(false)
	// A pod that its node should have deleted long ago does not count.
	old := podOf("b")
	old.UID, old.ResourceVersion = "b", "2"
	old.DeletionTimestamp, old.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(-time.Hour)}, new(int64(30))
	m.put("pods", old)
	must(begin("c"))
	d := must(begin("d"))
	full("two others")
	// Another server has charged the account in the meantime: what it stored counts.
	if since, err := d.Charge.Recounter.Recount(t.Context(), d); err != nil || since < d.Charge.Since {
		t.Errorf("a new count at revision %d: %d, %v", d.Charge.Since, since, err)
	}
	m.put("pods", podOf("other"))
	if _, err := d.Charge.Recounter.Recount(t.Context(), d); !apierrors.IsForbidden(err) {
		t.Errorf("a new count with another pod: %v, want Forbidden", err)
	}
	d.Finish(false)
	m.remove("pods", "ship", "other")
	must(begin("e"))
	full("two others")
}

// BenchmarkQuota measures what the plug-in adds to the creation of a pod, which is not committed, on a real server with
// 5,000 pods in the namespace: without a quota, with a quota of other things, and with a quota of pods.
func BenchmarkQuota(b *testing.B) {
	for name, q := range map[string]*corev1.ResourceQuota{
		"none":  nil,
		"other": {ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"secrets": resource.MustParse("1")}}},
		"pods":  quotaOf("1000000"),
	} {
		b.Run(name, func(b *testing.B) {
			s := apiservertest.Open(b, nil)
			admin := s.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})
			create := func(o catalog.Object) {
				if _, err := admin.Create(b.Context(), resourceOf(o), "ship", "", o, metav1.CreateOptions{}, ""); err != nil {
					b.Fatal(err)
				}
			}
			if q != nil {
				create(q)
			}
			for i := range 5000 {
				create(podOf(fmt.Sprintf("p-%d", i)))
			}
			p, pod := admission.NewResourceQuota(s.Reader()), podOf("more")
			for b.Loop() {
				a := creating(podKind(), pod)
				if err := p.Validate(b.Context(), a); err != nil {
					b.Fatal(err)
				}
				a.Finish(false)
			}
		})
	}
}
