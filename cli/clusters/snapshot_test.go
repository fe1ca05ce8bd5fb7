package clusters

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
)

// pair parses networks.
func pair(t testing.TB, text string) local.Pair {
	t.Helper()
	p, err := local.ParsePair(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInheritedSettings(t *testing.T) {
	nets := local.Networks{Pods: pair(t, "10.1.0.0/16"), Services: pair(t, "10.2.0.0/16")}
	simulated := local.Settings{SimulatedNodes: 3, NodeName: "n", Networks: nets, ClusterDomain: "a.b", Controllers: "*,-garbage", APIPort: 7, StaticPodPath: "/x"}
	real := local.Settings{NodeName: "host", Networks: nets}
	for name, c := range map[string]struct {
		args []string
		from local.Settings
		want local.Settings
	}{
		"simulated": {nil, simulated, local.Settings{SimulatedNodes: 3, NodeName: "n", Networks: nets, ClusterDomain: "a.b", Controllers: "*,-garbage"}},
		"other number": {
			[]string{"--simulated-nodes=5", "--cluster-domain=c.d"},
			simulated,
			local.Settings{SimulatedNodes: 5, NodeName: "n", Networks: nets, ClusterDomain: "c.d", Controllers: "*,-garbage"},
		},
		"real from simulated": {
			[]string{"--simulated-nodes=0"},
			simulated,
			local.Settings{IPFamily: nets.Services.Family(), ClusterDomain: "a.b", Controllers: "*,-garbage"},
		},
		"real":                {nil, real, local.Settings{IPFamily: nets.Services.Family()}},
		"simulated from real": {[]string{"--simulated-nodes=1"}, real, local.Settings{SimulatedNodes: 1, IPFamily: nets.Services.Family()}},
		"real with a network": {
			[]string{"--service-network=10.9.0.0/16"},
			real,
			local.Settings{Networks: local.Networks{Services: pair(t, "10.9.0.0/16")}},
		},
	} {
		var s local.Settings
		cmd := &cobra.Command{}
		settingsFlags(cmd, &s)
		if err := cmd.Flags().Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if got := inherit(cmd, s, c.from); got.SimulatedNodes != c.want.SimulatedNodes || got.NodeName != c.want.NodeName || got.Networks != c.want.Networks ||
			got.IPFamily != c.want.IPFamily || got.ClusterDomain != c.want.ClusterDomain || got.Controllers != c.want.Controllers || got.APIPort != 0 || got.StaticPodPath != "" {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// The settings of snapshots reach the program in the background.
func TestSnapshotFlagsArePassedOn(t *testing.T) {
	want := local.SnapshotSettings{Every: "6h", Keep: 3, Dir: "/backup"}
	var got local.Settings
	cmd := &cobra.Command{}
	settingsFlags(cmd, &got)
	if err := cmd.Flags().Parse(settingsArgs(local.Settings{Snapshots: want})); err != nil || got.Snapshots != want {
		t.Errorf("got %+v, %v, want %+v", got.Snapshots, err, want)
	}
}

// A named pipe without a writer would never open, so only regular files are.
func TestSnapshotFilesAreRegular(t *testing.T) {
	for name, want := range map[string]string{
		os.DevNull:            "is not a regular file: pass a file, or - to read",
		t.TempDir():           "is a directory, not a snapshot",
		t.TempDir() + "/none": "no such file",
	} {
		if _, _, err := openSnapshot(&cobra.Command{}, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
