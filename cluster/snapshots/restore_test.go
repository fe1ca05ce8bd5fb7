package snapshots_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/encryption"
	"github.com/sampan-io/sampan/store/snapshot"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SAMPAN_RESTORE_TEST_DIR"); dir != "" {
		if err := restoreForTest(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// An original is a cluster with keys and a snapshot of it.
type original struct {
	pki      string // directory
	snapshot []byte // with encrypted Secrets
	plain    []byte
}

const settings = `{"simulatedNodes":2,"nodeName":"n","pods":"10.244.0.0/16","services":"10.96.0.0/16"}`

// newOriginal makes a cluster with pods, a Secret and a Lease.
func newOriginal(t testing.TB, pods int) original {
	t.Helper()
	o := original{pki: filepath.Join(t.TempDir(), "pki")}
	if err := os.MkdirAll(o.pki, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"ca.key": "key of the authority", "ca.crt": "certificate"} {
		if err := os.WriteFile(filepath.Join(o.pki, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := encryption.New(encryption.Options{Keys: filepath.Join(o.pki, "encryption.yaml")})
	if err == nil {
		err = e.Save(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	s, st := serve(t, e.Seal)
	create(t, s, "namespaces", `{"metadata":{"name":"kube-system"}}`)
	create(t, s, "namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"hidden-value"}}`)
	create(t, s, "namespaces/default/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`)
	for i := range pods {
		create(t, s, "namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"c%06d"},"data":{"k":"%0500d"}}`, i, i))
	}
	id := "" // of the cluster
	for _, entry := range dump(t, st) {
		if entry.Key == "namespaces/kube-system" {
			id = uid(t, "namespaces", entry)
		}
	}
	source := snapshots.Source{Freeze: st.Freeze, Seal: e.Seal, Info: func() snapshot.Info {
		return snapshot.Info{Cluster: "original", ClusterID: id, Settings: json.RawMessage(settings)}
	}}
	for plain, to := range map[bool]*[]byte{false: &o.snapshot, true: &o.plain} {
		var out bytes.Buffer
		if _, err := source.Write(t.Context(), &out, plain); err != nil {
			t.Fatal(err)
		}
		*to = out.Bytes()
	}
	return o
}

// dump returns the records of a store in memory.
func dump(t testing.TB, s *store.Store) (all []store.Entry) {
	t.Helper()
	for rec := range s.Freeze().All() {
		data, _ := new(codec.Saver).Saved(rec.Value)
		all = append(all, store.Entry{Key: rec.Key, Data: data})
	}
	return all
}

func object(t testing.TB, resource string, e store.Entry) catalog.Object {
	t.Helper()
	item, err := codec.LoadItem(apiservertest.Kinds(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}), e.Data)
	if err != nil {
		t.Fatal(err)
	}
	return item.Object()
}

func uid(t testing.TB, resource string, e store.Entry) string {
	t.Helper()
	return string(object(t, resource, e).GetUID())
}

// asked are the settings of an independent cluster in these tests.
func asked(d snapshots.Description) (local.Settings, error) { return d.ClusterSettings(), nil }

func profile(dir string) local.Profile {
	return local.Profile{Name: "copy", DataDir: filepath.Join(dir, "copy"), RunDir: filepath.Join(dir, "run", "copy")}
}

// stored returns the records in a data directory, and the newest revision.
func stored(t testing.TB, p local.Profile) (map[string]store.Entry, store.Revision) {
	t.Helper()
	b, err := disk.Open(filepath.Join(p.DataDir, "store"), disk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]store.Entry{}
	revision, err := b.Load(t.Context(), func(e store.Entry) error {
		e.Data = bytes.Clone(e.Data)
		all[e.Key] = e
		return nil
	})
	if err = errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	return all, revision
}

func opened(t testing.TB, keys string, e store.Entry) (string, error) {
	t.Helper()
	with, err := encryption.New(encryption.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	data, err := with.Open(e.Key, e.Data)
	return string(data), err
}

func TestRestoreMakesAnIndependentCluster(t *testing.T) {
	o := newOriginal(t, 3)
	oldKeys := filepath.Join(o.pki, "encryption.yaml")
	for name, c := range map[string]struct {
		data []byte
		r    snapshots.Restoration
	}{
		"with keys of Secrets":       {o.snapshot, snapshots.Restoration{Decryption: oldKeys}},
		"with keys that are found":   {o.snapshot, snapshots.Restoration{FindKeys: func(string) string { return oldKeys }}},
		"with Secrets that are open": {o.plain, snapshots.Restoration{}},
	} {
		p := profile(t.TempDir())
		c.r.Profile, c.r.Settings = p, asked
		r, err := snapshots.Restore(t.Context(), bytes.NewReader(c.data), c.r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all, revision := stored(t, p)
		if revision != r.Revision || r.Same || r.Records != len(all) || r.Dropped == 0 || all["configmaps/default/c000002"].Data == nil || all["events/default/e"].Data != nil {
			t.Errorf("%s: %d records at %d, result %+v", name, len(all), revision, r)
		}
		if text, err := opened(t, p.EncryptionKeys(), all["secrets/default/s"]); err != nil || !strings.Contains(text, "hidden-value") {
			t.Errorf("%s: the Secret is %q, %v", name, text, err)
		}
		if bytes.Contains(all["secrets/default/s"].Data, []byte("hidden-value")) {
			t.Errorf("%s: the Secret is not encrypted on disk", name)
		}
		if _, err := opened(t, oldKeys, all["secrets/default/s"]); err == nil {
			t.Errorf("%s: the original's keys open a Secret of the new cluster", name)
		}
		if id := uid(t, "namespaces", all["namespaces/kube-system"]); id == r.ClusterID {
			t.Errorf("%s: the new cluster has the ID of the original", name)
		}
		if _, err := os.Stat(filepath.Join(p.DataDir, "pki", "ca.key")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a key of the authority: %v", name, err)
		}
		if holds, err := p.Holds(); !holds || err != nil {
			t.Errorf("%s: the directory is not that of a cluster: %v, %v", name, holds, err)
		}
	}
}

// A cluster knows the clusters that it was made from, so that it can be reset to their snapshots.
func TestRestoreRecordsAncestors(t *testing.T) {
	var of local.Settings
	for i := range local.MaxAncestors + 3 {
		of.DescendFrom(fmt.Sprint(i), of)
	}
	if n := len(of.Ancestors); n != local.MaxAncestors || of.Ancestors[0] != fmt.Sprint(n+2) {
		t.Errorf("%d ancestors, the first one is %s", n, of.Ancestors[0])
	}
	o := newOriginal(t, 0)
	p := profile(filepath.Join(t.TempDir(), "new"))
	r, err := snapshots.Restore(t.Context(), bytes.NewReader(o.plain), snapshots.Restoration{Profile: p, Settings: asked})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Settle(local.Settings{}, nil)
	if err != nil || len(s.Ancestors) != 1 || s.Ancestors[0] != r.ClusterID {
		t.Errorf("the ancestors are %v (%v), want %s", s.Ancestors, err, r.ClusterID)
	}
}

func TestRestoreWithKeysIsTheSameCluster(t *testing.T) {
	o := newOriginal(t, 3)
	pass := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(pass, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := snapshots.Keys{PassphraseFile: pass}
	var file bytes.Buffer
	if _, err := snapshots.WriteFile(&file, bytes.NewReader(o.plain), snapshots.Filing{Keys: keys, PKI: o.pki}); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(file.Bytes(), []byte("hidden-value")) || bytes.Contains(file.Bytes(), []byte("key of the authority")) {
		t.Error("the file is not encrypted")
	}
	if _, err := snapshots.Inspect(bytes.NewReader(file.Bytes()), snapshots.Keys{}); !errors.Is(err, snapshots.ErrSealed) {
		t.Errorf("inspected without the passphrase: %v", err)
	}
	p := profile(t.TempDir())
	r, err := snapshots.Restore(t.Context(), bytes.NewReader(file.Bytes()), snapshots.Restoration{Profile: p, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	all, revision := stored(t, p)
	if !r.Same || revision < r.Revision+1e9 || len(all) != r.Summary.Records {
		t.Errorf("%d records at revision %d, result %+v", len(all), revision, r)
	}
	if key, err := os.ReadFile(filepath.Join(p.DataDir, "pki", "ca.key")); string(key) != "key of the authority" || err != nil {
		t.Errorf("the key of the authority is %q, %v", key, err)
	}
	if text, err := opened(t, filepath.Join(o.pki, "encryption.yaml"), all["secrets/default/s"]); err != nil || !strings.Contains(text, "hidden-value") {
		t.Errorf("the Secret is %q, %v", text, err)
	}
	if id := uid(t, "namespaces", all["namespaces/kube-system"]); id != r.ClusterID {
		t.Errorf("the cluster has ID %s, want %s", id, r.ClusterID)
	}
	// A copy without them is another cluster.
	q := profile(t.TempDir())
	if r, err := snapshots.Restore(t.Context(), bytes.NewReader(file.Bytes()), snapshots.Restoration{Profile: q, Keys: keys, Settings: asked, Independent: true}); err != nil || r.Same {
		t.Errorf("an independent cluster: %+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(q.DataDir, "pki", "ca.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the independent cluster has the key of the authority: %v", err)
	}
}

func TestWriteFileKeepsSecrets(t *testing.T) {
	o := newOriginal(t, 1)
	for name, c := range map[string]struct {
		in   []byte
		f    snapshots.Filing
		want string
	}{
		"open Secrets":            {o.plain, snapshots.Filing{}, "the Secrets in the snapshot are not encrypted"},
		"keys":                    {o.snapshot, snapshots.Filing{PKI: o.pki}, "--with-keys: needs --passphrase-file or --key-file"},
		"no passphrase":           {o.plain, snapshots.Filing{Keys: snapshots.Keys{PassphraseFile: "/dev/null"}}, "must have at least 8 bytes, got 0"},
		"no key":                  {o.plain, snapshots.Filing{Keys: snapshots.Keys{KeyFile: "/dev/null"}}, "must have identities"},
		"an answer that is short": {o.snapshot[:len(o.snapshot)-1], snapshots.Filing{}, "the snapshot ends in the middle of a frame"},
	} {
		if _, err := snapshots.WriteFile(io.Discard, bytes.NewReader(c.in), c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// left returns the names in a directory.
func left(t testing.TB, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestRestoreOfBadInputChangesNothing(t *testing.T) {
	o := newOriginal(t, 300)
	try := func(name string, data []byte, r snapshots.Restoration, want string) {
		t.Helper()
		dir := t.TempDir()
		r.Profile, r.Settings = profile(dir), asked
		_, err := snapshots.Restore(t.Context(), bytes.NewReader(data), r)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("%s: left %v", name, names)
		}
	}
	try("no keys", o.snapshot, snapshots.Restoration{}, "\"secrets/default/s\" is encrypted in the snapshot with the keys of cluster original: pass its file pki/encryption.yaml with --decryption-keys")
	try("missing file", o.snapshot, snapshots.Restoration{Decryption: "/nonexistent"}, "--decryption-keys: stat /nonexistent")
	try("foreign", []byte("hello"), snapshots.Restoration{}, "it is not a snapshot")
	for n := 0; n < len(o.plain); n += 1 + len(o.plain)/50 {
		try(fmt.Sprintf("cut off at %d", n), o.plain[:n], snapshots.Restoration{}, "snapshot")
		bad := bytes.Clone(o.plain)
		bad[n] ^= 4
		try(fmt.Sprintf("byte %d flipped", n), bad, snapshots.Restoration{}, "snapshot")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := snapshots.Restore(ctx, bytes.NewReader(o.plain), snapshots.Restoration{Profile: profile(t.TempDir()), Settings: asked}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	// There is something in its place.
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "copy", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshots.Restore(t.Context(), bytes.NewReader(o.plain), snapshots.Restoration{Profile: profile(dir), Settings: asked}); err == nil || !strings.Contains(err.Error(), "is not empty; nothing was changed") {
		t.Errorf("onto a directory: got %v", err)
	}
}

func TestRestoreOnAFullDisk(t *testing.T) {
	o := newOriginal(t, 3000) // 2 MB
	nstest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		r := snapshots.Restoration{Profile: profile(dir), Settings: asked}
		if _, err := snapshots.Restore(t.Context(), bytes.NewReader(o.plain), r); !errors.Is(err, store.ErrFull) {
			t.Errorf("got %v, want %v", err, store.ErrFull)
		}
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("left %v", names)
		}
	})
}

// restoreForTest restores snapshot.file in dir.
func restoreForTest(dir string) error {
	f, err := os.Open(filepath.Join(dir, "snapshot.file"))
	if err != nil {
		return err
	}
	_, err = snapshots.Restore(context.Background(), f, snapshots.Restoration{Profile: profile(dir), Settings: asked})
	return err
}

// A restore that is killed at any time leaves no cluster or a whole one, and the next one removes its remains.
func TestRestoreSurvivesKill(t *testing.T) {
	o := newOriginal(t, 2000)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "snapshot.file"), o.plain, 0o600); err != nil {
		t.Fatal(err)
	}
	again := func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), "SAMPAN_RESTORE_TEST_DIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return ctx.Err()
	}
	start := time.Now()
	if err := again(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(start)
	want, _ := stored(t, profile(dir))
	killed := 0
	const rounds = 30
	for i := range rounds {
		if err := os.RemoveAll(filepath.Join(dir, "copy")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/rounds) // CommandContext kills with SIGKILL
		err := again(ctx)
		cancel()
		if err != nil {
			killed++
		}
		if _, err := os.Stat(profile(dir).DataDir); err == nil {
			if got, _ := stored(t, profile(dir)); len(got) != len(want) {
				t.Errorf("round %d left a cluster with %d of %d records", i, len(got), len(want))
			}
		}
	}
	if killed == 0 {
		t.Error("no round was killed in time")
	}
	if err := os.RemoveAll(filepath.Join(dir, "copy")); err != nil {
		t.Fatal(err)
	}
	if err := again(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := left(t, dir); len(names) != 2 {
		t.Errorf("left %v, want the snapshot and the cluster", names)
	}
}

func TestReplacePutsAClusterBack(t *testing.T) {
	o := newOriginal(t, 3)
	p := profile(t.TempDir())
	pass := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(pass, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := snapshots.Keys{PassphraseFile: pass}
	var file bytes.Buffer
	_, err := snapshots.WriteFile(&file, bytes.NewReader(o.plain), snapshots.Filing{Keys: keys, PKI: o.pki})
	if err == nil {
		_, err = snapshots.Restore(t.Context(), bytes.NewReader(file.Bytes()), snapshots.Restoration{Profile: p, Keys: keys})
	}
	if err != nil {
		t.Fatal(err)
	}
	before, used := stored(t, p)
	// The cluster goes on: an object is made.
	b, err := disk.Open(filepath.Join(p.DataDir, "store"), disk.Options{})
	if err == nil {
		_, err = b.Load(t.Context(), func(store.Entry) error { return nil })
	}
	if err == nil {
		err = b.Commit(t.Context(), store.Batch{Entries: []store.Entry{{Key: "configmaps/default/later", Data: []byte("x"), Created: used + 7, Revision: used + 7}}})
	}
	if err = errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := snapshots.Replace(t.Context(), bytes.NewReader(o.snapshot), snapshots.Restoration{Profile: p})
		if err != nil {
			t.Fatal(err)
		}
		after, revision := stored(t, p)
		if len(after) != len(before) || after["configmaps/default/later"].Data != nil || revision <= used+7 || r.Records != len(before) {
			t.Errorf("%d records at revision %d, want %d above %d; result %+v", len(after), revision, len(before), used+7, r)
		}
		used = revision
	}
	if _, err := os.Stat(filepath.Join(p.DataDir, snapshots.ReplacedStore)); err != nil {
		t.Error(err)
	}
	// Another cluster is refused, and nothing is changed.
	other := newOriginal(t, 1)
	_, err = snapshots.Replace(t.Context(), bytes.NewReader(other.snapshot), snapshots.Restoration{Profile: p})
	if err == nil || !strings.Contains(err.Error(), "the snapshot is of another cluster") {
		t.Errorf("another cluster: got %v", err)
	}
	_, err = snapshots.Replace(t.Context(), bytes.NewReader(o.snapshot[:len(o.snapshot)-9]), snapshots.Restoration{Profile: p})
	if err == nil {
		t.Error("a damaged snapshot was restored")
	}
	if after, revision := stored(t, p); len(after) != len(before) || revision != used {
		t.Errorf("after two errors: %d records at %d", len(after), revision)
	}
	if names := left(t, p.DataDir); len(names) != 4 { // cluster.json, pki, store, store.replaced
		t.Errorf("left %v", names)
	}
}

// A name in a hostile file does not reach a terminal.
func TestInspectRefusesControlCharacters(t *testing.T) {
	var out bytes.Buffer
	w, err := snapshot.NewWriter(&out, snapshot.Info{Cluster: "a\x1b[2J", Secrets: snapshot.Plain, Settings: json.RawMessage(settings)})
	if err == nil {
		_, err = w.Close(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = snapshots.Inspect(bytes.NewReader(out.Bytes()), snapshots.Keys{})
	if err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.snapshot"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := snapshots.List(dir)
	if err != nil || len(all) != 1 || all[0].Cluster != "" || !strings.Contains(all[0].Remark, "not printable") || strings.Contains(all[0].Remark, "\x1b") {
		t.Errorf("listed %+v, %v", all, err)
	}
}

// In another service network the addresses of Services move, with the objects that hold them.
func TestRestoreMovesAddresses(t *testing.T) {
	s, st := serve(t, seal)
	create(t, s, "namespaces", `{"metadata":{"name":"kube-system"}}`)
	create(t, s, "namespaces/default/services", `{"metadata":{"name":"web"},"spec":{"clusterIP":"10.96.7.8","clusterIPs":["10.96.7.8"],"ports":[{"port":80}]}}`)
	w := do(t, s, "POST", "/apis/networking.k8s.io/v1/ipaddresses", `{"metadata":{"name":"10.96.7.8"},"spec":{"parentRef":{"resource":"services","namespace":"default","name":"web"}}}`, "")
	if w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var out bytes.Buffer
	_, err := snapshots.Source{
		Freeze: st.Freeze, Info: func() snapshot.Info { return snapshot.Info{Cluster: "c", Settings: json.RawMessage(settings)} },
	}.Write(t.Context(), &out, true)
	if err != nil {
		t.Fatal(err)
	}
	move := func(to string) func(snapshots.Description) (local.Settings, error) {
		return func(d snapshots.Description) (local.Settings, error) {
			s := d.ClusterSettings()
			networks, err := local.ParsePair(to)
			s.Services = networks
			return s, err
		}
	}
	p := profile(t.TempDir())
	if _, err := snapshots.Restore(t.Context(), bytes.NewReader(out.Bytes()), snapshots.Restoration{Profile: p, Settings: move("10.112.0.0/16")}); err != nil {
		t.Fatal(err)
	}
	all, _ := stored(t, p)
	if _, old := all["ipaddresses.networking.k8s.io/10.96.7.8"]; old || all["ipaddresses.networking.k8s.io/10.112.7.8"].Data == nil {
		t.Errorf("the IPAddress has not moved")
	}
	if got := object(t, "services", all["services/default/web"]).(*corev1.Service).Spec.ClusterIP; got != "10.112.7.8" {
		t.Errorf("the Service has the address %s", got)
	}
	for to, want := range map[string]string{"10.112.0.0/24": "must be as large as the snapshot's", "fd00::/112": "must be as large as the snapshot's"} {
		if _, err := snapshots.Restore(t.Context(), bytes.NewReader(out.Bytes()), snapshots.Restoration{Profile: profile(t.TempDir()), Settings: move(to)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: got %v, want %q", to, err, want)
		}
	}
}

func TestSaveOnAFullDisk(t *testing.T) {
	o := newOriginal(t, 500) // 400 KB
	nstest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		f, err := wholefile.Create(filepath.Join(dir, "a.snapshot"), 0o600, wholefile.Durable)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshots.WriteFile(f, bytes.NewReader(o.snapshot), snapshots.Filing{}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("got %v, want %v", err, unix.ENOSPC)
		}
		f.Discard()
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("left %v", names)
		}
	})
}
