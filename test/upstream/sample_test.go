package upstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSampleServerBehindOurs has upstream's sample-apiserver as the server of an APIService of our cluster: its users, its rights,
// its admission plug-in, its watches and its documents.
func TestSampleServerBehindOurs(t *testing.T) {
	script, err := filepath.Abs("testdata/sample.sh")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/sample.want")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "sh", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"SAMPAN="+program(t, "SAMPAN"), "UPSTREAM="+program(t, "UPSTREAM"), "KUBECTL="+program(t, "KUBECTL"),
		"HOME="+dir, "KUBECONFIG="+filepath.Join(dir, "config"),
	)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil || string(out) != string(want) {
		t.Errorf("%v\n%s\ngot:\n%s\nwant:\n%s", err, log.String(), out, want)
	}
}
