package codec_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/hangtest"
	"github.com/sampan-io/sampan/store"
)

// text returns the JSON of an item that has one.
func text(i *codec.Item) []byte {
	b, err := i.JSON()
	if err != nil {
		panic(err)
	}
	return b
}

// pods and configMaps are kinds without rules, enough to encode and decode.
var (
	pods = &catalog.Kind{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: "pods", Singular: "pod", Namespaced: true,
		New: func() catalog.Object { return &corev1.Pod{} }, NewList: func() runtime.Object { return &corev1.PodList{} },
		Fields:  map[string]func(catalog.Object) string{"spec.nodeName": func(o catalog.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
		Storing: catalog.Storing{Indexed: []string{"spec.nodeName"}},
	}
	configMaps = &catalog.Kind{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Singular: "configmap", Namespaced: true,
		New: func() catalog.Object { return &corev1.ConfigMap{} }, NewList: func() runtime.Object { return &corev1.ConfigMapList{} },
	}
)

func samplePod(name string) *corev1.Pod {
	one := int64(1)
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: "u-" + "1", Generation: 3,
			Labels:            map[string]string{"app": "web", "tier": "<front>"},
			Annotations:       map[string]string{"note": `quote " back \ slash`},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)),
			Finalizers:        []string{"a/b"},
		},
		Spec: corev1.PodSpec{
			NodeName: "a", TerminationGracePeriodSeconds: &one,
			Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "resourceVersion", Value: `"resourceVersion":"9"`}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func placed(t testing.TB, obj catalog.Object, kind *catalog.Kind, rev store.Revision) *codec.Item {
	t.Helper()
	i, err := codec.NewItem(kind, obj)
	if err != nil {
		t.Fatal(err)
	}
	i.Place(rev, rev)
	return i
}

func TestAnItemIsTheSameObjectInEveryEncoding(t *testing.T) {
	want := samplePod("a")
	want.ResourceVersion = "1234567890123"
	written := placed(t, samplePod("a"), pods, 1234567890123)
	loaded, err := codec.LoadItem(pods, written.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	loaded.Place(7, 1234567890123)
	restated := placed(t, samplePod("a"), pods, 5).RestateAt(1234567890123)
	for name, i := range map[string]*codec.Item{"written": written, "loaded": loaded, "restated": restated} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(catalog.Object(want), i.Object()); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			fromJSON := &corev1.Pod{}
			if _, err := codec.Decode(t.Context(), codec.JSON, text(i), fromJSON, pods.GroupVersionKind, codec.Strict); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, fromJSON); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
			fromProtobuf := &corev1.Pod{}
			b := i.AppendProtobuf(nil)
			if len(b) != i.ProtobufSize() {
				t.Errorf("protobuf has %d bytes, ProtobufSize says %d", len(b), i.ProtobufSize())
			}
			if _, err := codec.Decode(t.Context(), codec.Protobuf, b, fromProtobuf, pods.GroupVersionKind, codec.Strict); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, fromProtobuf); diff != "" {
				t.Errorf("protobuf (-want +got):\n%s", diff)
			}
			yaml, err := codec.EncodeItem(codec.Media{Encoding: codec.YAML}, i)
			if err != nil {
				t.Fatal(err)
			}
			fromYAML := &corev1.Pod{}
			if _, err := codec.Decode(t.Context(), codec.YAML, yaml, fromYAML, pods.GroupVersionKind, codec.Strict); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, fromYAML); diff != "" {
				t.Errorf("YAML (-want +got):\n%s", diff)
			}
		})
	}
}

