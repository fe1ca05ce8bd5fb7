package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// soon bounds how long a test waits for what must come.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := 0; i < len(data); i += 2 {
		metav1.SetMetaDataLabel(&cm.ObjectMeta, data[i], data[i+1])
	}
	return cm
}

// heard collects the names of the ConfigMaps in the events of an informer.
type heard struct {
	mu    sync.Mutex
	names map[string]bool // guarded by mu
	news  chan struct{}
}

func (h *heard) tell(obj any, there bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[obj.(*corev1.ConfigMap).Name] = there
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// await blocks until the informer has reported that the object exists, or was deleted.
func (h *heard) await(ctx context.Context, t *testing.T, name string, there bool) {
	t.Helper()
	for {
		h.mu.Lock()
		is, told := h.names[name]
		h.mu.Unlock()
		if told && is == there {
			return
		}
		select {
		case <-h.news:
		case <-ctx.Done():
			t.Fatalf("the informer did not tell that configmap %s is there: %v", name, there)
		}
	}
}

func listen(ctx context.Context, t *testing.T, cs kubernetes.Interface) *heard {
	t.Helper()
	h := &heard{names: map[string]bool{}, news: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(cs, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.tell(obj, true) },
		DeleteFunc: func(obj any) { h.tell(obj, false) },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	for what, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("the informer of %v did not get the first state", what)
		}
	}
	return h
}

