package quota_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/quota"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return quota.Tasks(quota.Options{Config: controllertest.Config(c, caches), Resources: clienttest.Resources()})
}

var resourceQuotas = client.Resource[*corev1.ResourceQuota]{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("resourcequotas"), Kind: "ResourceQuota", Namespaced: true}

func quotaOf(name, hard string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	q.Spec.Hard = corev1.ResourceList{}
	for part := range strings.FieldsSeq(hard) {
		name, amount, _ := strings.Cut(part, "=")
		q.Spec.Hard[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return q
}

func podOf(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

// check compares the status of a quota: "cpu=1/4 pods=2/10".
func check(t *testing.T, s *clienttest.Server, name, want string) {
	t.Helper()
	synctest.Wait()
	q := clienttest.Find(s, resourceQuotas, "default", name)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		parts = append(parts, fmt.Sprintf("%s=%s/%s", name, used.String(), hard.String()))
	}
	if got := strings.Join(parts, " "); got != want || len(q.Status.Used) != len(q.Status.Hard) {
		t.Errorf("the status of %s is %s, want %s", name, got, want)
	}
}

func TestStatusFollowsObjects(t *testing.T) {
	early := podOf("early", "100m")
	ended := podOf("ended", "1")
	ended.Status.Phase = corev1.PodSucceeded
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		check(t, s, "q", "configmaps=0/5 count/pods=2/9 pods=1/9 requests.cpu=100m/1")
		s.Set(t, podOf("late", "300m"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		check(t, s, "q", "configmaps=1/5 count/pods=3/9 pods=2/9 requests.cpu=400m/1")
		done := clienttest.Find(s, client.Pods, "default", "late").DeepCopy()
		done.Status.Phase = corev1.PodFailed
		s.Set(t, done)
		s.Remove(t, clienttest.Find(s, client.Pods, "default", "ended"))
		check(t, s, "q", "configmaps=1/5 count/pods=2/9 pods=1/9 requests.cpu=100m/1")
		// Another specification, and a second quota that counts pods, too.
		q := clienttest.Find(s, resourceQuotas, "default", "q").DeepCopy()
		q.Spec.Hard = quotaOf("", "pods=3 secrets=1").Spec.Hard
		s.Set(t, q, quotaOf("other", "pods=7"))
		check(t, s, "q", "pods=1/3 secrets=0/1")
		check(t, s, "other", "pods=1/7")
		// A client that writes the status is corrected.
		spoiled := clienttest.Find(s, resourceQuotas, "default", "other").DeepCopy()
		spoiled.Status.Used = quotaOf("", "pods=5").Spec.Hard
		s.Set(t, spoiled)
		check(t, s, "other", "pods=1/7")
		// The ledgers of a namespace end with its quotas, and begin again with all objects.
		s.Remove(t, clienttest.Find(s, resourceQuotas, "default", "q"))
		s.Remove(t, clienttest.Find(s, resourceQuotas, "default", "other"))
		synctest.Wait()
		s.Set(t, podOf("between", "1"))
		synctest.Wait()
		s.Set(t, quotaOf("again", "pods=7"))
		check(t, s, "again", "pods=2/7")
	}, early, ended, quotaOf("q", "pods=9 count/pods=9 requests.cpu=1 configmaps=5"))
}

// TestObjectsOfOtherServersAreCounted has two resources of other servers; of one, clients cannot create objects.
func TestObjectsOfOtherServersAreCounted(t *testing.T) {
	served := []cache.Resource{
		{Resource: client.Resource[client.Object](client.Leases), Elsewhere: true, Creatable: true},
		{Resource: client.Resource[client.Object](client.Endpoints), Elsewhere: true},
	}
	away := func(c client.Interface, caches *cache.Shared) []run.Task {
		own := slices.DeleteFunc(clienttest.Resources(), func(r client.Resource[client.Object]) bool {
			return r == served[0].Resource || r == served[1].Resource
		})
		custom := cache.NewDynamic(c, []cache.Served{func() ([]cache.Resource, <-chan struct{}) { return served, nil }}, nil, nil)
		all := quota.Tasks(quota.Options{Config: controllertest.Config(c, caches), Resources: own, Custom: custom})
		return append(all, run.Task{Name: "custom", Run: custom.Run})
	}
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	controllertest.Controlling(t, away, func(t *testing.T, s *clienttest.Server) {
		used := func() (n int64, other bool) {
			controllertest.Rest()
			q := clienttest.Find(s, resourceQuotas, "default", "q")
			leases := q.Status.Used["count/leases.coordination.k8s.io"]
			_, other = q.Status.Used["count/endpoints"]
			return leases.Value(), other
		}
		if n, other := used(); n != 1 || other {
			t.Errorf("%d leases, endpoints %v; want 1 and no count", n, other)
		}
		s.Set(t, lease("b"))
		if n, _ := used(); n != 2 {
			t.Errorf("%d leases, want 2", n)
		}
	}, lease("a"), quotaOf("q", "count/leases.coordination.k8s.io=5 count/endpoints=5"))
}

func TestStuckPodStopsToCount(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		pod := podOf("p", "1")
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(30 * time.Second)}, new(int64(30))
		pod.Finalizers = []string{"example.com/keep"}
		s.Set(t, pod)
		check(t, s, "q", "pods=1/9")
		time.Sleep(59 * time.Second)
		check(t, s, "q", "pods=1/9")
		time.Sleep(2 * time.Second)
		check(t, s, "q", "pods=0/9")
	}, quotaOf("q", "pods=9"))
}

// TestIdleStatusIsNotWritten checks that changes that a quota does not count write nothing.
func TestIdleStatusIsNotWritten(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		check(t, s, "q", "pods=0/9")
		s.Intercept(func(r clienttest.Request) error {
			t.Errorf("the controller sends %s", r)
			return nil
		})
		s.Set(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		elsewhere := podOf("p", "1")
		elsewhere.Namespace = "kube-system"
		s.Set(t, elsewhere)
		synctest.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		s.Intercept(nil)
	}, quotaOf("q", "pods=9"))
}
