package shutdown_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/shutdown"
	"github.com/sampan-io/sampan/node/shutdown/logindtest"
)

// follow runs an inhibitor of ten seconds before a stand-in, and returns a channel with what it reports.
func follow(t *testing.T, delay, reloaded time.Duration) (d *logindtest.Logind, calls chan string, conf string, stop func()) {
	t.Helper()
	dir := t.TempDir()
	d, err := logindtest.Serve(filepath.Join(dir, "bus"), delay, reloaded)
	if err != nil {
		t.Fatal(err)
	}
	calls, conf = make(chan string, 8), filepath.Join(dir, "logind.conf.d", "99-sampan.conf")
	i := &shutdown.Inhibitor{
		Bus: "unix:path=" + filepath.Join(dir, "bus"), Delay: 10 * time.Second, ConfigFile: conf,
		Began:     func(context.Context) { calls <- "began" },
		Cancelled: func() { calls <- "cancelled" },
		Log:       slog.New(slog.DiscardHandler),
	}
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) {
		if err := i.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return d, calls, conf, func() { g.Stop(); d.Close() }
}

func TestShutdownWaitsUntilBeganReturns(t *testing.T) {
	d, calls, conf, stop := follow(t, time.Minute, time.Minute)
	defer stop()
	d.Await(1, 1)
	d.Shutdown(true)
	if got := <-calls; got != "began" {
		t.Errorf("a shutdown is reported as %q", got)
	}
	d.Await(0, 1)
	d.Shutdown(false)
	if got := <-calls; got != "cancelled" {
		t.Errorf("the end of a shutdown is reported as %q", got)
	}
	d.Await(1, 2)
	if _, err := os.Stat(conf); err == nil {
		t.Error("the configuration of logind was changed although its limit suffices")
	}
}

func TestLockIsTakenAgainAfterARestart(t *testing.T) {
	d, _, _, stop := follow(t, time.Minute, time.Minute)
	defer stop()
	d.Await(1, 1)
	d.Drop()
	d.Await(1, 2)
}

func TestLimitOfLogindIsRaised(t *testing.T) {
	d, _, conf, stop := follow(t, 5*time.Second, 10*time.Second)
	d.Await(1, 1)
	text, err := os.ReadFile(conf)
	if err != nil || !strings.Contains(string(text), "[Login]\nInhibitDelayMaxSec=10\n") || d.Reloads() != 1 {
		t.Errorf("the configuration of logind is %q (%v), read again %d times", text, err, d.Reloads())
	}
	stop()
	if _, err := os.Stat(conf); err == nil {
		t.Error("the configuration of logind is left behind")
	}
}

func TestInhibitorEndsBeforeALogindThatHangs(t *testing.T) {
	d, _, _, stop := follow(t, time.Minute, time.Minute)
	d.Await(1, 1)
	d.Hang()
	d.Drop()
	stop() // while a call waits for its answer
}

func TestAddressOfTheBusIsChecked(t *testing.T) {
	for _, address := range []string{"", "tcp:host=localhost", "unix:", "unix:path=", "unix:path=%zz", "autolaunch:"} {
		log := &strings.Builder{}
		i := &shutdown.Inhibitor{Bus: address, Log: slog.New(slog.NewTextHandler(log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(ctx, 0)
		logged := make(chan struct{})
		i.Log = slog.New(watched{slog.NewTextHandler(log, nil), logged})
		g.Go(func(ctx context.Context) { _ = i.Run(ctx) })
		<-logged
		cancel()
		g.Wait()
		if !strings.Contains(log.String(), "must be unix:path=FILE") {
			t.Errorf("%q: %s", address, log)
		}
	}
}

// watched closes a channel after the first record.
type watched struct {
	slog.Handler
	logged chan struct{}
}

func (w watched) Handle(ctx context.Context, r slog.Record) error {
	defer close(w.logged)
	return w.Handler.Handle(ctx, r)
}
