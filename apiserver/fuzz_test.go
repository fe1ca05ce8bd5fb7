package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/internal/hangtest"
	"github.com/sampan-io/sampan/store"
)

// wire is what the generated code of API types offers.
type wire interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// examples returns an object of each kind that has one, as its package accepts it.
func examples(t testing.TB, c *catalog.Catalog) map[*catalog.Kind][]catalog.Object {
	t.Helper()
	files, err := filepath.Glob("../catalog/*/testdata/accepted/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	all := map[*catalog.Kind][]catalog.Object{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var meta runtime.TypeMeta
		if err := yaml.Unmarshal(data, &meta); err != nil {
			t.Fatal(err)
		}
		kind := c.Kind(meta.GroupVersionKind())
		if kind == nil {
			t.Fatalf("%s: no kind %v", file, meta.GroupVersionKind())
		}
		obj := kind.New()
		if err := yaml.Unmarshal(data, obj); err != nil {
			t.Fatal(err)
		}
		obj.SetNamespace("") // that of the request
		all[kind] = append(all[kind], obj)
	}
	return all
}

// A prober sends one object through everything that the server does with objects.
type prober struct {
	testing.TB
	server *apiserver.Server
	store  *store.Store
	loader apiserver.Loader
	kind   *catalog.Kind
	body   []byte // for messages
}

// forms are the media types of answers for a single object.
var forms = []string{
	"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json;pretty=1",
	"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
}

// cutter cancels the request of a watch when the watch flushes its first events.
type cutter struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (c *cutter) Flush() { c.cancel() }

// do sends a request; the server must not be at fault.
func (p *prober) do(method, path, contentType, accept string, body []byte) *httptest.ResponseRecorder {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	r.Header.Set("X-User", "boss")
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", accept)
	w := &cutter{httptest.NewRecorder(), cancel}
	p.server.Handler().ServeHTTP(w, r)
	if w.Code >= 500 && w.Code != http.StatusGatewayTimeout { // the answer to until with a time limit of 0
		p.Fatalf("%s %s as %s: %d %s\nfor %s %q", method, path, accept, w.Code, w.Body, p.kind.Kind, p.body)
	}
	return w.ResponseRecorder
}

func (p *prober) collection() string {
	path := "/apis/" + p.kind.Group + "/" + p.kind.Version
	if p.kind.Group == "" {
		path = "/api/" + p.kind.Version
	}
	if p.kind.Namespaced {
		path += "/namespaces/default"
	}
	return path + "/" + p.kind.Resource
}

// send creates an object from its protobuf message, reads it in every way, changes it, and
// takes it away.
func (p *prober) send(message []byte) {
	p.Helper()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: p.kind.GroupVersion().String(), Kind: p.kind.Kind}, Raw: message}
	body, err := u.Marshal()
	if err != nil {
		p.Fatal(err)
	}
	path := p.collection()
	made := p.do("POST", path, codec.TypeProtobuf, codec.TypeJSON, append([]byte("k8s\x00"), body...))
	if made.Code != http.StatusCreated || p.kind.Answered() {
		if !json.Valid(made.Body.Bytes()) || !utf8.Valid(made.Body.Bytes()) {
			p.Fatalf("the answer %d is no JSON: %q", made.Code, made.Body)
		}
		return
	}
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal(made.Body.Bytes(), &obj); err != nil {
		p.Fatalf("%v: %s", err, made.Body)
	}
	defer p.forget(p.kind.Key(obj.Namespace, obj.Name))
	one := path + "/" + obj.Name
	p.same(one)
	p.restart(p.kind.Key(obj.Namespace, obj.Name))
	for _, form := range forms {
		p.do("GET", one, "", form, nil)
		p.do("GET", path, "", strings.Replace(form, "PartialObjectMetadata", "PartialObjectMetadataList", 1), nil)
		if form != "application/yaml" {
			if w := p.do("GET", path+"?watch=true", "", form, nil); w.Code == http.StatusOK && w.Body.Len() == 0 {
				p.Fatalf("a watch as %s tells nothing", form)
			}
		}
	}
	p.change(one, &obj)
	p.same(one)
	p.do("DELETE", one, "", codec.TypeJSON, nil)
}

// same checks that an object is the same one in every encoding.
func (p *prober) same(path string) {
	p.Helper()
	var want []byte
	for _, e := range []codec.Encoding{codec.Protobuf, codec.JSON, codec.YAML} {
		w := p.do("GET", path, "", e.ContentType(), nil)
		if w.Code != http.StatusOK {
			p.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
		}
		obj := p.kind.New()
		if _, err := codec.Decode(p.Context(), e, w.Body.Bytes(), obj, p.kind.GroupVersionKind, codec.Strict); err != nil {
			p.Fatalf("what is answered in %s is not read: %v\n%s", e.ContentType(), err, w.Body)
		}
		if err := codec.Normalize(obj); err != nil {
			p.Fatalf("what is answered in %s: %v\n%s", e.ContentType(), err, w.Body)
		}
		got, err := obj.(wire).Marshal()
		if err != nil {
			p.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			p.Fatalf("in %s it is another object:\n%q\nthan in protobuf:\n%q\n%s", e.ContentType(), got, want, w.Body)
		}
	}
}

