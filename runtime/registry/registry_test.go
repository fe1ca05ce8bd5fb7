package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const manifest = `{"schemaVersion":2}`

var blob = bytes.Repeat([]byte("0123456789abcdef"), 1<<14) // content for all tests

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// serve returns a registry on loopback with the repository a/b, and its address. hook may answer requests instead.
func serve(t *testing.T, hook func(w http.ResponseWriter, r *http.Request) bool) (*httptest.Server, string) {
	t.Helper()
	s := httptest.NewServer(handler(hook))
	t.Cleanup(s.Close)
	return s, strings.TrimPrefix(s.URL, "http://")
}

func handler(hook func(w http.ResponseWriter, r *http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hook != nil && hook(w, r) {
			return
		}
		switch {
		case r.URL.Path == "/v2/":
		case strings.HasPrefix(r.URL.Path, "/v2/a/b/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = io.WriteString(w, manifest)
		case r.URL.Path == "/v2/a/b/blobs/"+digest(blob):
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blob))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known"}]}`)
		}
	})
}

func repository(t *testing.T, o Options, name string, c Credentials) *Repository {
	t.Helper()
	r, err := New(o).Repository(name, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func fetch(r *Repository) ([]byte, error) {
	var out bytes.Buffer
	err := r.Blob(context.Background(), digest(blob), int64(len(blob)), &out)
	return out.Bytes(), err
}

const most = 1 << 16

func TestRepositoryReadsManifestsAndBlobs(t *testing.T) {
	_, address := serve(t, nil)
	r := repository(t, Options{}, address+"/a/b", Credentials{})
	data, media, err := r.Manifest(t.Context(), "v1", most)
	if err != nil || string(data) != manifest || media != "application/vnd.oci.image.manifest.v1+json" {
		t.Errorf("manifest %q of type %q: %v", data, media, err)
	}
	if got, err := fetch(r); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	_, _, err = repository(t, Options{}, address+"/a/none", Credentials{}).Manifest(t.Context(), "v1", most)
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "NAME_UNKNOWN: repository name not known") {
		t.Errorf("missing repository: %v", err)
	}
}

func TestPlainHTTPNeedsLoopbackOrConfiguration(t *testing.T) {
	w, err := newWire(&host{scheme: "https", address: "registry.example", path: "/v2"}, time.Second, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "http://registry.example/v2/", nil)
	if _, err := w.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "plain HTTP to registry.example is refused") {
		t.Errorf("got %v", err)
	}
	for address, want := range map[string]bool{"localhost:5000": true, "127.0.0.9": true, "[::1]:80": true, "10.0.0.1:5000": false, "localhost.example": false} {
		if loopback(address) != want {
			t.Errorf("loopback(%q) is not %v", address, want)
		}
	}
}

func TestErrorOfAHostWithPlainHTTPIsThatOfPlainHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close() // nothing listens there
	dir := t.TempDir()
	write(t, filepath.Join(dir, "registry.example", "hosts.toml"), fmt.Sprintf("server = %q\n", "http://"+address))
	_, _, err = repository(t, Options{Dirs: []string{dir}}, "registry.example/a", Credentials{}).Manifest(t.Context(), "v1", most)
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "plain HTTP") {
		t.Errorf("got %v", err)
	}
}

