package await_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
)

// A testServer is an API server of this program with its clients, in a synctest bubble.
type testServer struct {
	t       *testing.T
	api     client.Interface // without authentication and authorization
	handler http.Handler
	conns   chan net.Conn
	web     *http.Server
	served  sync.WaitGroup
	down    atomic.Bool
	denied  atomic.Bool

	mu       sync.Mutex
	requests []string // guarded by mu; about the resource that is waited for
}

var boss = auth.User{Name: "boss", Groups: []string{"system:masters"}}

// Authenticate returns the user boss for every request.
func (h *testServer) Authenticate(*http.Request) (*auth.User, error) { return &boss, nil }

// Authorize allows everything until the permission is lost.
func (h *testServer) Authorize(context.Context, rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: !h.denied.Load(), Reason: "it was lost"}
}

// newTestServer starts a server; with old it does not support blocking reads.
func newTestServer(t *testing.T, old bool) *testServer {
	h := &testServer{t: t, conns: make(chan net.Conn)}
	server := apiservertest.Open(t, func(o *apiserver.Options) { o.Auth, o.Authorizer = h, h })
	h.api = server.As(boss)
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if p := r.URL.Path; strings.Contains(p, "pods") || strings.Contains(p, "controllers") || strings.Contains(p, "jobs") || strings.Contains(p, "configmaps") {
			kind := map[bool]string{true: "watch", false: "list"}[q.Has("watch")]
			if q.Has("timeoutSeconds") && !q.Has("watch") {
				kind = "read"
			}
			h.mu.Lock()
			h.requests = append(h.requests, kind)
			h.mu.Unlock()
		}
		if old {
			for _, name := range []string{"until", "untilMissing"} {
				q.Del(name)
			}
			r.URL.RawQuery = q.Encode()
		}
		server.Handler().ServeHTTP(w, r)
	})
	h.open()
	t.Cleanup(h.close)
	return h
}

func (h *testServer) open() {
	h.down.Store(false)
	h.web = &http.Server{Handler: h.handler} // all clients are fast
	h.served.Go(func() { _ = h.web.Serve(listener{h.conns, make(chan struct{}), &sync.Once{}}) })
}

// close breaks all connections.
func (h *testServer) close() {
	h.down.Store(true)
	_ = h.web.Close()
	h.served.Wait()
}

// A listener is a listener for connections within the process.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

func (q listener) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}
func (q listener) Close() error   { q.once.Do(func() { close(q.closed) }); return nil }
func (q listener) Addr() net.Addr { return &net.TCPAddr{} }

func (h *testServer) client() *client.REST {
	c, err := client.NewREST(&rest.Config{Host: "http://testServer", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if h.down.Load() {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		here, there := net.Pipe()
		select {
		case h.conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, client.RESTOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *testServer) pod(change func(*corev1.Pod)) {
	h.t.Helper()
	p, err := client.Pods.Get(h.t.Context(), h.api, "default", "web")
	if err != nil {
		p = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nothing"}}},
		}
		if p, err = client.Pods.Create(h.t.Context(), h.api, p); err != nil {
			h.t.Fatal(err)
		}
	}
	p = p.DeepCopy()
	change(p)
	if _, err := h.api.Update(h.t.Context(), client.Pods.GroupVersionResource, "default", "web", p, metav1.UpdateOptions{}, "status"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testServer) job(change func(*batchv1.Job)) {
	h.t.Helper()
	j, err := client.Jobs.Get(h.t.Context(), h.api, "default", "build")
	if err != nil {
		j = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "build"}}
		j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{Name: "main", Image: "nothing"}}}
		if j, err = client.Jobs.Create(h.t.Context(), h.api, j); err != nil {
			h.t.Fatal(err)
		}
	}
	j = j.DeepCopy()
	change(j)
	if _, err := h.api.Update(h.t.Context(), client.Jobs.GroupVersionResource, "default", "build", j, metav1.UpdateOptions{}, "status"); err != nil {
		h.t.Fatal(err)
	}
}

// controller makes one of generation 2, of which an older one was observed, and later this.
func (h *testServer) controller(observed int64) {
	h.t.Helper()
	rc, err := client.ReplicationControllers.Get(h.t.Context(), h.api, "default", "web")
	for n := int32(1); err != nil || rc.Generation < 2; n++ {
		c := controller(n, 0)
		c.UID = ""
		if err != nil {
			c.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: c.Spec.Selector}}
			c.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "nothing"}}
			rc, err = client.ReplicationControllers.Create(h.t.Context(), h.api, c)
		} else {
			rc = rc.DeepCopy()
			rc.Spec.Replicas = &n
			rc, err = client.ReplicationControllers.Update(h.t.Context(), h.api, rc, "")
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	rc = rc.DeepCopy()
	rc.Status.ObservedGeneration = observed
	rc.Status.Conditions = []corev1.ReplicationControllerCondition{{Type: corev1.ReplicationControllerReplicaFailure, Status: "True"}}
	if _, err := h.api.Update(h.t.Context(), client.ReplicationControllers.GroupVersionResource, "default", "web", rc, metav1.UpdateOptions{}, "status"); err != nil {
		h.t.Fatal(err)
	}
}

