package rollout_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/rollout"
)

// by sets the holder of an update.
func by(h rollout.Holder, change func(*rollout.Options)) func(*rollout.Options) {
	return func(o *rollout.Options) {
		if change != nil {
			change(o)
		}
		o.Self = h
	}
}

func TestSecondUpdaterIsBusy(t *testing.T) {
	for name, second := range map[string]func(*rollout.Options){
		"the same":    nil,
		"another":     func(o *rollout.Options) { o.Image = "v3" },
		"a rollback":  func(o *rollout.Options) { o.Image, o.Rollback = "", true },
		"replacement": replacePods,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 3, 4)
				first := make(chan error, 1)
				h.group.Go(func(ctx context.Context) {
					_, err := h.update(h.s, ctx, by(rollout.Holder{User: "ann", Host: "ci-7", PID: 4711}, func(o *rollout.Options) {
						o.UpdatePeriod = time.Minute
					}))
					first <- err
				})
				run.Pause(t.Context(), 10*time.Second)
				var busy *rollout.BusyError
				writes := &faultClient{Interface: h.s}
				_, err := h.update(writes, t.Context(), by(rollout.Holder{User: "bob", Host: "ci-8"}, second))
				if name == "replacement" {
					if err == nil || !strings.Contains(err.Error(), "under way") {
						t.Errorf("Run = %v, want a refusal", err)
					}
				} else if !errors.As(err, &busy) || !strings.Contains(err.Error(), "ann@ci-7, process 4711, since 2000-01-01T") {
					t.Errorf("Run = %v, want a BusyError with ann", err)
				}
				if n := writes.verbs["update replicationcontrollers"]; n > 0 {
					t.Errorf("it made %d updates, want none", n)
				}
				if err := <-first; err != nil {
					t.Errorf("the first one: Run = %v", err)
				}
				h.end("web", "v2", 3, 6)
			}, web(3))
		})
	}
}

func TestManyUpdatersAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		var mu sync.Mutex
		done := 0
		g := run.NewGroup(t.Context(), 0)
		for range 5 {
			g.Go(func(ctx context.Context) {
				_, err := h.update(h.s, ctx, nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					done++
				case !errors.As(err, new(*rollout.BusyError)):
					t.Errorf("Run = %v, want success or a BusyError", err)
				}
			})
		}
		g.Wait()
		g.Stop()
		if done == 0 {
			t.Error("none of them did it")
		}
		h.end("web", "v2", 3, 6)
	}, web(3))
}

// TestHolderDead kills an updater and looks how soon another goes on.
func TestHolderDead(t *testing.T) {
	here := place(t)
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	gone := cmd.Process.Pid // it was reaped: no process has this PID now
	sleeper := aProcess(t)
	becomeZombie(t, sleeper)
	zombie := sleeper.Pid
	for _, tt := range []struct {
		name  string
		first rollout.Holder
		soon  bool
	}{
		{"on another machine", rollout.Holder{Host: "ci-7", PID: gone, Place: "elsewhere"}, false},
		{"on this machine", rollout.Holder{Host: "ci-8", PID: gone, Place: here}, true},
		{"a zombie", rollout.Holder{Host: "ci-8", PID: zombie, Place: here}, true},
		{"a zombie's number on another machine", rollout.Holder{Host: "ci-8", PID: zombie, Place: "elsewhere"}, false},
		{"another process with its number", rollout.Holder{Host: "ci-8", PID: os.Getpid(), Place: here, Start: 1}, true},
		{"alive, but of no more use", rollout.Holder{Host: "ci-8", PID: os.Getpid(), Place: here}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 3, 4)
				killedAt(t, h, 18, by(tt.first, nil))
				began := time.Now()
				var notes []string
				h.mustUpdate(by(rollout.Holder{Host: "ci-8", Place: here}, func(o *rollout.Options) {
					o.Progress = func(line string) { notes = append(notes, line) }
				}))
				if soon := time.Since(began) < time.Minute; soon != tt.soon {
					t.Errorf("it took %v; it should be taken over at once: %v; notes: %q", time.Since(began), tt.soon, notes)
				}
				if !strings.Contains(strings.Join(notes, "\n"), "taking over") {
					t.Errorf("it did not tell: %q", notes)
				}
				h.end("web", "v2", 3, 6)
			}, web(3))
		})
	}
}

// aProcess starts a process that does nothing. It is waited for when the test is over.
func aProcess(t *testing.T) *os.Process {
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its error is that it was killed
	})
	return cmd.Process
}

// becomeZombie kills a process and returns when it has ended, without reaping it.
func becomeZombie(t *testing.T, p *os.Process) {
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Error(err)
	}
}

