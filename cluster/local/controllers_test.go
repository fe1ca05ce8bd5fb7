package local

import (
	"slices"
	"strings"
	"testing"
)

func TestControllersAreChosenAsUpstreamDoes(t *testing.T) {
	for _, tt := range []struct {
		said string
		off  string // loops
	}{
		{"", ""},
		{"*", ""},
		{"*,-deployment-controller,-replicaset", "deployment-controller replicaset-controller"},
		{"-job,*", "job-controller job-orphans"},
		{"deployment,-deployment,*", ""},
		{"-deployment,deployment,*", "deployment-controller"},
		{"*,-scheduler", "scheduler"},
		{"-scheduler,-job,*", "job-controller job-orphans scheduler"},
	} {
		if got := strings.Join(Controllers(tt.said).Off(), " "); got != tt.off {
			t.Errorf("--controllers=%s turns off %q, want %q", tt.said, got, tt.off)
		}
	}
	only := Controllers("namespace-controller").Off()
	if slices.Contains(only, SchedulerLoop) {
		t.Error("--controllers=namespace-controller turns off the scheduler, which is not a controller")
	}
	if slices.Contains(only, "namespaces") || !slices.Contains(only, "nodes") {
		t.Errorf("--controllers=namespace-controller turns off %q", only)
	}
}

func TestAControllerThatIsNoneIsNamed(t *testing.T) {
	err := Settings{Controllers: "*,-deploymint"}.check()
	if err == nil || !strings.Contains(err.Error(), `"-deploymint" is not a controller`) || !strings.Contains(err.Error(), "deployment-controller") {
		t.Errorf("check = %v", err)
	}
	if err := (Settings{Controllers: "*,-deployment,job-controller"}).check(); err != nil {
		t.Error(err)
	}
}
