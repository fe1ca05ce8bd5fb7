package snapshots_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

// resettable returns an API server whose objects can be put back, by a Reset that adjust changes before.
func resettable(t testing.TB, adjust ...func(*snapshots.Reset)) (*apiserver.Server, *store.Store) {
	t.Helper()
	var st *store.Store
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		st = o.Store.(*store.Store)
		o.Auth = byHeader{}
		reset := &snapshots.Reset{
			Store: st, Cluster: "c", Ancestors: []string{"mother", "grandmother"}, Decode: codec.NewLoader(o.Catalog).Decode, ID: func() string { return "id" },
			Kinds: func() []*catalog.Kind { return o.Catalog.Snapshot().Hubs() },
		}
		for _, f := range adjust {
			f(reset)
		}
		o.Paths = map[string]http.Handler{snapshots.Path: snapshots.Source{
			Freeze: st.Freeze, Seal: seal,
			Info: func() snapshot.Info { return snapshot.Info{Cluster: "c", ClusterID: "id"} },
			Put:  reset,
		}}
	})
	return s, st
}

// contentsOf returns the records of a store, without their revisions.
func contentsOf(t testing.TB, s *store.Store) (all []string) {
	t.Helper()
	for _, e := range dump(t, s) {
		all = append(all, e.Key+"="+string(e.Data))
	}
	return all
}

func TestResetPutsObjectsBack(t *testing.T) {
	s, st := resettable(t)
	create(t, s, "namespaces", `{"metadata":{"name":"a"}}`)
	create(t, s, "nodes", `{"metadata":{"name":"n"}}`)
	for _, name := range []string{"same", "changed", "deleted"} {
		create(t, s, "namespaces/a/configmaps", `{"metadata":{"name":"`+name+`"},"data":{"k":"v"}}`)
	}
	create(t, s, "namespaces/a/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"v"}}`)
	before := contentsOf(t, st)
	taken := do(t, s, "GET", snapshots.Path+"?secrets=plain", "", "").Body.Bytes()

	watch, err := st.List(store.Query{Prefix: "configmaps/"}, store.Page{})
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, "PUT", "/api/v1/namespaces/a/configmaps/changed", `{"metadata":{"name":"changed"},"data":{"k":"other"}}`, "")
	do(t, s, "DELETE", "/api/v1/namespaces/a/configmaps/deleted", "", "")
	do(t, s, "DELETE", "/api/v1/namespaces/a/secrets/s", "", "")
	create(t, s, "namespaces/a/configmaps", `{"metadata":{"name":"later"}}`)
	create(t, s, "namespaces", `{"metadata":{"name":"b"}}`)
	create(t, s, "namespaces/b/configmaps", `{"metadata":{"name":"kube-root-ca.crt"}}`)
	create(t, s, "namespaces/b/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"b"}}`)
	changed := st.Revision()

	w := do(t, s, "PUT", snapshots.Path, string(taken), "")
	var out snapshots.Reverted
	if err := json.Unmarshal(w.Body.Bytes(), &out); w.Code != 200 || err != nil {
		t.Fatalf("%d %s (%v)", w.Code, w.Body, err)
	}
	if out.Written != 3 || out.Deleted != 4 {
		t.Errorf("%+v, want 3 written and 4 deleted", out)
	}
	if after := contentsOf(t, st); !slices.Equal(after, before) {
		t.Errorf("after the reset there is\n%q\nwant\n%q", after, before)
	}
	// A watch that was there before goes on and ends with the same objects; nothing has an old revision.
	have := map[string]bool{}
	for _, r := range watch.Records {
		have[r.Key] = true
	}
	for ev, err := range st.Watch(t.Context(), store.Query{Prefix: "configmaps/"}, watch.Revision) {
		if err != nil {
			t.Fatal(err)
		}
		have[ev.Key] = !ev.Deleted
		if ev.Revision == st.Revision() || ev.Revision > changed && have["configmaps/a/deleted"] && !have["configmaps/a/later"] && !have["configmaps/b/kube-root-ca.crt"] {
			break
		}
	}
	if !have["configmaps/a/deleted"] || have["configmaps/a/later"] || have["configmaps/b/kube-root-ca.crt"] {
		t.Errorf("a watch ends with %v", have)
	}
	// A second time there is nothing to do.
	revision := st.Revision()
	if w := do(t, s, "PUT", snapshots.Path, string(taken), ""); w.Code != 200 || st.Revision() != revision {
		t.Errorf("a second reset: %d, %d writes", w.Code, st.Revision()-revision)
	}
}

// An object that is being deleted is one of the snapshot after the reset, and not the one that clients take for lost.
func TestResetRecreatesDeletedObjects(t *testing.T) {
	s, st := resettable(t)
	const finalizers = `"finalizers":["example.org/f"]`
	create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"c",`+finalizers+`},"data":{"k":"v"}}`)
	create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"both",`+finalizers+`}}`)
	pod := func(name string) {
		create(t, s, "namespaces/default/pods", `{"metadata":{"name":"`+name+`",`+finalizers+`},"spec":{"containers":[{"name":"a","image":"i"}]}}`)
	}
	pod("p")
	pod("pboth")
	create(t, s, "namespaces/default/persistentvolumeclaims", `{"metadata":{"name":"v",`+finalizers+`},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	remove := func(path string) {
		if w := do(t, s, "DELETE", "/api/v1/namespaces/default/"+path, "", ""); w.Code >= 300 {
			t.Fatalf("deleting %s: %d %s", path, w.Code, w.Body)
		}
	}
	remove("configmaps/both")
	remove("pods/pboth")
	state := func(key string) (uid types.UID, ending bool) {
		rec, err := st.Get(key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		obj := rec.Value.(*codec.Item).Object()
		return obj.GetUID(), obj.GetDeletionTimestamp() != nil
	}
	keys := []string{"configmaps/default/c", "pods/default/p", "persistentvolumeclaims/default/v", "configmaps/default/both", "pods/default/pboth"}
	before := map[string]types.UID{}
	for _, key := range keys {
		before[key], _ = state(key)
	}
	taken := do(t, s, "GET", snapshots.Path+"?secrets=plain", "", "").Body.Bytes()
	remove("configmaps/c")
	remove("pods/p")
	remove("persistentvolumeclaims/v")
	at := st.Revision()
	if w := do(t, s, "PUT", snapshots.Path, string(taken), ""); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for i, key := range keys {
		uid, ending := state(key)
		if both := i > 2; ending != both {
			t.Errorf("%s is being deleted: %v, want %v", key, ending, both)
		}
		// The node may still be ending the containers of the pod, so the new one is another one.
		if renewed := i == 1 || i == 2; renewed == (uid == before[key]) {
			t.Errorf("%s has the UID %s, before %s", key, uid, before[key])
		}
	}
	for i, key := range keys {
		if i > 2 { // nothing has written it
			if rec, err := st.Get(key); err != nil || rec.Revision > at {
				t.Errorf("%s was written (%v)", key, err)
			}
			continue
		}
		resource, _, _ := strings.Cut(key, "/")
		for ev, err := range st.Watch(t.Context(), store.Query{Prefix: resource + "/"}, at) {
			if err != nil || ev.Key == key {
				if err != nil || !ev.Deleted {
					t.Errorf("the first event of %s is not a deletion (%v)", key, err)
				}
				break
			}
		}
	}
}

// of returns a snapshot of the objects, as one of the cluster other with that ID.
func of(t testing.TB, st *store.Store, id string) []byte {
	t.Helper()
	var out bytes.Buffer
	source := snapshots.Source{Freeze: st.Freeze, Info: func() snapshot.Info { return snapshot.Info{Cluster: "other", ClusterID: id} }}
	if _, err := source.Write(t.Context(), &out, true); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A snapshot may be of a cluster that this one was made from, or of any with force.
func TestResetToAnAncestor(t *testing.T) {
	s, st := resettable(t)
	for id, query := range map[string]string{"mother": "", "grandmother": "?force=false", "stranger": "?force=true"} {
		create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"`+id+`"}}`)
		if w := do(t, s, "PUT", snapshots.Path+query, string(of(t, st, id)), ""); w.Code != 200 {
			t.Errorf("%s: %d %s", id, w.Code, w.Body)
		}
	}
}

