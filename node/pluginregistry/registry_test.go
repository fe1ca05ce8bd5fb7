package pluginregistry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sampan-io/sampan/internal/run"
)

// TestPlaceOfSocketOutlivesIt removes a socket and makes it again while the plug-in of the first one is still being
// removed: no second goroutine may register the plug-in before that has ended.
func TestPlaceOfSocketOutlivesIt(t *testing.T) {
	all := &places{names: map[string]*place{}}
	first, second := map[string]identity{"a.sock": {inode: 1}}, map[string]identity{"a.sock": {inode: 2}}
	if added, _ := all.update(first); !slices.Equal(added, []string{"a.sock"}) {
		t.Fatalf("added %q, want the socket", added)
	}
	ctx, cancel := all.begin(t.Context(), "a.sock")
	defer cancel()
	if all.update(first); ctx.Err() != nil {
		t.Error("a scan that found the same socket has ended its registration")
	}
	if all.update(nil); ctx.Err() == nil {
		t.Error("the registration goes on without its socket")
	}
	if added, _ := all.update(second); len(added) > 0 {
		t.Errorf("added %q while the goroutine of the first socket is at work", added)
	}
	ctx, cancel = all.begin(t.Context(), "a.sock")
	defer cancel()
	if ctx == nil || ctx.Err() != nil {
		t.Fatal("the second socket is not registered")
	}
	all.update(nil)
	if ctx, _ := all.begin(t.Context(), "a.sock"); ctx != nil || len(all.names) > 0 {
		t.Errorf("%d names are left without sockets", len(all.names))
	}
}

func TestTooManySocketsAreIgnored(t *testing.T) {
	all := &places{names: map[string]*place{}}
	found := map[string]identity{}
	for i := range uint64(maxPlugins + 3) {
		found[strings.Repeat("s", int(i)+1)] = identity{inode: i}
	}
	if added, ignored := all.update(found); len(added) != maxPlugins || len(ignored) != 3 {
		t.Errorf("%d sockets added and %d ignored, want %d and 3", len(added), len(ignored), maxPlugins)
	}
}

// TestSocketThatIsMadeAgainIsBraked replaces a socket whenever its registration begins.
func TestSocketThatIsMadeAgainIsBraked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		r := New(Options{Sockets: Sockets(root), Handlers: map[string]Handler{}, Log: slog.New(slog.DiscardHandler)})
		all := &places{names: map[string]*place{}}
		all.update(map[string]identity{"a.sock": {inode: 1}})
		begun := time.Now()
		group := run.NewGroup(t.Context(), 0)
		group.Go(func(ctx context.Context) { r.follow(ctx, all, "a.sock") })
		for i := range uint64(5) {
			synctest.Wait() // the registration waits to be tried again, or for its turn
			all.update(map[string]identity{"a.sock": {inode: i + 2}})
			synctest.Wait()
		}
		all.update(nil)
		group.Wait()
		if took := time.Since(begun); took > 2*interval { // in the time of the bubble
			t.Errorf("five sockets within an instant were registered one after another in %v, want only the last one", took)
		} else if took < interval {
			t.Errorf("the second registration began %v after the first one, want %v", took, interval)
		}
	})
}

// handler records the calls for the plug-in "disks". Remove blocks until release is closed.
type handler struct {
	mu      sync.Mutex
	calls   []string // guarded by mu
	removal chan struct{}
	release chan struct{}
	done    chan struct{}
}

func (h *handler) add(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

func (h *handler) Register(context.Context, Plugin) error { h.add("register"); return nil }
func (h *handler) Registered(Plugin)                      { h.done <- struct{}{} }
func (h *handler) Remove(context.Context, Plugin) {
	h.removal <- struct{}{}
	<-h.release
	h.add("removed")
}

// plugin is one that registers, or fails with an error.
type plugin struct {
	registration.UnimplementedRegistrationServer
	fault error
}

func (p plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "T", Name: "disks"}, p.fault
}

func (plugin) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// serve makes the socket of a plug-in, and returns what removes it.
func serve(t *testing.T, root string, p plugin) (remove func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(root, directory, "disks.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, p)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { _ = s.Serve(l) })
	t.Cleanup(g.Stop)
	t.Cleanup(s.Stop)
	return s.Stop
}

// TestPluginThatRestartsIsRegisteredAgain restarts a plug-in while its first registration is being undone.
func TestPluginThatRestartsIsRegisteredAgain(t *testing.T) {
	root, h := t.TempDir(), &handler{removal: make(chan struct{}), release: make(chan struct{}), done: make(chan struct{})}
	r := New(Options{Sockets: Sockets(root), Handlers: map[string]Handler{"T": h}, Log: slog.New(slog.DiscardHandler)})
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(ctx, 0)
	g.Go(func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer g.Stop()
	defer cancel()
	remove := serve(t, root, plugin{})
	<-h.done
	remove()
	<-h.removal
	serve(t, root, plugin{})
	close(h.release)
	<-h.done
	if got := strings.Join(h.calls, " "); got != "register removed register" {
		t.Errorf("calls: %s", got)
	}
}

func TestErrorsOfPluginsAreShortened(t *testing.T) {
	root := t.TempDir()
	r := New(Options{Sockets: Sockets(root), Log: slog.New(slog.DiscardHandler)})
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	serve(t, root, plugin{fault: status.Error(codes.Internal, "a"+strings.Repeat("ä", 5000))})
	_, err := r.register(t.Context(), t.Context(), "disks.sock")
	if err == nil || len(err.Error()) > 400 || !utf8.ValidString(err.Error()) || status.Code(errors.Unwrap(err)) != codes.Internal {
		t.Errorf("the error of the plug-in is %v, want a short one with its code", err)
	}
	if err := os.Remove(filepath.Join(root, directory, "disks.sock")); err != nil {
		t.Fatal(err)
	}
}
