package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestClustersOfOtherUsers(t *testing.T) {
	proc := t.TempDir()
	for pid, args := range map[string][]string{
		"10":   {"/usr/bin/sampan", "serve", "--report", "--name=edge", "--data-dir=/srv/edge"},
		"11":   {"sampan", "--name", "two", "serve"},
		"12":   {"sampan", "serve"},
		"13":   {"sampan", "get", "pods"},
		"14":   {"nginx", "serve", "--name=x"},
		"15":   {"sampan"},
		"16":   {""},
		"18":   {"/var/lib/sampan/x/bin/sampan-runtime", "serve", "--ready-fd=3"},
		"17":   {"sampan", "serve", "--name"},
		"self": {"sampan", "serve"},
	} {
		put(t, filepath.Join(proc, pid, "cmdline"), strings.Join(args, "\x00")+"\x00")
	}
	nameOf := func(int) string { return "alice" }
	got := foreign(proc, os.Getuid()+1, nameOf)
	want := []Foreign{{Name: "edge", User: "alice", PID: 10, DataDir: "/srv/edge"}, {Name: "two", User: "alice", PID: 11}, {Name: DefaultName, User: "alice", PID: 12}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := foreign(proc, os.Getuid(), nameOf); len(got) != 0 {
		t.Errorf("of the same user: %+v", got)
	}
}
