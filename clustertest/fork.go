package clustertest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// keysOf is the file with the keys of the Secrets in a snapshot.
func keysOf(snapshot string) string { return snapshot + ".keys" }

// Snapshot saves the objects of the cluster to a file, and blocks until it is complete. [Fork] makes clusters from
// it. Secrets in it are encrypted; their keys are in a file beside it, whose name ends with ".keys". If it fails, so
// does the test.
func (c *Cluster) Snapshot(t testing.TB, file string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.program, "snapshot", "save", file, "--name="+c.Name, "--data-dir="+c.data)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clustertest: saving a snapshot: %v\n%s", err, out)
	}
	keys, err := os.ReadFile(filepath.Join(c.data, "pki", "encryption.yaml"))
	if err == nil {
		err = os.WriteFile(keysOf(file), keys, 0o600)
	}
	if err != nil {
		t.Fatalf("clustertest: saving the keys of a snapshot: %v", err)
	}
}

// Fork starts a cluster with the objects of a snapshot, which is an independent one: it has keys of its own. It is
// [New] in all else; without [Options.Nodes] it has the nodes of the snapshot. Keys beside the snapshot are used.
func Fork(t testing.TB, snapshot string, o Options) *Cluster {
	t.Helper()
	return newCluster(t, o, snapshot)
}

// A Template is a cluster that is prepared once, by the first test that asks for it, and copied for each test. It is
// safe for concurrent use. Nothing of it is left when the tests have ended.
type Template struct {
	Options Options

	// Prepare makes the objects that the tests need. It is called with the first test that asks for a copy, and with a
	// cluster that is stopped when Prepare returns: its copies have the objects, and t.Cleanup runs at the end of that
	// test, so Prepare must end by itself everything that uses the cluster, such as a manager that it has started. It
	// fails that test, and then all others fail with its name.
	Prepare func(t testing.TB, c *Cluster)

	once     sync.Once
	first    string // the test that Prepare was called with
	snapshot []byte // empty: Prepare failed
	keys     []byte
}

// Fork starts a copy of the prepared cluster, and blocks until it is ready.
func (p *Template) Fork(t testing.TB) *Cluster {
	t.Helper()
	p.once.Do(func() { p.prepare(t) })
	if len(p.snapshot) == 0 {
		t.Fatalf("clustertest: the template was not prepared: %s, the first test that asked for a copy, has the reason", p.first)
	}
	file := filepath.Join(t.TempDir(), "template.snapshot")
	if err := errors.Join(os.WriteFile(file, p.snapshot, 0o600), os.WriteFile(keysOf(file), p.keys, 0o600)); err != nil {
		t.Fatal(err)
	}
	return Fork(t, file, p.Options)
}

// prepare makes the snapshot of the template.
func (p *Template) prepare(t testing.TB) {
	t.Helper()
	p.first = t.Name()
	c := New(t, p.Options)
	defer c.stop()
	if p.Prepare != nil {
		p.Prepare(t, c)
	}
	file := filepath.Join(t.TempDir(), "template.snapshot")
	c.Snapshot(t, file)
	data, err := os.ReadFile(file)
	keys, keysErr := os.ReadFile(keysOf(file))
	if err := errors.Join(err, keysErr); err != nil {
		t.Fatalf("clustertest: %v", err)
	}
	p.snapshot, p.keys = data, keys
}
