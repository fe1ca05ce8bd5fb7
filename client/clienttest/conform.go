package clienttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// Conform runs what controllers rely on against an API server seen through c, which
// must be allowed everything. Each call of open returns a client of a fresh
// server on which no controller runs.
func Conform(t *testing.T, open func(t *testing.T) client.Interface) {
	tests := []struct {
		name string
		f    func(t *testing.T, c client.Interface)
	}{
		{"a created object has identity and can be read", created},
		{"a name that exists is refused", exists},
		{"a stale update is a conflict and changes nothing", stale},
		{"a write that changes nothing keeps the revision", unchanged},
		{"status and spec are written apart", apart},
		{"generation counts changes of the spec", generation},
		{"patches of all kinds", patches},
		{"selectors", selectors},
		{"pages of a list", pages},
		{"a watch reports everything after its revision", watches},
		{"a watch reports the initial events", initialEvents},
		{"a selector's watch sees objects come and go", comeAndGo},
		{"finalizers hold a deletion up", finalizers},
		{"a replication controller orphans by default", orphans},
		{"foreground leaves its finalizer", foreground},
		{"preconditions of a deletion", preconditions},
		{"a bound pod ends gracefully", graceful},
		{"an unbound pod goes at once", ungraceful},
		{"a pod is bound once", binding},
		{"scale", scale},
		{"a namespace ends by finalize", namespaces},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.f(t, open(t)) })
	}
}

const space = metav1.NamespaceDefault

func newConfig(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name, Labels: map[string]string{"app": name}}}
}

// newPod returns a pod as a server wants it, without an account so that none need
// exist.
func newPod(name string) *corev1.Pod {
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no,
			Containers:                   []corev1.Container{{Name: "c", Image: "sampan.local/demo:v1"}},
		},
	}
}

func newController(name string) *corev1.ReplicationController {
	one := int32(1)
	selector := map[string]string{"app": name}
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &one, Selector: selector,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: newPod("").Spec},
		},
	}
}

// must fails the test if there was an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func want(t *testing.T, what string, ok bool) {
	t.Helper()
	if !ok {
		t.Errorf("not so: %s", what)
	}
}

func created(t *testing.T, c client.Interface) {
	ctx := t.Context()
	obj := newConfig("")
	obj.GenerateName = "a-"
	made := must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, obj))
	want(t, "it has a name", len(made.Name) > len("a-") && made.Name[:2] == "a-")
	want(t, "it has a UID", made.UID != "")
	want(t, "it has a creation time", !made.CreationTimestamp.IsZero())
	want(t, "it has a resource version", made.ResourceVersion != "")
	got := must[*corev1.ConfigMap](t)(client.ConfigMaps.Get(ctx, c, space, made.Name))
	want(t, "it is read as it was written", got.UID == made.UID && got.ResourceVersion == made.ResourceVersion)
	_, err := client.ConfigMaps.Get(ctx, c, space, "b")
	want(t, "another one is not found", apierrors.IsNotFound(err))
	_, err = client.ConfigMaps.Create(ctx, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nowhere", Name: "a"}})
	want(t, "its namespace must exist", apierrors.IsNotFound(err))
}

func exists(t *testing.T, c client.Interface) {
	ctx := t.Context()
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	_, err := client.ConfigMaps.Create(ctx, c, newConfig("a"))
	want(t, "the second is AlreadyExists", apierrors.IsAlreadyExists(err))
}

func stale(t *testing.T, c client.Interface) {
	ctx := t.Context()
	first := must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	second := first.DeepCopy()
	second.Data = map[string]string{"k": "2"}
	second = must[*corev1.ConfigMap](t)(client.ConfigMaps.Update(ctx, c, second, ""))
	third := first.DeepCopy()
	third.Data = map[string]string{"k": "3"}
	_, err := client.ConfigMaps.Update(ctx, c, third, "")
	want(t, "it is a conflict", apierrors.IsConflict(err))
	now := must[*corev1.ConfigMap](t)(client.ConfigMaps.Get(ctx, c, space, "a"))
	want(t, "nothing changed", now.Data["k"] == "2" && now.ResourceVersion == second.ResourceVersion)
	third.ResourceVersion = ""
	now = must[*corev1.ConfigMap](t)(client.ConfigMaps.Update(ctx, c, third, ""))
	want(t, "without a resource version the last one wins", now.Data["k"] == "3")
}

