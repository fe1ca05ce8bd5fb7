package await

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/client"
)

// Judge says whether the object in v has reached the degree. It is a pure
// function. The error is a [*MisuseError] when the degree means nothing for this
// kind, or says that the object could not be read as what it claims to be.
func Judge(d Degree, v View) (Verdict, error) {
	if d == Deleted {
		return judgeDeleted(v), nil
	}
	if v.Object == nil {
		return waiting("it does not exist yet"), nil
	}
	if d == Created {
		return done(), nil
	}
	obj, err := typed(v.Object)
	if err != nil {
		return Verdict{}, err
	}
	switch d.name {
	case "condition", "jsonpath":
		return judgeExpression(d, obj, v)
	}
	return judgeKind(d, obj, v)
}

// judgeKind asks the file of the kind. A kind without one is judged by its
// conditions.
func judgeKind(d Degree, obj client.Object, v View) (Verdict, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return judgePod(d, o, v), nil
	case *corev1.ReplicationController:
		return judgeReplicationController(d, o, v)
	case *batchv1.Job:
		return judgeJob(d, o, v), nil
	case *corev1.Service:
		return judgeService(d, o, v)
	case *corev1.Namespace:
		return judgeNamespace(d, o)
	case *corev1.Node:
		return judgeNode(d, o)
	}
	if groupOf(obj) == appsGroup {
		return judgeApp(d, obj)
	}
	return judgeGeneric(d, obj)
}

// judgeExpression adds to a condition or path what the kind knows: an object
// that has certainly failed will not meet it any more.
func judgeExpression(d Degree, obj client.Object, v View) (Verdict, error) {
	var (
		got Verdict
		err error
	)
	if d.name == "condition" {
		got, err = judgeCondition(d, obj)
	} else {
		got, err = judgePath(d, obj)
	}
	if err != nil || got.State == Done {
		return got, err
	}
	if end, over := ended(obj); over {
		return failed(Certain, "%s; %s", end, got.Cause), nil
	}
	// What holds up the object holds up the expression, too; misuse here only
	// means that the kind has nothing to say.
	why, err := judgeKind(Ready, obj, v)
	_, told, _ := strings.Cut(got.Cause, ": ")
	if err == nil && why.Cause != "" && (told == "" || !strings.Contains(why.Cause, told)) {
		got.Cause += "; " + why.Cause
	}
	return got, nil
}

// ended reports whether an object will never change its state again.
func ended(obj client.Object) (why string, over bool) {
	switch o := obj.(type) {
	case *corev1.Pod:
		if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			return "the pod has ended (" + string(o.Status.Phase) + ")", true
		}
	case *batchv1.Job:
		for _, c := range o.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				return strings.TrimSuffix("the job has ended ("+string(c.Type)+"): "+reason(c.Reason, c.Message), ": "), true
			}
		}
	}
	return "", false
}

func judgeDeleted(v View) Verdict {
	switch {
	case v.Object == nil:
		return done()
	case v.Object.GetDeletionTimestamp() == nil:
		return waiting("nobody has asked for its deletion")
	case len(v.Object.GetFinalizers()) > 0:
		return waiting("held by finalizers %s", strings.Join(v.Object.GetFinalizers(), ", "))
	default:
		return waiting("being deleted")
	}
}

// typed returns obj as the Go type of its kind where this package knows that.
func typed(obj client.Object) (client.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	var into client.Object
	switch u.GroupVersionKind() {
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		into = &corev1.Pod{}
	case corev1.SchemeGroupVersion.WithKind("ReplicationController"):
		into = &corev1.ReplicationController{}
	case corev1.SchemeGroupVersion.WithKind("Service"):
		into = &corev1.Service{}
	case corev1.SchemeGroupVersion.WithKind("Namespace"):
		into = &corev1.Namespace{}
	case corev1.SchemeGroupVersion.WithKind("Node"):
		into = &corev1.Node{}
	case corev1.SchemeGroupVersion.WithKind("Event"):
		into = &corev1.Event{}
	case batchv1.SchemeGroupVersion.WithKind("Job"):
		into = &batchv1.Job{}
	case discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):
		into = &discoveryv1.EndpointSlice{}
	default:
		return obj, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return into, nil
}

// fields returns obj as nested maps, for paths and for kinds without a Go type.
// The result must not be changed.
func fields(obj client.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", obj.GetName(), err)
	}
	return m, nil
}

// holdups tells which pods hold up their controller, the worst first: the first
// trouble in full, the number of the others.
func holdups(d Degree, v View) (Verdict, bool) {
	type trouble struct {
		pod     string
		verdict Verdict
	}
	var all []trouble
	for _, p := range v.Pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		pv := podTrouble(d, p, v)
		if pv.State != Done && pv.Cause != "" {
			all = append(all, trouble{p.Name, pv})
		}
	}
	if len(all) == 0 {
		return Verdict{}, false
	}
	slices.SortStableFunc(all, func(a, b trouble) int {
		if c := worse(a.verdict, b.verdict); c != 0 {
			return c
		}
		return strings.Compare(a.pod, b.pod)
	})
	first := all[0].verdict
	first.Cause = "pod " + all[0].pod + ": " + first.Cause
	if n := len(all) - 1; n > 0 {
		first.Cause += fmt.Sprintf(" (and %d more)", n)
	}
	return first, true
}

func reason(r, message string) string {
	message = oneLine(message)
	switch {
	case r == "":
		return message
	case message == "":
		return r
	}
	return r + ": " + message
}

// lastSeen is when an event last happened, by whichever of its times says so.
func lastSeen(e *corev1.Event) time.Time {
	seen := e.EventTime.Time
	for _, t := range []time.Time{e.CreationTimestamp.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if t.After(seen) {
			seen = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(seen) {
		seen = e.Series.LastObservedTime.Time
	}
	return seen
}
