package upstream

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sampan-io/sampan/test/session"
)

// program returns the path that an environment variable names. `.ci/upstream` sets
// them.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set; run these tests with `make upstream`", variable)
	}
	return path
}

// notHere are the sessions of ../testdata/script that are about Sampan's own server,
// and why.
var notHere = map[string]string{
	"apply":                "a server without server-side apply; see apply_owners",
	"kubectl_until":        "blocking reads",
	"kubectl_rollout_auto": "annotations that our controllers know",
}

// ours returns the sessions of ../testdata/script that any cluster can play.
func ours(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range all {
		name := strings.TrimSuffix(filepath.Base(f), ".txtar")
		kind, _, _ := strings.Cut(name, "_")
		if _, not := notHere[name]; not || slices.Contains([]string{"real", "bare", "root"}, kind) {
			continue
		}
		files = append(files, f)
	}
	for name := range notHere {
		if !slices.ContainsFunc(all, func(f string) bool { return filepath.Base(f) == name+".txtar" }) {
			t.Errorf("there is no session %s to leave out", name)
		}
	}
	return files
}

// TestOurSessions plays the sessions that Sampan's own cluster is tested with.
func TestOurSessions(t *testing.T) { play(t, ours(t)) }

// TestSessions plays those that say what only an upstream server can.
func TestSessions(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	play(t, files)
}

// plane is the cluster of a session, under this key.
type plane struct{}

// play plays each session on a cluster of its own with two nodes. Every other one
// has Sampan's scheduler.
func play(t *testing.T, files []string) {
	bin := t.TempDir()
	sampan := program(t, "SAMPAN")
	if err := session.Link(bin, map[string]string{"sampan": sampan, "kubectl": program(t, "KUBECTL")}); err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		Cmds: session.Commands(map[string]session.Command{
			"kill-server":  killServer,
			"start-server": startServer,
		}),
		Setup: func(e *testscript.Env) error {
			session.Prepare(e, bin)
			e.Setenv("EXAMPLES", examples)
			o := Options{Programs: program(t, "UPSTREAM"), Nodes: 2}
			script := strings.TrimPrefix(filepath.Base(e.WorkDir), "script-")
			if i := slices.IndexFunc(files, func(f string) bool { return filepath.Base(f) == script+".txtar" }); i%2 == 0 {
				o.Scheduler = sampan
			}
			p := Start(e.T().(testing.TB), o) // testscript runs on tests
			e.Values[plane{}] = p
			e.Setenv("KUBECONFIG", p.Kubeconfig)
			return nil
		},
	})
}

func killServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: kill-server")
	}
	ts.Value(plane{}).(*Plane).KillServer()
}

func startServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: start-server")
	}
	ts.Value(plane{}).(*Plane).StartServer()
}