// TestYAMLCarriesEveryText has what JSON writes as it is and YAML does not.
func TestYAMLCarriesEveryText(t *testing.T) {
	want := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, Data: map[string]string{}}
	for r := range rune(0x300) {
		want.Data[fmt.Sprint(r)] = "a" + string(r) + "b"
	}
	for _, r := range []rune{0x2027, 0x2028, 0x2029, 0xfeff, 0xfffd, 0xfffe, 0xffff, 0x1fffe, 0x10ffff} {
		want.Data[fmt.Sprint(r)] = string(r)
	}
	text, err := codec.Encode(codec.Media{Encoding: codec.YAML}, want)
	if err != nil {
		t.Fatal(err)
	}
	got := &corev1.ConfigMap{}
	if _, err := codec.Decode(t.Context(), codec.YAML, text, got, configMaps.GroupVersionKind, codec.Strict); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRestatingLeavesTheOriginalAlone(t *testing.T) {
	i := placed(t, samplePod("a"), pods, 5)
	r := i.Restate()
	if !i.Same(r) || r.ResourceVersion() != "" {
		t.Errorf("Restate: same %v, version %q; want the same state, not placed", i.Same(r), r.ResourceVersion())
	}
	r.Place(5, 9)
	if got := i.Object().GetResourceVersion() + " " + r.Object().GetResourceVersion(); got != "5 9" {
		t.Errorf("resource versions %s, want 5 9", got)
	}
	if !bytes.Contains(text(r), []byte(`"resourceVersion":"9"`)) || !bytes.Contains(text(i), []byte(`"resourceVersion":"5"`)) {
		t.Errorf("JSON of the restated item: %s", text(r))
	}
}

func TestLoadedItemHasTermsOfWrittenOne(t *testing.T) {
	written := placed(t, samplePod("a"), pods, 1)
	loaded, err := codec.LoadItem(pods, written.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []*codec.Item{written, loaded, written.Restate()} {
		got := map[string]bool{}
		for _, term := range codec.Terms("", i) {
			got[term] = true
		}
		want := map[string]bool{codec.LabelTerm("app", "web"): true, codec.LabelTerm("tier", "<front>"): true, codec.FieldTerm("spec.nodeName", "a"): true}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("terms (-want +got):\n%s", diff)
		}
	}
	nowhere := samplePod("b")
	nowhere.Labels, nowhere.Spec.NodeName = nil, ""
	if got := codec.Terms("", placed(t, nowhere, pods, 2)); len(got) > 0 {
		t.Errorf("terms of what has no labels and no node: %q", got)
	}
}