// TestErrorOfARegistryWithoutTLSNamesTheSetting has a host that answers HTTPS in plain HTTP.
func TestErrorOfARegistryWithoutTLSNamesTheSetting(t *testing.T) {
	_, address := serve(t, nil)
	first, second := t.TempDir(), t.TempDir()
	for name, want := range map[string]string{
		"":                      fmt.Sprintf("write server = \"http://%s\" in %s/registry.example/hosts.toml", address, first),
		"registry.example":      fmt.Sprintf("write server = \"http://%s\" in %s/registry.example/hosts.toml", address, second),
		"_default":              fmt.Sprintf("write server = \"http://%s\" in %s/registry.example/hosts.toml", address, first),
		"_default, as a mirror": "write its URL with http:// in " + second + "/_default/hosts.toml",
	} {
		c, err := configure([]string{first, second}, "registry.example")
		if dir, mirror, _ := strings.Cut(name, ","); dir != "" {
			text := "skip_verify = true\n"
			if mirror != "" {
				text = "[host.\"https://" + address + "\"]\n"
			}
			write(t, filepath.Join(second, dir, "hosts.toml"), text)
			c, err = configure([]string{first, second}, "registry.example")
			if err := os.RemoveAll(filepath.Join(second, dir)); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		h := &c.hosts[0]
		h.address = address // the address of the test's server: a registry at a loopback address would be used without TLS
		w, err := newWire(h, time.Second, slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		r := &Repository{client: New(Options{}), registry: "registry.example", path: "a", endpoints: []*endpoint{{host: h, wire: w, turn: make(chan struct{}, 1)}}}
		_, _, err = r.Manifest(t.Context(), "v1", most)
		if err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client; if it should be used without TLS, "+want) {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
	}
}

func TestUnknownKeysAreNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "registry.example", "hosts.toml"), `
sever = "http://registry.example"
skip_verify = true
[header]
x-any = "a"
[host."http://127.0.0.1:1"]
capabilties = ["pull"]
header = {x-any = ["a", "b"]}
rewrite = {"^a" = "b"}
`)
	var log bytes.Buffer
	r := repository(t, Options{Dirs: []string{dir}, Log: slog.New(slog.NewTextHandler(&log, nil))}, "registry.example/a", Credentials{})
	r.endpoints = r.endpoints[:1]
	_, _, err := r.Manifest(t.Context(), "v1", most)
	want := "; unknown keys in " + dir + "/registry.example/hosts.toml are ignored: sever, host.\"http://127.0.0.1:1\".capabilties"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
	if !strings.Contains(log.String(), "level=WARN msg=\"unknown keys are ignored\"") {
		t.Errorf("log: %s", log.String())
	}
}

func TestBasicCredentials(t *testing.T) {
	_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); user == "me" && password == "secret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	for _, c := range []Credentials{{Username: "me", Password: "secret"}, {Auth: "bWU6c2VjcmV0"}, {Username: "me", Password: "secret", ServerAddress: "http://" + address}} {
		if got, err := fetch(repository(t, Options{}, address+"/a/b", c)); err != nil || !bytes.Equal(got, blob) {
			t.Errorf("with credentials: %v", err)
		}
	}
	for want, c := range map[string]Credentials{
		"; no credentials were sent": {},
		"; credentials were sent":    {Username: "me", Password: "wrong-secret"},
		"; no credentials were sent, because the given ones are for other.example:1": {Username: "me", Password: "secret", ServerAddress: "https://me:secret@other.example:1/v1"},
		"; no credentials were sent, because the address of their server is invalid": {Username: "me", Password: "secret", ServerAddress: "https://me:secret@[other"},
	} {
		_, err := fetch(repository(t, Options{}, address+"/a/b", c))
		if !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "secret") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// bearer answers 401 unless a request has the token, and serves tokens at /token to one user.
