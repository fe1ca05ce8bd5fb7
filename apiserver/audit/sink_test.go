package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sampan-io/sampan/apiserver/auth"
)

const everything = "rules: [{level: RequestResponse}]\n"

// start opens an auditor with a policy that records everything, and runs it until the returned function is called.
func start(t *testing.T, change func(*Config)) (a *Auditor, stop func()) {
	t.Helper()
	c := DefaultConfig()
	c.PolicyFile = filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(c.PolicyFile, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+everything), 0o600); err != nil {
		t.Fatal(err)
	}
	change(&c)
	a, err := New(c, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	<-a.Ready()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return a, stop
}

// request records one request and reports whether it may go on.
func request(a *Auditor, name string) bool {
	r := a.Begin(&Attributes{User: &auth.User{Name: "alice", Groups: []string{"crew"}}, Verb: "get", Version: "v1", Resource: "pods", Namespace: "default", Name: name})
	r.Over(httptest.NewRequest("GET", "/api/v1/namespaces/default/pods/"+name, nil), "id-"+name)
	if !r.Received() {
		return false
	}
	r.AnsweredJSON([]byte(`{"kind":"Pod","html":"<&>"}`))
	r.Started(200)
	r.Complete()
	r.Complete() // nothing more
	return true
}

// kubeconfig writes the file of a webhook.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "webhook.yaml")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: '%s'}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lostBy returns how many events were not recorded.
func (a *Auditor) lostBy(plugin string) int {
	var m dto.Metric
	if err := a.errors.WithLabelValues(plugin).(prometheus.Metric).Write(&m); err != nil {
		panic(err)
	}
	return int(m.GetCounter().GetValue())
}

func TestTheLogHasALineForEachEvent(t *testing.T) {
	for _, mode := range []Mode{ModeBlocking, ModeStrict, ModeBatch} {
		path := filepath.Join(t.TempDir(), "logs", "audit.log")
		a, stop := start(t, func(c *Config) { c.Log.Path, c.Log.Batch.Mode = path, mode })
		const requests = 200
		var g sync.WaitGroup
		for i := range requests {
			g.Go(func() { request(a, fmt.Sprint(i)) })
		}
		g.Wait()
		stop()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
		if len(lines) != 2*requests {
			t.Errorf("%s: %d lines after a clean stop, want %d", mode, len(lines), 2*requests)
		}
		for _, l := range lines {
			var e Event
			if err := json.Unmarshal(l, &e); err != nil || !bytes.HasPrefix(l, []byte(eventStart)) || e.User.Username != "alice" {
				t.Fatalf("%s: %v: %s", mode, err, l)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
}

func TestTheLogIsRotated(t *testing.T) {
	dir := t.TempDir()
	a, stop := start(t, func(c *Config) {
		c.Log.Path, c.Log.MaxSize = filepath.Join(dir, "audit.log"), 1
	})
	big := bytes.Repeat([]byte("x"), 100<<10)
	for range 25 {
		r := a.Begin(&Attributes{Verb: "get"})
		r.AnsweredJSON([]byte(`"` + string(big) + `"`))
		r.Started(200)
		r.Complete()
	}
	stop()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.log"))
	if err != nil || len(files) == 0 {
		t.Errorf("rotated files: %v, %v", files, err)
	}
}

func TestLegacyFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a, stop := start(t, func(c *Config) { c.Log.Path, c.Log.Format = path, "legacy" })
	request(a, "web")
	stop()
	data, err := os.ReadFile(path)
	want := ` AUDIT: id="id-web" stage="ResponseComplete" ip="192.0.2.1" method="get" user="alice" groups="\"crew\"" as="<self>" asgroups="<lookup>" user-agent="" namespace="default" uri="/api/v1/namespaces/default/pods/web" response="200"` + "\n"
	if err != nil || !strings.HasSuffix(string(data), want) {
		t.Errorf("%v\n%s\nwant %s", err, data, want)
	}
}

// receiver is a webhook.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	lists  int
	events []Event
	fail   int // so many requests
	hang   chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		hang := r.hang
		r.mu.Unlock()
		if hang != nil {
			select {
			case <-hang:
			case <-req.Context().Done():
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fail > 0 {
			r.fail--
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		var list struct {
			Kind, APIVersion string
			Items            []Event
		}
		if err := json.Unmarshal(body, &list); err != nil || list.Kind != "EventList" || list.APIVersion != apiVersion || req.Method != "POST" || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v: %s %s", err, req.Method, body)
		}
		r.lists++
		r.events = append(r.events, list.Items...)
	}))
	t.Cleanup(r.Close)
	return r
}