func unchanged(t *testing.T, c client.Interface) {
	ctx := t.Context()
	made := must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	again := must[*corev1.ConfigMap](t)(client.ConfigMaps.Update(ctx, c, made.DeepCopy(), ""))
	want(t, "an update keeps it", again.ResourceVersion == made.ResourceVersion)
	again = must[*corev1.ConfigMap](t)(client.ConfigMaps.Patch(ctx, c, space, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"a"}}}`), ""))
	want(t, "a patch keeps it", again.ResourceVersion == made.ResourceVersion)
}

func apart(t *testing.T, c client.Interface) {
	ctx := t.Context()
	rc := newController("a")
	rc.Status.Replicas = 7
	made := must[*corev1.ReplicationController](t)(client.ReplicationControllers.Create(ctx, c, rc))
	want(t, "creation drops the status", made.Status.Replicas == 0)
	up := made.DeepCopy()
	*up.Spec.Replicas, up.Status.Replicas = 5, 5
	up = must[*corev1.ReplicationController](t)(client.ReplicationControllers.Update(ctx, c, up, "status"))
	want(t, "a status update changes the status alone", *up.Spec.Replicas == 1 && up.Status.Replicas == 5)
	up = up.DeepCopy()
	*up.Spec.Replicas, up.Status.Replicas = 3, 9
	up = must[*corev1.ReplicationController](t)(client.ReplicationControllers.Update(ctx, c, up, ""))
	want(t, "an update does not change the status", *up.Spec.Replicas == 3 && up.Status.Replicas == 5)
}

func generation(t *testing.T, c client.Interface) {
	ctx := t.Context()
	rc := must[*corev1.ReplicationController](t)(client.ReplicationControllers.Create(ctx, c, newController("a")))
	want(t, "it begins at 1", rc.Generation == 1)
	patch := func(data, sub string) {
		t.Helper()
		rc = must[*corev1.ReplicationController](t)(client.ReplicationControllers.Patch(ctx, c, space, "a", types.MergePatchType, []byte(data), sub))
	}
	patch(`{"metadata":{"labels":{"x":"y"}}}`, "")
	want(t, "a label does not count", rc.Generation == 1)
	patch(`{"status":{"replicas":1}}`, "status")
	want(t, "the status does not count", rc.Generation == 1)
	patch(`{"spec":{"replicas":2}}`, "")
	want(t, "the spec counts", rc.Generation == 2)
}

func patches(t *testing.T, c client.Interface) {
	ctx := t.Context()
	must[*corev1.Pod](t)(client.Pods.Create(ctx, c, newPod("a")))
	patch := func(kind types.PatchType, data string) *corev1.Pod {
		t.Helper()
		return must[*corev1.Pod](t)(client.Pods.Patch(ctx, c, space, "a", kind, []byte(data), ""))
	}
	pod := patch(types.MergePatchType, `{"metadata":{"labels":{"m":"1","app":null}}}`)
	want(t, "merge", pod.Labels["m"] == "1" && pod.Labels["app"] == "")
	pod = patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/j","value":"2"}]`)
	want(t, "JSON", pod.Labels["j"] == "2" && pod.Labels["m"] == "1")
	pod = patch(types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"c","image":"sampan.local/demo:v2"}]}}`)
	want(t, "strategic merge", len(pod.Spec.Containers) == 1 && pod.Spec.Containers[0].Image == "sampan.local/demo:v2")
	_, err := client.Pods.Patch(ctx, c, space, "a", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"}}`), "")
	want(t, "a patch may expect a revision", apierrors.IsConflict(err))
}