func bearer(address *string, user, password, token string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			u, p, _ := r.BasicAuth()
			if u != user || p != password || r.URL.Query().Get("scope") != "repository:a/b:pull" || r.URL.Query().Get("service") != "s" {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"token": token})
			return true
		}
		if r.Header.Get("Authorization") == "Bearer "+token {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="s",scope="repository:a/b:pull"`, *address))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
}

func TestBearerTokens(t *testing.T) {
	var address string
	_, address = serve(t, bearer(&address, "me", "secret", "token-1"))
	if got, err := fetch(repository(t, Options{}, address+"/a/b", Credentials{Username: "me", Password: "secret"})); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("with credentials: %v", err)
	}
	if got, err := fetch(repository(t, Options{}, address+"/a/b", Credentials{RegistryToken: "token-1"})); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("with a token: %v", err)
	}
	if _, err := fetch(repository(t, Options{}, address+"/a/b", Credentials{Username: "me", Password: "no"})); !errors.Is(err, ErrDenied) {
		t.Errorf("with wrong credentials: %v", err)
	}
}

// TestCredentialsStayWithTheRegistry checks G1: a redirect takes them nowhere else.
func TestCredentialsStayWithTheRegistry(t *testing.T) {
	for _, kind := range []string{"basic", "bearer"} {
		t.Run(kind, func(t *testing.T) {
			var leaked atomic.Value
			_, other := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				if got := r.Header.Get("Authorization") + r.Header.Get("X-Secret"); got != "" {
					leaked.Store(got)
				}
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blob))
				return true
			})
			var address string
			auth := bearer(&address, "me", "secret", "token-1")
			if kind == "basic" {
				auth = func(w http.ResponseWriter, r *http.Request) bool {
					if _, _, ok := r.BasicAuth(); ok {
						return false
					}
					w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
			}
			_, address = serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				if auth(w, r) {
					return true
				}
				if strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, "http://"+other+"/elsewhere?signature=hidden", http.StatusTemporaryRedirect)
					return true
				}
				return false
			})
			dir := t.TempDir()
			write(t, filepath.Join(dir, address, "hosts.toml"), "server = \"http://"+address+"\"\n[header]\nx-secret = \"s\"\n")
			got, err := fetch(repository(t, Options{Dirs: []string{dir}}, address+"/a/b", Credentials{Username: "me", Password: "secret"}))
			if err != nil || !bytes.Equal(got, blob) {
				t.Errorf("%d bytes: %v", len(got), err)
			}
			if l := leaked.Load(); l != nil {
				t.Errorf("the other host got %q", l)
			}
		})
	}
}

func TestRedirectsToPlainHTTPAndLocalAddressesAreRefused(t *testing.T) {
	from, err := http.NewRequest(http.MethodGet, "https://registry.example/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for to, fine := range map[string]bool{
		"https://cdn.example/x": true, "https://registry.example/y": true, "https://10.1.2.3/x": true,
		"http://cdn.example/x": false, "https://127.0.0.1/x": false, "https://169.254.169.254/latest": false, "https://[::1]/": false, "https://0.0.0.0/": false,
	} {
		req, err := http.NewRequest(http.MethodGet, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := redirect(req, []*http.Request{from}); (err == nil) != fine {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestBlobIsResumed cuts connections, of a host that knows Range and of one that does not.
func TestBlobIsResumed(t *testing.T) {
	for _, ranges := range []bool{true, false} {
		var requests, resumed atomic.Int32
		_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			if !ranges {
				r.Header.Del("Range")
			}
			from := 0
			if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
				resumed.Add(1)
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(blob)-1, len(blob)))
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(blob)-from))
			if from > 0 {
				w.WriteHeader(http.StatusPartialContent)
			}
			end := len(blob)
			if n := int(requests.Add(1)); n < 4 {
				end = n * len(blob) / 4
			}
			_, _ = w.Write(blob[from:end]) // and the connection breaks, because less than announced was written
			return true
		})
		got, err := fetch(repository(t, Options{}, address+"/a/b", Credentials{}))
		if err != nil || !bytes.Equal(got, blob) {
			t.Errorf("ranges %v: %d bytes: %v", ranges, len(got), err)
		}
		if ranges != (resumed.Load() > 0) {
			t.Errorf("ranges %v: %d requests had a range", ranges, resumed.Load())
		}
	}
}

func TestStalledBlobIsResumed(t *testing.T) {
	var requests atomic.Int32
	release := make(chan struct{})
	_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || requests.Add(1) > 1 {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		_, _ = w.Write(blob[:1000])
		w.(http.Flusher).Flush()
		<-release
		return true
	})
	defer close(release)
	got, err := fetch(repository(t, Options{Stall: 100 * time.Millisecond}, address+"/a/b", Credentials{}))
	if err != nil || !bytes.Equal(got, blob) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}

func TestHostileAnswersAreErrors(t *testing.T) {
	endless := func(w io.Writer) {
		for {
			if _, err := w.Write(blob); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
	}{
		"longer":    {func(w http.ResponseWriter) { endless(w) }, "has more than the"},
		"announced": {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "5"); _, _ = io.WriteString(w, "hello") }, "announces 5 bytes"},
		"forbidden": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, "access denied"},
		"teapot": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "internal page")
		}, "answered 418 I'm a teapot"},
		"control": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"errors":[{"code":"X","message":"a\u001b[31mb"}]}`)
		}, "X: a [31mb"},
	} {
		_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/blobs/") {
				c.answer(w)
				return true
			}
			return false
		})
		_, err := fetch(repository(t, Options{}, address+"/a/b", Credentials{}))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "internal page") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			endless(w)
			return true
		}
		return false
	})
	_, _, err := repository(t, Options{}, address+"/a/b", Credentials{}).Manifest(t.Context(), "v1", most)
	if err == nil || !strings.Contains(err.Error(), "has more than 65536 bytes") {
		t.Errorf("endless manifest: %v", err)
	}
	_, address = serve(t, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Docker-Content-Digest", digest(nil))
		return false
	})
	_, _, err = repository(t, Options{}, address+"/a/b", Credentials{}).Manifest(t.Context(), "v1", most)
	if err == nil || !strings.Contains(err.Error(), "but the registry says sha256:") {
		t.Errorf("lie about the digest: %v", err)
	}
}

