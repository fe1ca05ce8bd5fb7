package clusters

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
)

// TestOthersAreNamed has a cluster that does not run, beside one that does and two that have ended, one without data.
func TestOthersAreNamed(t *testing.T) {
	home, data := t.TempDir(), t.TempDir()
	profile := func(name string) local.Profile {
		dir := filepath.Join(data, name)
		return local.Profile{Name: name, DataDir: dir, Default: dir, RunDir: filepath.Join(home, name)}
	}
	if got := others(profile("a")); got != "" {
		t.Errorf("with no cluster: %q", got)
	}
	self, err := local.Self()
	if err != nil {
		t.Fatal(err)
	}
	for name, process := range map[string]local.Process{"running": self, "ended": {PID: self.PID, Start: self.Start - 1}} {
		if err := profile(name).Save(local.Instance{Name: name, Process: process}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "kept"} {
		p := profile(name)
		if err := os.Mkdir(p.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := p.Keep(local.Settings{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := others(profile("a")), "\non this machine: running, kept (stopped); choose one with --name"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStoppedNodeIsStartedByJoin has commands about a cluster of this machine, and about a node of another machine's cluster.
func TestStoppedNodeIsStartedByJoin(t *testing.T) {
	own := local.Profile{Name: "own", DataDir: t.TempDir()}
	joined := local.Profile{Name: "two", DataDir: t.TempDir()}
	if err := joined.KeepMember(local.Member{Server: "https://192.0.2.1:6443", Settings: local.Settings{NodeName: "n2"}}); err != nil {
		t.Fatal(err)
	}
	expired := local.Profile{Name: "three", DataDir: t.TempDir()}
	saved := `{"expiry":{"after":"1h","at":"2026-01-01T00:00:00Z"}}`
	if err := os.WriteFile(filepath.Join(expired.DataDir, "cluster.json"), []byte(saved), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{Use: "status"}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{stopped(cmd, own), "cluster own is not running; start it with `sampan up`"},
		{stopped(cmd, expired), "`sampan up --name=three --expires=none` keeps it"},
		{stopped(cmd, joined), "node n2 of the cluster at https://192.0.2.1:6443 is not running; start it with `sampan join`"},
		{noCredentials(cmd, own), "start it with `sampan up`"},
		{noCredentials(cmd, joined), "run `sampan kubeconfig` on the machine of that API server"},
	} {
		if tt.err == nil || !strings.HasSuffix(tt.err.Error(), tt.want) {
			t.Errorf("%v, want %s", tt.err, tt.want)
		}
	}
}

// TestStatusOfAllWarnsAboutDamagedRecords lists clusters, one of which has an empty record.
func TestStatusOfAllWarnsAboutDamagedRecords(t *testing.T) {
	var out, warnings strings.Builder
	cmd := &cobra.Command{Use: "status"}
	cmd.SetOut(&out)
	cmd.SetErr(&warnings)
	found := []local.Found{{Profile: local.Profile{Name: "whole", DataDir: "/data/whole"}}}
	damaged := errors.Join(errors.New("a is empty"), errors.New("b is empty"))
	if err := listed(cmd, found, damaged); err != nil {
		t.Errorf("error %v, want warnings", err)
	}
	if got, want := warnings.String(), "Warning: a is empty\nWarning: b is empty\n"; got != want {
		t.Errorf("warnings %q, want %q", got, want)
	}
	if err := listed(cmd, nil, damaged); err == nil {
		t.Error("no cluster is listed, and there is no error")
	}
}
