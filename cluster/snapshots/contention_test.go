package snapshots_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

const plainSnapshot = snapshots.Path + "?secrets=plain"

// ofCluster describes a snapshot of the cluster of resettable.
var ofCluster = snapshot.Info{Cluster: "c", ClusterID: "id", Revision: 1 << 20, Secrets: snapshot.Plain}

// service makes a Service with an address and a node port.
func service(t testing.TB, s *apiserver.Server, name string, last, port int) {
	t.Helper()
	create(t, s, "namespaces/default/services", fmt.Sprintf(
		`{"metadata":{"name":%q},"spec":{"type":"NodePort","clusterIP":"10.96.0.%d","clusterIPs":["10.96.0.%[2]d"],"ports":[{"port":80,"nodePort":%[3]d}]}}`, name, last, port))
}

func remove(t testing.TB, s *apiserver.Server, path string) {
	t.Helper()
	if w := do(t, s, "DELETE", path, "", ""); w.Code != http.StatusOK {
		t.Fatalf("deleting %s: %d %s", path, w.Code, w.Body)
	}
}

// Services that have swapped their addresses or node ports get them back.
func TestResetMovesClaims(t *testing.T) {
	const services = "/api/v1/namespaces/default/services/"
	for name, change := range map[string]func(t testing.TB, s *apiserver.Server){
		"swapped": func(t testing.TB, s *apiserver.Server) {
			service(t, s, "a", 201, 31002)
			service(t, s, "b", 200, 31001)
		},
		"one node port": func(t testing.TB, s *apiserver.Server) {
			service(t, s, "a", 200, 31002)
			service(t, s, "b", 201, 31001)
		},
		"in a row": func(t testing.TB, s *apiserver.Server) {
			service(t, s, "a", 201, 31002)
			service(t, s, "b", 202, 31003)
		},
		"in a new one": func(t testing.TB, s *apiserver.Server) { service(t, s, "c", 201, 31001) },
		"IPAddress of a user": func(t testing.TB, s *apiserver.Server) {
			w := do(t, s, "POST", "/apis/networking.k8s.io/v1/ipaddresses", `{"metadata":{"name":"10.96.0.200"},"spec":{"parentRef":{"resource":"configmaps","namespace":"default","name":"x"}}}`, "")
			if w.Code != http.StatusCreated {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, st := resettable(t)
			service(t, s, "a", 200, 31001)
			service(t, s, "b", 201, 31002)
			before := contentsOf(t, st)
			taken := do(t, s, "GET", plainSnapshot, "", "").Body.String()
			remove(t, s, services+"a")
			remove(t, s, services+"b")
			change(t, s)
			if w := do(t, s, "PUT", snapshots.Path, taken, ""); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if after := contentsOf(t, st); !slices.Equal(after, before) {
				t.Errorf("after the reset there is\n%q\nwant\n%q", after, before)
			}
		})
	}
}

// A snapshot whose claims contradict each other, or those of an object that stays, is refused before the first write.
func TestResetRefusesClaims(t *testing.T) {
	s, st := resettable(t)
	create(t, s, "namespaces", `{"metadata":{"name":"default"}}`)
	service(t, s, "a", 200, 31001)
	one := entries(t, do(t, s, "GET", plainSnapshot, "", "").Body.Bytes())
	remove(t, s, "/api/v1/namespaces/default/services/a")
	service(t, s, "b", 200, 31002)
	both := append(entries(t, do(t, s, "GET", plainSnapshot, "", "").Body.Bytes()), one...)
	remove(t, s, "/api/v1/namespaces/default/services/b")
	service(t, s, "kubernetes", 200, 31003)
	at := st.Revision()
	for want, c := range map[string][]store.Entry{
		"the snapshot has clusterIP=10.96.0.200 in services/default/a and in services/default/b, and only one object may have it":                                    both,
		"the snapshot has clusterIP=10.96.0.200 in services/default/a, and in this cluster it belongs to services/default/kubernetes, which a reset does not change": one,
	} {
		w := do(t, s, "PUT", snapshots.Path, string(written(t, ofCluster, c)), "")
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want 400 %s", w.Code, w.Body, want)
		}
	}
	if st.Revision() != at {
		t.Errorf("%d writes", st.Revision()-at)
	}
}

