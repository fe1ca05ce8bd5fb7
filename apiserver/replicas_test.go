package apiserver_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/storetest"
)

// unreachable is a store that cannot say what the newest state is.
type unreachable struct{ *storetest.Replica }

func (unreachable) Fresh(context.Context) error { return store.ErrUnavailable }

// hasty is one that takes what it has for the newest state.
type hasty struct{ *storetest.Replica }

func (hasty) Fresh(context.Context) error { return nil }

// replicas opens two servers over one store, each with an image of its own that is as old as it may be. The second
// one gets its store from other.
func replicas(t *testing.T, other func(*storetest.Replica) httpserver.Store) (a, b *fixture) {
	t.Helper()
	kinds := apiservertest.Kinds(t)
	shared := &storetest.Shared{
		Store:   memory(t, store.Options{}),
		Options: store.Options{Decode: apiserver.NewLoader(kinds).Decode, Terms: apiserver.Terms(kinds)},
	}
	a = serve(t, func(o *apiserver.Options) { o.Store = shared.Replica() })
	b = serve(t, func(o *apiserver.Options) { o.Store = other(shared.Replica()) })
	return a, b
}

func own(r *storetest.Replica) httpserver.Store { return r }

// write gives the value to the ConfigMap "one", which it makes if there is none.
func (f *fixture) write(value string) *corev1.ConfigMap {
	f.Helper()
	cm := configMap("one")
	cm.Data = map[string]string{"v": value}
	if f.do("GET", configMaps+"/one", nil).code == 404 {
		got := into[corev1.ConfigMap](f, f.do("POST", configMaps, cm), 201)
		return &got
	}
	got := into[corev1.ConfigMap](f, f.do("PUT", configMaps+"/one", cm), 200)
	return &got
}

// TestReadsAreCurrent writes at one server and reads at another: without a resource version it sees what was
// acknowledged.
func TestReadsAreCurrent(t *testing.T) {
	one := func(f *fixture, version string) string {
		return into[corev1.ConfigMap](f, f.do("GET", configMaps+"/one?resourceVersion="+version, nil), 200).Data["v"]
	}
	list := func(f *fixture, version string) string {
		l := into[corev1.ConfigMapList](f, f.do("GET", configMaps+"?resourceVersion="+version, nil), 200)
		if len(l.Items) == 0 {
			return "nothing"
		}
		return l.Items[0].Data["v"]
	}
	watch := func(f *fixture, version string) string {
		body := string(f.do("GET", configMaps+"?watch=true&timeoutSeconds=1&resourceVersion="+version, nil).body)
		_, rest, _ := strings.Cut(body, `"data":{"v":"`)
		v, _, _ := strings.Cut(rest, `"`)
		return v
	}
	for name, read := range map[string]func(*fixture, string) string{"get": one, "list": list, "watch": watch} {
		t.Run(name, func(t *testing.T) {
			a, b := replicas(t, own)
			a.write("1")
			if got := read(b, ""); got != "1" {
				t.Errorf("the first state is %q", got)
			}
			second := a.write("2")
			if got := read(b, "0"); got != "1" && name != "watch" {
				t.Errorf("version 0 shows %q, want the state that the server has", got)
			}
			if got := read(b, second.ResourceVersion); got != "2" && name != "watch" {
				t.Errorf("a version of the other server shows %q", got)
			}
			a.write("3")
			if got := read(b, ""); got != "3" {
				t.Errorf("no version shows %q, want the newest state", got)
			}
			a, b = replicas(t, func(r *storetest.Replica) httpserver.Store { return hasty{r} })
			a.write("1")
			if got := b.do("GET", configMaps+"/one", nil).code; got != 404 {
				t.Errorf("a server that does not ask for the newest state shows it: %d", got)
			}
		})
	}
}

