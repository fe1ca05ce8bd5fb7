package typedjson_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/sampan-io/sampan/internal/hangtest"
	"github.com/sampan-io/sampan/internal/typedjson"
)

// kinds are objects of many shapes.
func kinds() []any {
	return []any{
		&corev1.Pod{}, &corev1.Node{}, &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Event{}, &corev1.Endpoints{},
		&corev1.ReplicationController{}, &corev1.PersistentVolume{}, &corev1.Binding{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.ControllerRevision{},
		&batchv1.Job{}, &batchv1.CronJob{}, &coordinationv1.Lease{}, &discoveryv1.EndpointSlice{}, &networkingv1.Ingress{}, &networkingv1.NetworkPolicy{},
		&policyv1.PodDisruptionBudget{}, &rbacv1.ClusterRole{}, &storagev1.StorageClass{}, &autoscalingv2.HorizontalPodAutoscaler{},
		&metav1.DeleteOptions{}, &metav1.Status{}, &metav1.Table{}, &odd{},
	}
}

// An odd has what the API types have not.
type odd struct {
	metav1.TypeMeta `json:",inline"`
	Untagged        string
	Small           int8             `json:"small"`
	Unsigned        uint16           `json:"unsigned,omitempty"`
	Zero            metav1.MicroTime `json:"zero,omitzero"`
	Struct          struct{ A *int } `json:"struct,omitzero"`
	Raw             json.RawMessage  `json:"raw,omitempty"`
	Nested          map[string]map[string][]string
	PointerToList   *[]string `json:"pointerToList"`
	PointerTwice    **bool    `json:"pointerTwice"`
	Empty           struct{}  `json:"empty"`
	hidden          string    //nolint:unused // is neither read nor written
	Left            string    `json:"-"`
	Named           map[corev1.ResourceName]*resource.Quantity
	Bytes           map[string][]byte
	Any             any     `json:"any,omitempty"`
	Real            float64 `json:"real,omitempty"`
}

// fill sets what v points to at random.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	texts := []string{"", "a", "web-1", "<&> \"q\" \\ /", "tab\tline\nbell\x07 del\x7f", "grüße 世界 \u2028\u2029 🎉", strings.Repeat("long ", 60), "exactly8", "exactly8and1", "bad\xffutf8", `\u00e9`}
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		if r.IntN(4) > 0 {
			*p = metav1.Unix(r.Int64N(4e9), 0)
		}
		return
	case *metav1.MicroTime:
		if r.IntN(4) > 0 {
			*p = metav1.MicroTime{Time: time.UnixMicro(r.Int64N(4e15))}
		}
		return
	case *resource.Quantity:
		*p = resource.MustParse([]string{"0", "10m", "1Gi", "1.5", "12e6", "1000000000000000000000"}[r.IntN(6)])
		return
	case *intstr.IntOrString:
		*p = []intstr.IntOrString{intstr.FromInt32(r.Int32()), intstr.FromString("ht<tp")}[r.IntN(2)]
		return
	case *runtime.RawExtension:
		p.Raw = []byte(`{"a": [1, 2.5, "<"], "b":null}`)
		return
	case *metav1.FieldsV1:
		*p = metav1.FieldsV1{}
		_ = p.UnmarshalJSON([]byte(`{"f:a":{}}`))
		return
	case *json.RawMessage:
		*p = []byte(`{"x" : "<"}`)
		return
	}
	if depth > 12 {
		return
	}
	n := 0
	if r.IntN(3) > 0 {
		n = r.IntN(4)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(1<<20) - 1<<19)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64N(1 << 20))
	case reflect.Pointer:
		if n > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Slice:
		if n > 0 || r.IntN(4) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(r, v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if n > 0 || r.IntN(4) == 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(r, k, depth+1)
				fill(r, e, depth+1)
				v.SetMapIndex(k, e)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && r.IntN(1+depth) < 4 {
				fill(r, v.Field(i), depth+1)
			}
		}
	default:
	}
}

