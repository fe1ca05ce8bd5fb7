package clusters

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The demo passes each verb only flags that it accepts: up is about a cluster of this machine, and refuses --context.
func TestDemoPassesAcceptedFlags(t *testing.T) {
	var ran []string
	o := Options{Verb: func(_ context.Context, _ io.Reader, args ...string) int {
		ran = args
		return 1 // the demo ends
	}}
	demo := demoCommand(o)
	root := &cobra.Command{Use: "sampan", SilenceErrors: true, SilenceUsage: true}
	for _, name := range []string{"name", "data-dir", "kubeconfig", "context"} {
		root.PersistentFlags().String(name, "", "")
	}
	root.AddCommand(append(onThisMachine([]*cobra.Command{upCommand(o)}, map[string][]string{"up": {"kubeconfig"}}), demo)...)
	root.SetOut(io.Discard)
	root.SetArgs([]string{"demo", "--name=test", "--kubeconfig=file", "--data-dir=" + t.TempDir()})
	if err := root.ExecuteContext(t.Context()); err == nil || len(ran) == 0 || ran[len(ran)-1] != "up" {
		t.Fatalf("the demo began with %q: %v", ran, err)
	}
	up, args, err := root.Find(slices.Clone(ran[len(ran)-1:]))
	if err != nil {
		t.Fatal(err)
	}
	if err := up.ParseFlags(ran[:len(ran)-1]); err != nil {
		t.Fatal(err)
	}
	if err := up.Args(up, args); err != nil {
		t.Errorf("`sampan %s`: %v", strings.Join(ran, " "), err)
	}
}
