package clusters

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
)

func TestFlagValuesAreEffective(t *testing.T) {
	cmd := &cobra.Command{}
	var asked local.Settings
	settingsFlags(cmd, &asked)
	if err := cmd.Flags().Parse([]string{"--proxy-mode=userspace"}); err != nil {
		t.Fatal(err)
	}
	no := false
	settled := local.Settings{ProxyMode: local.UserspaceMode}
	settled.Authentication.Anonymous = &no
	got := flagValues(cmd, settled)
	for name, want := range map[string]string{
		"proxy-mode": "userspace", "anonymous-auth": "false", "event-ttl": "1h0m0s", "request-log": "none", "profiling": "true",
		"controllers": "*", "cluster-domain": "cluster.local", "audit-log-maxage": "366", "node-name": "",
	} {
		if got[name] != want {
			t.Errorf("--%s is %q, want %q", name, got[name], want)
		}
	}
	if got := flagValues(&cobra.Command{}, local.Settings{})["anonymous-auth"]; got != "true" {
		t.Errorf("--anonymous-auth is %q by default, want true", got)
	}
}
