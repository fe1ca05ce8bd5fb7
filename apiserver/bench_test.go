package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// The benchmarks measure the server beside a bare one: Go's TLS and HTTP/2 answering the
// same bytes with nothing behind. Nanoseconds belong to the machine; the ratio is what
// is compared between commits. Every iteration measures both.

const clients = 32

// A rival is one of the two servers and a client for each of its users.
type rival struct {
	url   string
	users []*http.Client
	took  time.Duration
}

func newRival(b *testing.B, h http.Handler) *rival {
	b.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	srv.StartTLS()
	b.Cleanup(srv.Close)
	r := &rival{url: srv.URL}
	for range clients {
		t := srv.Client().Transport.(*http.Transport).Clone()
		b.Cleanup(t.CloseIdleConnections)
		r.users = append(r.users, &http.Client{Transport: t})
	}
	return r
}

// round sends n requests from all users at once and adds the time they took. make
// returns the i-th request.
func (r *rival) round(b *testing.B, n int, send func(i int) (method, path string, body []byte), accept string) {
	var next atomic.Int64
	g := run.NewGroup(b.Context(), 0)
	start := time.Now()
	for _, user := range r.users {
		g.Go(func(ctx context.Context) {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				method, path, body := send(i)
				req, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("X-User", "boss")
				req.Header.Set("User-Agent", "bench")
				req.Header.Set("Accept", accept)
				resp, err := user.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode >= 300 {
					b.Errorf("%s %s: %d, %v", method, path, resp.StatusCode, err)
					return
				}
			}
		})
	}
	g.Wait()
	r.took += time.Since(start)
}

// bare answers everything with the same bytes.
func bare(code int, contentType string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(code)
		_, _ = w.Write(body)
	})
}

func benchServer(b *testing.B, st httpserver.Store) *apiserver.Server {
	b.Helper()
	opts := options(b, nil)
	opts.Store, opts.Log = st, slog.New(slog.DiscardHandler)
	s, err := apiserver.New(opts)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// bigPod is a pod of about 2.6 KB in JSON.
func bigPod(n int) *corev1.Pod {
	p := pod(fmt.Sprintf("web-%05d", n))
	p.Labels = map[string]string{"app": "web", "pod-template-hash": "abcdef"}
	p.Spec.NodeName = fmt.Sprint("node-", n%100)
	for i := range 10 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", i), Value: "some value that is neither long nor short"})
	}
	return p
}

func report(b *testing.B, floor, ours *rival, requests int) {
	b.ReportMetric(float64(floor.took)/float64(ours.took), "of-floor")
	b.ReportMetric(float64(requests)/ours.took.Seconds(), "req/s")
	b.ReportMetric(float64(requests)/floor.took.Seconds(), "floor-req/s")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkGetPod(b *testing.B) {
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		b.Run(accept, func(b *testing.B) {
			s := benchServer(b, memory(b, store.Options{}))
			if _, err := s.As(boss).Create(b.Context(), pdGVR, "default", "", bigPod(0), metav1.CreateOptions{}, ""); err != nil {
				b.Fatal(err)
			}
			rec := httptest.NewRecorder()
			req := httptest.NewRequest("GET", pods+"/web-00000", nil)
			req.Header.Set("X-User", "boss")
			req.Header.Set("Accept", accept)
			s.Handler().ServeHTTP(rec, req)
			floor, ours := newRival(b, bare(200, accept, rec.Body.Bytes())), newRival(b, s.Handler())
			send := func(int) (string, string, []byte) { return "GET", pods + "/web-00000", nil }
			requests := 0
			for b.Loop() {
				floor.round(b, 2000, send, accept)
				ours.round(b, 2000, send, accept)
				requests += 2000
			}
			report(b, floor, ours, requests)
		})
	}
}

func BenchmarkCreate(b *testing.B) {
	value := bytes.Repeat([]byte("x"), 200)
	objects := map[string]func(i int) (path string, body []byte){
		"ConfigMap": func(i int) (string, []byte) {
			return configMaps, fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm-%d"},"data":{"k":"%s"}}`, i, value)
		},
		"Pod": func(i int) (string, []byte) {
			p := bigPod(i)
			p.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			body, err := codec.Encode(codec.Media{}, p)
			if err != nil {
				b.Fatal(err)
			}
			return pods, body
		},
	}
	for _, kind := range []string{"ConfigMap", "Pod"} {
		for _, medium := range []string{"memory", "disk"} {
			b.Run(kind+"/"+medium, func(b *testing.B) {
				st := memory(b, store.Options{})
				if medium == "disk" {
					d, err := disk.Open(b.TempDir(), disk.Options{})
					if err != nil {
						b.Fatal(err)
					}
					st = onMedium(b, d)
				}
				floor, ours := newRival(b, bare(201, "application/json", bytes.Repeat([]byte("x"), 420))), newRival(b, benchServer(b, st).Handler())
				requests := 0
				for b.Loop() {
					send := func(i int) (string, string, []byte) {
						path, body := objects[kind](requests + i)
						return "POST", path, body
					}
					floor.round(b, 2000, send, "application/json")
					ours.round(b, 2000, send, "application/json")
					requests += 2000
				}
				report(b, floor, ours, requests)
			})
		}
	}
}