// gone deletes the pod at once.
func (h *testServer) gone() {
	h.t.Helper()
	now := int64(0)
	if err := h.api.Delete(h.t.Context(), client.Pods.GroupVersionResource, "default", "web", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		h.t.Fatal(err)
	}
}

// warn makes an event about the pod.
func (h *testServer) warn() {
	h.t.Helper()
	p, err := client.Pods.Get(h.t.Context(), h.api, "default", "web")
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = client.Events.Create(h.t.Context(), h.api, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web.1"}, Type: corev1.EventTypeWarning,
		Reason: "FailedScheduling", Message: "0/1 nodes are available", InvolvedObject: client.Reference(p),
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// summary returns the outcome of a wait as text. After a blocking read the next request is a list, after a list it is a
// watch; the summary of a lost permission is the same for both.
func summary(out await.Outcome, err error) string {
	if err != nil {
		return "error " + strings.Replace(err.Error(), "cannot watch", "cannot list", 1)
	}
	s := out.Result.String()
	for _, p := range out.Objects {
		s += fmt.Sprintf("\n%s (known %v, absent %v) %s", p.Object, p.Object.UID != "", p.Absent, p.Verdict)
		for _, e := range p.Events {
			s += "\n  " + e.Reason + " " + e.Message
		}
	}
	return s
}

// TestBlockingReadHasSameResult runs each case with blocking reads, without them, and
// on a server that does not know them.
func TestBlockingReadHasSameResult(t *testing.T) {
	pod, job := target(client.Pods, "web"), target(client.Jobs, "build")
	pending := func(h *testServer) { h.pod(func(*corev1.Pod) {}); h.warn() }
	failed := func(h *testServer) {
		h.job(func(j *batchv1.Job) {
			now := metav1.Now()
			j.Status.StartTime = &now
			j.Status.Conditions = []batchv1.JobCondition{
				{Type: batchv1.JobFailureTarget, Status: "True", Reason: "BackoffLimitExceeded"},
				{Type: batchv1.JobFailed, Status: "True", Reason: "BackoffLimitExceeded", LastTransitionTime: now},
			}
		})
	}
	restart := func(h *testServer, meanwhile func()) {
		h.close()
		meanwhile()
		time.Sleep(3 * time.Second) // of the bubble
		h.open()
	}
	for name, tt := range map[string]struct {
		degree  string
		any     string // a second degree, which is enough
		target  await.Target
		missing bool
		before  func(*testServer)
		during  func(*testServer)
		want    string // prefix of the summary
		reads   string // the requests with blocking reads; "" for list and watch
	}{
		"done at once":             {degree: "condition=Ready", target: pod, before: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"done later":               {degree: "condition=ready", target: pod, before: pending, during: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"a path":                   {degree: "jsonpath=.status.phase=Running", target: pod, before: pending, during: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"a path that differs":      {degree: "jsonpath=.status.phase!=Pending", target: pod, before: pending, during: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"a path that is a number":  {degree: "jsonpath=.spec.priority=0", any: "condition=Ready", target: pod, before: pending, during: func(h *testServer) { h.pod(isReady) }, want: "all done"},
		"an expression":            {degree: `cel=object.status.phase == "Running"`, target: pod, before: pending, during: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"one of two":               {degree: "condition=Initialized", any: "jsonpath=.status.phase=Running", target: pod, before: pending, during: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"for a moment":             {degree: "condition=Ready", target: pod, before: pending, during: func(h *testServer) { h.pod(isReady); h.pod(isOver) }, want: "all done", reads: "read"},
		"timeout":                  {degree: "condition=Ready", target: pod, before: pending, want: "timed out\npod/web (known true, absent false) waiting: "},
		"timeout, nothing there":   {degree: "created", target: pod, want: "timed out\npod/web (known false, absent true) waiting: it does not exist yet"},
		"deleted in mid-wait":      {degree: "condition=Ready", target: pod, before: pending, during: (*testServer).gone, want: "vanished\npod/web (known true, absent true)"},
		"not found":                {degree: "condition=Ready", target: pod, want: "vanished\npod/web (known false, absent true)"},
		"not found yet":            {degree: "condition=Ready", target: pod, missing: true, during: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"replaced":                 {degree: "condition=Ready", target: pod, missing: true, before: pending, during: func(h *testServer) { h.gone(); h.pod(isReady) }, want: "all done", reads: "read"},
		"created":                  {degree: "created", target: pod, during: func(h *testServer) { h.pod(isReady) }, want: "all done", reads: "read"},
		"deleted":                  {degree: "deleted", target: pod, before: pending, during: (*testServer).gone, want: "all done"},
		"deleted and made again":   {degree: "deleted", target: pod, before: pending, during: func(h *testServer) { h.gone(); h.pod(isReady) }, want: "all done"},
		"deleted at once":          {degree: "deleted", target: pod, want: "all done"},
		"not deleted":              {degree: "deleted", target: pod, before: pending, want: "timed out\npod/web (known true, absent false) waiting: its deletion has not been requested"},
		"a pod ends":               {degree: "condition=Ready", target: pod, before: pending, during: func(h *testServer) { h.pod(isOver) }, want: "some failed\npod/web (known true, absent false) failed (certain): the pod has ended (Succeeded); "},
		"a job fails for good":     {degree: "condition=Complete", target: job, before: func(h *testServer) { h.job(func(*batchv1.Job) {}) }, during: failed, want: "some failed\njob.batch/build (known true, absent false) failed (certain): the job has ended (Failed): BackoffLimitExceeded"},
		"a condition it never has": {degree: "condition=Redy", target: pod, before: pending, want: "error a pod cannot meet condition=Redy: "},
		"an expression that fails": {degree: "cel=object.status.phase + 1 == 2", target: pod, before: pending, want: `error pod/web: expression `},
		"lost permission": {degree: "condition=Ready", target: pod, before: pending, during: func(h *testServer) {
			restart(h, func() { h.denied.Store(true) })
		}, want: `error pods "web" is forbidden: User "boss" cannot list`},
		"a restart": {degree: "condition=Ready", target: pod, before: pending, during: func(h *testServer) {
			restart(h, func() {})
			synctest.Wait()
			h.pod(isReady)
		}, want: "all done"},
		"a restart, done meanwhile": {degree: "condition=Ready", target: pod, before: pending, during: func(h *testServer) {
			restart(h, func() { h.pod(isReady) })
		}, want: "all done"},
		"a server that stays away":      {degree: "condition=Ready", target: pod, before: pending, during: (*testServer).close, want: "error cannot reach the cluster at http://testServer: "},
		"no server at the start":        {degree: "condition=Ready", target: pod, before: (*testServer).close, want: "error cannot reach the cluster at http://testServer: "},
		"a condition that is stale":     {degree: "condition=ReplicaFailure", target: target(client.ReplicationControllers, "web"), before: func(h *testServer) { h.controller(1) }, during: func(h *testServer) { h.controller(2) }, want: "all done", reads: "read"},
		"no permission from the start":  {degree: "condition=Ready", target: pod, before: func(h *testServer) { h.denied.Store(true) }, want: `error pods "web" is forbidden: User "boss" cannot list`},
		"what depends on parts watches": {degree: "ready", target: pod, before: pending, during: func(h *testServer) { h.pod(isReady) }, want: "all done"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := map[string]string{}
			for _, way := range []string{"watch", "read", "old"} {
				synctest.Test(t, func(t *testing.T) {
					h := newTestServer(t, way == "old")
					if tt.before != nil {
						tt.before(h)
					}
					req := await.Request{Targets: []await.Target{tt.target}, Timeout: time.Minute, Missing: tt.missing}
					var degrees []await.Degree
					for _, text := range []string{tt.degree, tt.any} {
						if text == "" {
							continue
						}
						d, err := await.ParseDegree(text)
						if err != nil {
							t.Fatal(err)
						}
						degrees = append(degrees, d)
					}
					req.For = await.Any(degrees...)
					var c client.Interface = h.client()
					if way == "watch" {
						c = struct{ client.Interface }{c}
					}
					var waits sync.WaitGroup
					waits.Go(func() {
						out, err := await.Until(t.Context(), c, req, nil)
						ends[way] = summary(out, err)
					})
					synctest.Wait()
					if tt.during != nil {
						tt.during(h)
					}
					waits.Wait()
					h.mu.Lock()
					defer h.mu.Unlock()
					if got := strings.Join(h.requests, " "); way == "read" && tt.reads != "" && !strings.HasPrefix(got+" watch", tt.reads+" watch") {
						t.Errorf("requests %s, want %s", got, tt.reads)
					}
				})
			}
			for way, end := range ends {
				if !strings.HasPrefix(end, tt.want) || end != ends["watch"] {
					t.Errorf("%s ended with %s\nwatch with %s\nwant %s", way, end, ends["watch"], tt.want)
				}
			}
		})
	}
}
