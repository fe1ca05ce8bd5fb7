package test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sampan-io/sampan/clustertest"
	"github.com/sampan-io/sampan/test/session"
)

// TestScripts plays the terminal sessions in testdata/script. The commands sampan
// and kubectl are the programs under test; the others are in commands_test.go and in session.
//
// Each directory there is a group of sessions, and decides which cluster they get. The group real has a cluster with one
// real node and needs root. The groups bare and root have none, and root needs root. All other groups have a cluster
// with two simulated nodes. The group cgroup2 is like root, for machines with cgroup v2 alone (.ci/vm). Sessions without a cluster get NAME, a free name of a cluster, and DATA and RUN, its directories if
// the session brings it up; it is taken down in the end.
func TestScripts(t *testing.T) {
	bin := t.TempDir()
	if err := session.Link(bin, map[string]string{"sampan": sampanProgram, "kubectl": kubectlProgram}); err != nil {
		t.Fatal(err)
	}
	groups, err := filepath.Glob("testdata/script/*")
	if err != nil || len(groups) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	var reals atomic.Int32 // sessions with a real node so far
	for _, dir := range groups {
		group := filepath.Base(dir)
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, testscript.Params{
				Dir:                 dir,
				RequireExplicitExec: true,
				Cmds:                session.Commands(commands),
				Setup: func(e *testscript.Env) error {
					session.Prepare(e, bin)
					return setup(e, group, &reals)
				},
			})
		})
	}
}

// setup gives a session of a group its cluster.
func setup(e *testscript.Env, group string, reals *atomic.Int32) error {
	examples, err := filepath.Abs("../examples")
	if err != nil {
		return err
	}
	e.Setenv("EXAMPLES", examples)
	e.Values[loginOf{}] = &login{}
	t := e.T().(testing.TB) // testscript runs on tests
	switch {
	case (group == "root" || group == "cgroup2") && os.Getuid() != 0:
		t.Skip("needs root")
	case group == "cgroup2" && !limitsMemory():
		t.Skip("needs cgroup v2 with the controllers cpu, memory and pids: run .ci/vm")
	case group == "root" || group == "bare" || group == "cgroup2":
		setupName(e)
		return nil
	}
	o := clustertest.Options{Program: sampanProgram, Nodes: 2, Real: group == "real"}
	if o.Real {
		// Sessions that start at the same moment would find the same networks free. Their DNS questions must not
		// leave this machine.
		const most = 50
		n := reals.Add(1) % most
		o.Args = []string{fmt.Sprintf("--pod-network=10.%d.0.0/16", 100+n), fmt.Sprintf("--service-network=10.%d.0.0/16", 150+n), "--cluster-dns-upstream=none"}
	}
	c := clustertest.New(t, o)
	e.Setenv("KUBECONFIG", c.Kubeconfig)
	e.Setenv("CLUSTER", c.Name)
	return nil
}

// limitsMemory reports whether this machine has cgroup v2 with the controllers of limits.
func limitsMemory() bool {
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	has := strings.Fields(string(controllers))
	return err == nil && slices.Contains(has, "cpu") && slices.Contains(has, "memory") && slices.Contains(has, "pids")
}

// setupName gives a session the name of a cluster that it may bring up.
func setupName(e *testscript.Env) {
	name := "s-" + strings.ToLower(rand.Text()[:8])
	e.Setenv("NAME", name)
	e.Setenv("DATA", filepath.Join("/var/lib/sampan", name))
	e.Setenv("RUN", filepath.Join("/run/sampan", name))
	if os.Getuid() != 0 {
		e.Setenv("DATA", filepath.Join(e.WorkDir, ".local/share/sampan", name))
		e.Setenv("RUN", filepath.Join(e.WorkDir, "run/sampan-run", name))
		e.Setenv("XDG_RUNTIME_DIR", filepath.Join(e.WorkDir, "run"))
	}
	e.Defer(func() {
		down := exec.Command(sampanProgram, "down", "--name="+name)
		down.Env = e.Vars
		if out, err := down.CombinedOutput(); err != nil {
			e.T().Log("cluster ", name, " was left behind: ", err, "\n", string(out))
		}
	})
}
