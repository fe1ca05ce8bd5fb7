package clustertest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
)

// NewMany starts clusters in one process, and blocks until all of them are ready. They are independent of each other:
// each has a URL, keys and objects of its own. A further cluster takes about 5 MiB of memory, where one of [New] takes
// as much as a program. They are like those of [New] in all else, and have simulated nodes: [Options.Real] fails the
// test.
func NewMany(t testing.TB, clusters int, o Options) []*Cluster {
	t.Helper()
	program, err := find(o.Program)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case o.Real:
		t.Fatal("clustertest: clusters that share a process have simulated nodes: Options.Real must be false")
	case clusters < 1:
		t.Fatalf("clustertest: the number of clusters must be >= 1, got %d", clusters)
	}
	prefix, dir := newName(), filepath.Join(t.TempDir(), "data")
	p := &process{log: &logBuffer{}}
	var all []*Cluster
	for i := range clusters {
		name := prefix + "-" + strconv.Itoa(i+1)
		all = append(all, &Cluster{Name: name, program: program, data: filepath.Join(dir, name), process: p})
	}
	args := []string{
		"serve", "--report", "--ephemeral", "--name=" + prefix, "--data-dir=" + dir, fmt.Sprintf("--clusters=%d", clusters),
		fmt.Sprintf("--simulated-nodes=%d", max(1, o.Nodes)),
	}
	p.run(t, append(args, o.Args...), all)
	return all
}