// TestContinuationInThePresentIsCurrent reads the rest of a list, whose revision is forgotten, at one server after a
// write to another.
func TestContinuationInThePresentIsCurrent(t *testing.T) {
	a, b := replicas(t, own)
	for _, name := range []string{"one", "two"} {
		a.do("POST", configMaps, configMap(name))
	}
	first := into[corev1.ConfigMapList](b, b.do("GET", configMaps+"?limit=1", nil), 200)
	text, err := base64.RawURLEncoding.DecodeString(first.Continue)
	if err != nil {
		t.Fatal(err)
	}
	present := strings.Replace(string(text), `"rv":`+first.ResourceVersion, `"rv":-1`, 1)
	if present == string(text) {
		t.Fatalf("the token %s has not the revision %s", text, first.ResourceVersion)
	}
	a.do("POST", configMaps, configMap("three"))
	token := base64.RawURLEncoding.EncodeToString([]byte(present))
	rest := into[corev1.ConfigMapList](b, b.do("GET", configMaps+"?continue="+token, nil), 200)
	if len(rest.Items) != 2 || rest.Items[0].Name != "three" {
		t.Errorf("the rest has %d objects, want the new one and the old one", len(rest.Items))
	}
}

// TestWritesAreJudgedByTheNewestState changes and removes at one server what another has written.
func TestWritesAreJudgedByTheNewestState(t *testing.T) {
	patch := func(f *fixture, body string) int {
		return f.do("PATCH", configMaps+"/one", body, "Content-Type: application/merge-patch+json").code
	}
	for name, tt := range map[string]struct {
		known bool // the second server has an older state
		write func(b *fixture, newest *corev1.ConfigMap) int
		want  int
	}{
		"update of an unknown object":    {false, func(b *fixture, cm *corev1.ConfigMap) int { return b.do("PUT", configMaps+"/one", cm).code }, 200},
		"update with the newest version": {true, func(b *fixture, cm *corev1.ConfigMap) int { return b.do("PUT", configMaps+"/one", cm).code }, 200},
		"patch of an unknown object":     {false, func(b *fixture, _ *corev1.ConfigMap) int { return patch(b, `{"data":{"x":"y"}}`) }, 200},
		"patch of an old state":          {true, func(b *fixture, _ *corev1.ConfigMap) int { return patch(b, `{"data":{"x":"y"}}`) }, 200},
		"patch with the newest version": {true, func(b *fixture, cm *corev1.ConfigMap) int {
			return patch(b, `{"metadata":{"resourceVersion":"`+cm.ResourceVersion+`"}}`)
		}, 200},
		"removal of an unknown object": {false, func(b *fixture, _ *corev1.ConfigMap) int { return b.do("DELETE", configMaps+"/one", nil).code }, 200},
		"removal with the newest version": {true, func(b *fixture, cm *corev1.ConfigMap) int {
			return b.do("DELETE", configMaps+"/one", `{"preconditions":{"resourceVersion":"`+cm.ResourceVersion+`"}}`).code
		}, 200},
		"creation of an object that is": {false, func(b *fixture, _ *corev1.ConfigMap) int { return b.do("POST", configMaps, configMap("one")).code }, 409},
		"update with a version never seen": {true, func(b *fixture, cm *corev1.ConfigMap) int {
			cm.ResourceVersion = "999"
			return b.do("PUT", configMaps+"/one", cm).code
		}, 409},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := replicas(t, own)
			newest := a.write("1")
			if tt.known {
				b.do("GET", configMaps+"/one", nil)
				newest = a.write("2")
			}
			if got := tt.write(b, newest); got != tt.want {
				t.Errorf("answer %d, want %d", got, tt.want)
			}
		})
	}
}

// TestUnreachableStore sees reads that must be current refused, with the reason, and others answered.
func TestUnreachableStore(t *testing.T) {
	a, b := replicas(t, func(r *storetest.Replica) httpserver.Store { return unreachable{r} })
	a.write("1")
	for _, path := range []string{configMaps, configMaps + "/one", configMaps + "?watch=true&timeoutSeconds=1", until(configMaps+"/one", "until", `object.data.v == "1"`)} {
		got := b.do("GET", path, nil)
		if got.code != 503 || got.header.Get("Retry-After") != "1" || !strings.Contains(got.message(), "the store cannot be reached") {
			t.Errorf("%s: %d, Retry-After %q, %s", path, got.code, got.header.Get("Retry-After"), got.body)
		}
	}
	if got := b.do("GET", configMaps+"?resourceVersion=0", nil); got.code != 200 {
		t.Errorf("a list that may be old: %d %s", got.code, got.body)
	}
}
