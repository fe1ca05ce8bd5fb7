package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A stream is a watch over HTTP, read event by event.
type stream struct {
	f    *fixture
	r    *bufio.Reader
	resp *http.Response
	stop context.CancelFunc
}

func (f *fixture) watch(path string, headers ...string) *stream {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	resp := f.open(ctx, "GET", path, nil, headers...)
	s := &stream{f, bufio.NewReader(resp.Body), resp, cancel}
	f.Cleanup(s.end)
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		f.Fatalf("watch %s: %d %s", path, resp.StatusCode, b)
	}
	return s
}

func (s *stream) end() {
	s.stop()
	s.resp.Body.Close()
}

// An event as JSON has it.
type event struct {
	Type   string
	Object json.RawMessage
}

// next reads an event; ok is false at the end of the stream.
func (s *stream) next() (ev event, ok bool) {
	s.f.Helper()
	line, err := s.r.ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return ev, false
	}
	if err != nil {
		s.f.Fatal(err)
	}
	if err := json.Unmarshal(line, &ev); err != nil {
		s.f.Fatalf("%v: %s", err, line)
	}
	return ev, true
}

// read reads n events as "ADDED name@version", with "!" for the mark at the end of
// the initial events.
func (s *stream) read(n int) (out []string) {
	s.f.Helper()
	for range n {
		ev, ok := s.next()
		if !ok {
			return append(out, "END")
		}
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(ev.Object, &m); err != nil {
			s.f.Fatal(err)
		}
		text := fmt.Sprintf("%s %s@%s", ev.Type, m.Name, m.ResourceVersion)
		if m.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			text += "!"
		}
		out = append(out, text)
	}
	return out
}

func (s *stream) expect(want ...string) {
	s.f.Helper()
	if diff := cmp.Diff(want, s.read(len(want))); diff != "" {
		s.f.Errorf("events (-want +got):\n%s", diff)
	}
}

func (f *fixture) merge(path, patch string) {
	f.Helper()
	if a := f.do("PATCH", path, patch, "Content-Type: application/merge-patch+json"); a.code != 200 {
		f.Fatalf("patch %s: %s", path, a.body)
	}
}

func (f *fixture) remove(path string) {
	f.Helper()
	if a := f.do("DELETE", path, nil); a.code != 200 {
		f.Fatalf("delete %s: %s", path, a.body)
	}
}

