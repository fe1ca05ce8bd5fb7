package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sampan-io/sampan/clustertest"
)

// TestScripts plays the terminal sessions in testdata/script, each with a cluster
// of its own: with one real node if its name begins with "real", otherwise with
// two simulated ones, and none if it begins with "bare". The commands sampan and
// kubectl are the programs under test.
func TestScripts(t *testing.T) {
	bin := t.TempDir()
	for name, program := range map[string]string{"sampan": sampanProgram, "kubectl": kubectlProgram} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			examples, err := filepath.Abs("../examples")
			if err != nil {
				return err
			}
			e.Setenv("EXAMPLES", examples)
			script := strings.TrimPrefix(filepath.Base(e.WorkDir), "script-")
			if strings.HasPrefix(script, "bare") {
				return nil
			}
			tt := e.T().(testing.TB) //nolint:errcheck // testscript runs on tests
			c := clustertest.New(tt, clustertest.Options{Program: sampanProgram, Nodes: 2, Real: strings.HasPrefix(script, "real")})
			e.Setenv("KUBECONFIG", c.Kubeconfig)
			e.Setenv("CLUSTER", c.Name)
			return nil
		},
	})
}
