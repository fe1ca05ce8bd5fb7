package clustertest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sampan-io/sampan/clustertest"
)

// sampan runs the command line with a kubeconfig and returns its output.
func sampan(t testing.TB, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("SAMPAN"), append(args, "--kubeconfig="+kubeconfig)...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustRun(t testing.TB, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := sampan(t, kubeconfig, args...)
	if err != nil {
		t.Fatalf("sampan %v: %v\n%s", args, err, out)
	}
	return out
}

var prepares atomic.Int32

var prepared = clustertest.Template{
	Options: clustertest.Options{Nodes: 2},
	Prepare: func(t testing.TB, c *clustertest.Cluster) {
		prepares.Add(1)
		mustRun(t, c.Kubeconfig, "create", "secret", "generic", "s", "--from-literal=k=prepared")
		mustRun(t, c.Kubeconfig, "create", "deployment", "web", "--image=x", "--replicas=3")
		mustRun(t, c.Kubeconfig, "wait", "deployment/web", "--for=ready")
	},
}

// Each copy of a template has its objects, and changes of one are not seen in another.
func TestTemplateIsPreparedOnce(t *testing.T) {
	for range 3 {
		c := prepared.Fork(t)
		if got := mustRun(t, c.Kubeconfig, "get", "secret", "s", "-o", "jsonpath={.data.k}"); got != "cHJlcGFyZWQ=" {
			t.Errorf("the Secret has %q", got)
		}
		if got := mustRun(t, c.Kubeconfig, "get", "deployment", "web", "-o", "jsonpath={.status.availableReplicas}"); got != "3" {
			t.Errorf("%q replicas are available", got)
		}
		if len(c.Nodes) != 2 {
			t.Errorf("the nodes are %v", c.Nodes)
		}
		mustRun(t, c.Kubeconfig, "delete", "secret", "s")
	}
	if n := prepares.Load(); n != 1 {
		t.Errorf("prepared %d times", n)
	}
}

// The administrator and the accounts of a copy are strangers to the original, and the other way round.
func TestForkSharesNoCredentials(t *testing.T) {
	original := clustertest.New(t, clustertest.Options{})
	file := filepath.Join(t.TempDir(), "a.snapshot")
	original.Snapshot(t, file)
	fork := clustertest.Fork(t, file, clustertest.Options{})
	id := func(c *clustertest.Cluster) string {
		return mustRun(t, c.Kubeconfig, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	}
	if a, b := id(original), id(fork); a == "" || a == b {
		t.Errorf("the IDs are %q and %q", a, b)
	}
	ca := regexp.MustCompile(`certificate-authority-data: .*`)
	credential := regexp.MustCompile(`(?s)client-certificate-data: .*client-key-data: [^\n]*`)
	for _, c := range []struct {
		name     string
		of, with *clustertest.Cluster
	}{{"of the original at the copy", fork, original}, {"of the copy at the original", original, fork}} {
		text, err := os.ReadFile(c.with.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		// The server's certificate does not matter here, the client's does.
		moved := ca.ReplaceAllString(strings.ReplaceAll(string(text), c.with.Server, c.of.Server), "insecure-skip-tls-verify: true")
		token := mustRun(t, c.with.Kubeconfig, "create", "token", "default")
		for kind, text := range map[string]string{"certificate": moved, "token": credential.ReplaceAllString(moved, "token: "+token)} {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := sampan(t, file, "get", "namespaces")
			if err == nil || !strings.Contains(out, "must be logged in") && !strings.Contains(out, "Unauthorized") && !strings.Contains(out, "not valid") && !strings.Contains(out, "not signed") {
				t.Errorf("the %s %s: %v, %s", kind, c.name, err, out)
			}
		}
	}
}

// A template that cannot be prepared fails all tests, and names the one that has the reason.
func TestFailedTemplateNamesTheFirstTest(t *testing.T) {
	p := clustertest.Template{Options: clustertest.Options{Program: "/no/such/sampan"}}
	fork := func() string {
		f := &failing{TB: t}
		var done sync.WaitGroup
		done.Go(func() { p.Fork(f) })
		done.Wait()
		return f.why
	}
	if why := fork(); !strings.Contains(why, "/no/such/sampan") {
		t.Errorf("the first test fails with %q", why)
	}
	if why := fork(); !strings.Contains(why, "was not prepared: "+t.Name()+", the first test") {
		t.Errorf("the second test fails with %q", why)
	}
}

// A template installs what all tests need once. Each test then gets a cluster of its own, which it may change.
func ExampleTemplate_Fork() {
	prepared := clustertest.Template{
		Options: clustertest.Options{Nodes: 2},
		Prepare: func(t testing.TB, c *clustertest.Cluster) {
			out, err := exec.CommandContext(t.Context(), "kubectl", "--kubeconfig="+c.Kubeconfig, "apply", "-f", "config/crd").CombinedOutput()
			if err != nil {
				t.Fatalf("installing the definitions: %v\n%s", err, out)
			}
		},
	}
	_ = func(t *testing.T) { // TestController
		c := prepared.Fork(t)
		t.Log("the API server of this test is", c.Server)
	}
}

// A snapshot of a cluster, such as one of `sampan snapshot save`, is the beginning of a test.
func ExampleFork() {
	_ = func(t *testing.T) { // TestWithManyObjects
		c := clustertest.Fork(t, "testdata/many.snapshot", clustertest.Options{})
		t.Log("the API server of this test is", c.Server)
	}
}
