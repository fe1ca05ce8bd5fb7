package upstream

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// The directories of ../testdata/script are groups of sessions. All sessions of these groups are played, except for the
// sessions in notHere, which test Sampan's own server; the value is the reason. Of the group kubectl, only the sessions
// in alike are played.
var (
	groups  = []string{"commands", "rollouts", "wait"}
	notHere = map[string]string{
		"commands/connection":  "the user has a token here, and no certificate",
		"rollouts/annotations": "annotations that Sampan's controllers know",
		"rollouts/broken":      "these, too",
	}
	alike = []string{"nodes", "schedule", "serverside"}
)

// ours returns the sessions of ../testdata/script that any cluster can play, by group.
func ours(t *testing.T) map[string][]string {
	t.Helper()
	const dir = "../testdata/script"
	files := map[string][]string{}
	for _, name := range alike {
		files["kubectl"] = append(files["kubectl"], filepath.Join(dir, "kubectl", name+".txtar"))
	}
	skipped := 0
	for _, group := range groups {
		all, err := filepath.Glob(filepath.Join(dir, group, "*.txtar"))
		if err != nil || len(all) == 0 {
			t.Fatalf("no sessions in group %s: %v", group, err)
		}
		for _, f := range all {
			if _, skip := notHere[group+"/"+strings.TrimSuffix(filepath.Base(f), ".txtar")]; skip {
				skipped++
				continue
			}
			files[group] = append(files[group], f)
		}
	}
	if skipped != len(notHere) {
		t.Errorf("found %d of %d sessions to leave out", skipped, len(notHere))
	}
	return files
}

// TestOurSessions plays the sessions that Sampan's own cluster is tested with, with
// Sampan's scheduler. Logs can be had by stream, which is not the default yet.
func TestOurSessions(t *testing.T) {
	for group, files := range ours(t) {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			play(t, files, Options{Scheduler: program(t, "SAMPAN"), Features: "PodLogsQuerySplitStreams=true"})
		})
	}
}

// TestSessions plays the sessions that only an upstream server can pass, with upstream's controllers and scheduler, and with
// ours.
func TestSessions(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	t.Run("upstream's", func(t *testing.T) { play(t, files, Options{}) })
	t.Run("ours", func(t *testing.T) {
		play(t, files, Options{Scheduler: program(t, "SAMPAN"), Controllers: program(t, "SAMPAN")})
	})
}

// plane is the cluster of a session, under this key.
type plane struct{}

// play plays each session on a cluster of its own with two nodes.
func play(t *testing.T, files []string, o Options) {
	o.Programs, o.Nodes = program(t, "UPSTREAM"), 2
	bin := t.TempDir()
	if err := session.Link(bin, map[string]string{"sampan": program(t, "SAMPAN"), "kubectl": program(t, "KUBECTL")}); err != nil {
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
			"serve-group":  serveGroup,
		}),
		Setup: func(e *testscript.Env) error {
			session.Prepare(e, bin)
			e.Setenv("EXAMPLES", examples)
			// testscript runs on tests
			p := Start(e.T().(testing.TB), o)
			if err := settle(p); err != nil {
				return err
			}
			e.Values[plane{}] = p
			e.Setenv("KUBECONFIG", p.Kubeconfig)
			return nil
		},
	})
}

// settle blocks until the controllers have done what every new cluster needs: pods may
// be made, and placed.
func settle(p *Plane) error {
	for _, what := range [][]string{
		{"serviceaccount/default", "--for=created", "--wait-for-creation"},
		{"nodes", "--all", "--for=jsonpath={.spec.taints} absent"},
	} {
		args := append([]string{"wait", "--kubeconfig=" + p.Kubeconfig, "--timeout=2m"}, what...)
		if out, err := exec.Command(os.Getenv("SAMPAN"), args...).CombinedOutput(); err != nil {
			return fmt.Errorf("sampan %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
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

// serveGroup is serve-group VARIABLE GROUP: see [ServeGroup]. The variable is set to the port.
func serveGroup(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: serve-group VARIABLE GROUP")
	}
	_, port, err := net.SplitHostPort(ServeGroup(ts.Value(plane{}).(*Plane).t, args[1]))
	ts.Check(err)
	ts.Setenv(args[0], port)
}