func TestAListIsAConcatenation(t *testing.T) {
	left := int64(7)
	meta := metav1.ListMeta{ResourceVersion: "12", Continue: "c", RemainingItemCount: &left}
	want := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: meta}
	var items []*codec.Item
	for n := range 100 { // more than one piece
		i := placed(t, samplePod(fmt.Sprint("pod-", n)), pods, store.Revision(n+1))
		items = append(items, i)
		pod := i.Object().DeepCopyObject().(*corev1.Pod)
		want.Items = append(want.Items, *pod)
	}
	for _, m := range []codec.Media{{}, {Pretty: true}, {Encoding: codec.YAML}, {Encoding: codec.Protobuf}} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			var out bytes.Buffer
			if err := writeList(&out, m, pods, meta, items); err != nil {
				t.Fatal(err)
			}
			got := &corev1.PodList{}
			if _, err := codec.Decode(t.Context(), m.Encoding, out.Bytes(), got, want.GroupVersionKind(), codec.Strict); err != nil {
				t.Fatal(err)
			}
			expect := want.DeepCopy()
			if m.Encoding == codec.Protobuf {
				for n := range expect.Items {
					expect.Items[n].TypeMeta = metav1.TypeMeta{} // not part of a message
				}
			}
			if diff := cmp.Diff(expect, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("empty", func(t *testing.T) {
		var out bytes.Buffer
		if err := writeList(&out, codec.Media{}, pods, metav1.ListMeta{ResourceVersion: "1"}, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`+"\n"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func writeList(out io.Writer, m codec.Media, kind *catalog.Kind, meta metav1.ListMeta, items []*codec.Item) error {
	w := bufio.NewWriterSize(out, 64) // smaller than an object
	return errors.Join(codec.WriteList(w, m, kind, meta, items), w.Flush())
}

// pieces records the lengths of the writes that it receives.
type pieces []int

func (p *pieces) Write(b []byte) (int, error) {
	*p = append(*p, len(b))
	return len(b), nil
}

// TestALongListIsWrittenInFullPieces checks that every write goes through the buffer and fills it.
func TestALongListIsWrittenInFullPieces(t *testing.T) {
	var items []*codec.Item
	for n := range 100 {
		items = append(items, placed(t, samplePod(fmt.Sprint("pod-", n)), pods, store.Revision(n+1)))
	}
	for _, m := range []codec.Media{{}, {Encoding: codec.Protobuf}} {
		var p pieces
		w := bufio.NewWriterSize(&p, 5000) // larger than an object
		if err := errors.Join(codec.WriteList(w, m, pods, metav1.ListMeta{}, items), w.Flush()); err != nil {
			t.Fatal(err)
		}
		if len(p) < 3 {
			t.Fatalf("%v: only %d pieces", m, len(p))
		}
		for _, n := range p[:len(p)-1] {
			if n != 5000 {
				t.Errorf("%v: pieces of %v bytes, want 5000 each but for the last", m, p)
				break
			}
		}
	}
}

func TestEventFrames(t *testing.T) {
	i := placed(t, samplePod("a"), pods, 4)
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Message: "gone"}
	var jsonOut, protoOut bytes.Buffer
	for e, out := range map[codec.Encoding]*bytes.Buffer{codec.JSON: &jsonOut, codec.Protobuf: &protoOut} {
		w := bufio.NewWriterSize(out, 64) // smaller than an event
		if err := errors.Join(codec.WriteItemEvent(w, e, watch.Modified, i), codec.WriteEvent(w, codec.Media{Encoding: e}, watch.Error, status), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	type frame struct{ kind, object string }
	want := []frame{{"MODIFIED", "Pod"}, {"ERROR", "Status"}}

	var got []frame
	for line := range bytes.Lines(jsonOut.Bytes()) {
		var ev struct {
			Type   string
			Object metav1.TypeMeta
		}
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		got = append(got, frame{ev.Type, ev.Object.Kind})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(frame{})); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}

	got = nil
	for rest := protoOut.Bytes(); len(rest) > 0; {
		n := binary.BigEndian.Uint32(rest)
		var ev metav1.WatchEvent
		if err := ev.Unmarshal(rest[4 : 4+n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[4+n:]
		var body runtime.Unknown
		if err := body.Unmarshal(ev.Object.Raw[4:]); err != nil {
			t.Fatal(err)
		}
		got = append(got, frame{ev.Type, body.Kind})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(frame{})); diff != "" {
		t.Errorf("protobuf (-want +got):\n%s", diff)
	}
}

func TestNegotiate(t *testing.T) {
	const kubectlGet = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	full := codec.Offer{Forms: true}
	tests := []struct {
		accept string
		offer  codec.Offer
		want   codec.Media
		ok     bool
	}{
		{"", full, codec.Media{}, true},
		{"*/*", full, codec.Media{}, true},
		{"application/yaml", full, codec.Media{Encoding: codec.YAML}, true},
		{"application/yaml", codec.Offer{Watch: true}, codec.Media{}, false},
		{"application/vnd.kubernetes.protobuf,application/json", full, codec.Media{Encoding: codec.Protobuf}, true},
		{"application/vnd.kubernetes.protobuf, application/json", full, codec.Media{Encoding: codec.Protobuf}, true},
		{"application/vnd.kubernetes.protobuf;stream=watch", codec.Offer{Watch: true}, codec.Media{Encoding: codec.Protobuf}, true},
		{"application/json;stream=watch", full, codec.Media{}, false},
		{"application/cbor,application/json", full, codec.Media{}, true},
		{"application/json;q=0.5, application/yaml", full, codec.Media{Encoding: codec.YAML}, true},
		{kubectlGet, full, codec.Media{Form: codec.Table}, true},
		{kubectlGet, codec.Offer{}, codec.Media{}, true},
		{"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", full, codec.Media{}, false},
		{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", full, codec.Media{Encoding: codec.Protobuf, Form: codec.MetadataList}, true},
		{"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", full, codec.Media{Form: codec.MetadataOnly}, true},
		{"application/json;as=Picture;g=meta.k8s.io;v=v1", full, codec.Media{}, false},
		{"text/html", full, codec.Media{}, false},
		{"text/html, */*;q=0.1", full, codec.Media{}, true},
		{"application/json;pretty=1", full, codec.Media{Pretty: true}, true},
	}
	for _, tt := range tests {
		t.Run(tt.accept, func(t *testing.T) {
			got, err := codec.Negotiate(tt.accept, tt.offer)
			if (err == nil) != tt.ok || got != tt.want {
				t.Errorf("Negotiate = %+v, %v, want %+v, ok %v", got, err, tt.want, tt.ok)
			}
			if err != nil && apierrors.ReasonForError(err) != metav1.StatusReasonNotAcceptable {
				t.Errorf("reason %q", apierrors.ReasonForError(err))
			}
		})
	}
}

// envelope returns an empty ConfigMap in protobuf that names a version.
func envelope(version string) string {
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: "ConfigMap"}}
	b, err := u.Marshal()
	if err != nil {
		panic(err) // it is a message of two strings
	}
	return "k8s\x00" + string(b)
}

func TestDecode(t *testing.T) {
	const unknown = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","nam":"b"},"data":{"k":"v","k":"w"}}`
	tests := []struct {
		name     string
		encoding codec.Encoding
		body     string
		v        codec.Validation
		warnings []string
		fault    string
	}{
		{name: "no kind is taken for the wanted one", body: `{"data":{"k":"v"}}`},
		{name: "ignored", body: unknown, v: codec.Ignore},
		{name: "warned of", body: unknown, warnings: []string{`unknown field "metadata.nam"`, `duplicate field "data.k"`}},
		{name: "strict", body: unknown, v: codec.Strict, fault: `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: `},
		{name: "another kind", body: `{"kind":"Pod","apiVersion":"v1"}`, fault: `Pod in version "v1" cannot be handled as a ConfigMap: this path takes a ConfigMap`},
		{name: "another version", body: `{"kind":"ConfigMap","apiVersion":"v2"}`, fault: "the API version in the data (v2) does not match the expected API version (v1)"},
		{name: "not a version", body: `{"kind":"ConfigMap","apiVersion":"a/b/c"}`, fault: "unexpected GroupVersion string: a/b/c"},
		{name: "not a version, ignored", body: `{"kind":"ConfigMap","apiVersion":"a/b/c"}`, v: codec.Ignore, fault: "unexpected GroupVersion string: a/b/c"},
		{name: "half a version", body: `{"kind":"ConfigMap","apiVersion":"apps/"}`, fault: "does not match the expected API version (v1)"},
		{name: "not a version in YAML", encoding: codec.YAML, body: "apiVersion: a/b/c\n", fault: "unexpected GroupVersion string: a/b/c"},
		{name: "not a version in protobuf", encoding: codec.Protobuf, body: envelope("a/b/c"), fault: "unexpected GroupVersion string: a/b/c"},
		{name: "protobuf", encoding: codec.Protobuf, body: envelope("v1")},
		{name: "a wrong type", body: `{"data":{"k":1}}`, fault: `ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`},
		{name: "half a body", body: `{"data":{"k"`, fault: "unexpected end of JSON input"},
		{name: "no body", body: ``, fault: "unexpected end of JSON input"},
		{name: "YAML", encoding: codec.YAML, body: "kind: ConfigMap\ndata:\n  k: v\n"},
		{name: "YAML twice", encoding: codec.YAML, body: "data:\n  k: v\n  k: w\n", warnings: []string{`line 3: key "k" already set in map`}},
		{name: "YAML twice, strict", encoding: codec.YAML, body: "data:\n  k: v\n  k: w\n", v: codec.Strict, fault: "already set in map"},
		{name: "broken YAML", encoding: codec.YAML, body: "data: [", fault: "yaml"},
		{name: "not protobuf", encoding: codec.Protobuf, body: "{}", fault: "does not begin with the Kubernetes protobuf prefix"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj := &corev1.ConfigMap{}
			warnings, err := codec.Decode(t.Context(), tt.encoding, []byte(tt.body), obj, configMaps.GroupVersionKind, tt.v)
			if tt.fault != "" {
				if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("Decode = %v, want a bad request with %q", err, tt.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if obj.GroupVersionKind() != configMaps.GroupVersionKind {
				t.Errorf("kind %v", obj.GroupVersionKind())
			}
		})
	}
}

// FuzzSplice checks E2 for any metadata that JSON can say: the bytes with a revision
// spliced in decode to the same object with that revision.
func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"}}`), uint64(1))
	f.Add([]byte(`{"metadata":{}}`), uint64(1<<63))
	f.Add([]byte(`{"data":{"metadata":"{\"resourceVersion\":\"1\"}"},"metadata":{"annotations":{"resourceVersion":"x"},"resourceVersion":"7"}}`), uint64(42))
	f.Fuzz(func(t *testing.T, body []byte, rev uint64) {
		defer hangtest.Guard(t)()
		obj := &corev1.ConfigMap{}
		if _, err := codec.Decode(t.Context(), codec.JSON, body, obj, configMaps.GroupVersionKind, codec.Ignore); err != nil {
			t.Skip()
		}
		i := placed(t, obj, configMaps, store.Revision(rev))
		loaded, err := codec.LoadItem(configMaps, i.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		loaded.Place(1, store.Revision(rev))
		if !bytes.Equal(text(loaded), text(i)) {
			t.Errorf("after a load: %s\nbefore: %s", text(loaded), text(i))
		}
		if got := i.RestateAt(store.Revision(rev) - 1).RestateAt(store.Revision(rev)); !bytes.Equal(text(got), text(i)) {
			t.Errorf("spliced JSON: %s\nencoded: %s", text(got), text(i))
		}
		back := &corev1.ConfigMap{}
		if _, err := codec.Decode(t.Context(), codec.Protobuf, i.AppendProtobuf(nil), back, configMaps.GroupVersionKind, codec.Strict); err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(back); err != nil || !bytes.Equal(b, text(i)) {
			t.Errorf("protobuf decodes to %s (%v), want %s", b, err, text(i))
		}
	})
}

// FuzzSpliceJSON checks that any JSON object that we did not write ourselves keeps its
// meaning, or is refused.
func FuzzSpliceJSON(f *testing.F) {
	f.Add([]byte(`{ "metadata" : { } , "x":[1,{"metadata":{}}]}`))
	f.Add([]byte(`{"metadata":{"resourceVersion":null,"name":"\""}}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		defer hangtest.Guard(t)()
		out, err := codec.SpliceJSON(object, "42")
		var before struct{ Metadata map[string]any }
		if json.Unmarshal(object, &before) != nil || !json.Valid(object) {
			return // nothing to keep; it must only not panic
		}
		if err != nil {
			return
		}
		var after struct{ Metadata map[string]any }
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%s → %s: %v", object, out, err)
		}
	})
}

func FuzzLoadItem(f *testing.F) {
	i, err := codec.NewItem(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(i.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		defer hangtest.Guard(t)()
		// Every accepted record is written back as it was read.
		if i, err := codec.LoadItem(configMaps, data); err == nil && !bytes.Equal(i.Bytes(), data) {
			t.Errorf("%q became %q", data, i.Bytes())
		}
	})
}

func TestWhatAGetAllocates(t *testing.T) {
	i := placed(t, samplePod("a"), pods, 1)
	text(i)
	if got := testing.AllocsPerRun(100, func() {
		if _, err := codec.EncodeItem(codec.Media{}, i); err != nil {
			t.Fatal(err)
		}
	}); got > 0 {
		t.Errorf("JSON of a stored item allocates %v times, want 0", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := codec.EncodeItem(codec.Media{Encoding: codec.Protobuf}, i); err != nil {
			t.Fatal(err)
		}
	}); got > 3 {
		t.Errorf("protobuf of a stored item allocates %v times, want at most 3: two copies of the group version, one of the object", got)
	}
}

// One buffer serves the metadata of all items, even if it is larger than the first one.
func TestListAllocationsDoNotGrow(t *testing.T) {
	const many = 1000
	items := make([]*codec.Item, many)
	for n := range items {
		pod := samplePod("p")
		pod.Annotations = map[string]string{"note": strings.Repeat("x", 1000)}
		items[n] = placed(t, pod, pods, 7)
	}
	w := bufio.NewWriter(io.Discard)
	for _, e := range []codec.Encoding{codec.JSON, codec.Protobuf} {
		m := codec.Media{Encoding: e}
		list := func() {
			if err := codec.WriteList(w, m, pods, metav1.ListMeta{}, items); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // from then on the encodings are kept
			list()
		}
		if got := testing.AllocsPerRun(3, list); got > many/10 {
			t.Errorf("encoding %v: a list of %d items allocates %.0f times", e, many, got)
		}
	}
}

// TestJSONIsSharedThenDroppedThenKept follows the JSON of an item through collections.
// Two results are the same bytes if they begin at the same place: what the test holds
// is not used again for others.
func TestJSONIsSharedThenDroppedThenKept(t *testing.T) {
	i := placed(t, samplePod("a"), pods, 3)
	first := text(i)
	if again := text(i); &again[0] != &first[0] {
		t.Error("who asks at the same time gets other bytes")
	}
	goruntime.GC()
	second := text(i)
	if &second[0] == &first[0] {
		t.Error("the first JSON outlives a collection")
	}
	goruntime.GC()
	if third := text(i); &third[0] != &second[0] || !bytes.Equal(third, first) {
		t.Errorf("the second JSON was not kept, or is another: %s, want %s", third, first)
	}
}

// TestProtobufIsDroppedAndMadeAnew checks that what went to disk is not kept beside the
// object, and that what is made in its place is the same (E2, E3).
func TestProtobufIsDroppedAndMadeAnew(t *testing.T) {
	written := placed(t, samplePod("a"), pods, 5)
	loaded, err := codec.LoadItem(pods, bytes.Clone(written.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	loaded.Place(5, 5)
	for name, i := range map[string]*codec.Item{"written": written, "loaded": loaded, "restated": written.RestateAt(5)} {
		t.Run(name, func(t *testing.T) {
			want := i.AppendProtobuf(nil)
			i.Object()
			var seen [][]byte
			for range 4 {
				first := i.Bytes()
				seen = append(seen, bytes.Clone(first))
				if &i.Bytes()[0] != &first[0] {
					t.Error("the bytes are not shared by those who ask at the same time")
				}
				goruntime.KeepAlive(first)
				goruntime.GC()
				if got := i.AppendProtobuf(nil); !bytes.Equal(got, want) {
					t.Errorf("protobuf %q, want %q", got, want)
				}
			}
			for _, b := range seen {
				if !bytes.Equal(b, seen[0]) {
					t.Errorf("saved bytes %q, want %q", b, seen[0])
				}
			}
			if got := i.Object().GetResourceVersion(); got != "5" {
				t.Errorf("the object's resource version became %q", got)
			}
		})
	}
}

// TestReleaseDropsEncodings checks that kept encodings last until Release and a collection, and are the same
// when they are made again.
func TestReleaseDropsEncodings(t *testing.T) {
	i := placed(t, samplePod("a"), pods, 5)
	json, proto := string(text(i)), string(i.AppendProtobuf(nil))
	for range 3 { // until they are kept
		goruntime.GC()
		_, _ = text(i), i.Bytes()
	}
	dropped := make(chan string, 2)
	goruntime.AddCleanup(&text(i)[0], func(what string) { dropped <- what }, "JSON")
	goruntime.AddCleanup(&i.Bytes()[0], func(what string) { dropped <- what }, "protobuf")
	goruntime.GC()
	goruntime.GC()
	select {
	case what := <-dropped:
		t.Fatalf("the %s was not kept", what)
	default:
	}
	i.Release()
	for range 2 {
		goruntime.GC()
		<-dropped
	}
	if got := string(text(i)); got != json {
		t.Errorf("JSON %s, want %s", got, json)
	}
	if got := string(i.AppendProtobuf(nil)); got != proto {
		t.Errorf("protobuf %q, want %q", got, proto)
	}
	i.RestateAt(7).Release()
}

// TestBulkyObjectIsDropped checks that an item of a bulky kind keeps its protobuf, and its object only while a caller has it.
func TestBulkyObjectIsDropped(t *testing.T) {
	bulky := *pods
	bulky.Bulky, bulky.Indexed = true, nil
	i := placed(t, samplePod("a"), &bulky, 5)
	json, saved := string(text(i)), i.Bytes()
	for range 2 {
		dropped := make(chan struct{})
		goruntime.AddCleanup(i.Object().(*corev1.Pod), func(c chan struct{}) { close(c) }, dropped)
		goruntime.GC()
		goruntime.GC()
		<-dropped
		if got := string(text(i)); got != json {
			t.Errorf("JSON %s, want %s", got, json)
		}
		if got := i.Object().GetResourceVersion(); got != "5" {
			t.Errorf("the object's resource version became %q", got)
		}
		if &i.Bytes()[0] != &saved[0] {
			t.Error("the protobuf was not kept")
		}
	}
}

// TestProtobufOfManyObjectsIsLetGo checks that items hold their objects alone.
func TestProtobufOfManyObjectsIsLetGo(t *testing.T) {
	i := placed(t, samplePod("a"), pods, 5)
	gone := make(chan struct{})
	goruntime.AddCleanup(&i.Bytes()[0], func(struct{}) { close(gone) }, struct{}{})
	goruntime.GC()
	<-gone
	goruntime.KeepAlive(i)
}

// TestDecodeNormalizesRawJSON sends objects that are stored with spaces and escapes that their stored form does not
// have: they must not differ from it.
func TestDecodeNormalizesRawJSON(t *testing.T) {
	for name, body := range map[string]string{
		"spaces":            `{"metadata":{"name":"a"},"revision":1,"data":{ "b": [ 1 ], "c": "<&>" }}`,
		"and unknown field": `{"metadata":{"name":"a"},"revision":1,"odd":1,"data":{"b":[1],` + "\n" + `"c":"<&>"}}`,
		"compact":           `{"metadata":{"name":"a"},"revision":1,"data":{"b":[1],"c":"<&>"}}`,
		"managed fields":    `{"metadata":{"name":"a","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{ "f:data": {} }}]},"revision":1,"data":{"b":[1],"c":"<&>"}}`,
	} {
		obj := &appsv1.ControllerRevision{}
		if _, err := codec.Decode(t.Context(), codec.JSON, []byte(body), obj, appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), codec.Ignore); err != nil {
			t.Fatal(err)
		}
		if got, want := string(obj.Data.Raw), `{"b":[1],"c":"\u003c\u0026\u003e"}`; got != want {
			t.Errorf("%s: the data are %s, want %s", name, got, want)
		}
		for _, m := range obj.ManagedFields {
			if got := m.FieldsV1.GetRawString(); got != `{"f:data":{}}` {
				t.Errorf("%s: the fields are %s", name, got)
			}
		}
	}
}