// same checks J1 for one input and reports whether Unmarshal read it.
func same(t *testing.T, data []byte, kind any) bool {
	t.Helper()
	got, want := reflect.New(reflect.TypeOf(kind).Elem()).Interface(), reflect.New(reflect.TypeOf(kind).Elem()).Interface()
	before := bytes.Clone(data)
	if !typedjson.Unmarshal(data, got) {
		return false
	}
	faults, err := kjson.UnmarshalStrict(data, want)
	if err != nil || len(faults) > 0 {
		t.Errorf("%T: read what has faults: %v %v\n%s", kind, err, faults, before)
		return true
	}
	clear(data) // J3
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%T from %s (-want +got):\n%s", kind, before, cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })))
	}
	return true
}

func TestBothLawsOnRandomObjects(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range kinds() {
		read := 0
		for range 300 {
			obj := reflect.New(reflect.TypeOf(kind).Elem())
			fill(r, obj.Elem(), 0)
			want, wantErr := json.Marshal(obj.Interface())
			got, err := typedjson.Marshal(obj.Interface())
			if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
				t.Fatalf("Marshal(%T) = %s, %v, want %s, %v", kind, got, err, want, wantErr)
			}
			if err != nil {
				continue
			}
			if same(t, bytes.Clone(got), kind) {
				read++
			}
			if n := r.IntN(len(got)); n > 0 { // and broken in one place
				broken := bytes.Clone(got)
				broken[n] = []byte(`{}[]",:\ntx0-e. ` + "\x00\xff")[r.IntN(18)]
				same(t, broken, kind)
				same(t, got[:n], kind)
			}
		}
		t.Logf("%T: %d of 300 read", kind, read)
	}
}