// interfere makes others write an object before each of the first n writes of a reset to it, if they are enabled.
func interfere(key string, n int64, other func()) (adjust func(*snapshots.Reset), enable func()) {
	var left atomic.Int64
	return func(r *snapshots.Reset) {
		decode := r.Decode
		first := true // the one that checks the snapshot
		r.Decode = func(k string, data []byte) (store.Value, error) {
			if k == key && !first && left.Add(-1) >= 0 {
				other()
			}
			first = first && k != key
			return decode(k, data)
		}
	}, func() { left.Store(n) }
}

func TestResetWinsAgainstWriters(t *testing.T) {
	const (
		configMaps = "/api/v1/namespaces/default/configmaps"
		c          = `{"metadata":{"name":"c"},"data":{"k":"%s"}}`
	)
	type server = *apiserver.Server
	update := func(t testing.TB, s server, v string) {
		t.Helper()
		if w := do(t, s, "PUT", configMaps+"/c", fmt.Sprintf(c, v), ""); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	replace := func(t testing.TB, s server) {
		t.Helper()
		remove(t, s, configMaps+"/c")
		create(t, s, "namespaces/default/configmaps", fmt.Sprintf(c, "replaced"))
	}
	for name, test := range map[string]struct {
		other  func(t testing.TB, s server)
		times  int64
		refuse bool
	}{
		"an update":          {other: func(t testing.TB, s server) { update(t, s, "meanwhile") }, times: 1},
		"a new object":       {other: replace, times: 1},
		"always another":     {other: replace, times: 1 << 20, refuse: true},
		"a deletion":         {other: func(t testing.TB, s server) { remove(t, s, configMaps+"/c") }, times: 1},
		"nothing in the way": {other: func(testing.TB, server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			var s server
			adjust, enable := interfere("configmaps/default/c", test.times, func() { test.other(t, s) })
			s, st := resettable(t, adjust)
			create(t, s, "namespaces/default/configmaps", fmt.Sprintf(c, "v"))
			create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"d"}}`)
			before := contentsOf(t, st)
			taken := do(t, s, "GET", plainSnapshot, "", "").Body.String()
			update(t, s, "changed")
			if test.refuse {
				remove(t, s, configMaps+"/d")
			}
			enable()
			w := do(t, s, "PUT", snapshots.Path, taken, "")
			if !test.refuse {
				if after := contentsOf(t, st); w.Code != http.StatusOK || !slices.Equal(after, before) {
					t.Errorf("%d %s, and after the reset there is\n%q\nwant\n%q", w.Code, w.Body, after, before)
				}
				return
			}
			const want = "other clients have changed objects while they were reset: 1, such as configmaps/default/c; all others are as in the snapshot"
			if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%d %s, want 409 %s", w.Code, w.Body, want)
			}
			if _, err := st.Get("configmaps/default/d"); err != nil {
				t.Errorf("the other object: %v", err)
			}
		})
	}
}

func TestResetRunsAlone(t *testing.T) {
	var s *apiserver.Server
	var taken string
	code := 0
	adjust, enable := interfere("configmaps/default/c", 1, func() {
		w := do(t, s, "PUT", snapshots.Path, taken, "")
		if code = w.Code; !strings.Contains(w.Body.String(), "another reset is under way") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
	s, _ = resettable(t, adjust)
	create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"c"}}`)
	taken = do(t, s, "GET", plainSnapshot, "", "").Body.String()
	remove(t, s, "/api/v1/namespaces/default/configmaps/c")
	enable()
	if w := do(t, s, "PUT", snapshots.Path, taken, ""); w.Code != http.StatusOK || code != http.StatusConflict {
		t.Errorf("the first reset: %d %s, the second: %d, want 200 and 409", w.Code, w.Body, code)
	}
}

// Records that do not decode are found before the first write, even if all checksums are right.
func TestResetRefusesBadRecords(t *testing.T) {
	s, st := resettable(t)
	create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"c"}}`)
	all := entries(t, do(t, s, "GET", plainSnapshot, "", "").Body.Bytes())
	at := st.Revision()
	for _, data := range []string{"", "{}", "k8s\x00\xff\xff", "{\"kind\":"} {
		bad := append(all, store.Entry{Key: "secrets/default/bad", Data: []byte(data), Created: 1, Revision: 1})
		w := do(t, s, "PUT", snapshots.Path, string(written(t, ofCluster, bad)), "")
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `record \"secrets/default/bad\" of the snapshot cannot be read`) {
			t.Errorf("%q: %d %s", data, w.Code, w.Body)
		}
	}
	if st.Revision() != at {
		t.Errorf("%d writes", st.Revision()-at)
	}
}
