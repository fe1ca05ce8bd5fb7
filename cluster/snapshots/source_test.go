package snapshots_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// number returns how many times a ConfigMap was written.
func number(t testing.TB, item *codec.Item) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(item.Object().(*corev1.ConfigMap).Data["n"], "%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// byHeader takes users from the header X-User, and otherwise administrators.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (*auth.User, error) {
	if name := r.Header.Get("X-User"); name != "" {
		return &auth.User{Name: name, Groups: []string{"system:authenticated"}}, nil
	}
	return &auth.User{Name: "admin", Groups: []string{auth.GroupMasters, "system:authenticated"}}, nil
}

// seal marks Secrets in place of encrypting them.
func seal(key string, data []byte) ([]byte, error) {
	if strings.HasPrefix(key, "secrets/") {
		return append([]byte("sealed:"), data...), nil
	}
	return data, nil
}

// serve returns an API server with the path of snapshots, and its store.
func serve(t testing.TB, seal func(string, []byte) ([]byte, error)) (*apiserver.Server, *store.Store) {
	t.Helper()
	var st *store.Store
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		st = o.Store.(*store.Store)
		o.Auth = byHeader{}
		o.Paths = map[string]http.Handler{snapshots.Path: snapshots.Source{
			Freeze: st.Freeze, Seal: seal, Info: func() snapshot.Info { return snapshot.Info{Cluster: "c", ClusterID: "id"} },
		}}
	})
	return s, st
}

func do(t testing.TB, s *apiserver.Server, method, path, body, user string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User", user)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func create(t testing.TB, s *apiserver.Server, resource, body string) {
	t.Helper()
	if w := do(t, s, "POST", "/api/v1/"+resource, body, ""); w.Code != http.StatusCreated {
		t.Fatalf("creating in %s: %d %s", resource, w.Code, w.Body)
	}
}

