package operators

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sampan-io/sampan/clustertest"
	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/test/session"
)

func TestMain(m *testing.M) { os.Exit(nstest.Main(m.Run)) }

// sources are the variables of a session that hold the directory of a module: path of the module, by the module of this
// directory that pins it and the name of the variable.
var sources = []struct{ variable, pinnedBy, module string }{
	{"CERTMANAGER", "certmanager", "github.com/cert-manager/cert-manager"},
	{"CLUSTERAPI", "clusterapi", "sigs.k8s.io/cluster-api"},
	{"PROMETHEUS", "prometheus", "github.com/prometheus-operator/prometheus-operator"},
	{"ROLLOUTS", "rollouts", "github.com/argoproj/argo-rollouts"},
}

// program returns the path that an environment variable names. `.ci/operators` sets them.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set; run these tests with `.ci/operators`", variable)
	}
	return path
}

// moduleDir returns the directory with the source of a module.
func moduleDir(t *testing.T, pinnedBy, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir, cmd.Env = pinnedBy, append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the directory of %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// TestOperators plays the sessions in testdata.
func TestOperators(t *testing.T) {
	nstest.NeedRoot(t)
	sampan, operators := program(t, "SAMPAN"), program(t, "OPERATORS")
	bin := t.TempDir()
	err := session.Link(bin, map[string]string{
		"sampan": sampan, "kubectl": program(t, "KUBECTL"), "helm": filepath.Join(operators, "helm"),
	})
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{}
	for _, s := range sources {
		dirs[s.variable] = moduleDir(t, s.pinnedBy, s.module)
	}
	chart, err := filepath.Abs("testdata/chart.sh")
	if err != nil {
		t.Fatal(err)
	}
	var clusters atomic.Int32 // so far
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Cmds:                session.Commands(map[string]session.Command{"image": importImage}),
		Setup: func(e *testscript.Env) error {
			session.Prepare(e, bin)
			for variable, dir := range dirs {
				e.Setenv(variable, dir)
			}
			e.Setenv("OPERATORS", operators)
			e.Setenv("CHART", chart)
			// Clusters that start at the same moment would find the same networks free.
			n := clusters.Add(1)
			c := clustertest.New(e.T().(testing.TB), clustertest.Options{ // testscript runs on tests
				Program: sampan, Real: true,
				Args: []string{
					fmt.Sprintf("--pod-network=10.%d.0.0/16", 100+n), fmt.Sprintf("--service-network=10.%d.0.0/16", 150+n),
					"--cluster-dns-upstream=none",
				},
			})
			e.Defer(func() { explain(e.T().(testing.TB), c.Kubeconfig) })
			e.Setenv("KUBECONFIG", c.Kubeconfig)
			e.Setenv("CLUSTER", c.Name)
			return nil
		},
	})
}

// explain logs the pods of a cluster, and the end of what each has logged, if the test has failed.
func explain(t testing.TB, kubeconfig string) {
	if !t.Failed() {
		return
	}
	kubectl := func(args ...string) string {
		cmd := exec.Command(os.Getenv("KUBECTL"), append(args, "--kubeconfig="+kubeconfig)...)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	t.Logf("%s\n%s", kubectl("get", "pods", "-A", "-o", "wide"), kubectl("get", "events", "-A", "--field-selector=type=Warning"))
	for line := range strings.Lines(kubectl("get", "pods", "-A", "--no-headers", "-o", "custom-columns=A:.metadata.namespace,B:.metadata.name")) {
		if pod := strings.Fields(line); len(pod) == 2 {
			t.Logf("log of pod %s:\n%s", pod[1], kubectl("logs", "-n", pod[0], pod[1], "--all-containers", "--tail=40"))
		}
	}
}