func TestBusyRegistryIsAskedAgain(t *testing.T) {
	var requests atomic.Int32
	_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		switch requests.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			return false
		}
		return true
	})
	if _, _, err := repository(t, Options{}, address+"/a/b", Credentials{}).Manifest(t.Context(), "v1", most); err != nil || requests.Load() != 3 {
		t.Errorf("%d requests: %v", requests.Load(), err)
	}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{"7": 7 * time.Second, "Wed, 02 Jan 2030 03:05:05 GMT": time.Minute} {
		if got, ok := retryAfter(value, now); !ok || got != want {
			t.Errorf("Retry-After %q: %v, %v", value, got, ok)
		}
	}
	res := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3600"}}}
	if _, again := patience(res, nil, 1); again {
		t.Error("a pause of an hour is waited for")
	}
}

func TestCancelledBlobEnds(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		w.(http.Flusher).Flush()
		close(started)
		<-release
		return true
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	err := repository(t, Options{}, address+"/a/b", Credentials{}).Blob(ctx, digest(blob), int64(len(blob)), io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestErrorOfTheWriterEndsTheBlob(t *testing.T) {
	_, address := serve(t, nil)
	err := repository(t, Options{}, address+"/a/b", Credentials{}).Blob(t.Context(), digest(blob), int64(len(blob)), fullDisk{})
	if !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestMirrorsAreTriedInOrder(t *testing.T) {
	var asked []string
	mirror := func(name string, serves bool) string {
		_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v2/" {
				return false
			}
			asked = append(asked, name+" "+r.URL.Query().Get("ns"))
			if !serves {
				w.WriteHeader(http.StatusNotFound)
			}
			return !serves
		})
		return address
	}
	first, second := mirror("first", false), mirror("second", true)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "docker.io", "hosts.toml"), fmt.Sprintf(`server = "https://registry-1.docker.io"
[host."http://%s"]
  capabilities = ["pull", "resolve"]
[host."http://%s"]
  [host."http://%[2]s".header]
    x-a = ["1"]
`, first, second))
	o := Options{Dirs: []string{filepath.Join(dir, "none"), dir}}
	if _, _, err := repository(t, o, "docker.io/a/b", Credentials{}).Manifest(t.Context(), "v1", most); err != nil {
		t.Error(err)
	}
	if got := strings.Join(asked, ","); got != "first docker.io,second docker.io" {
		t.Errorf("asked %s", got)
	}
}

