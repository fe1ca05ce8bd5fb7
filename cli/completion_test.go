package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli"
)

func TestCompletion(t *testing.T) {
	shop := pod("till", nil)
	shop.Namespace = "shop"
	_, url := serve(t, pod("a1", nil), pod("a2", nil), pod("b", nil), shop, webController("web", 3),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	c := newTerminal(t, url)
	for line, want := range map[string]string{
		"get replicationc":              "replicationcontrollers",
		"get pods a":                    "a1 a2",
		"get pods a1 ":                  "a1 a2 b",
		"get pod/a":                     "pod/a1 pod/a2",
		"get pods/x ":                   "",
		"get nothing ":                  "",
		"wait rc/":                      "rc/web",
		"delete rc ":                    "web",
		"get -n shop pods ":             "till",
		"logs a":                        "a1 a2",
		"logs rc/":                      "rc/web",
		"exec b ":                       "",
		"rolling-update ":               "web",
		"drain ":                        "n1",
		"rollout status rc/":            "rc/web",
		"get pods -n s":                 "shop",
		"get pods --context ":           "test",
		"get pods -o js":                "json jsonpath= jsonpath-as-json= jsonpath-file=",
		"get pods -o y":                 "yaml",
		"rollout restart deploy/":       "",
		"get pods,replicationc":         "pods,replicationcontrollers",
		"logs a1 -c ":                   "main",
		"logs rc/web --container=":      "main",
		"exec pod/a1 -c ":               "main",
		"cp a1:/x . -c ":                "main",
		"cp shop/till:/x . -c ":         "main",
		"get --cluster ":                "test",
		"get --user ":                   "test",
		"get pods x --subresource s":    "scale status",
		"wait pods --for re":            "ready",
		"wait pods --for co":            "complete condition=",
		"wait rc/web --for condition=":  "condition=ReplicaFailure",
		"wait pods --for condition=Pod": "condition=PodScheduled condition=PodReadyToStartContainers condition=PodResizePending condition=PodResizeInProgress",
		"apply --dry-run=c":             "client",
		"apply --wait=ru":               "running",
	} {
		words := strings.Split(line, " ")
		got := c.run(append([]string{"__complete"}, words...)...)
		lines := strings.Split(got.out, "\n")
		if all := strings.Join(lines[:max(len(lines)-2, 0)], " "); all != want {
			t.Errorf("%q: %q, want %q\n%s", line, all, want, got.err)
		}
	}
	// A space follows a value that is complete. 4 is no files, 2 no space.
	for line, want := range map[string]string{"get pods -o y": ":4", "get pods -o custom-columns-": ":6", "wait pods --for ser": ":4", "wait pods --for cond": ":6"} {
		got := c.run(append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if !strings.Contains(got.out, "\n"+want+"\n") {
			t.Errorf("%q: %s, want %s", line, got.out, want)
		}
	}
}

func TestUsageOfManyFlagsHasSections(t *testing.T) {
	large := &cobra.Command{Use: "large", Run: func(*cobra.Command, []string) {}}
	for i := range 30 {
		large.Flags().Bool(fmt.Sprintf("audit-%d", i), false, strings.Repeat("word ", 40))
	}
	large.Flags().Bool("other", false, "")
	var out strings.Builder
	if code := cli.Main(t.Context(), []string{"large", "--help"}, cli.Options{Out: &out, Err: &out, Extra: []*cobra.Command{large}}); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	flags, audit, ok := strings.Cut(out.String(), "\nAudit flags:\n")
	if !ok || strings.Contains(flags, "--audit-") || !strings.Contains(flags, "\nFlags:\n  -h, --help    help for large\n      --other") || strings.Count(audit, "--audit-") != 30 {
		t.Errorf("%s", out.String())
	}
	for line := range strings.Lines(audit) {
		if len(line) > 101 {
			t.Errorf("a line of %d columns: %s", len(line)-1, line)
		}
	}
}
