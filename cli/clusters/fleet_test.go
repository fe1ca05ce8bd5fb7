package clusters

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cluster/local"
)

// TestFleetGoesOnWithoutDamagedSettings damages the settings of one cluster of three: the others are started.
func TestFleetGoesOnWithoutDamagedSettings(t *testing.T) {
	dir := t.TempDir()
	var all []local.Profile
	for _, name := range []string{"ci-1", "ci-2", "ci-3"} {
		p := local.Profile{Name: name, DataDir: filepath.Join(dir, name), RunDir: filepath.Join(dir, "run", name)}
		if err := os.Mkdir(p.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := os.WriteFile(filepath.Join(all[1].DataDir, "cluster.json"), []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stopped, running, unread, err := stoppedOf(all, local.Settings{Fleet: "ci"})
	if err != nil || len(running) != 0 || len(stopped) != 2 || stopped[0].Name != "ci-1" || stopped[1].Name != "ci-3" {
		t.Fatalf("stopped %v, running %v, %v", stopped, running, err)
	}
	if len(unread) != 1 || unread[0].Profile.Name != "ci-2" || unread[0].Err == nil {
		t.Errorf("unread: %+v", unread)
	}
	if err := notStarted(unread); err == nil || !strings.Contains(err.Error(), "cluster ci-2 did not start") {
		t.Errorf("the error is %v", err)
	}
}