func TestInformersSurviveAKilledServer(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	s := newServed(t)
	cs := clientset(t, configFrom(t, s.kubeconfig()))
	cms := cs.CoreV1().ConfigMaps("default")
	if _, err := cms.Create(ctx, configMap("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h := listen(ctx, t, cs)
	h.await(ctx, t, "before", true)
	old, err := cms.Create(ctx, configMap("during"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.await(ctx, t, "during", true)

	if err := s.kill(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	list, err := cms.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"before", "during"} {
		if !slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == name }) {
			t.Errorf("configmap %s was acknowledged and is lost", name)
		}
	}
	after, err := cms.Create(ctx, configMap("after"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if revision(t, after.ResourceVersion) <= revision(t, old.ResourceVersion) {
		t.Errorf("resourceVersion %s follows %s", after.ResourceVersion, old.ResourceVersion)
	}
	if err := cms.Delete(ctx, "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.await(ctx, t, "after", true)
	h.await(ctx, t, "before", false)

	// The events before the restart are not in the history: a plain watch gets an error.
	w, err := cms.Watch(ctx, metav1.ListOptions{ResourceVersion: old.ResourceVersion})
	if err == nil {
		e := <-w.ResultChan()
		w.Stop()
		if e.Type == watch.Error {
			err = apierrors.FromObject(e.Object)
		} else if cm, ok := e.Object.(*corev1.ConfigMap); !ok || cm.Name != "after" {
			t.Errorf("a watch after revision %s begins with %v", old.ResourceVersion, e)
		}
	}
	if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from before the restart: %v, want 410", err)
	}
}

func revision(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLeadershipPassesOn(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cs := clientset(t, cfg)
	leads := make(chan string)
	elect := func(ctx context.Context, name string) error {
		le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "helm"}, Client: cs.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					select {
					case leads <- name:
					case <-ctx.Done():
					}
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		le.Run(ctx)
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	stops := map[string]context.CancelFunc{}
	for _, name := range []string{"one", "two"} {
		own, stop := context.WithCancel(ctx)
		defer stop()
		stops[name] = stop
		all.Go(func() {
			if err := elect(own, name); err != nil {
				t.Error(err)
			}
		})
	}
	first := <-leads
	stops[first]()
	select {
	case second := <-leads:
		if second == first {
			t.Errorf("%s leads again after it gave up", first)
		}
	case <-ctx.Done():
		t.Fatal("nobody leads after the leader gave up")
	}
	lease, err := cs.CoordinationV1().Leases("default").Get(ctx, "helm", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := lease.Spec.LeaseTransitions; n == nil || *n < 1 {
		t.Errorf("the lease counts %v transitions", n)
	}
}

func TestADynamicClientFindsItsWay(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cs := clientset(t, cfg)
	groups, err := restmapper.GetAPIGroupResources(cs.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for kind, want := range map[schema.GroupKind]schema.GroupVersionResource{
		{Kind: "Pod"}:                                      {Version: "v1", Resource: "pods"},
		{Kind: "Endpoints"}:                                {Version: "v1", Resource: "endpoints"},
		{Group: "batch", Kind: "Job"}:                      {Group: "batch", Version: "v1", Resource: "jobs"},
		{Group: "coordination.k8s.io", Kind: "Lease"}:      {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	} {
		m, err := mapper.RESTMapping(kind)
		if err != nil || m.Resource != want {
			t.Errorf("%v is %v, %v, want %v", kind, m, err, want)
		}
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Kind: "Ship"}); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that nobody knows: %v", err)
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "batch", Kind: "Job"})
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	jobs := dyn.Resource(mapping.Resource).Namespace("default")
	w, err := jobs.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	_, err = jobs.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "task"},
		"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"sampan.dev/simulated-run-seconds": "0"}},
			"spec": map[string]any{
				"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "x"}},
			},
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		job, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("%s %v", e.Type, apierrors.FromObject(e.Object))
		}
		if n, _, _ := unstructured.NestedInt64(job.Object, "status", "succeeded"); n == 1 {
			break
		}
	}
	patched, err := jobs.Patch(ctx, "task", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil || patched.GetLabels()["a"] != "b" {
		t.Errorf("Patch = %v, %v", patched.GetLabels(), err)
	}
	list, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: "a=b"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("List = %v, %v", list, err)
	}
	if err := jobs.Delete(ctx, "task", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAWatchBeginsWithTheFirstStateIfAsked(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	for _, form := range []string{"application/json", runtime.ContentTypeProtobuf} {
		cfg.ContentType = form
		cms := clientset(t, cfg).CoreV1().ConfigMaps("kube-public")
		names := []string{"a", "b"}
		for _, name := range names {
			if _, err := cms.Create(ctx, configMap(name, "set", "first"), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		yes := true
		w, err := cms.Watch(ctx, metav1.ListOptions{
			LabelSelector: "set=first", AllowWatchBookmarks: true, SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e := range w.ResultChan() {
			cm := e.Object.(*corev1.ConfigMap)
			got = append(got, fmt.Sprintf("%s %s", e.Type, cm.Name))
			if e.Type == watch.Bookmark {
				if cm.Annotations[metav1.InitialEventsAnnotationKey] != "true" || cm.ResourceVersion == "" {
					t.Errorf("%s: the bookmark is %v", form, cm.ObjectMeta)
				}
				break
			}
		}
		w.Stop()
		if want := []string{"ADDED a", "ADDED b", "BOOKMARK "}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", form, got, want)
		}
	}
}

func TestAWatchResumesAndSelects(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cms := clientset(t, cfg).CoreV1().ConfigMaps("default")
	list, err := cms.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	one, err := cms.Create(ctx, configMap("one", "in", "yes"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cms.Create(ctx, configMap("two", "in", "no"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(name, value string) {
		t.Helper()
		if _, err := cms.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"in":%q}}}`, value), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch("two", "yes")
	patch("one", "no")
	if err := cms.Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	const others = "metadata.name!=kube-root-ca.crt" // which comes when it comes
	for _, tt := range []struct {
		name string
		o    metav1.ListOptions
		want []string
	}{
		{"everything", metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: others}, []string{
			"ADDED one", "ADDED two", "MODIFIED two", "MODIFIED one", "DELETED two",
		}},
		{"later", metav1.ListOptions{ResourceVersion: one.ResourceVersion, FieldSelector: others}, []string{
			"ADDED two", "MODIFIED two", "MODIFIED one", "DELETED two",
		}},
		// What enters the selection is added, what leaves it is deleted.
		{"selected", metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "in=yes"}, []string{
			"ADDED one", "ADDED two", "DELETED one", "DELETED two",
		}},
		{"one name", metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=one"}, []string{
			"ADDED one", "MODIFIED one",
		}},
	} {
		w, err := cms.Watch(ctx, tt.o)
		if err != nil {
			t.Fatal(err)
		}
		last := revision(t, list.ResourceVersion)
		var got []string
		for len(got) < len(tt.want) {
			e := <-w.ResultChan()
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				t.Fatalf("%s: %v", tt.name, apierrors.FromObject(e.Object))
			}
			got = append(got, fmt.Sprintf("%s %s", e.Type, cm.Name))
			if r := revision(t, cm.ResourceVersion); r <= last {
				t.Errorf("%s: revision %d follows %d", tt.name, r, last)
			} else {
				last = r
			}
		}
		w.Stop()
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	future, err := cms.Watch(ctx, metav1.ListOptions{ResourceVersion: "1000000000"})
	if err == nil {
		e := <-future.ResultChan()
		future.Stop()
		err = apierrors.FromObject(e.Object)
	}
	if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("a watch after a revision that is not yet: %v", err)
	}
	seconds := int64(1)
	short, err := cms.Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds})
	if err != nil {
		t.Fatal(err)
	}
	for range short.ResultChan() { // until the server ends it
	}
}

func TestWhatIsTooOldIsGone(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cms := clientset(t, cfg).CoreV1().ConfigMaps("default")
	first, err := cms.Create(ctx, configMap("first"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := cms.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	const history = 8192 // events that are kept for each resource
	const writers = 16
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range history/writers + 1 {
				_, err := cms.Patch(ctx, "first", types.MergePatchType, fmt.Appendf(nil, `{"data":{"w%d":"%d"}}`, w, i), metav1.PatchOptions{})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	w, err := cms.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err == nil {
		e := <-w.ResultChan()
		w.Stop()
		err = apierrors.FromObject(e.Object)
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from long ago: %v, want 410 Expired", err)
	}
	if page.Continue == "" {
		t.Fatal("a list of one of two has no continue token")
	}
	if _, err := cms.List(ctx, metav1.ListOptions{Limit: 1, Continue: page.Continue}); !apierrors.IsResourceExpired(err) {
		t.Errorf("the next page of a list of long ago: %v, want 410 Expired", err)
	}
}

func TestPagesAreOfOneMoment(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cms := clientset(t, cfg).CoreV1().ConfigMaps("kube-public")
	const size = 100
	var want []string
	for i := range size {
		name := fmt.Sprintf("page-%03d", i)
		want = append(want, name)
		if _, err := cms.Create(ctx, configMap(name, "set", "pages"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	o := metav1.ListOptions{LabelSelector: "set=pages", Limit: 7}
	version := ""
	for i := 0; ; i++ {
		page, err := cms.List(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if version == "" {
			version = page.ResourceVersion
		}
		if page.ResourceVersion != version {
			t.Errorf("page %d is of revision %s, the first of %s", i, page.ResourceVersion, version)
		}
		for _, cm := range page.Items {
			got = append(got, cm.Name)
		}
		if page.Continue == "" {
			break
		}
		if n := page.RemainingItemCount; n != nil && int(*n) != size-len(got) {
			t.Errorf("page %d says that %d remain, want %d", i, *n, size-len(got))
		}
		o.Continue = page.Continue
		// Writes go on, before and behind the place where the list is.
		if err := cms.Delete(ctx, want[size-1-i], metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{fmt.Sprintf("page-0-%d", i), fmt.Sprintf("page-9-%d", i)} {
			if _, err := cms.Create(ctx, configMap(name, "set", "pages"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages have %q, want %q", got, want)
	}
}

func TestSixteenWritersLoseNothing(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cms := clientset(t, cfg).CoreV1().ConfigMaps("default")
	cm := configMap("counter")
	cm.Data = map[string]string{"n": "0"}
	if _, err := cms.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 16, 20
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				err := retry.OnError(wait.Backoff{Steps: 1 << 20}, apierrors.IsConflict, func() error {
					cm, err := cms.Get(ctx, "counter", metav1.GetOptions{})
					if err != nil {
						return err
					}
					n, err := strconv.Atoi(cm.Data["n"])
					if err != nil {
						return err
					}
					cm.Data["n"] = strconv.Itoa(n + 1)
					_, err = cms.Update(ctx, cm, metav1.UpdateOptions{})
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	cm, err := cms.Get(ctx, "counter", metav1.GetOptions{})
	if err != nil || cm.Data["n"] != strconv.Itoa(writers*each) {
		t.Errorf("the counter is at %s, %v, want %d", cm.Data["n"], err, writers*each)
	}
}

func TestBothFormsOfBodies(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	for _, form := range []string{"application/json", runtime.ContentTypeProtobuf, "application/yaml"} {
		t.Run(form, func(t *testing.T) {
			own := *cfg
			own.ContentType, own.AcceptContentTypes = form, form
			cs := clientset(t, &own)
			name := "form-" + form[len(form)-4:]
			made, err := cs.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"form": "any"}},
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}},
				}}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if made.UID == "" || made.Spec.BackoffLimit == nil || *made.Spec.BackoffLimit != 6 {
				t.Errorf("the Job is %v", made)
			}
			made.Labels["more"] = "yes"
			if _, err := cs.BatchV1().Jobs("default").Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"more":"yes"}}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
			got, err := cs.BatchV1().Jobs("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil || got.Labels["more"] != "yes" {
				t.Errorf("Get = %v, %v", got, err)
			}
			list, err := cs.BatchV1().Jobs("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("List = %v, %v", list, err)
			}
			if _, err := cs.BatchV1().Jobs("default").Get(ctx, "nothing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("what is not there: %v", err)
			}
			if err := cs.BatchV1().Jobs("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestASilentNodeIsLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // it counts as lost after 40 seconds
	defer cancel()
	_, cfg := simulated(t, 1)
	cs := clientset(t, cfg)
	now := metav1.Now()
	silent, err := cs.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "silent"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := cs.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=silent", ResourceVersion: silent.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		node, ok := e.Object.(*corev1.Node)
		if !ok {
			t.Fatal(apierrors.FromObject(e.Object))
		}
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		if c := node.Status.Conditions[i]; c.Status == corev1.ConditionUnknown && tainted {
			if c.Reason != "NodeStatusUnknown" || c.Message != "Kubelet stopped posting node status." {
				t.Errorf("it is lost with reason %s: %s", c.Reason, c.Message)
			}
			return
		}
	}
	t.Fatal(errors.Join(errors.New("the node is still Ready"), ctx.Err()))
}
