package clustertest_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sampan-io/sampan/clustertest"
)

// TestMain sees to a sampan that clusters can be made of: the one that is said to be
// tested, or else one built of this tree.
func TestMain(m *testing.M) {
	if os.Getenv("SAMPAN") != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "clustertest")
	if err == nil {
		program := filepath.Join(dir, "sampan")
		build := exec.Command("go", "build", "-o", program, "./cmd/sampan")
		build.Dir = ".."
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = errors.Join(build.Run(), os.Setenv("SAMPAN", program))
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "building sampan:", err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// ready requests /readyz of a cluster.
func ready(t *testing.T, c *clustertest.Cluster) error {
	t.Helper()
	// Neither authentication nor the server's certificate matters here.
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} // see above
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Server+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := own.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s/readyz answers %s", c.Server, resp.Status)
	}
	return nil
}

func TestEightBesideEachOther(t *testing.T) {
	const clusters, nodes = 8, 2
	var all []*clustertest.Cluster
	seen := map[string]bool{}
	for range clusters {
		c := clustertest.New(t, clustertest.Options{Nodes: nodes})
		all = append(all, c)
		for _, own := range []string{c.Name, c.Server, c.Kubeconfig} {
			if seen[own] {
				t.Errorf("two clusters have %s", own)
			}
			seen[own] = true
		}
	}
	for _, c := range all {
		if err := ready(t, c); err != nil {
			t.Error(err)
		}
		if len(c.Nodes) != nodes || c.ReadyAfter <= 0 {
			t.Errorf("nodes %q ready after %v", c.Nodes, c.ReadyAfter)
		}
		if text, err := os.ReadFile(c.Kubeconfig); err != nil || !strings.Contains(string(text), c.Server) {
			t.Errorf("kubeconfig %s does not name %s (%v)", c.Kubeconfig, c.Server, err)
		}
	}
}

func TestManyThatStartTogether(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			if err := ready(t, clustertest.New(t, clustertest.Options{})); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGoneWithTheTest(t *testing.T) {
	var c *clustertest.Cluster
	t.Run("cluster", func(t *testing.T) { c = clustertest.New(t, clustertest.Options{}) })
	if err := syscall.Kill(c.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: %v, want none", c.PID(), err)
	}
	if _, err := os.Stat(filepath.Dir(c.Kubeconfig)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its data is still there (%v)", err)
	}
	if err := ready(t, c); err == nil {
		t.Error("it still answers")
	}
}

// TestAKilledClusterLeavesNothing asks for what is left of it when its test is over.
func TestAKilledClusterLeavesNothing(t *testing.T) {
	var name, dir string
	t.Run("killed", func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		name, dir = c.Name, filepath.Dir(c.Kubeconfig)
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
	})
	program := os.Getenv("SAMPAN")
	out, err := exec.CommandContext(t.Context(), program, "down", "--name="+name, "--data-dir="+dir).CombinedOutput()
	if want := "cluster " + name + " is not running\n"; err != nil || string(out) != want {
		t.Errorf("down says %q, %v, want %q", out, err, want)
	}
}

// A failing is a testing.TB that records a fatal error.
type failing struct {
	testing.TB
	why string
}

func (f *failing) Helper() {}

func (f *failing) Fatal(args ...any) {
	f.why = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// failureOf returns why a test with such a cluster fails.
func failureOf(t *testing.T, o clustertest.Options) string {
	f := &failing{TB: t}
	var done sync.WaitGroup
	done.Go(func() { clustertest.New(f, o) })
	done.Wait()
	return f.why
}

func TestAMissingProgramIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options clustertest.Options
		want    string
	}{
		{"not there", clustertest.Options{Program: "/no/such/sampan"}, "/no/such/sampan"},
		{"what to do", clustertest.Options{Program: "/no/such/sampan"}, "SAMPAN"},
		{"another program", clustertest.Options{Program: "true"}, "ended before the cluster was ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := failureOf(t, tt.options); !strings.Contains(got, tt.want) {
				t.Errorf("the test fails with %q, want it to contain %q", got, tt.want)
			}
		})
	}
}

func TestAWrongArgumentIsSaid(t *testing.T) {
	if got := failureOf(t, clustertest.Options{Args: []string{"--pod-network=10.0.0.0/30"}}); !strings.Contains(got, "--pod-network") {
		t.Errorf("the test fails with %q, want it to name --pod-network", got)
	}
}
