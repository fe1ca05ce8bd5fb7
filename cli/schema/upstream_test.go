package schema_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/schema"
	"github.com/sampan-io/sampan/client"
)

// upstream answers with documents of kube-apiserver.
type upstream struct {
	docs map[string]openapi.GroupVersion
}

func (u upstream) Do(_ context.Context, r client.RawRequest) (*http.Response, error) {
	text := ""
	if name, found := strings.CutPrefix(r.Path, "/openapi/v3/"); found {
		doc, err := u.docs[name].Schema(runtime.ContentTypeJSON)
		if err != nil {
			return nil, err
		}
		text = string(doc)
	} else {
		index := map[string]map[string]map[string]string{"paths": {}}
		for name := range u.docs {
			index["paths"][name] = map[string]string{"serverRelativeURL": "/openapi/v3/" + name}
		}
		doc, err := json.Marshal(index)
		if err != nil {
			return nil, err
		}
		text = string(doc)
	}
	return &http.Response{Body: io.NopCloser(strings.NewReader(text))}, nil
}

// TestWhatGoTypesEncodeIsRight fills objects at random and checks their JSON against
// the schemas of our server and of upstream. The only permitted errors are random texts
// that are not in an enumeration. The upstream documents at hand are those of an
// older release, which lacks a few fields.
func TestWhatGoTypesEncodeIsRight(t *testing.T) {
	docs, err := openapitest.NewEmbeddedFileClient().Paths()
	if err != nil {
		t.Fatal(err)
	}
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(1, 2).MaxDepth(12).Funcs(
		func(q *apiresource.Quantity, c randfill.Continue) {
			*q = *apiresource.NewQuantity(c.Int63n(1000), apiresource.DecimalSI)
		},
		func(p *intstr.IntOrString, c randfill.Continue) {
			*p = intstr.FromInt32(c.Int31())
			if c.Bool() {
				*p = intstr.FromString("http")
			}
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) { *t = metav1.MicroTime(metav1.Unix(c.Int63n(1<<31), 0)) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString("{}") },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(`{"a":"b"}`) },
		func(s *string, c randfill.Continue) { *s = string(rune('a' + c.Intn(26))) },
	)
	for name, s := range map[string]resource.Server{"ours": newServer(t), "upstream": upstream{docs}} {
		schemas := schema.New(schema.Options{Server: s})
		for range 50 {
			for kind, obj := range map[string]runtime.Object{
				"v1 Pod": &corev1.Pod{}, "v1 Service": &corev1.Service{}, "v1 ConfigMap": &corev1.ConfigMap{}, "v1 Node": &corev1.Node{}, "v1 Secret": &corev1.Secret{},
				"v1 ReplicationController": &corev1.ReplicationController{}, "v1 PersistentVolume": &corev1.PersistentVolume{}, "v1 Event": &corev1.Event{},
				"apps/v1 Deployment": &appsv1.Deployment{}, "apps/v1 StatefulSet": &appsv1.StatefulSet{}, "batch/v1 Job": &batchv1.Job{}, "batch/v1 CronJob": &batchv1.CronJob{},
			} {
				fill.Fill(obj)
				obj.GetObjectKind().SetGroupVersionKind(client.KindOf(obj))
				text, err := json.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				var fields map[string]any
				if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &fields); err != nil {
					t.Fatal(err)
				}
				version, kindName, _ := strings.Cut(kind, " ")
				gvk := (&metav1.TypeMeta{APIVersion: version, Kind: kindName}).GroupVersionKind()
				for _, f := range schemas.Check(t.Context(), gvk, fields) {
					newer := name == "upstream" && strings.HasPrefix(f.Message, "unknown field")
					if !newer && !strings.Contains(f.Message, "must be one of") {
						t.Errorf("%s, %s: %s", name, kind, f.Message)
					}
				}
				if name == "upstream" && len(schemas.Check(t.Context(), gvk, map[string]any{"sepc": map[string]any{}})) != 1 {
					t.Fatalf("%s: there is no schema of %s", name, kind)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}