func TestTheWebhookGetsBatches(t *testing.T) {
	hook := newReceiver(t)
	hook.fail = 2
	a, stop := start(t, func(c *Config) {
		c.Webhook.ConfigFile, c.Webhook.InitialBackoff = kubeconfig(t, hook.URL+"/sink"), time.Millisecond
		c.Webhook.Batch.MaxSize, c.Webhook.Batch.MaxWait = 20, time.Hour
	})
	for i := range 50 {
		request(a, fmt.Sprint(i))
	}
	stop()
	if len(hook.events) != 100 || hook.lists != 5 || a.lostBy("webhook") != 0 {
		t.Errorf("%d events in %d lists, %d lost; want 100, 5, 0", len(hook.events), hook.lists, a.lostBy("webhook"))
	}
	if e := hook.events[0]; e.Kind != "" || e.Verb != "get" {
		t.Errorf("item: %+v", e)
	}
}

func TestAnIncompleteBatchWaitsOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Auditor{log: slog.New(slog.DiscardHandler)}
		s := a.newSink("x", Batch{Mode: ModeBatch, BufferSize: 10, MaxSize: 3, MaxWait: time.Second}, Truncate{}, nil)
		began := time.Now()
		for _, e := range []string{"a", "b", "c", "d"} {
			if err := s.enqueue([]byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		if b := s.collect(); len(b) != 3 || time.Since(began) != 0 {
			t.Errorf("a full batch: %q after %v", b, time.Since(began))
		}
		if b := s.collect(); len(b) != 1 || time.Since(began) != time.Second {
			t.Errorf("an incomplete batch: %q after %v", b, time.Since(began))
		}
		s.end()
		if b := s.collect(); b != nil {
			t.Errorf("after the end: %q", b)
		}
		if err := s.enqueue(nil); err == nil {
			t.Error("an event was taken after the end")
		}
	})
}

func TestAHangingWebhookStopsNoRequests(t *testing.T) {
	hook := newReceiver(t)
	hook.hang = make(chan struct{})
	a, stop := start(t, func(c *Config) {
		c.Webhook.ConfigFile = kubeconfig(t, hook.URL)
		c.Webhook.Batch.MaxSize, c.Webhook.Batch.BufferSize = 1, 10
	})
	const requests = 100
	for i := range requests {
		if !request(a, fmt.Sprint(i)) {
			t.Fatal("a request was refused")
		}
	}
	if a.lostBy("webhook") == 0 {
		t.Error("no event is counted as lost")
	}
	close(hook.hang)
	stop()
	if got := len(hook.events) + a.lostBy("webhook"); got != 2*requests {
		t.Errorf("%d events were received, %d lost; want %d", len(hook.events), a.lostBy("webhook"), 2*requests)
	}
}

func TestAWebhookThatHangsAtTheEnd(t *testing.T) {
	hook := newReceiver(t)
	hook.hang = make(chan struct{})
	a, stop := start(t, func(c *Config) { c.Webhook.ConfigFile = kubeconfig(t, hook.URL) })
	request(a, "a")
	a.endWork() // what the end of flushTimeout does
	stop()
	if a.lostBy("webhook") != 2 {
		t.Errorf("%d events are counted as lost, want 2", a.lostBy("webhook"))
	}
}

func TestStrictWebhook(t *testing.T) {
	hook := newReceiver(t)
	hook.fail = webhookTries
	a, _ := start(t, func(c *Config) {
		c.Webhook.ConfigFile, c.Webhook.InitialBackoff, c.Webhook.Batch.Mode = kubeconfig(t, hook.URL), time.Millisecond, ModeStrict
	})
	if request(a, "a") {
		t.Error("a request that was not recorded goes on")
	}
	if !request(a, "b") || len(hook.events) != 2 {
		t.Errorf("%d events, want 2", len(hook.events))
	}
}

func TestLargeEventsAreTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a, stop := start(t, func(c *Config) {
		c.Log.Path, c.Log.Truncate = path, Truncate{Enabled: true, MaxEventSize: 1000, MaxBatchSize: 2000}
	})
	record := func(body int, uri int) {
		r := a.Begin(&Attributes{Verb: "get"})
		r.Inside("/"+strings.Repeat("u", uri), "agent")
		r.Annotate("a", "b")
		r.AnsweredJSON([]byte(`"` + strings.Repeat("x", body) + `"`))
		r.Started(200)
		r.Complete()
	}
	record(10, 1)
	record(2000, 1)
	record(2000, 2000)
	stop()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	for line := range bytes.Lines(data) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if len(events) != 2 || a.lostBy("log") != 1 {
		t.Fatalf("%d events, %d lost; want 2, 1", len(events), a.lostBy("log"))
	}
	if e := events[0]; e.ResponseObject == nil || e.Annotations["audit.k8s.io/truncated"] != "" {
		t.Errorf("a small event: %+v", e)
	}
	if e := events[1]; e.ResponseObject != nil || e.Annotations["audit.k8s.io/truncated"] != "true" || e.Annotations["a"] != "b" {
		t.Errorf("a large event: %+v", e)
	}
}

func TestBatchesAreSplit(t *testing.T) {
	s := &sink{truncate: Truncate{Enabled: true, MaxBatchSize: 10}}
	var sizes []int
	for _, part := range s.split([][]byte{make([]byte, 4), make([]byte, 6), make([]byte, 1), make([]byte, 20)}) {
		sizes = append(sizes, len(part))
	}
	if fmt.Sprint(sizes) != "[2 1 1]" {
		t.Errorf("parts of %v events", sizes)
	}
}

func TestConfigurationsAreValidated(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"": func(*Config) {},
		"invalid audit log mode x, allowed modes are":         func(c *Config) { c.Log.Batch.Mode = "x" },
		"invalid audit webhook mode x":                        func(c *Config) { c.Webhook.Batch.Mode = "x" },
		"webhook buffer size 0, must be a positive number":    func(c *Config) { c.Webhook.Batch.BufferSize = 0 },
		"webhook max batch size 0, must be a positive number": func(c *Config) { c.Webhook.Batch.MaxSize = 0 },
		"throttle QPS 0, must be":                             func(c *Config) { c.Webhook.Batch.ThrottleQPS = 0 },
		"throttle burst 0, must be":                           func(c *Config) { c.Webhook.Batch.ThrottleBurst = 0 },
		"max event size 0, must be":                           func(c *Config) { c.Log.Truncate.MaxEventSize = 0 },
		"must be greater than max event size":                 func(c *Config) { c.Log.Truncate.MaxBatchSize = 1 },
		"invalid audit log format x":                          func(c *Config) { c.Log.Format = "x" },
		"invalid group version":                               func(c *Config) { c.Log.Version = "audit.k8s.io/v1beta1" },
		"--audit-log-maxage -1 can't be a negative number":    func(c *Config) { c.Log.MaxAge = -1 },
	} {
		c := DefaultConfig()
		c.Log.Path, c.Webhook.ConfigFile = "x", "y"
		change(&c)
		if err := c.validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNothingIsRecordedWithoutAPolicyOrASink(t *testing.T) {
	c := DefaultConfig()
	c.Log.Path = filepath.Join(t.TempDir(), "audit.log")
	if a, err := New(c, slog.New(slog.DiscardHandler)); a != nil || err != nil {
		t.Errorf("New = %v, %v", a, err)
	}
	if _, err := os.Stat(c.Log.Path); err == nil {
		t.Error("a log was made")
	}
	var a *Auditor
	r := a.Begin(&Attributes{})
	if n := testing.AllocsPerRun(100, func() {
		r.Annotate("a", "b")
		r.Sent(nil)
		r.Started(200)
		r.Complete()
		if !r.Received() || r.WantsAnswer() {
			t.Error("a request that is not recorded is refused or encoded")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a request that is not recorded", n)
	}
}
