package clusters

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
)

// twoClusters makes the stopped clusters sampan and two of a user, and a kubeconfig whose current context is given.
func twoClusters(t *testing.T, current string) (home local.Profile, kubeconfig string) {
	t.Helper()
	data := t.TempDir()
	for _, name := range []string{local.DefaultName, "two"} {
		dir := filepath.Join(data, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig = filepath.Join(data, "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: " + current + "\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(data, local.DefaultName)
	return local.Profile{Name: local.DefaultName, DataDir: dir, Default: dir, RunDir: filepath.Join(data, "run", local.DefaultName)}, kubeconfig
}

func commandWith(t *testing.T, args ...string) *cobra.Command {
	t.Helper()
	cmd := &cobra.Command{Use: "down"}
	for _, name := range []string{"name", "data-dir", "context", "kubeconfig"} {
		cmd.Flags().String(name, "", "")
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestOtherCurrentCluster(t *testing.T) {
	for _, tt := range []struct {
		current string
		args    []string
		want    string
	}{
		{"sampan-two", nil, "two"},
		{"sampan", nil, ""},
		{"work", nil, ""},
		{`""`, nil, ""},
		{"sampan-three", nil, ""}, // its cluster is gone
		{"sampan-two", []string{"--name=sampan"}, ""},
		{"sampan-two", []string{"--data-dir=/srv/x"}, ""},
		{"sampan", []string{"--context=sampan-two"}, "two"},
	} {
		p, kubeconfig := twoClusters(t, tt.current)
		other, differs := otherCurrent(commandWith(t, append(tt.args, "--kubeconfig="+kubeconfig)...), p)
		if other.Name != tt.want || differs != (tt.want != "") {
			t.Errorf("current context %s, %v: %q, %v; want %q", tt.current, tt.args, other.Name, differs, tt.want)
		}
	}
}

func TestConfirmWithoutTerminal(t *testing.T) {
	p, _ := twoClusters(t, "sampan-two")
	cmd := commandWith(t)
	cmd.SetIn(strings.NewReader("y\n"))
	cmd.SetErr(&bytes.Buffer{})
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	defer func(before *os.File) { os.Stdin = before }(os.Stdin)
	os.Stdin = null
	err = confirm(cmd, p, local.Found{Profile: local.Profile{Name: "two"}}, "stop and remove")
	for _, want := range []string{"--name=sampan", "--name=two", "stop and remove cluster sampan", "nothing was changed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func TestVersionDiffers(t *testing.T) {
	p := local.Profile{Name: "two"}
	o := Options{Version: "v2"}
	for _, tt := range []struct {
		i    local.Instance
		want []string
	}{
		{local.Instance{Version: "v2"}, nil},
		{local.Instance{}, nil},
		{local.Instance{Version: "v1", Simulated: true}, []string{"runs version v1", "is version v2", "`sampan down --name=two`"}},
		{local.Instance{Version: "v1", Process: local.Process{PID: 7}}, []string{"`kill 7`", "keep the pods running"}},
	} {
		got := versionDiffers(o, p, tt.i)
		if (got == "") != (tt.want == nil) {
			t.Errorf("%+v: %q", tt.i, got)
		}
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q: want %q", got, want)
			}
		}
	}
}

func TestFailedStartIsRecorded(t *testing.T) {
	p, _ := twoClusters(t, "sampan")
	three := p
	three.Name, three.Default = "three", filepath.Join(filepath.Dir(p.Default), "three")
	three.DataDir = filepath.Join(t.TempDir(), "elsewhere")
	if got := recordFailed(three); got != "" {
		t.Errorf("a start that left nothing: %q", got)
	}
	if err := os.MkdirAll(three.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(three.Log(), []byte("port in use"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := recordFailed(three); !strings.Contains(got, "sampan down --purge --name=three") {
		t.Errorf("%q", got)
	}
	if recorded, err := three.Recorded(); err != nil || recorded != three.DataDir {
		t.Errorf("recorded %q, %v", recorded, err)
	}
	p.DataDir = three.DataDir // there is a cluster of that name in the default directory
	if got := recordFailed(p); got != "" {
		t.Errorf("beside another cluster of that name: %q", got)
	}
}
