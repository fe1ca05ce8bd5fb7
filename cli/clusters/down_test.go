package clusters

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sampan-io/sampan/cluster/local"
)

// process starts a shell script that ends with the test, and returns when the
// script has said something.
func process(t *testing.T, script string, args ...string) local.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p, err := local.ProcessOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A cluster that is still starting has perhaps no runtime yet when it is looked
// for, and has one when it has ended.
func TestEndFindsTheRuntimeThatWasStartedMeanwhile(t *testing.T) {
	p := local.Profile{Name: "test", DataDir: t.TempDir(), RunDir: filepath.Join(t.TempDir(), "run")}
	if err := os.Mkdir(p.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	runtime := local.Runtime{Process: process(t, "echo; exec sleep 1000"), Program: "/x/sampan-runtime"}
	data, err := json.Marshal(runtime)
	if err != nil {
		t.Fatal(err)
	}
	later, now := filepath.Join(p.DataDir, "later"), filepath.Join(p.RunDir, "runtime.json")
	if err := os.WriteFile(later, data, 0o600); err != nil {
		t.Fatal(err)
	}
	starting := process(t, `trap 'mv "$1" "$2"; kill $!; exit' TERM; sleep 1000 & echo; wait`, later, now)

	var cleaned local.Instance
	o := Options{Clean: func(_ context.Context, _ local.Profile, i local.Instance) error {
		cleaned = i
		return nil
	}}
	if err := end(t.Context(), o, p, local.Instance{Process: starting}); err != nil {
		t.Fatal(err)
	}
	if starting.Alive() || runtime.Alive() {
		t.Errorf("after end the cluster runs: %v, its runtime: %v", starting.Alive(), runtime.Alive())
	}
	if cleaned.Runtime != runtime {
		t.Errorf("Clean was told of the runtime %+v, want %+v", cleaned.Runtime, runtime)
	}
	if _, err := os.Stat(p.RunDir); err == nil {
		t.Error("the run directory is left")
	}
}

// Two that end the same cluster do not get into each other's way.
func TestTwoThatEndAClusterCleanUpOnce(t *testing.T) {
	p := local.Profile{Name: "test", DataDir: t.TempDir(), RunDir: filepath.Join(t.TempDir(), "run")}
	if err := os.Mkdir(p.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	var cleaned atomic.Int32
	o := Options{Clean: func(context.Context, local.Profile, local.Instance) error {
		cleaned.Add(1)
		return nil
	}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := end(t.Context(), o, p, local.Instance{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := cleaned.Load(); n != 1 {
		t.Errorf("cleaned up %d times, want once", n)
	}
}

// A start whose cluster has not written down anything is stopped all the same, and down
// waits until it is over.
func TestDownEndsAStartThatNobodyElseSees(t *testing.T) {
	p := local.Profile{Name: "test", DataDir: t.TempDir(), RunDir: filepath.Join(t.TempDir(), "run")}
	if err := os.Mkdir(p.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if stopped, err := endStarters(t.Context(), p); stopped || err != nil {
		t.Errorf("nobody starts it: %v, %v", stopped, err)
	}
	over := filepath.Join(p.DataDir, "over")
	up := process(t, `trap 'echo > "$1"; kill $!; exit' TERM; sleep 1000 & echo; wait`, over)
	data, err := json.Marshal(up)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.RunDir, "starter-1.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if stopped, err := endStarters(t.Context(), p); !stopped || err != nil {
		t.Errorf("endStarters = %v, %v, want that it stopped one", stopped, err)
	}
	if _, err := os.Stat(over); err != nil || up.Alive() {
		t.Errorf("the start is alive: %v; its own end: %v", up.Alive(), err)
	}
}

func TestDownNamesTheNodeThatItStops(t *testing.T) {
	own, joined := local.Profile{Name: "own", DataDir: t.TempDir()}, local.Profile{Name: "two", DataDir: t.TempDir()}
	if err := joined.KeepMember(local.Member{Server: "https://192.0.2.1:6443", Settings: local.Settings{NodeName: "n2"}}); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[local.Profile]string{own: "cluster own", joined: "node n2 of the cluster at https://192.0.2.1:6443"} {
		if got := subject(p); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestPurgeAfterTheDataWasRemoved: a cluster goes on for a while when its data directory is removed, and writes some of it again.
func TestPurgeAfterTheDataWasRemoved(t *testing.T) {
	for name, tt := range map[string]struct {
		left []string
		was  bool
		want string // "" means an error
	}{
		"all of it, of one that ran":      {nil, true, "cluster lost is stopped; there is no data in "},
		"most of it, of one that ran":     {[]string{"pki"}, true, "cluster lost is stopped; its data was removed before, and what is left in "},
		"files of others":                 {[]string{"photos"}, false, ""},
		"all of it, of one that is known": {nil, false, "cluster lost is not running and has no data in "},
	} {
		dir := t.TempDir()
		p := local.Profile{Name: "lost", DataDir: filepath.Join(dir, "elsewhere"), Default: filepath.Join(dir, "lost"), RunDir: filepath.Join(dir, "run", "lost")}
		if err := p.Record(); err != nil {
			t.Fatal(err)
		}
		for _, left := range tt.left {
			if err := os.MkdirAll(filepath.Join(p.DataDir, left), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cmd := commandWith(t, "--kubeconfig="+filepath.Join(dir, "config"))
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetContext(t.Context())
		err := purged(cmd, p, tt.was, false)
		recorded, recordErr := p.Recorded()
		if (err == nil) != (tt.want != "") || !strings.HasPrefix(out.String(), tt.want) || recordErr != nil || (recorded == "") != (tt.want != "") {
			t.Errorf("%s: %q, %v; recorded is %q, %v", name, out.String(), err, recorded, recordErr)
		}
		for _, left := range tt.left {
			if _, err := os.Stat(filepath.Join(p.DataDir, left)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestNoEmptyClusterInPlaceOfALostOne: neither in the default directory nor in another one.
func TestNoEmptyClusterInPlaceOfALostOne(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"lost", "elsewhere"} {
		p := local.Profile{Name: "lost", DataDir: filepath.Join(dir, name), Default: filepath.Join(dir, "lost"), RunDir: filepath.Join(dir, "run", "lost")}
		if err := checkDataDir(commandWith(t), p); err != nil {
			t.Errorf("%s: before the first start: %v", name, err)
		}
		if err := p.Record(); err != nil {
			t.Fatal(err)
		}
		if err := checkDataDir(commandWith(t), p); err == nil || !strings.Contains(err.Error(), p.DataDir+", which has none now") {
			t.Errorf("%s: without its data: %v", name, err)
		}
		if err := checkDataDir(commandWith(t, "--data-dir="+p.DataDir), p); err != nil {
			t.Errorf("%s: with --data-dir: %v", name, err)
		}
	}
}