func BenchmarkList10000Pods(b *testing.B) {
	s := benchServer(b, memory(b, store.Options{}))
	for n := range 10_000 {
		if _, err := s.As(boss).Create(b.Context(), pdGVR, "default", "", bigPod(n), metav1.CreateOptions{}, ""); err != nil {
			b.Fatal(err)
		}
	}
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		b.Run(accept, func(b *testing.B) {
			rec := httptest.NewRecorder()
			req := httptest.NewRequest("GET", pods, nil)
			req.Header.Set("X-User", "boss")
			req.Header.Set("Accept", accept)
			s.Handler().ServeHTTP(rec, req)
			floor, ours := newRival(b, bare(200, accept, rec.Body.Bytes())), newRival(b, s.Handler())
			floor.users, ours.users = floor.users[:1], ours.users[:1]
			send := func(int) (string, string, []byte) { return "GET", pods, nil }
			requests := 0
			for b.Loop() {
				floor.round(b, 1, send, accept)
				ours.round(b, 1, send, accept)
				requests++
			}
			report(b, floor, ours, requests)
			b.ReportMetric(float64(rec.Body.Len())/1e6, "MB")
		})
	}
}

// BenchmarkWatch counts events that reach 100 watchers over HTTP/2 while one object is
// patched at full speed.
func BenchmarkWatch(b *testing.B) {
	const watchers, patches = 100, 1000
	s := benchServer(b, memory(b, store.Options{}))
	local := s.As(boss)
	if _, err := local.Create(b.Context(), pdGVR, "default", "", bigPod(0), metav1.CreateOptions{}, ""); err != nil {
		b.Fatal(err)
	}
	ours := newRival(b, s.Handler())
	ctx, cancel := context.WithCancel(b.Context())
	g := run.NewGroup(ctx, 0)
	arrived := make(chan int, watchers)
	for n := range watchers {
		req, err := http.NewRequestWithContext(ctx, "GET", ours.url+pods+"?watch=1&resourceVersion=1", nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("X-User", "boss")
		resp, err := ours.users[n%4].Do(req) // several streams to a connection, as clients have
		if err != nil {
			b.Fatal(err)
		}
		g.Go(func(context.Context) {
			defer resp.Body.Close()
			r := bufio.NewReaderSize(resp.Body, 64<<10)
			for seen := 1; ; seen++ {
				for {
					_, err := r.ReadSlice('\n')
					if err == nil {
						break
					}
					if !errors.Is(err, bufio.ErrBufferFull) {
						return
					}
				}
				if seen%patches == 0 {
					arrived <- n
				}
			}
		})
	}
	var took time.Duration
	events, round := 0, 0
	for b.Loop() {
		start := time.Now()
		round++
		for i := range patches {
			patch := fmt.Appendf(nil, `{"status":{"message":"%d-%d"}}`, round, i)
			if _, err := local.Patch(ctx, pdGVR, "default", "web-00000", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
				b.Fatal(err)
			}
		}
		for range watchers {
			<-arrived
		}
		took += time.Since(start)
		events += watchers * patches
	}
	b.ReportMetric(float64(events)/took.Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
	cancel()
	g.Wait()
}

// TestWhatAGetAllocates pins the core of a GET: authentication, authorization, the
// store and the answer, without Go's HTTP. Allocations are counted, not timed, so this
// can be a test.
func TestWhatAGetAllocates(t *testing.T) {
	f := serve(t)
	f.create(pods, pod("a"))
	req := httptest.NewRequest("GET", pods+"/a", nil)
	req.Header.Set("X-User", "boss")
	w := &blank{header: http.Header{}}
	h := f.server.Handler()
	if got := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, req) }); got > 9 {
		t.Errorf("a GET allocates %v times, want at most 9", got)
	} else {
		t.Logf("a GET allocates %v times", got)
	}
}

// blank is a ResponseWriter that keeps nothing.
type blank struct{ header http.Header }

func (b *blank) Header() http.Header       { return b.header }
func (*blank) WriteHeader(int)             {}
func (*blank) Write(p []byte) (int, error) { return len(p), nil }