// restart checks that a record looks the same to a server that has just started.
func (p *prober) restart(key string) {
	p.Helper()
	rec, err := p.store.Get(key)
	if err != nil {
		p.Fatal(err)
	}
	loaded, err := p.loader.Decode(key, bytes.Clone(rec.Value.Bytes()))
	if err != nil {
		p.Fatal(err)
	}
	loaded.Place(rec.Created, rec.Revision)
	item := loaded.(*codec.Item)
	if item.Fault() != nil {
		p.Fatalf("after a restart it cannot be read: %v", item.Fault())
	}
	before, err1 := rec.Value.(*codec.Item).JSON()
	after, err2 := item.JSON()
	if err1 != nil || err2 != nil || !bytes.Equal(before, after) {
		p.Fatalf("before a restart (%v):\n%s\nafter (%v):\n%s", err1, before, err2, after)
	}
}

// change patches an object in every way.
func (p *prober) change(path string, obj *metav1.PartialObjectMetadata) {
	p.Helper()
	const annotate = `{"metadata":{"annotations":{"fuzz":"1"}}}`
	config, err := json.Marshal(map[string]any{
		"apiVersion": p.kind.GroupVersion().String(), "kind": p.kind.Kind,
		"metadata": map[string]any{"name": obj.Name, "labels": map[string]string{"fuzz": "1"}},
	})
	if err != nil {
		p.Fatal(err)
	}
	paths := []string{path}
	if p.kind.Subresource("status") != nil {
		paths = append(paths, path+"/status")
	}
	for _, path := range paths {
		p.do("PATCH", path, "application/merge-patch+json", codec.TypeJSON, []byte(annotate))
		p.do("PATCH", path, "application/strategic-merge-patch+json", codec.TypeProtobuf, []byte(strings.Replace(annotate, "1", "2", 1)))
		p.do("PATCH", path, "application/json-patch+json", codec.TypeJSON, []byte(`[{"op":"test","path":"/kind","value":"`+p.kind.Kind+`"}]`))
		p.do("PATCH", path+"?fieldManager=fuzz&force=true", "application/apply-patch+yaml", codec.TypeYAML, config)
	}
	if p.kind.Subresource("scale") != nil {
		p.do("GET", path+"/scale", "", codec.TypeJSON, nil)
		p.do("PATCH", path+"/scale", "application/merge-patch+json", codec.TypeJSON, []byte(`{"spec":{"replicas":2}}`))
	}
}

// forget deletes a record from the store, with its finalizers.
func (p *prober) forget(key string) {
	rec, err := p.store.Get(key)
	if err != nil {
		return
	}
	if _, err := p.store.Commit(p.Context(), store.Write{Key: key, Value: rec.Value.(*codec.Item).Restate(), Delete: true, Expect: rec.Revision}); err != nil {
		p.Fatal(err)
	}
}

// FuzzProtobuf sends messages of every kind, as no client of good will makes them, and checks
// that the server refuses them or can do with the object all that it does with any: read it in
// every encoding, as the same object, change it, load it after a restart, and delete it.
func FuzzProtobuf(f *testing.F) {
	c := apiservertest.Kinds(f)
	kinds := c.Kinds()
	st := memory(f, store.Options{})
	server, err := apiserver.New(options(f, st))
	if err != nil {
		f.Fatal(err)
	}
	accepted := examples(f, c)
	for i, kind := range kinds {
		for n, example := range accepted[kind] {
			for seed := range 4 {
				obj := example.DeepCopyObject().(catalog.Object)
				if seed > 0 { // from one value in eight to one in seventy
					catalogtest.Spoil(obj, uint64(100*n+seed), 8*seed*seed)
				}
				if b, err := obj.(wire).Marshal(); err == nil {
					f.Add(b, uint8(i))
				}
			}
		}
		random := catalogtest.Random(kind, int64(i))
		random.SetResourceVersion("")
		random.SetName("random")
		random.SetNamespace("")
		if b, err := random.(wire).Marshal(); err == nil {
			f.Add(b, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, message []byte, kind uint8) {
		defer hangtest.Guard(t)()
		p := &prober{TB: t, server: server, store: st, loader: apiserver.NewLoader(c), kind: kinds[int(kind)%len(kinds)], body: message}
		p.send(message)
	})
}

// TestExamplesOfTheFuzzerAreAccepted checks that the fuzzer begins with objects that are created, so that
// it gets beyond the validation.
func TestExamplesOfTheFuzzerAreAccepted(t *testing.T) {
	c := apiservertest.Kinds(t)
	st := memory(t, store.Options{})
	server, err := apiserver.New(options(t, st))
	if err != nil {
		t.Fatal(err)
	}
	for kind, objs := range examples(t, c) {
		if kind.Answered() {
			continue
		}
		b, err := objs[0].(wire).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		p := &prober{TB: t, server: server, store: st, loader: apiserver.NewLoader(c), kind: kind, body: b}
		before := st.Revision()
		if p.send(b); st.Revision() == before {
			t.Errorf("the example of %s was not created", kind.Kind)
		}
	}
}