func selectors(t *testing.T, c client.Interface) {
	ctx := t.Context()
	for _, name := range []string{"a", "b"} {
		must[*corev1.Pod](t)(client.Pods.Create(ctx, c, newPod(name)))
	}
	bind(t, c, "b", "node-1")
	names := func(opts metav1.ListOptions) (names []string) {
		t.Helper()
		pods, _, err := client.Pods.List(ctx, c, space, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			names = append(names, p.Name)
		}
		return names
	}
	want(t, "all", slices.Equal(names(metav1.ListOptions{}), []string{"a", "b"}))
	want(t, "labels", slices.Equal(names(metav1.ListOptions{LabelSelector: "app in (a)"}), []string{"a"}))
	want(t, "fields", slices.Equal(names(metav1.ListOptions{FieldSelector: "spec.nodeName=node-1"}), []string{"b"}))
	want(t, "not fields", slices.Equal(names(metav1.ListOptions{FieldSelector: "spec.nodeName!=node-1"}), []string{"a"}))
	_, _, err := client.Pods.List(ctx, c, space, metav1.ListOptions{FieldSelector: "spec.flavour=sweet"})
	want(t, "an unknown field is a bad request", apierrors.IsBadRequest(err))
}

func pages(t *testing.T, c client.Interface) {
	ctx := t.Context()
	for i := range 5 {
		must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig(fmt.Sprint("p", i))))
	}
	opts := metav1.ListOptions{Limit: 2, LabelSelector: "app"}
	var names, revisions []string
	for {
		part, meta, err := client.ConfigMaps.List(ctx, c, space, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range part {
			names = append(names, o.Name)
		}
		revisions = append(revisions, meta.ResourceVersion)
		if opts.Continue = meta.Continue; opts.Continue == "" {
			break
		}
		must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig(fmt.Sprint("q", len(names)))))
	}
	want(t, "the pages hold what there was at the first", slices.Equal(names, []string{"p0", "p1", "p2", "p3", "p4"}))
	want(t, "they come from one revision", len(slices.Compact(revisions)) == 1)
}

// take returns the next n events of a watch, without bookmarks that end nothing, as
// "ADDED name".
func take(t *testing.T, c client.Interface, opts metav1.ListOptions, n int) (told []string, last string) {
	t.Helper()
	for e, err := range client.ConfigMaps.Watch(t.Context(), c, space, opts) {
		if err != nil {
			t.Fatal(err)
		}
		obj := e.Object.(client.Object) // C1: an object of the watched type
		name := obj.GetName()
		if e.Type == watch.Bookmark {
			if obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				continue
			}
			name = "end"
		}
		told, last = append(told, string(e.Type)+" "+name), obj.GetResourceVersion()
		if len(told) == n {
			break
		}
	}
	return told, last
}

func watches(t *testing.T, c client.Interface) {
	ctx := t.Context()
	made := must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	up := made.DeepCopy()
	up.Data = map[string]string{"k": "v"}
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Update(ctx, c, up, ""))
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("b")))
	if err := client.ConfigMaps.Delete(ctx, c, space, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	told, last := take(t, c, metav1.ListOptions{ResourceVersion: made.ResourceVersion}, 3)
	want(t, fmt.Sprint("in order: ", told), slices.Equal(told, []string{"MODIFIED a", "ADDED b", "DELETED a"}))
	want(t, "a deletion has a revision of its own", last != made.ResourceVersion && last != "")
	_, meta, err := client.ConfigMaps.List(ctx, c, space, metav1.ListOptions{})
	want(t, "which is that of a list after it", err == nil && meta.ResourceVersion == last)
	told, _ = take(t, c, metav1.ListOptions{ResourceVersion: "0", LabelSelector: "app"}, 1)
	want(t, fmt.Sprint("from 0 it begins with what there is: ", told), slices.Equal(told, []string{"ADDED b"}))

	over, cancel := context.WithCancelCause(ctx)
	reason := errors.New("enough")
	cancel(reason)
	for _, err := range client.ConfigMaps.Watch(over, c, space, metav1.ListOptions{}) {
		if err == nil {
			continue
		}
		want(t, "the end of the context ends it", errors.Is(err, reason) || errors.Is(err, context.Canceled))
	}
}

