package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	kms "k8s.io/kms/apis/v2"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// fakePlugin is a KMS plug-in with keys that are numbers.
type fakePlugin struct {
	kms.UnimplementedKeyManagementServiceServer

	mu       sync.Mutex
	keyID    string
	health   string
	decrypts int
	broken   bool
}

func (f *fakePlugin) set(change func(*fakePlugin)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakePlugin) Status(context.Context, *kms.StatusRequest) (*kms.StatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return nil, errors.New("broken")
	}
	return &kms.StatusResponse{Version: "v2", Healthz: f.health, KeyId: f.keyID}, nil
}

func (f *fakePlugin) Encrypt(_ context.Context, r *kms.EncryptRequest) (*kms.EncryptResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &kms.EncryptResponse{
		Ciphertext: append([]byte(f.keyID+"/"), mirrored(r.Plaintext)...), KeyId: f.keyID,
		Annotations: map[string][]byte{"local-kek.example.org": []byte("x"), "a.example.org": nil},
	}, nil
}

func (f *fakePlugin) Decrypt(_ context.Context, r *kms.DecryptRequest) (*kms.DecryptResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decrypts++
	text, ok := bytes.CutPrefix(r.Ciphertext, []byte(r.KeyId+"/"))
	if !ok || string(r.Annotations["local-kek.example.org"]) != "x" || r.Uid == "" {
		return nil, fmt.Errorf("bad request %v", r)
	}
	return &kms.DecryptResponse{Plaintext: mirrored(text)}, nil
}

func mirrored(b []byte) []byte {
	out := bytes.Clone(b)
	for i := range out {
		out[i] ^= 0x55
	}
	return out
}

// serve serves a plug-in at a socket until the test or the returned function ends it.
func (f *fakePlugin) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	kms.RegisterKeyManagementServiceServer(s, f)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	stop = sync.OnceFunc(func() { s.Stop(); <-done })
	t.Cleanup(stop)
	return stop
}

func kmsFile(t *testing.T, socket string) string {
	return file(t, "secrets", fmt.Sprintf("{kms: {apiVersion: v2, name: vault, endpoint: 'unix://%s', timeout: 60s}}, {identity: {}}", socket))
}

func TestKMSPluginEncryptsSeeds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kms.sock")
	f := &fakePlugin{keyID: "1", health: "ok"}
	f.serve(t, socket)
	config := kmsFile(t, socket)
	e := open(t, Options{Config: config})
	e.Prime(t.Context())
	var all [][]byte
	for i := range 3 {
		data := seal(t, e, "secrets/a", fmt.Sprint("value", i))
		if !bytes.HasPrefix(data, []byte("k8s:enc:kms:s1:vault:")) || bytes.Contains(data, []byte("value")) {
			t.Errorf("sealed as %q", data)
		}
		all = append(all, data)
	}
	later := open(t, Options{Config: config})
	later.Prime(t.Context())
	for i, data := range all {
		if plain, err := later.Open("secrets/a", data); err != nil || string(plain) != fmt.Sprint("value", i) {
			t.Errorf("opened %q, %v", plain, err)
		}
		if _, err := later.Open("secrets/b", data); !errors.Is(err, errDamaged) {
			t.Errorf("a value that was copied to another record: %v", err)
		}
	}
	if f.decrypts != 1 || later.Stale() != 0 {
		t.Errorf("%d calls for 3 values of one process, %d stale; want 1, 0", f.decrypts, later.Stale())
	}
	f.set(func(f *fakePlugin) { f.keyID = "2" })
	later.Prime(t.Context())
	if _, err := later.Open("secrets/a", all[0]); err != nil || later.Stale() != 1 {
		t.Errorf("after a change of the plug-in's key: %v, %d stale, want 1", err, later.Stale())
	}
	again := later.Reseal("secrets/a", all[0])
	if plain, err := later.Open("secrets/a", again); err != nil || string(plain) != "value0" || later.Stale() != 1 {
		t.Errorf("resealed: %q, %v, %d stale", plain, err, later.Stale())
	}
}

func TestKMSPluginThatIsNotHealthy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kms.sock")
	f := &fakePlugin{keyID: "1", health: "sealed"}
	stop := f.serve(t, socket)
	e := open(t, Options{Config: kmsFile(t, socket)})
	p := e.rules.Load().plugins[0]
	now := time.Now()
	p.now = func() time.Time { return now }
	if err := e.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "kms-provider-0: kmsv2 Provider vault is not healthy, error: got unexpected healthz status: sealed") {
		t.Errorf("Health = %v", err)
	}
	f.set(func(f *fakePlugin) { f.health = "ok" })
	if e.Health(t.Context()) == nil {
		t.Error("the result of a check was not kept")
	}
	now = now.Add(unhealthyFor)
	if err := e.Health(t.Context()); err != nil {
		t.Errorf("Health = %v", err)
	}
	data := seal(t, e, "secrets/a", "v")
	stop()
	now = now.Add(writableFor)
	seal(t, e, "secrets/a", "v") // as upstream: for three minutes after the last good status
	now = now.Add(time.Second)
	if _, err := e.Seal("secrets/a", nil); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("a write long after the last good status: %v", err)
	}
	if _, err := e.Open("secrets/a", data); err != nil {
		t.Errorf("a read: %v", err)
	}
	if e.Health(t.Context()) == nil {
		t.Error("a plug-in that has stopped is healthy")
	}
	for name, change := range map[string]func(*fakePlugin){
		"error": func(f *fakePlugin) { f.broken = true }, "no key": func(f *fakePlugin) { f.keyID = "" },
		"long key":  func(f *fakePlugin) { f.keyID = strings.Repeat("x", maxKeyID+1) },
		"long seed": func(f *fakePlugin) { f.keyID = strings.Repeat("x", maxKeyID) },
	} {
		socket := filepath.Join(t.TempDir(), "kms.sock")
		f := &fakePlugin{keyID: "1", health: "ok"}
		change(f)
		f.serve(t, socket)
		if e := open(t, Options{Config: kmsFile(t, socket)}); e.Health(t.Context()) == nil {
			t.Errorf("%s: healthy", name)
		}
	}
}

func TestKMSPluginThatIsMissingLocksItsRecords(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kms.sock")
	f := &fakePlugin{keyID: "1", health: "ok"}
	stop := f.serve(t, socket)
	config := kmsFile(t, socket)
	e := open(t, Options{Config: config})
	e.Prime(t.Context())
	data := seal(t, e, "secrets/a", "v")
	stop()
	e = open(t, Options{Config: config})
	e.rules.Load().plugins[0].timeout = time.Millisecond
	locked := (*LockedError)(nil)
	if _, err := e.Open("secrets/a", data); !errors.As(err, &locked) || !strings.Contains(err.Error(), socket) {
		t.Errorf("Open = %v", err)
	}
	if same := e.Reseal("secrets/a", data); !bytes.Equal(same, data) {
		t.Errorf("resealed as %q", same)
	}
}