func TestWatchStarts(t *testing.T) {
	const initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	tests := []struct {
		name, query string
		want        []string // "c" is created after the watch began
	}{
		{"without a version: the state, then what comes", "", []string{"ADDED a@1", "ADDED b@3", "ADDED c@4"}},
		{"from 0: likewise", "&resourceVersion=0", []string{"ADDED a@1", "ADDED b@3", "ADDED c@4"}},
		{"from a revision: what came after it", "&resourceVersion=1", []string{"ADDED b@2", "MODIFIED b@3", "ADDED c@4"}},
		{"from the newest", "&resourceVersion=3", []string{"ADDED c@4"}},
		{"initial events and their end", initial + "&allowWatchBookmarks=true", []string{"ADDED a@1", "ADDED b@3", "BOOKMARK @3!", "ADDED c@4"}},
		{"initial events from 0", initial + "&allowWatchBookmarks=true&resourceVersion=0", []string{"ADDED a@1", "ADDED b@3", "BOOKMARK @3!", "ADDED c@4"}},
		{"initial events not older than", initial + "&allowWatchBookmarks=true&resourceVersion=2", []string{"ADDED a@1", "ADDED b@3", "BOOKMARK @3!", "ADDED c@4"}},
		{"initial events without bookmarks", initial, []string{"ADDED a@1", "ADDED b@3", "ADDED c@4"}},
		{"no initial events", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", []string{"ADDED c@4"}},
		{"no initial events from a revision", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=2", []string{"MODIFIED b@3", "ADDED c@4"}},
		{"one object", "&fieldSelector=metadata.name%3Db&resourceVersion=0", []string{"ADDED b@3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t)
			f.create(configMaps, configMap("a"))
			f.create(configMaps, configMap("b"))
			f.merge(configMaps+"/b", `{"data":{"x":"y"}}`)
			w := f.watch(configMaps + "?watch=true" + tt.query)
			if got := w.resp.Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
			f.create(configMaps, configMap("c"))
			w.expect(tt.want...)
		})
	}
}

// TestOneObjectIsNotWatched gets an object with the parameter watch, which is for lists, as in upstream.
func TestOneObjectIsNotWatched(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	resp := f.open(t.Context(), http.MethodGet, configMaps+"/a?watch=true", nil)
	defer resp.Body.Close()
	var got corev1.ConfigMap
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Kind != "ConfigMap" || got.Name != "a" {
		t.Errorf("%+v, %v, want the object", got, err)
	}
}

// The paths with /watch are deprecated, but served by upstream.
func TestWatchByDeprecatedPath(t *testing.T) {
	const prefix = "/api/v1/watch/namespaces/default/configmaps"
	f := serve(t)
	f.create(configMaps, configMap("a"))
	f.create(configMaps, configMap("b"))
	one, all, everywhere := f.watch(prefix+"/b"), f.watch(prefix+"?resourceVersion=1"), f.watch("/api/v1/watch/configmaps?labelSelector=app%3Dweb")
	f.create(configMaps, configMap("c", "app=web"))
	f.remove(configMaps + "/b")
	one.expect("ADDED b@2", "DELETED b@4")
	all.expect("ADDED b@2", "ADDED c@3", "DELETED b@4")
	everywhere.expect("ADDED c@3")

	f.refused(f.do("GET", prefix+"/b?fieldSelector=metadata.name%3Da", nil), 400, metav1.StatusReasonBadRequest, "fieldSelector metadata.name doesn't match requested name")
	f.refused(f.do("DELETE", prefix+"/c", nil), 405, metav1.StatusReasonMethodNotAllowed, "watch is not supported on resources of kind")
	f.refused(f.do("GET", prefix+"?until=true", nil), 400, metav1.StatusReasonBadRequest, "leave out the subresource and watch")
	for _, p := range []string{"/api/v1/watch/namespaces/default/pods/p/status", "/api/v1/watch/namespaces/default/nodes", "/api/v1/watch"} {
		if a := f.do("GET", p, nil); a.code != 404 {
			t.Errorf("%s: %d, want 404", p, a.code)
		}
	}
	f.do("GET", configMaps+"/c", nil) // it is still there
}

func TestWatchDeletesObjectThatLeavesSelector(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a", "app=web"))
	f.create(configMaps, configMap("b", "app=db"))
	w := f.watch(configMaps + "?watch=1&labelSelector=app%3Dweb")
	set := f.watch(configMaps + "?watch=1&labelSelector=app%20in%20(web,proxy)") // no index helps here
	f.merge(configMaps+"/b", `{"metadata":{"labels":{"app":"web"}}}`)
	f.merge(configMaps+"/a", `{"data":{"x":"y"}}`)
	f.merge(configMaps+"/a", `{"metadata":{"labels":{"app":"db"}}}`)
	f.merge(configMaps+"/a", `{"data":{"x":"z"}}`)
	f.remove(configMaps + "/a")
	f.remove(configMaps + "/b")
	want := []string{"ADDED a@1", "ADDED b@3", "MODIFIED a@4", "DELETED a@5", "DELETED b@8"}
	w.expect(want...)
	set.expect(want...)

	again := f.watch(configMaps + "?watch=1&labelSelector=app%3Dweb&resourceVersion=4")
	ev, _ := again.next()
	var cm corev1.ConfigMap
	if err := json.Unmarshal(ev.Object, &cm); err != nil {
		t.Fatal(err)
	}
	if cm.Labels["app"] != "web" || cm.ResourceVersion != "5" {
		t.Errorf("what leaves a selector is told as it was, at the new version; got %s", ev.Object)
	}
}

// A pod that gets a node leaves the watch of the pods without one, which has no index, and comes
// into the watch of the node's pods, which has one.
func TestABoundPodMovesFromWatchToWatch(t *testing.T) {
	f := serve(t)
	waiting := f.watch(pods + "?watch=1&fieldSelector=spec.nodeName%3D")
	placed := f.watch(pods + "?watch=1&fieldSelector=spec.nodeName%3Dn1")
	f.create(pods, pod("a"))
	if a := f.do("POST", pods+"/a/binding", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}); a.code != 201 {
		t.Fatalf("binding: %s", a.body)
	}
	f.remove(pods + "/a?gracePeriodSeconds=0")
	f.create(pods, pod("b"))
	waiting.expect("ADDED a@1", "DELETED a@2", "ADDED b@4")
	placed.expect("ADDED a@2", "DELETED a@3")
}

func TestWatchesAreOfOneResourceAndNamespace(t *testing.T) {
	f := serve(t)
	w := f.watch(configMaps + "?watch=1")
	all := f.watch("/api/v1/configmaps?watch=1")
	f.create("/api/v1/namespaces/other/configmaps", configMap("a"))
	f.create("/api/v1/namespaces/default/pods", pod("p"))
	f.create(configMaps, configMap("b"))
	w.expect("ADDED b@3")
	all.expect("ADDED a@1", "ADDED b@3")
}

func TestAWatchThatAsksForTooLittleIsExpired(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) { o.Store = memory(t, store.Options{History: 4}) })
	for n := range 10 {
		f.create(configMaps, configMap(fmt.Sprint("cm-", n)))
	}
	f.refused(f.do("GET", configMaps+"?watch=1&resourceVersion=1", nil), 410, metav1.StatusReasonExpired, "too old resource version")
	f.refused(f.do("GET", configMaps+"?resourceVersion=1&resourceVersionMatch=Exact", nil), 410, metav1.StatusReasonExpired, "too old resource version")
}