func initialEvents(t *testing.T, c client.Interface) {
	ctx := t.Context()
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("b")))
	yes := true
	told, last := take(t, c, metav1.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks: true, LabelSelector: "app",
	}, 3)
	slices.Sort(told)
	want(t, fmt.Sprint("they end with a bookmark: ", told), slices.Equal(told, []string{"ADDED a", "ADDED b", "BOOKMARK end"}))
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("c")))
	told, _ = take(t, c, metav1.ListOptions{ResourceVersion: last}, 1)
	want(t, fmt.Sprint("its revision is where to go on: ", told), slices.Equal(told, []string{"ADDED c"}))
}

func comeAndGo(t *testing.T, c client.Interface) {
	ctx := t.Context()
	made := must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	for _, v := range []string{"x", "y"} {
		must[*corev1.ConfigMap](t)(client.ConfigMaps.Patch(ctx, c, space, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"v":"`+v+`"}}}`), ""))
	}
	told, _ := take(t, c, metav1.ListOptions{ResourceVersion: made.ResourceVersion, LabelSelector: "v=x"}, 2)
	want(t, fmt.Sprint(told), slices.Equal(told, []string{"ADDED a", "DELETED a"}))
}

func finalizers(t *testing.T, c client.Interface) {
	ctx := t.Context()
	obj := newConfig("a")
	obj.Finalizers = []string{"example.com/hold"}
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, obj))
	if err := client.ConfigMaps.Delete(ctx, c, space, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	held := must[*corev1.ConfigMap](t)(client.ConfigMaps.Get(ctx, c, space, "a"))
	want(t, "it is still there, marked", held.DeletionTimestamp != nil)
	held = held.DeepCopy()
	held.Finalizers = nil
	if _, err := client.ConfigMaps.Update(ctx, c, held, ""); err != nil {
		t.Fatal(err)
	}
	_, err := client.ConfigMaps.Get(ctx, c, space, "a")
	want(t, "it goes with its last finalizer", apierrors.IsNotFound(err))
}

func orphans(t *testing.T, c client.Interface) {
	ctx := t.Context()
	must[*corev1.ReplicationController](t)(client.ReplicationControllers.Create(ctx, c, newController("a")))
	if err := client.ReplicationControllers.Delete(ctx, c, space, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	held := must[*corev1.ReplicationController](t)(client.ReplicationControllers.Get(ctx, c, space, "a"))
	want(t, "the orphan finalizer is there", slices.Equal(held.Finalizers, []string{metav1.FinalizerOrphanDependents}))
	now := metav1.DeletePropagationBackground
	must[*corev1.ReplicationController](t)(client.ReplicationControllers.Create(ctx, c, newController("b")))
	if err := client.ReplicationControllers.Delete(ctx, c, space, "b", metav1.DeleteOptions{PropagationPolicy: &now}); err != nil {
		t.Fatal(err)
	}
	_, err := client.ReplicationControllers.Get(ctx, c, space, "b")
	want(t, "background takes it away at once", apierrors.IsNotFound(err))
}

func foreground(t *testing.T, c client.Interface) {
	ctx := t.Context()
	must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	policy := metav1.DeletePropagationForeground
	if err := client.ConfigMaps.Delete(ctx, c, space, "a", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
	held := must[*corev1.ConfigMap](t)(client.ConfigMaps.Get(ctx, c, space, "a"))
	want(t, "the finalizer is there", slices.Equal(held.Finalizers, []string{metav1.FinalizerDeleteDependents}) && held.DeletionTimestamp != nil)
}

func preconditions(t *testing.T, c client.Interface) {
	ctx := t.Context()
	made := must[*corev1.ConfigMap](t)(client.ConfigMaps.Create(ctx, c, newConfig("a")))
	other := types.UID("00000000-0000-0000-0000-000000000000")
	err := client.ConfigMaps.Delete(ctx, c, space, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	want(t, "another UID is a conflict", apierrors.IsConflict(err))
	err = client.ConfigMaps.Delete(ctx, c, space, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}})
	want(t, "its own is not", err == nil)
}

func bind(t *testing.T, c client.Interface, name, node string) {
	t.Helper()
	if err := tryBind(t.Context(), c, name, node); err != nil {
		t.Fatal(err)
	}
}

func tryBind(ctx context.Context, c client.Interface, name, node string) error {
	_, err := c.Create(ctx, client.Pods.GroupVersionResource, space, name, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}, "binding")
	return err
}

func graceful(t *testing.T, c client.Interface) {
	ctx := t.Context()
	must[*corev1.Pod](t)(client.Pods.Create(ctx, c, newPod("a")))
	bind(t, c, "a", "node-1")
	five, none := int64(5), int64(0)
	if err := client.Pods.Delete(ctx, c, space, "a", metav1.DeleteOptions{GracePeriodSeconds: &five}); err != nil {
		t.Fatal(err)
	}
	pod := must[*corev1.Pod](t)(client.Pods.Get(ctx, c, space, "a"))
	want(t, "it is marked with its grace", pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 5)
	if err := client.Pods.Delete(ctx, c, space, "a", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Pods.Get(ctx, c, space, "a")
	want(t, "grace 0 takes it away", apierrors.IsNotFound(err))
}

func ungraceful(t *testing.T, c client.Interface) {
	ctx := t.Context()
	must[*corev1.Pod](t)(client.Pods.Create(ctx, c, newPod("a")))
	if err := client.Pods.Delete(ctx, c, space, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Pods.Get(ctx, c, space, "a")
	want(t, "it is gone", apierrors.IsNotFound(err))
}

func binding(t *testing.T, c client.Interface) {
	must[*corev1.Pod](t)(client.Pods.Create(t.Context(), c, newPod("a")))
	bind(t, c, "a", "node-1")
	pod := must[*corev1.Pod](t)(client.Pods.Get(t.Context(), c, space, "a"))
	scheduled := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue
	})
	want(t, "it is on its node and says so", pod.Spec.NodeName == "node-1" && scheduled)
	want(t, "a second time is a conflict", apierrors.IsConflict(tryBind(t.Context(), c, "a", "node-2")))
}

func scale(t *testing.T, c client.Interface) {
	ctx := t.Context()
	gvr := client.ReplicationControllers.GroupVersionResource
	must[*corev1.ReplicationController](t)(client.ReplicationControllers.Create(ctx, c, newController("a")))
	got := must[runtime.Object](t)(c.Get(ctx, gvr, space, "a", "scale"))
	s, ok := got.(*autoscalingv1.Scale)
	if !ok {
		t.Fatalf("the scale is a %T", got)
	}
	want(t, "it has the replicas and the selector", s.Spec.Replicas == 1 && s.Status.Selector == "app=a")
	s = s.DeepCopy()
	s.Spec.Replicas = 4
	must[runtime.Object](t)(c.Update(ctx, gvr, space, "a", s, metav1.UpdateOptions{}, "scale"))
	rc := must[*corev1.ReplicationController](t)(client.ReplicationControllers.Get(ctx, c, space, "a"))
	want(t, "it changes them", *rc.Spec.Replicas == 4 && rc.Generation == 2)
}

func namespaces(t *testing.T, c client.Interface) {
	ctx := t.Context()
	made := must[*corev1.Namespace](t)(client.Namespaces.Create(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "away"}}))
	want(t, "it is active and held", made.Status.Phase == corev1.NamespaceActive && len(made.Spec.Finalizers) == 1)
	if err := client.Namespaces.Delete(ctx, c, "", "away", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ns := must[*corev1.Namespace](t)(client.Namespaces.Get(ctx, c, "", "away"))
	want(t, "it is terminating", ns.Status.Phase == corev1.NamespaceTerminating && ns.DeletionTimestamp != nil)
	_, err := client.ConfigMaps.Create(ctx, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "away", Name: "a"}})
	want(t, "nothing new may come", apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause))
	ns = ns.DeepCopy()
	ns.Spec.Finalizers = nil
	if _, err := c.Update(ctx, client.Namespaces.GroupVersionResource, "", "away", ns, metav1.UpdateOptions{}, "finalize"); err != nil {
		t.Fatal(err)
	}
	_, err = client.Namespaces.Get(ctx, c, "", "away")
	want(t, "finalize ends it", apierrors.IsNotFound(err))
	err = client.Namespaces.Delete(ctx, c, "", metav1.NamespaceDefault, metav1.DeleteOptions{})
	want(t, "default stays", apierrors.IsForbidden(err))
}