func TestMirrorRewritesNames(t *testing.T) {
	_, address := serve(t, nil)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "registry.example", "hosts.toml"), fmt.Sprintf(`server = "http://%s"
[host."http://%[1]s".rewrite]
    "^old/(.+)$" = "a/$1"
    "^old/b$" = "never/used"
`, address))
	o := Options{Dirs: []string{dir}}
	r := repository(t, o, "registry.example/old/b", Credentials{})
	if _, _, err := r.Manifest(t.Context(), "v1", most); err != nil {
		t.Error(err)
	}
	if got, err := fetch(r); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// Without a match the name is the same, and the registry itself has no rewrites.
	for name, want := range map[string]error{"registry.example/a/b": nil, "registry.example/older/b": ErrNotFound} {
		if _, _, err := repository(t, o, name, Credentials{}).Manifest(t.Context(), "v1", most); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// A proxy of several registries has their repositories below a path of its own, where often nothing else is.
func TestMirrorBelowAPath(t *testing.T) {
	for name, usual := range map[string]int{"open": http.StatusNotFound, "with a password": http.StatusUnauthorized} {
		t.Run(name, func(t *testing.T) {
			_, address := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				user, _, _ := r.BasicAuth()
				switch {
				case usual == http.StatusUnauthorized && user != "me":
					if r.URL.Path == "/v2/proxy/" {
						w.WriteHeader(http.StatusNotFound)
						return true
					}
					w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
					w.WriteHeader(http.StatusUnauthorized)
					return true
				case r.URL.Path == "/v2/":
					w.WriteHeader(usual)
					return true
				}
				r.URL.Path = strings.Replace(r.URL.Path, "/v2/proxy/", "/v2/", 1)
				return false
			})
			dir := t.TempDir()
			write(t, filepath.Join(dir, "registry.example", "hosts.toml"),
				fmt.Sprintf("server = \"http://%s/v2/proxy\"\noverride_path = true\n", address))
			r := repository(t, Options{Dirs: []string{dir}}, "registry.example/a/b", Credentials{Username: "me", Password: "x"})
			if _, _, err := r.Manifest(t.Context(), "v1", most); err != nil {
				t.Error(err)
			}
			if got, err := fetch(r); err != nil || !bytes.Equal(got, blob) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

func TestConfigurationIsReadAsContainerdDoes(t *testing.T) {
	for text, want := range map[string]string{
		`server = "https://registry.example:5000/prefix"`:                                      "https registry.example:5000 /prefix/v2",
		"server = \"http://r.example/x/\"\noverride_path = true":                               "http r.example /x",
		`[host."https://m.example"]`:                                                           "https m.example /v2; https registry.example /v2",
		"[host.\"https://b.example\"]\ncapabilities=[\"pull\"]\n[host.\"http://a.example\"]\n": "https b.example /v2; http a.example /v2; https registry.example /v2",
	} {
		list, _, err := parse(text, "/d", "registry.example")
		var got []string
		for _, h := range list {
			got = append(got, h.scheme+" "+h.address+" "+h.path)
		}
		if err != nil || strings.Join(got, "; ") != want {
			t.Errorf("%s:\n%s, %v\nwant %s", text, strings.Join(got, "; "), err, want)
		}
	}
	for text, want := range map[string]string{
		`server = `: "expected value", `server = "ftp://x"`: "must be a URL", `[host."https://u:p@x"]`: "must be a URL",
		"[host.\"https://x\"]\ncapabilities = [\"fly\"]": `got "fly"`, "[host.\"https://x\"]\nca = 5": "ca: must be a string",
		"[host.\"https://x\".rewrite]\n\"(\" = \"a\"": `must have regular expressions as keys, got "("`, "[rewrite]\n\"(\" = \"a\"": "rewrite: must have",
	} {
		if _, _, err := parse(text, "/d", "registry.example"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestNamesOfRegistriesAreNoPaths(t *testing.T) {
	for _, name := range []string{"..", ".", ".hidden", ""} {
		if _, err := New(Options{Dirs: []string{t.TempDir()}}).Repository(name+"/a", Credentials{}); err == nil {
			t.Errorf("registry %q is accepted", name)
		}
	}
}

func TestTLSWithAConfiguredAuthority(t *testing.T) {
	s := httptest.NewTLSServer(handler(nil))
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "https://")
	if _, err := fetch(repository(t, Options{}, address+"/a/b", Credentials{})); err == nil {
		t.Error("a certificate of an unknown authority is trusted")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, address, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	if got, err := fetch(repository(t, Options{Dirs: []string{dir}}, address+"/a/b", Credentials{})); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("with its authority: %v", err)
	}
	write(t, filepath.Join(dir, address, "hosts.toml"), "server = \"https://"+address+"\"\nskip_verify = true\n")
	if _, err := fetch(repository(t, Options{Dirs: []string{dir}}, address+"/a/b", Credentials{})); err != nil {
		t.Errorf("without verification: %v", err)
	}
}
