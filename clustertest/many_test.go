package clustertest_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sampan-io/sampan/clustertest"
)

// TestManyInOneProcess uses each of the clusters of a process, and sees that they share nothing and leave nothing.
func TestManyInOneProcess(t *testing.T) {
	const clusters = 20
	var all []*clustertest.Cluster
	t.Run("clusters", func(t *testing.T) {
		all = clustertest.NewMany(t, clusters, clustertest.Options{Nodes: 2})
		ids := map[string]bool{}
		for _, c := range all {
			mustRun(t, c.Kubeconfig, "create", "configmap", c.Name)
		}
		for _, c := range all {
			if err := ready(t, c); err != nil {
				t.Error(err)
			}
			if len(c.Nodes) != 2 || c.ReadyAfter <= 0 || c.PID() != all[0].PID() {
				t.Errorf("nodes %q ready after %v in process %d", c.Nodes, c.ReadyAfter, c.PID())
			}
			ids[mustRun(t, c.Kubeconfig, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")] = true
			if got := mustRun(t, c.Kubeconfig, "get", "configmaps", "-o", "name"); strings.Count(got, "configmap/t-") != 1 {
				t.Errorf("cluster %s has %q", c.Name, got)
			}
		}
		if len(ids) != clusters {
			t.Errorf("%d clusters have %d IDs", clusters, len(ids))
		}
		file := filepath.Join(t.TempDir(), "a.snapshot")
		all[0].Snapshot(t, file)
		fork := clustertest.Fork(t, file, clustertest.Options{})
		mustRun(t, fork.Kubeconfig, "get", "configmap", all[0].Name)
	})
	for _, c := range all {
		if _, err := os.Stat(filepath.Dir(c.Kubeconfig)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the data of %s is still there (%v)", c.Name, err)
		}
	}
}

func TestManyThatAreKilledLeaveNothing(t *testing.T) {
	var all []*clustertest.Cluster
	t.Run("killed", func(t *testing.T) {
		all = clustertest.NewMany(t, 3, clustertest.Options{})
		if err := all[1].Kill(); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range all {
		out, err := sampan(t, filepath.Join(t.TempDir(), "kubeconfig"), "down", "--name="+c.Name, "--data-dir="+filepath.Dir(c.Kubeconfig))
		if want := "cluster " + c.Name + " is not running"; err != nil || out != want {
			t.Errorf("down prints %q, %v, want %q", out, err, want)
		}
	}
}

func TestManyRefuseWrongOptions(t *testing.T) {
	for want, start := range map[string]func(testing.TB){
		"must be >= 1, got 0":        func(t testing.TB) { clustertest.NewMany(t, 0, clustertest.Options{}) },
		"Options.Real must be false": func(t testing.TB) { clustertest.NewMany(t, 1, clustertest.Options{Real: true}) },
		"from 1 to 500, got 501":     func(t testing.TB) { clustertest.NewMany(t, 501, clustertest.Options{}) },
		"--pod-network": func(t testing.TB) {
			clustertest.NewMany(t, 2, clustertest.Options{Args: []string{"--pod-network=10.0.0.0/30"}})
		},
	} {
		f := &failing{TB: t}
		var done sync.WaitGroup
		done.Go(func() { start(f) })
		done.Wait()
		if !strings.Contains(f.why, want) {
			t.Errorf("the test fails with %q, want %q", f.why, want)
		}
	}
}