func TestResetRefusesBadInput(t *testing.T) {
	s, st := resettable(t)
	create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	create(t, s, "namespaces/default/secrets", `{"metadata":{"name":"s"}}`)
	plain := do(t, s, "GET", snapshots.Path+"?secrets=plain", "", "").Body.Bytes()
	sealed := do(t, s, "GET", snapshots.Path, "", "").Body.Bytes()
	create(t, s, "namespaces/default/configmaps", `{"metadata":{"name":"b"}}`)
	revision := st.Revision()
	flipped := bytes.Clone(plain)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		body  []byte
		user  string
		query string
		code  int
		want  string
	}{
		"no administrator": {plain, "jane", "", 403, `cannot put path`},
		"nothing":          {nil, "", "", 400, "it is not a snapshot"},
		"cut off":          {plain[:len(plain)-3], "", "", 400, "ends in the middle of a frame"},
		"flipped":          {flipped, "", "", 400, "the checksum of a frame is wrong"},
		"encrypted":        {sealed, "", "", 400, "the Secrets in the snapshot are encrypted"},
		"another cluster":  {of(t, st, "stranger"), "", "", 400, "the snapshot is of cluster other (ID stranger), and cluster c (ID id) was not made from that one"},
		"no ID":            {of(t, st, ""), "", "?force=false", 400, "was not made from that one"},
		"bad parameter":    {plain, "", "?force=maybe", 400, `force: must be true or false, got \"maybe\"`},
	} {
		w := do(t, s, "PUT", snapshots.Path+c.query, string(c.body), c.user)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, c.code, c.want)
		}
	}
	if now := st.Revision(); now != revision {
		t.Errorf("bad input made %d writes", now-revision)
	}
}
