package runtime

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/runtime/image"
	"github.com/sampan-io/sampan/runtime/registry"
)

// TestPullsAreShared lets several callers pull from a registry that does not answer: those with the same credentials share
// one request, which ends with the last of them.
func TestPullsAreShared(t *testing.T) {
	var requests atomic.Int32
	arrived, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return
		}
		requests.Add(1)
		arrived <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	defer s.Close()
	store, err := image.Open(image.Options{Dir: t.TempDir(), NoOverlay: true})
	if err != nil {
		t.Fatal(err)
	}
	group := run.NewGroup(t.Context(), 0)
	defer group.Stop()
	p := newPulls(registry.New(registry.Options{}), func() *image.Store { return store }, group)
	name := strings.TrimPrefix(s.URL, "http://") + "/a/b:1"
	var callers []context.CancelFunc
	results := make(chan error, 10)
	call := func(user string) {
		ctx, cancel := context.WithCancel(t.Context())
		callers = append(callers, cancel)
		joined := make(chan struct{})
		go func() {
			_, err := p.pull(ctx, pullRequest{Name: name, Credentials: registry.Credentials{Username: user, Password: "p"}},
				func(*image.Progress, <-chan struct{}) { close(joined) })
			results <- err
		}()
		<-joined
	}
	call("a")
	call("a")
	call("b")
	<-arrived
	<-arrived
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want one for each user", n)
	}
	callers[0]()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled caller got %v", err)
	}
	if len(ended) > 0 {
		t.Error("a pull ended while a caller waited for it")
	}
	callers[1]()
	<-ended
	callers[2]()
	<-ended
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.busy) > 0 {
		t.Errorf("%d pulls are left", len(p.busy))
	}
}