// TestTakeOverFromDeadHolder kills the process of the first updater while the second
// waits for its sign of life, and leaves it a zombie.
func TestTakeOverFromDeadHolder(t *testing.T) {
	here, first := place(t), aProcess(t)
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		killedAt(t, h, 18, by(rollout.Holder{Host: "ci-8", PID: first.Pid, Place: here}, nil))
		time.AfterFunc(10*time.Second, func() { becomeZombie(t, first) })
		began, taken := time.Now(), time.Duration(0)
		h.mustUpdate(by(rollout.Holder{Host: "ci-8", Place: here}, func(o *rollout.Options) {
			o.Progress = func(line string) {
				if strings.Contains(line, "has ended; taking over") {
					taken = time.Since(began)
				}
			}
		}))
		if taken < 10*time.Second || taken > 12*time.Second { // of the bubble
			t.Errorf("it took over after %v, want 10s and little more", taken)
		}
		h.end("web", "v2", 3, 6)
	}, web(3))
}

func TestTimeoutWhileHeld(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		killedAt(t, h, 18, by(rollout.Holder{Host: "ci-7", PID: 4711, Place: "elsewhere"}, nil))
		began := time.Now()
		var late *rollout.TimeoutError
		_, err := h.update(h.s, t.Context(), by(rollout.Holder{Host: "ci-8"}, func(o *rollout.Options) { o.Timeout = 20 * time.Second }))
		if !errors.As(err, &late) || !strings.Contains(late.Why, "ci-7, process 4711") || time.Since(began) != 20*time.Second {
			t.Errorf("Run = %v after %v, want a TimeoutError with the holder after 20s", err, time.Since(began))
		}
		h.mustUpdate(by(rollout.Holder{Host: "ci-8"}, nil)) // which has the time to wait
		h.end("web", "v2", 3, 6)
	}, web(3))
}

// place is where processes of this machine are seen from this one.
func place(t *testing.T) string {
	var h rollout.Holder
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.settled("web", 1, 1, 2)
		killedAt(t, c, 9, nil)
		rc := clienttest.Find(c.s, client.ReplicationControllers, "default", "web")
		if rc.Annotations["sampan.dev/rollout-holder"] == "" {
			t.Fatalf("the controller says of nobody that he is at it: %v", rc.Annotations)
		}
		h = rollout.HolderOf(rc)
	}, web(1))
	return h.Place
}

// TestReplacedHolderStops has an updater sleep for longer than others wait
// for a sign of life, and go on when another one is at it.
func TestReplacedHolderStops(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		told := make(chan error, 1)
		var asleep atomic.Bool
		first := &faultClient{Interface: h.s}
		first.before = func(call int) {
			if call == 18 {
				asleep.Store(true)
				run.Pause(t.Context(), 10*time.Minute)
				asleep.Store(false)
			}
		}
		h.group.Go(func(ctx context.Context) {
			_, err := h.update(first, ctx, by(rollout.Holder{Host: "ci-7"}, nil))
			told <- err
		})
		run.Pause(t.Context(), time.Minute)
		if !asleep.Load() {
			t.Fatal("the first one is not asleep")
		}
		h.mustUpdate(by(rollout.Holder{Host: "ci-8"}, func(o *rollout.Options) { o.UpdatePeriod = 20 * time.Minute }))
		h.end("web", "v2", 3, 6)
		if err := <-told; !errors.As(err, new(*rollout.BusyError)) {
			t.Errorf("the first one: Run = %v, want a BusyError", err)
		}
	}, web(3))
}

func TestStoppedRunReleasesHold(t *testing.T) {
	for name, change := range map[string]func(*rollout.Options){
		"failed":    func(o *rollout.Options) { o.Image = "bad" },
		"timed out": func(o *rollout.Options) { o.Image = "slow" },
		"canaries":  func(o *rollout.Options) { o.Canaries = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 3, 4)
				_, _ = h.update(h.s, t.Context(), change)
				rc := clienttest.Find(h.s, client.ReplicationControllers, "default", "web")
				if _, found := rc.Annotations["sampan.dev/rollout-holder"]; found || rc.Annotations["kubectl.kubernetes.io/next-controller-id"] == "" {
					t.Errorf("it left %v, want the update without a holder", rc.Annotations)
				}
			}, web(3))
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		inCluster(t, func(t *testing.T, h *testCluster) {
			h.settled("web", 3, 3, 4)
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			_, _ = h.update(h.s, ctx, func(o *rollout.Options) { o.UpdatePeriod = time.Minute })
			rc := clienttest.Find(h.s, client.ReplicationControllers, "default", "web")
			if _, found := rc.Annotations["sampan.dev/rollout-holder"]; found {
				t.Errorf("it left %v, want no holder", rc.Annotations)
			}
		}, web(3))
	})
}
