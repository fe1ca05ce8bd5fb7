package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestNameChoosesTheContext has a kubeconfig with the clusters a, sampan and other, of which other is the current one.
func TestNameChoosesTheContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	const text = `apiVersion: v1
kind: Config
current-context: other
clusters:
- {name: a, cluster: {server: "https://a:6443"}}
- {name: default, cluster: {server: "https://default:6443"}}
- {name: other, cluster: {server: "https://other:6443"}}
contexts:
- {name: sampan-a, context: {cluster: a}}
- {name: sampan, context: {cluster: default}}
- {name: other, context: {cluster: other}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"", "https://other:6443"},
		{"--name=a", "https://a:6443"},
		{"--name=sampan", "https://default:6443"},
		{"--name=a --context=other", "https://other:6443"},
		{"--name=a --server=https://b:6443", "https://b:6443"},
		{"--name=none", `the kubeconfig has no context "sampan-none": it has other, sampan, sampan-a`},
	} {
		g := &Globals{}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		g.AddFlags(flags)
		if err := flags.Parse(strings.Fields("--kubeconfig=" + file + " " + tt.args)); err != nil {
			t.Fatal(err)
		}
		cfg, err := g.Config()
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = cfg.Host
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: %s, want %s", tt.args, got, tt.want)
		}
	}
}
