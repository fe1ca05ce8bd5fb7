package progress_test

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/growthtest"
)

// TestWaitCostsAreLinear judges objects with one list or map at its largest, and reports the verdict.
func TestWaitCostsAreLinear(t *testing.T) {
	for _, of := range []client.Object{
		&corev1.Pod{}, &corev1.Service{}, &corev1.Node{}, &corev1.PersistentVolumeClaim{}, &corev1.Namespace{}, &appsv1.Deployment{}, &appsv1.StatefulSet{},
		&batchv1.Job{}, &batchv1.CronJob{}, &networkingv1.Ingress{}, &policyv1.PodDisruptionBudget{}, &discoveryv1.EndpointSlice{},
	} {
		kind := reflect.TypeOf(of).Elem()
		for _, f := range growthtest.Fields(kind) {
			if len(f.Path) > 60 { // inside templates: those of pods cover them
				continue
			}
			t.Run(kind.Name()+" "+f.Path, func(t *testing.T) {
				growthtest.Linear(t, 1000, func(n int) func() {
					obj := reflect.New(kind).Interface().(client.Object)
					f.Grow(obj, n, growthtest.Distinct)
					obj.SetName("large")
					obj.SetNamespace("default")
					obj.SetUID("u")
					view := await.View{Object: obj}
					if pod, ok := obj.(*corev1.Pod); ok {
						view.Pods = []*corev1.Pod{pod}
					}
					if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
						view.Slices = []*discoveryv1.EndpointSlice{slice}
					}
					return func() {
						for _, d := range []await.Degree{await.Ready, await.Scheduled, await.Running, await.Finished, await.Serving, await.Deleted} {
							s, err := await.Look(d, view)
							if err != nil {
								continue // not a degree of the kind
							}
							progress.Report(s, await.SomeFailed, progress.WordsOf(d), nil, time.Unix(1_700_000_000, 0))
							progress.StatusOf(s, nil)
						}
					}
				})
			})
		}
	}
}
