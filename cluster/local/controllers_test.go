package local

import (
	"strings"
	"testing"
)

func TestControllersSelectAllByDefault(t *testing.T) {
	for _, tt := range []struct {
		said      string
		scheduler bool
		selected  string // a few controllers
		off       string
	}{
		{"", true, "deployment-controller bootstrap-signer-controller token-cleaner-controller", ""},
		{"*", true, "deployment-controller bootstrap-signer-controller token-cleaner-controller", ""},
		{"*,-deployment,-tokencleaner", true, "bootstrap-signer-controller job-controller", "deployment-controller token-cleaner-controller"},
		{"*,-scheduler", false, "deployment-controller", ""},
		{"-scheduler,-job,*", false, "deployment-controller", "job-controller"},
		{"namespace-controller", true, "namespace-controller", "node-lifecycle-controller bootstrap-signer-controller"},
	} {
		c := Controllers(tt.said)
		if got := c.RunsScheduler(); got != tt.scheduler {
			t.Errorf("--controllers=%s: the scheduler runs: %t, want %t", tt.said, got, tt.scheduler)
		}
		for name := range strings.FieldsSeq(tt.selected) {
			if !c.Selection().Selects(name) {
				t.Errorf("--controllers=%s does not select %s", tt.said, name)
			}
		}
		for name := range strings.FieldsSeq(tt.off) {
			if c.Selection().Selects(name) {
				t.Errorf("--controllers=%s selects %s", tt.said, name)
			}
		}
	}
}

func TestAControllerThatIsNoneIsNamed(t *testing.T) {
	err := Settings{Controllers: "*,-deploymint"}.check()
	if err == nil || !strings.Contains(err.Error(), `"-deploymint" is not a controller`) || !strings.Contains(err.Error(), "deployment-controller") {
		t.Errorf("check = %v", err)
	}
	if err := (Settings{Controllers: "*,-deployment,job-controller,-scheduler"}).check(); err != nil {
		t.Error(err)
	}
}