// TestAWatcherThatFallsBehindIsExpired stands on a store that says so: how far behind that is
// is tested in package store.
func TestAWatcherThatFallsBehindIsExpired(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) { o.Store = falling{o.Store} })
	f.create(configMaps, configMap("a"))
	w := f.watch(configMaps + "?watch=1&resourceVersion=0")
	w.expect("ADDED a@1")
	ev, _ := w.next()
	var status metav1.Status
	if err := json.Unmarshal(ev.Object, &status); err != nil {
		t.Fatal(err)
	}
	if ev.Type != "ERROR" || status.Code != 410 || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("got %s %s, want an ERROR with 410 Expired", ev.Type, ev.Object)
	}
	w.expect("END")

	for _, err := range f.local.Watch(t.Context(), cmGVR, "default", metav1.ListOptions{ResourceVersion: "1"}) {
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("in process: %v, want Expired", err)
		}
	}
}

// falling is a store whose watches fall behind at once.
type falling struct{ httpserver.Store }

func (falling) Watch(context.Context, store.Query, store.Revision) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if yield(store.Event{Record: store.Record{Revision: 1}}, nil) {
			yield(store.Event{}, fmt.Errorf("slow: %w", store.ErrExpired))
		}
	}
}

func TestProtobufWatch(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	w := f.watch(configMaps+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"Accept: application/vnd.kubernetes.protobuf;stream=watch")
	if got := w.resp.Header.Get("Content-Type"); got != "application/vnd.kubernetes.protobuf;stream=watch" {
		t.Errorf("Content-Type %q", got)
	}
	f.merge(configMaps+"/a", `{"data":{"x":"y"}}`)
	f.remove(configMaps + "/a")
	var got []string
	for range 4 {
		var size [4]byte
		if _, err := io.ReadFull(w.r, size[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(w.r, frame); err != nil {
			t.Fatal(err)
		}
		var ev metav1.WatchEvent
		var body runtime.Unknown
		var cm corev1.ConfigMap
		if err := ev.Unmarshal(frame); err != nil {
			t.Fatal(err)
		}
		if err := body.Unmarshal(ev.Object.Raw[4:]); err != nil {
			t.Fatal(err)
		}
		if err := cm.Unmarshal(body.Raw); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %s@%s", ev.Type, body.Kind, cm.Name, cm.ResourceVersion))
	}
	want := []string{"ADDED ConfigMap a@1", "BOOKMARK ConfigMap @1", "MODIFIED ConfigMap a@2", "DELETED ConfigMap a@3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestWatchOverWebSocket has clients of JSON, of protobuf, without rights, and of a revision that is forgotten.
func TestWatchOverWebSocket(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	open := func(path, accept string) (*websocket.Conn, error) {
		config, err := websocket.NewConfig("ws"+strings.TrimPrefix(f.http.URL, "http")+path, "http://localhost")
		if err != nil {
			t.Fatal(err)
		}
		config.TlsConfig = &tls.Config{RootCAs: f.http.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs} // HTTP/1.1
		config.Header = http.Header{"Accept": {accept}, "X-User": {"boss"}}
		if strings.Contains(path, "secrets") {
			config.Header.Set("X-User", "nobody")
		}
		return config.DialContext(t.Context())
	}
	const all = configMaps + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	text, err := open(all, "application/json")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := open(all, "application/vnd.kubernetes.protobuf;stream=watch")
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	var got []string
	for i := range 4 {
		if i == 2 { // both watches have begun
			f.merge(configMaps+"/a", `{"data":{"x":"y"}}`)
			f.remove(configMaps + "/a")
		}
		kind, message := receive(t, text)
		var ev struct {
			Type   string
			Object corev1.ConfigMap
		}
		if err := json.Unmarshal(message, &ev); err != nil || kind != websocket.TextFrame {
			t.Fatal(kind, err)
		}
		got = append(got, fmt.Sprintf("%s %s@%s", ev.Type, ev.Object.Name, ev.Object.ResourceVersion))
		kind, message = receive(t, binary)
		var event metav1.WatchEvent
		var body runtime.Unknown
		if err := event.Unmarshal(message); err != nil || kind != websocket.BinaryFrame {
			t.Fatal(kind, err)
		}
		if err := body.Unmarshal(event.Object.Raw[4:]); err != nil || body.Kind != "ConfigMap" || event.Type != ev.Type {
			t.Errorf("%s %s, %v", event.Type, body.Kind, err)
		}
	}
	if diff := cmp.Diff([]string{"ADDED a@1", "BOOKMARK @1", "MODIFIED a@2", "DELETED a@3"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// What a client sends has no meaning, and its watch ends when it goes: it is counted no more.
	if err := websocket.Message.Send(text, "hello"); err != nil {
		t.Error(err)
	}
	_ = text.Close()
	const watches = `apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"} 1`
	for t.Context().Err() == nil && !strings.Contains(string(f.do("GET", "/metrics", nil).body), watches) {
		run.Pause(t.Context(), 5*time.Millisecond)
	}
	// The server ends a watch after its timeout.
	short, err := open(configMaps+"?watch=true&timeoutSeconds=1", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	if err := websocket.Message.Receive(short, &data); !errors.Is(err, io.EOF) {
		t.Errorf("after the timeout: %q, %v", data, err)
	}
	for _, path := range []string{"/api/v1/namespaces/default/secrets?watch=true", configMaps + "?watch=true&resourceVersion=x"} {
		if _, err := open(path, "application/json"); err == nil || !strings.Contains(err.Error(), "bad status") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// receive reads a message of a WebSocket.
func receive(t *testing.T, from *websocket.Conn) (kind byte, message []byte) {
	t.Helper()
	whole := websocket.Codec{Unmarshal: func(data []byte, payloadType byte, _ any) error {
		kind, message = payloadType, data
		return nil
	}}
	if err := whole.Receive(from, nil); err != nil {
		t.Fatal(err)
	}
	return kind, message
}

func TestATableIsWatched(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	w := f.watch(configMaps+"?watch=1&includeObject=Object", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	f.merge(configMaps+"/a", `{"data":{"x":"y"}}`)
	var tables []metav1.Table
	for range 2 {
		ev, _ := w.next()
		var table metav1.Table
		if err := json.Unmarshal(ev.Object, &table); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	first, second := tables[0], tables[1]
	if first.Kind != "Table" || len(first.ColumnDefinitions) == 0 || first.ColumnDefinitions[0].Name != "Name" || len(first.Rows) != 1 || first.Rows[0].Cells[0] != "a" || first.ResourceVersion != "1" {
		t.Errorf("first event: %+v", first)
	}
	if len(second.ColumnDefinitions) != 0 || len(second.Rows) != 1 || second.ResourceVersion != "2" || !strings.Contains(string(second.Rows[0].Object.Raw), `"x":"y"`) {
		t.Errorf("second event: %+v", second)
	}
}

func TestMetadataIsWatched(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	w := f.watch(configMaps+"?watch=1", "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	ev, _ := w.next()
	if !strings.Contains(string(ev.Object), `"kind":"PartialObjectMetadata"`) || strings.Contains(string(ev.Object), `"data"`) {
		t.Errorf("got %s", ev.Object)
	}
}

func TestTheServerEndsWatches(t *testing.T) {
	f := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	w := f.watch(configMaps + "?watch=1")
	timed := f.watch(configMaps + "?watch=1&timeoutSeconds=1")
	timed.expect("END")
	defer f.Go(func() { ran <- f.server.Run(ctx) })()
	<-f.server.Ready()
	cancel()
	w.expect("END")
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	if a := f.do("GET", "/readyz", nil); a.code != 503 {
		t.Errorf("after the end: %d %s", a.code, a.body)
	}
}

// Go runs work beside the test, which waits for it.
func (f *fixture) Go(work func()) (wait func()) {
	g := run.NewGroup(f.Context(), 0)
	g.Go(func(context.Context) { work() })
	return g.Wait
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory(t, store.Options{})
		s, err := apiserver.New(options(t, st))
		if err != nil {
			t.Fatal(err)
		}
		local := s.As(boss)
		create := func(name string) {
			if _, err := local.Create(t.Context(), pdGVR, "default", "", pod(name), metav1.CreateOptions{}, ""); err != nil {
				t.Error(err)
			}
		}
		create("a")
		time.AfterFunc(30*time.Second, func() { create("b") }) // a bookmark follows within a minute
		var got []string
		timeout := int64(170)
		for ev, err := range local.Watch(t.Context(), cmGVR, "default", metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &timeout, ResourceVersion: "1"}) {
			if err != nil {
				got = append(got, string(apierrors.ReasonForError(err)))
				break
			}
			m := ev.Object.(metav1.Object)
			got = append(got, fmt.Sprintf("%s %T %s@%s", ev.Type, ev.Object, m.GetName(), m.GetResourceVersion()))
		}
		want := []string{
			"BOOKMARK *v1.ConfigMap @2",
			"BOOKMARK *v1.ConfigMap @2", // shortly before the end
			"Timeout",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
