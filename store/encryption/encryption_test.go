package encryption

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func secretOf(fill byte, size int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, size))
}

// file writes an EncryptionConfiguration with these resources and providers in YAML flow style, one pair for each entry.
func file(t *testing.T, entries ...string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for i := 0; i+1 < len(entries); i += 2 {
		fmt.Fprintf(&b, "- resources: [%s]\n  providers: [%s]\n", entries[i], entries[i+1])
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keys is a provider with keys in flow style.
func keys(provider string, size int, names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf("{name: %s, secret: %s}", n, secretOf(n[len(n)-1], size)))
	}
	return fmt.Sprintf("{%s: {keys: [%s]}}", provider, strings.Join(all, ", "))
}

// open returns an Encryption that has saved its keys.
func open(t *testing.T, o Options) *Encryption {
	t.Helper()
	o.Log = quiet
	if o.Keys == "" {
		o.Keys = filepath.Join(t.TempDir(), "encryption.yaml")
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func seal(t *testing.T, e *Encryption, record, value string) []byte {
	t.Helper()
	data, err := e.Seal(record, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestProvidersEncryptAndBindToTheRecord(t *testing.T) {
	for name, provider := range map[string]string{
		"aesgcm 16": keys("aesgcm", 16, "k1"), "aesgcm 32": keys("aesgcm", 32, "k1"),
		"aescbc 16": keys("aescbc", 16, "k1"), "aescbc 24": keys("aescbc", 24, "k1"), "aescbc 32": keys("aescbc", 32, "k1"),
		"secretbox": keys("secretbox", 32, "k1"),
	} {
		t.Run(name, func(t *testing.T) {
			config := file(t, "secrets", provider)
			e := open(t, Options{Config: config})
			for _, size := range []int{0, 1, 15, 16, 17, 5000} {
				value := strings.Repeat("v", size)
				data := seal(t, e, "secrets/default/a", value)
				if !bytes.HasPrefix(data, []byte("k8s:enc:"+strings.Fields(name)[0]+":s1:k1:")) || size > 10 && bytes.Contains(data, []byte(value)) {
					t.Fatalf("sealed as %q", data)
				}
				if again := seal(t, e, "secrets/default/a", value); bytes.Equal(again, data) {
					t.Error("the same value is encrypted to the same bytes")
				}
				other := open(t, Options{Config: config}) // another process
				if plain, err := other.Open("secrets/default/a", data); err != nil || string(plain) != value {
					t.Fatalf("opened %q, %v", plain, err)
				}
				if other.Stale() != 0 {
					t.Error("a value of the current key is stale")
				}
				if _, err := other.Open("secrets/default/b", data); !errors.Is(err, errDamaged) {
					t.Errorf("a value that was copied to another record: %v", err)
				}
				for i := range data {
					changed := bytes.Clone(data)
					changed[i] ^= 1
					if _, err := e.Open("secrets/default/a", changed); err == nil {
						t.Fatalf("byte %d was changed without an error", i)
					}
				}
				for i := len(prefix); i < len(data); i++ {
					if _, err := e.Open("secrets/default/a", data[:i]); err == nil {
						t.Fatalf("cut off at %d without an error", i)
					}
				}
			}
		})
	}
}

func TestFirstProviderWritesAndAllRead(t *testing.T) {
	own := filepath.Join(t.TempDir(), "encryption.yaml")
	byDefault := seal(t, open(t, Options{Keys: own}), "secrets/a", "default")
	first := seal(t, open(t, Options{Keys: own, Config: file(t, "secrets", keys("aesgcm", 32, "k1", "k2"))}), "secrets/a", "first")
	e := open(t, Options{Keys: own, Config: file(t,
		"events", "{identity: {}}",
		"secrets, configmaps", keys("aescbc", 32, "k3")+", "+keys("aesgcm", 32, "k1"),
		"'*.apps'", keys("secretbox", 32, "k4")+", {identity: {}}",
		"'*.*'", keys("aesgcm", 32, "k5"),
	)})
	for record, want := range map[string]string{
		"events/a": "v", "secrets/a": "k8s:enc:aescbc:s1:k3:", "configmaps/a": "k8s:enc:aescbc:s1:k3:",
		"deployments.apps/a": "k8s:enc:secretbox:s1:k4:", "pods/a": "k8s:enc:aesgcm:s1:k5:", "pandas.bears.example/a": "k8s:enc:aesgcm:s1:k5:",
	} {
		if data := seal(t, e, record, "v"); !bytes.HasPrefix(data, []byte(want)) {
			t.Errorf("%s is written as %q, want %s", record, data, want)
		}
	}
	if plain, err := e.Open("secrets/a", first); err != nil || string(plain) != "first" || e.Stale() != 1 {
		t.Errorf("a value of a second provider: %q, %v, %d stale", plain, err, e.Stale())
	}
	if plain, err := e.Open("secrets/a", byDefault); err != nil || string(plain) != "default" || e.Stale() != 2 {
		t.Errorf("a value of the cluster's own key: %q, %v, %d stale", plain, err, e.Stale())
	}
	if plain, err := e.Open("deployments.apps/a", []byte("plain")); err != nil || string(plain) != "plain" || e.Stale() != 3 {
		t.Errorf("a plain value where identity is allowed: %q, %v, %d stale", plain, err, e.Stale())
	}
	if _, err := e.Open("secrets/a", []byte("plain")); err == nil || !strings.Contains(err.Error(), "does not have the provider identity") {
		t.Errorf("a plain value without identity: %v", err)
	}
	if again := e.Reseal("secrets/a", first); !bytes.HasPrefix(again, []byte("k8s:enc:aescbc:s1:k3:")) {
		t.Errorf("resealed as %q", again)
	}
	if same := e.Reseal("events/a", []byte("v")); string(same) != "v" {
		t.Errorf("resealed as %q", same)
	}
}

func TestSecretsAreEncryptedByDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	e, err := New(Options{Keys: path, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("there are keys on disk before the data were read")
	}
	if _, err := e.Seal("secrets/a", []byte("v")); err == nil {
		t.Error("a value was encrypted with a key that is not saved")
	}
	if plain, err := e.Open("secrets/a", []byte("plain")); err != nil || string(plain) != "plain" || e.Stale() != 1 {
		t.Errorf("a value of an earlier version: %q, %v, %d stale", plain, err, e.Stale())
	}
	if err := e.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of keys: %v, %v", info, err)
	}
	data := seal(t, e, "secrets/a", "v")
	if !sealed(data) || sealed(seal(t, e, "configmaps/a", "v")) {
		t.Error("Secrets, and nothing else, are to be encrypted")
	}
	if plain, err := open(t, Options{Keys: path}).Open("secrets/a", data); err != nil || string(plain) != "v" {
		t.Errorf("opened %q, %v", plain, err)
	}
}

func TestLostAndWrongKeysAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	data := seal(t, open(t, Options{Keys: path}), "secrets/a", "v")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Keys: path, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	locked := (*LockedError)(nil)
	if _, err := e.Open("secrets/a", data); !errors.As(err, &locked) || !strings.Contains(err.Error(), path+" does not exist") {
		t.Errorf("without the file: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a new file was made in the place of the lost one")
	}
	config := func(fill byte) string {
		return file(t, "secrets", fmt.Sprintf("{aesgcm: {keys: [{name: a, secret: %s}]}}", secretOf(fill, 32)))
	}
	data = seal(t, open(t, Options{Config: config(1)}), "secrets/a", "v")
	wrong := config(2)
	_, err = open(t, Options{Config: wrong}).Open("secrets/a", data)
	if !errors.As(err, &locked) || !strings.Contains(err.Error(), "is not the one") || !strings.Contains(err.Error(), wrong) {
		t.Errorf("with another secret of that name: %v", err)
	}
	if err := os.WriteFile(path, []byte("kind: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Keys: path, Log: quiet}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("with a file that is not valid: %v", err)
	}
}

func TestRotationKeepsKeysThatAreUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	old := seal(t, open(t, Options{Keys: path}), "secrets/a", "v")
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, want := range []string{"20300102-030405", "20300102-030405-2"} {
		if name, err := Rotate(path, now); err != nil || name != want {
			t.Fatalf("Rotate = %q, %v, want %s", name, err, want)
		}
	}
	count := func() int {
		c, _, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(c.own().Keys)
	}
	if count() != 3 {
		t.Fatalf("%d keys, want 3", count())
	}
	e, err := New(Options{Keys: path, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := e.Open("secrets/a", old); err != nil || string(plain) != "v" || e.Stale() != 1 {
		t.Errorf("opened %q, %v, %d stale", plain, err, e.Stale())
	}
	if err := e.Save(t.Context()); err != nil || count() != 2 {
		t.Errorf("after a start at which the oldest key was used there are %d keys, %v, want 2", count(), err)
	}
	again := e.Reseal("secrets/a", old)
	if !bytes.HasPrefix(again, []byte("k8s:enc:aesgcm:s1:20300102-030405-2:")) {
		t.Errorf("resealed as %q", again)
	}
	if e, err = New(Options{Keys: path, Log: quiet}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open("secrets/a", again); err != nil || e.Stale() != 0 {
		t.Errorf("%v, %d stale", err, e.Stale())
	}
	if err := e.Save(t.Context()); err != nil || count() != 1 {
		t.Errorf("after a start at which it was not there are %d keys, %v, want 1", count(), err)
	}
	// Backups from before are readable with the removed keys, and not without.
	if _, err := open(t, Options{Keys: path}).Open("secrets/a", old); err == nil {
		t.Error("a removed key is in use")
	}
	former, err := New(Options{Keys: path, Former: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := former.Open("secrets/a", old); err != nil || string(plain) != "v" {
		t.Errorf("with the removed keys: %q, %v", plain, err)
	}
	if info, err := os.Stat(FormerFile(path)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the removed keys: %v, %v", info, err)
	}
}

func TestFormerKeysAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "former.yaml")
	for i := range maxFormer + 2 {
		k := newKey(time.Unix(int64(i), 0), nil)
		for range 2 { // the second time after a crash
			if err := keepFormer(path, []keyConfig{k}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, _, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	keys := c.own().Keys
	if len(keys) != maxFormer || keys[0].Name != newKey(time.Unix(maxFormer+1, 0), nil).Name {
		t.Errorf("%d keys, the first one is %s", len(keys), keys[0].Name)
	}
}

func TestChangedFilesAreUsed(t *testing.T) {
	for _, link := range []bool{false, true} {
		t.Run(fmt.Sprintf("link=%v", link), func(t *testing.T) {
			config := file(t, "secrets", keys("aesgcm", 32, "k1"))
			path := config
			if link { // as in a mounted Secret
				path = filepath.Join(t.TempDir(), "link")
				if err := os.Symlink(config, path); err != nil {
					t.Fatal(err)
				}
			}
			changed := make(chan struct{}, 10)
			e := open(t, Options{Config: path, Reload: true, Changed: func() { changed <- struct{}{} }})
			old := seal(t, e, "secrets/a", "v")
			ended := make(chan error, 1)
			ctx, stop := contextOf(t)
			go func() { ended <- e.Run(ctx) }()
			replace := func(entries ...string) {
				next := file(t, entries...)
				if link {
					tmp := path + ".tmp"
					if err := os.Symlink(next, tmp); err != nil {
						t.Fatal(err)
					}
					next = tmp
				}
				if err := os.Rename(next, path); err != nil {
					t.Fatal(err)
				}
			}
			replace("secrets", "{aesgcm: {keys: []}}") // ignored, because it is not valid
			replace("secrets", keys("secretbox", 32, "k2"))
			<-changed
			if again := e.Reseal("secrets/a", old); !bytes.HasPrefix(again, []byte("k8s:enc:secretbox:s1:k2:")) {
				t.Errorf("after a change that dropped the old key a value is resealed as %q", again)
			}
			if _, err := Rotate(e.opts.Keys, time.Now()); err != nil {
				t.Fatal(err)
			}
			<-changed
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOwnKeysThatAreDeletedStayInUse(t *testing.T) {
	e := open(t, Options{})
	if err := os.Remove(e.opts.Keys); err != nil {
		t.Fatal(err)
	}
	if r, err := e.reload(t.Context()); r != nil || err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("reload without the file: %v, %v", r, err)
	}
	if err := e.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(e.opts.Keys); err == nil {
		t.Error("new keys were written")
	}
}

func TestConfigurationIsValidated(t *testing.T) {
	good := keys("aesgcm", 32, "k")
	for _, tt := range []struct {
		entries []string
		want    string // empty: valid
	}{
		{[]string{"secrets", good}, ""},
		{[]string{"secrets", good, "secrets", keys("aescbc", 32, "o")}, ""},
		{[]string{"'*.'", good, "'*.*'", "{identity: {}}"}, ""},
		{nil, "resources: Required value: at least one resources is required"},
		{[]string{"", good}, "resources[0].resources: Required value: at least one resources[0].resources is required"},
		{[]string{"secrets", ""}, "resources[0].providers: Required value: at least one resources[0].providers is required"},
		{[]string{"secrets, secrets", good}, "the same resource cannot be specified multiple times"},
		{[]string{"secrets, '*.'", good}, "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"},
		{[]string{"'*.'", good, "secrets", good}, `resource "secrets" is masked by earlier rule "*."`},
		{[]string{"'*.*'", good, "'*.apps'", good}, `resource "*.apps" is masked by earlier rule "*.*"`},
		{[]string{"Secrets", good}, "resource name should not contain capital letters"},
		{[]string{"'*'", good}, "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"},
		{[]string{"apiserveripinfo", good}, "resources which do not have REST API/s cannot be encrypted"},
		{[]string{"events.events.k8s.io", good}, "Use 'events' instead in the config file"},
		{[]string{"ingresses.extensions", good}, "'extensions' group has been removed and cannot be used for encryption"},
		{[]string{"'secrets.*'", good}, "encrypting the same resource across groups is not supported"},
		{[]string{"secrets", "{}"}, "resources[0].providers[0]: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"},
		{[]string{"secrets", "{identity: {}, aesgcm: {keys: []}}"}, "more than one provider specified in a single element, should split into different list elements"},
		{[]string{"secrets", "{aesgcm: {keys: []}}"}, "resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required"},
		{[]string{"secrets", "{aescbc: {keys: [{secret: x}]}}"}, "resources[0].providers[0].aescbc.keys[0].name: Required value: name is a mandatory field for a key"},
		{[]string{"secrets", "{aescbc: {keys: [{name: a}]}}"}, "secret is a mandatory field for a key"},
		{[]string{"secrets", "{aescbc: {keys: [{name: a, secret: '!'}]}}"}, `resources[0].providers[0].aescbc.keys[0].secret: "REDACTED": secrets must be base64 encoded`},
		{[]string{"secrets", keys("secretbox", 16, "a")}, "secret is not of the expected length, got 16, expected one of [32]"},
		{[]string{"secrets", keys("aesgcm", 17, "a")}, "secret is not of the expected length, got 17, expected one of [16 24 32]"},
		{[]string{"secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}"}, ""},
		{[]string{"secrets", "{kms: {name: a, endpoint: 'unix:///a'}}"}, "KMSv1 is deprecated"},
		{[]string{"secrets", "{kms: {apiVersion: v3, name: a, endpoint: 'unix:///a'}}"}, "for KMS provider, only v1 and v2 are supported"},
		{[]string{"secrets", "{kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'}}"}, "invalid KMS provider name a:b, must not contain ':'"},
		{[]string{"secrets", "{kms: {apiVersion: v2, endpoint: 'unix:///a'}}"}, "name is a mandatory field for a provider"},
		{[]string{"secrets", "{kms: {apiVersion: v2, name: a}}"}, "endpoint is a mandatory field for a kms"},
		{[]string{"secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'tcp://a'}}"}, `unsupported scheme "tcp" for KMS provider, only unix is supported`},
		{[]string{"secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: 0s}}"}, "timeout should be a positive value"},
		{[]string{"secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: 1}}"}, "cachesize is not supported in v2"},
		{[]string{"secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}", "pods", "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///b'}}"}, "duplicate KMS provider name a, names must be unique"},
		{[]string{"secrets", "{aesgmc: {}}"}, "unknown field"},
	} {
		path := file(t, tt.entries...)
		e, err := New(Options{Keys: filepath.Join(t.TempDir(), "own"), Config: path, Log: quiet})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%q: %v", tt.entries, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path)):
			t.Errorf("%q: got %v, want %s", tt.entries, err, tt.want)
		case err != nil && strings.Contains(err.Error(), secretOf('k', 32)):
			t.Errorf("%q: the error has a secret: %v", tt.entries, err)
		}
		if err == nil {
			e.rules.Load().close()
		}
	}
}

func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "encryption.yaml")
	e, err := New(Options{Keys: path, Log: quiet})
	if err != nil {
		f.Fatal(err)
	}
	if err := e.Save(f.Context()); err != nil {
		f.Fatal(err)
	}
	data, err := e.Seal("secrets/a", []byte("value"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("k8s:enc:"))
	f.Add([]byte("k8s:enc:kms:s1:a:\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	p := &plugin{prefix: []byte("k8s:enc:kms:s1:a:")}
	f.Fuzz(func(t *testing.T, b []byte) {
		if plain, err := e.Open("secrets/a", b); err == nil && sealed(b) && !bytes.Equal(b, data) {
			t.Errorf("%q opens to %q", b, plain)
		}
		if h, n, err := p.parse(b); err == nil && (n > len(b) || len(h.seed) > len(b)) {
			t.Errorf("%q has %v, %d", b, h, n)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	e, err := New(Options{Keys: filepath.Join(b.TempDir(), "own"), Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Save(b.Context()); err != nil {
		b.Fatal(err)
	}
	value := bytes.Repeat([]byte("v"), 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Seal("secrets/default/a", value); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWithoutNotificationsOfFilesTheRestWorks(t *testing.T) {
	var log bytes.Buffer
	e := open(t, Options{})
	e.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	e.opts.Keys = filepath.Join(t.TempDir(), "gone", "encryption.yaml") // a directory that cannot be watched
	ctx, stop := contextOf(t)
	stop()
	if err := e.Run(ctx); err != nil || !strings.Contains(log.String(), "not noticed before the next start") {
		t.Errorf("Run = %v, log %s", err, log.String())
	}
}
