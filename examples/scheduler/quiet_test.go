package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func TestQuietKeepsTheLaws(t *testing.T) { plugintest.Laws(t, Quiet{}) }

// TestTheProgramBuilds builds the scheduler as its author would, and asks it for a configuration that names the plug-in.
func TestTheProgramBuilds(t *testing.T) {
	program := filepath.Join(t.TempDir(), "scheduler")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program, "--config", "testdata/unknown.yaml").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `profiles[0].plugins.multiPoint.enabled[1].name: Unsupported value: "Loud"`) || strings.Contains(string(out), `Unsupported value: "Quiet"`) {
		t.Errorf("%v\n%s", err, out)
	}
}
