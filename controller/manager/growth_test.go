package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/growthtest"
	"github.com/sampan-io/sampan/internal/run"
)

// silent is a server of metrics that has none.
type silent struct{}

func (silent) Do(context.Context, client.RawRequest) (*http.Response, error) {
	return nil, errors.New("there are no metrics")
}

// samples returns an object of each kind that controllers look at, as the tests of package catalog have them.
func samples(t *testing.T) map[string]client.Object {
	t.Helper()
	found := map[string]client.Object{}
	files, err := filepath.Glob("../../catalog/*/testdata/accepted/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		obj, kind, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			continue // a kind that upstream's client does not know
		}
		if o, ok := obj.(client.Object); ok && !strings.Contains(file, "/review/") && found[kind.Kind] == nil {
			found[kind.Kind] = o
		}
	}
	return found
}

// ordinary are kinds of which the fields of their pods need not be grown: those of pods cover them.
func ordinary(path string) bool {
	i := strings.Index(path, "template.spec.")
	return i < 0 || !strings.Contains(path[i+len("template.spec."):], ".") || strings.HasSuffix(path, "containers[0].ports")
}

// TestCostsAreLinear runs all controllers and gives them objects with one list or map at its largest.
func TestCostsAreLinear(t *testing.T) {
	growthtest.SkipRaced(t)
	all := samples(t)
	kinds := []string{
		"CertificateSigningRequest", "ConfigMap", "CronJob", "DaemonSet", "Deployment", "EndpointSlice", "HorizontalPodAutoscaler", "Job", "Namespace",
		"Node", "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "ReplicaSet", "ResourceClaim", "ResourceQuota", "Service", "ServiceAccount",
		"StatefulSet",
	}
	for _, kind := range kinds {
		sample := all[kind]
		if sample == nil {
			t.Fatalf("there is no sample of %s", kind)
		}
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
				s := clienttest.New(t, namespace)
				tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
					o := full(t, "*")
					o.Config = controller.Config{Client: c, Caches: caches, Log: slog.New(slog.DiscardHandler)}
					o.Raw, o.Resources = silent{}, clienttest.Resources()
					return New(o).Stage
				}
				controllertest.Live(t, tasks, s, func() {
					controllertest.Rest()
					n := 0
					var former client.Object
					for _, f := range growthtest.Fields(reflect.TypeOf(sample).Elem()) {
						// More than one controller among owner references is refused by the API, so that controllers get nowhere.
						if !ordinary(f.Path) || f.Path == "metadata.ownerReferences" && kind != "ConfigMap" {
							continue
						}
						if why := growthtest.Steep(300, growthtest.MeasureAll, func(size int) func() {
							if former != nil { // what it has alone, such as a node port, is free for the next one
								s.Remove(t, former)
								controllertest.Rest()
							}
							n++
							obj := sample.DeepCopyObject().(client.Object)
							f.Grow(obj, size, growthtest.Distinct)
							obj.SetName(fmt.Sprint("grown-", n))
							obj.SetUID("")
							former = obj
							return func() {
								s.Set(t, obj)
								controllertest.Rest()
							}
						}); why != "" {
							t.Errorf("%s: %s", f.Path, why)
						}
					}
					time.Sleep(time.Second)
				})
			})
		})
	}
}