func TestUnmarshal(t *testing.T) {
	tests := []struct {
		name, json string
		read       bool
	}{
		{"empty", `{}`, true},
		{"spaces", " \n{ \"metadata\" : { \"name\" :\t\"a\" , \"labels\" : { } } , \"spec\" : { \"containers\" : [ ] } }\r\n", true},
		{"null everywhere", `{"kind":null,"metadata":{"creationTimestamp":null,"labels":null,"deletionTimestamp":null},"spec":{"containers":null,"hostNetwork":null,"priority":null,"overhead":{"cpu":null},"nodeSelector":{"a":null}}}`, true},
		{"escapes", `{"metadata":{"annotations":{"a\n\"b":"\u0041\ud83c\udf89\ud83c \b\f\r\t\/\\"}}}`, true},
		{"elements that are null", `{"spec":{"containers":[null,{"name":"a","args":[null,"b"]}]}}`, true},
		{"a quantity as a number", `{"spec":{"overhead":{"cpu":1.5e3}}}`, true},
		{"largest", `{"spec":{"priority":2147483647,"terminationGracePeriodSeconds":-999999999999999999}}`, true},
		{"nothing", ``, false},
		{"null", `null`, false},
		{"a list", `[]`, false},
		{"something behind", `{} {}`, false},
		{"unknown", `{"metadate":{}}`, false},
		{"another case", `{"Metadata":{}}`, false},
		{"twice", `{"metadata":{"name":"a"},"metadata":{}}`, false},
		{"twice in a map", `{"metadata":{"labels":{"a":"1","a":"1"}}}`, false},
		{"twice in a map, once escaped", `{"metadata":{"labels":{"a":"1","\u0061":"1"}}}`, false},
		{"twice in a map of quantities", `{"spec":{"overhead":{"cpu":"1","cpu":"1"}}}`, false},
		{"wrong type", `{"metadata":{"name":1}}`, false},
		{"too large", `{"spec":{"priority":2147483648}}`, false},
		{"leading zero", `{"spec":{"priority":01}}`, false},
		{"only a sign", `{"spec":{"priority":-}}`, false},
		{"a fraction", `{"spec":{"priority":1.0}}`, false},
		{"a comma too many", `{"spec":{"priority":1,}}`, false},
		{"a comma too many in a list", `{"spec":{"containers":[{},]}}`, false},
		{"no end", `{"spec":{"containers":[{"name":"a`, false},
		{"no end after a backslash", `{"spec":{"containers":[{"name":"a\`, false},
		{"half an escape", `{"metadata":{"name":"\u00"}}`, false},
		{"an unknown escape", `{"metadata":{"name":"\x"}}`, false},
		{"a control character", "{\"metadata\":{\"name\":\"a\nb\"}}", false},
		{"no UTF-8", "{\"metadata\":{\"name\":\"\xff\"}}", false},
		{"a broken quantity", `{"spec":{"overhead":{"cpu":"x"}}}`, false},
		{"a broken time", `{"metadata":{"creationTimestamp":"yesterday"}}`, false},
		{"a time that is no JSON", `{"metadata":{"creationTimestamp":nul}}`, false},
		{"too deep", strings.Repeat(`{"metadata":`, 500), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if read := same(t, []byte(tt.json), &corev1.Pod{}); read != tt.read {
				t.Errorf("read = %v, want %v", read, tt.read)
			}
		})
	}
}

func TestMarshalWhatIsNoPointer(t *testing.T) {
	for _, v := range []any{nil, 1, "a", map[string]int{"a": 1}, (*corev1.Pod)(nil), func() {}} {
		want, wantErr := json.Marshal(v)
		got, err := typedjson.Marshal(v)
		if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
			t.Errorf("Marshal(%T) = %s, %v, want %s, %v", v, got, err, want, wantErr)
		}
	}
	if typedjson.Unmarshal([]byte("{}"), corev1.Pod{}) || typedjson.Unmarshal([]byte("{}"), (*corev1.Pod)(nil)) {
		t.Error("Unmarshal read into what is no pointer")
	}
}

// FuzzBothLaws reads any bytes as objects of many kinds, and writes what was read.
func FuzzBothLaws(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for i, kind := range kinds() {
		obj := reflect.New(reflect.TypeOf(kind).Elem())
		fill(r, obj.Elem(), 7) // small: what is changed at random should be near the beginning
		if data, err := json.Marshal(obj.Interface()); err == nil {
			f.Add(data, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		defer hangtest.Guard(t)()
		all := kinds()
		k := all[int(kind)%len(all)]
		same(t, bytes.Clone(data), k)
		if _, err := kjson.UnmarshalStrict(data, k); err != nil {
			return
		}
		want, wantErr := json.Marshal(k)
		got, err := typedjson.Marshal(k)
		if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
			t.Errorf("Marshal(%T) = %s, %v, want %s, %v", k, got, err, want, wantErr)
		}
	})
}

// samplePod is one as clients send it, of 2.6 KB.
func samplePod() *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": strings.Repeat("y", 400)}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "example.com/image:v1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
		}}},
	}
	for range 12 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "VARIABLE", Value: strings.Repeat("z", 60)})
	}
	return p
}

// The benchmarks run the general package beside ours; the ratio is what counts.

func BenchmarkUnmarshal(b *testing.B) {
	data, err := json.Marshal(samplePod())
	if err != nil {
		b.Fatal(err)
	}
	beside(b, func() {
		if faults, err := kjson.UnmarshalStrict(data, &corev1.Pod{}); err != nil || len(faults) > 0 {
			b.Fatal(err, faults)
		}
	}, func() {
		if !typedjson.Unmarshal(data, &corev1.Pod{}) {
			b.Fatal("not read")
		}
	})
}

func BenchmarkMarshal(b *testing.B) {
	pod := samplePod()
	beside(b, func() {
		if _, err := json.Marshal(pod); err != nil {
			b.Fatal(err)
		}
	}, func() {
		if _, err := typedjson.Marshal(pod); err != nil {
			b.Fatal(err)
		}
	})
}

func beside(b *testing.B, general, ours func()) {
	b.Helper()
	var took [2]time.Duration
	for b.Loop() {
		for i, f := range []func(){general, ours} {
			start := time.Now()
			for range 100 {
				f()
			}
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(took[0])/float64(took[1]), "times-as-fast")
	b.ReportMetric(float64(took[1].Microseconds())/float64(b.N)/100, "µs/object")
	b.ReportMetric(float64(took[0].Microseconds())/float64(b.N)/100, "µs/object-before")
	b.ReportMetric(0, "ns/op")
}