// contents reads a snapshot.
func contents(t testing.TB, data []byte) (snapshot.Info, map[string]store.Entry, snapshot.Summary) {
	t.Helper()
	r, err := snapshot.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]store.Entry{}
	sum, err := r.Read(snapshot.Sink{Record: func(e store.Entry) error {
		e.Data = bytes.Clone(e.Data)
		all[e.Key] = e
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Info, all, sum
}

func TestSourceServesRecords(t *testing.T) {
	s, st := serve(t, seal)
	create(t, s, "namespaces", `{"metadata":{"name":"a"}}`)
	create(t, s, "namespaces/a/configmaps", `{"metadata":{"name":"c"},"data":{"k":"v"}}`)
	create(t, s, "namespaces/a/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"hidden"}}`)
	for query, form := range map[string]string{"": snapshot.Encrypted, "?secrets=encrypted": snapshot.Encrypted, "?secrets=plain": snapshot.Plain} {
		w := do(t, s, "GET", snapshots.Path+query, "", "")
		info, all, sum := contents(t, w.Body.Bytes())
		if w.Code != 200 || w.Header().Get("Content-Type") != snapshots.MediaType || info.Secrets != form || info.Revision != st.Revision() || info.Cluster != "c" || sum.Records != st.Count("namespaces/")+2 {
			t.Errorf("%q: %d, info %+v, summary %+v", query, w.Code, info, sum)
		}
		secret := all["secrets/a/s"].Data
		if got := bytes.HasPrefix(secret, []byte("sealed:")); got != (form == snapshot.Encrypted) {
			t.Errorf("%q: the Secret is saved as %q", query, secret)
		}
		// A store can load the records.
		c := all["configmaps/a/c"]
		item, err := codec.LoadItem(apiservertest.Kinds(t).Resource(configMaps), c.Data)
		if err != nil || item.Object().GetName() != "c" || string(item.Object().GetUID()) == "" {
			t.Errorf("%q: the ConfigMap is %v, error %v", query, item, err)
		}
		if now, err := st.Get("configmaps/a/c"); err != nil || now.Revision != c.Revision || now.Created != c.Created {
			t.Errorf("%q: the ConfigMap has revision %d, in the store %v (%v)", query, c.Revision, now.Revision, err)
		}
	}
}

func TestSourceIsForAdministrators(t *testing.T) {
	s, _ := serve(t, seal)
	for _, c := range []struct {
		method, path, user string
		code               int
		want               string
	}{
		{"GET", snapshots.Path, "jane", 403, `forbidden: User \"jane\" cannot get path \"/sampan/v1/snapshot\"`},
		{"GET", snapshots.Path, "system:anonymous", 403, "forbidden"},
		{"POST", snapshots.Path, "", 405, "POST is not supported"},
		{"GET", snapshots.Path + "?secrets=open", "", 400, `secrets: must be encrypted or plain, got \"open\"`},
		{"HEAD", snapshots.Path, "", 200, ""},
		{"GET", snapshots.Path + "/x", "", 404, "404 page not found"},
	} {
		w := do(t, s, c.method, c.path, "", c.user)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s as %q: %d %s, want %d %s", c.method, c.path, c.user, w.Code, w.Body, c.code, c.want)
		}
	}
}

// A snapshot that cannot be finished is cut off: its reader sees that.
func TestSourceCutsOffOnAnError(t *testing.T) {
	var broken atomic.Bool
	s, _ := serve(t, func(key string, data []byte) ([]byte, error) {
		if broken.Load() && strings.HasPrefix(key, "secrets/") {
			return nil, errors.New("no key")
		}
		return data, nil
	})
	create(t, s, "namespaces/default/secrets", `{"metadata":{"name":"s"}}`)
	broken.Store(true)
	aborted := func() (fault any) {
		defer func() { fault = recover() }()
		do(t, s, "GET", snapshots.Path, "", "")
		return nil
	}()
	if aborted != http.ErrAbortHandler {
		t.Errorf("the answer ended with %v, want an aborted one", aborted)
	}
}

var rounds = flag.Int("snapshots", 50, "snapshots of TestSourceIsConsistentDuringWrites")

// Each of many snapshots during writes is the state at exactly its revision: it has the newest write to each object up
// to there, by its revision and contents.
func TestSourceIsConsistentDuringWrites(t *testing.T) {
	const writers, objects = 8, 4 // of each
	s, _ := serve(t, seal)
	type write struct {
		revision store.Revision
		turn     int
	}
	name := func(writer, turn int) string { return fmt.Sprintf("c-%d-%d", writer, turn%objects) }
	log := make([]map[string][]write, writers)
	put := func(writer, turn int, method, path string) bool {
		object := name(writer, turn)
		w := do(t, s, method, path, fmt.Sprintf(`{"metadata":{"name":"%s"},"data":{"n":"%d"}}`, object, turn), "")
		var got corev1.ConfigMap
		err := json.Unmarshal(w.Body.Bytes(), &got)
		revision, revisionErr := strconv.ParseUint(got.ResourceVersion, 10, 64)
		if err := errors.Join(err, revisionErr); w.Code >= 300 || err != nil {
			t.Errorf("%s: %d %s, %v", object, w.Code, w.Body, err)
			return false
		}
		log[writer][object] = append(log[writer][object], write{store.Revision(revision), turn})
		return true
	}
	writing := run.NewGroup(t.Context(), 0)
	var done atomic.Bool
	var all atomic.Int64
	began := time.Now()
	for i := range writers {
		log[i] = map[string][]write{}
		for turn := range objects {
			put(i, turn, "POST", "/api/v1/namespaces/default/configmaps")
		}
		writing.Go(func(context.Context) {
			for turn := objects; !done.Load(); turn++ {
				if !put(i, turn, "PUT", "/api/v1/namespaces/default/configmaps/"+name(i, turn)) {
					return
				}
				all.Add(1)
			}
		})
	}
	type taken struct {
		revision store.Revision
		has      map[string]write
	}
	var snaps []taken
	kind := apiservertest.Kinds(t).Resource(configMaps)
	for range *rounds {
		info, records, _ := contents(t, do(t, s, "GET", snapshots.Path, "", "").Body.Bytes())
		snap := taken{info.Revision, map[string]write{}}
		for key, e := range records {
			object, ok := strings.CutPrefix(key, "configmaps/default/c-")
			if !ok {
				continue
			}
			item, err := codec.LoadItem(kind, e.Data)
			if err != nil {
				t.Fatal(err)
			}
			snap.has["c-"+object] = write{e.Revision, number(t, item)}
		}
		snaps = append(snaps, snap)
	}
	done.Store(true)
	writing.Wait()
	t.Logf("%d snapshots during %d writes, %.0f a second", len(snaps), all.Load(), float64(all.Load())/time.Since(began).Seconds())
	for _, snap := range snaps {
		for i := range writers {
			for object, writes := range log[i] {
				at, found := slices.BinarySearchFunc(writes, snap.revision, func(w write, to store.Revision) int { return cmp.Compare(w.revision, to) })
				if !found {
					at--
				}
				if at < 0 || snap.has[object] != writes[at] {
					t.Errorf("at revision %d %s is %+v, written were %+v", snap.revision, object, snap.has[object], writes[max(at-1, 0):min(at+2, len(writes))])
				}
			}
		}
	}
	if all.Load() == 0 {
		t.Error("nothing was written meanwhile")
	}
}
