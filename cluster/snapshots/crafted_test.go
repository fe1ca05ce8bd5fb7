package snapshots_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

// entries returns the records of a snapshot.
func entries(t testing.TB, data []byte) (all []store.Entry) {
	t.Helper()
	_, records, _ := contents(t, data)
	for _, e := range records {
		all = append(all, e)
	}
	return all
}

// written returns a snapshot with the last of the records of each key.
func written(t testing.TB, info snapshot.Info, all []store.Entry) []byte {
	t.Helper()
	byKey, keys := map[string]store.Entry{}, []string{}
	for _, e := range all {
		if _, ok := byKey[e.Key]; !ok {
			keys = append(keys, e.Key)
		}
		byKey[e.Key] = e
	}
	slices.Sort(keys)
	var out bytes.Buffer
	w, err := snapshot.NewWriter(&out, info)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := w.Add(byKey[key]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(0); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Snapshots that no cluster saves, with right checksums, make no cluster.
func TestRestoreRefusesCraftedSnapshots(t *testing.T) {
	o := newOriginal(t, 1)
	info, _, _ := contents(t, o.plain)
	with := func(change func(*store.Entry)) []store.Entry {
		all := entries(t, o.plain)
		for i := range all {
			change(&all[i])
		}
		return all
	}
	keys := info
	keys.Keys = true
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"bad record":           {written(t, info, append(entries(t, o.plain), store.Entry{Key: "secrets/default/bad", Data: []byte("x"), Created: 1, Revision: 1})), `record "secrets/default/bad" of the snapshot cannot be read`},
		"all records expire":   {written(t, info, with(func(e *store.Entry) { e.Expires = 1 })), "of the snapshot expires, and only Events may"},
		"keys in a plain file": {written(t, keys, entries(t, o.plain)), "only an encrypted file may have them"},
	} {
		p := profile(t.TempDir())
		_, err := snapshots.Restore(t.Context(), bytes.NewReader(c.data), snapshots.Restoration{Profile: p, Settings: asked})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if _, err := os.Stat(p.DataDir); err == nil {
			t.Errorf("%s: there is a data directory", name)
		}
	}
	events := func(e *store.Entry) {
		if strings.HasPrefix(e.Key, "events/") {
			e.Expires = 1 << 50
		}
	}
	if _, err := snapshots.Restore(t.Context(), bytes.NewReader(written(t, info, with(events))), snapshots.Restoration{Profile: profile(t.TempDir()), Settings: asked}); err != nil {
		t.Errorf("with an Event that expires: %v", err)
	}
}
