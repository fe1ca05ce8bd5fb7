package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func TestFleetNames(t *testing.T) {
	if names, err := FleetNames("ci", 3); err != nil || strings.Join(names, " ") != "ci-1 ci-2 ci-3" {
		t.Errorf("3 clusters of ci: %v, %v", names, err)
	}
	for _, tt := range []struct {
		prefix   string
		clusters int
		want     string
	}{
		{"ci", 0, "--clusters: must be a number from 1 to 500, got 0"},
		{"ci", -1, "got -1"},
		{"ci", 100_000, "got 100000"},
		{"CI", 1, "--name: must be"},
		{strings.Repeat("a", 61), 10, "--name: must be"}, // the tenth is too long
	} {
		if _, err := FleetNames(tt.prefix, tt.clusters); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d clusters of %s: %v, want %s", tt.clusters, tt.prefix, err, tt.want)
		}
	}
}

func TestInFleet(t *testing.T) {
	for name, want := range map[string]bool{"ci-1": true, "ci-500": true, "ci-501": false, "ci-0": false, "ci-01": false, "ci": false, "ci-a": false, "other-1": false} {
		if got := InFleet(name, "ci"); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A pipe collects reports and counts its ends.
type pipe struct {
	bytes.Buffer
	closed int
}

func (p *pipe) Close() error { p.closed++; return nil }

func TestFleetReportsAreSortedByCluster(t *testing.T) {
	var to pipe
	share := ReportTo(&to).Share(3)
	one, two, three := share("ci-1"), share("ci-2"), share("ci-3")
	ready := 0
	two = two.Notify(func() { ready++ })
	two.Step("waiting")
	two.Ready(Instance{Name: "ci-2", Server: "https://two"})
	two.Fail(errors.New("too late"))
	one.Fail(errors.New("no disk"))
	one.Fail(errors.New("again"))
	if to.closed != 0 || ready != 1 {
		t.Fatalf("closed %d times before the last report, and %d notifications", to.closed, ready)
	}
	results := []Started{{Profile: Profile{Name: "ci-1"}}, {Profile: Profile{Name: "ci-2"}}, {Profile: Profile{Name: "ci-3"}, Err: errExited}}
	var steps []string
	err := followFleet(bytes.NewReader(to.Bytes()), results, func(s string) { steps = append(steps, s) })
	if err != nil || fmt.Sprint(steps) != "[ci-2: waiting]" {
		t.Errorf("steps %q, %v", steps, err)
	}
	if r := results[0]; r.Err == nil || r.Err.Error() != "no disk" {
		t.Errorf("ci-1: %v", r.Err)
	}
	if r := results[1]; r.Err != nil || r.Instance.Server != "https://two" {
		t.Errorf("ci-2: %+v", r)
	}
	if r := results[2]; !errors.Is(r.Err, errExited) { // it has reported nothing
		t.Errorf("ci-3: %v", r.Err)
	}
	three.Ready(Instance{})
	if to.closed != 1 {
		t.Errorf("closed %d times after the last report", to.closed)
	}
	if err := followFleet(strings.NewReader(`{"error":"no settings"}`+"\n"), results, nil); err == nil || err.Error() != "no settings" {
		t.Errorf("an error about all: %v", err)
	}
}

func TestSharedClusterStopsOnRequest(t *testing.T) {
	p := Profile{Name: "ci-1", RunDir: filepath.Join(t.TempDir(), "ci-1"), DataDir: t.TempDir()}
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	i := Instance{Name: p.Name, Process: self, Shared: true, DataDir: p.DataDir}
	if err := p.Save(i); err != nil {
		t.Fatal(err)
	}
	// It does not listen: its process ends all.
	if err := p.StopShared(t.Context(), i, time.Minute); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("`kill %d` ends all of them", self.PID)) {
		t.Errorf("without a socket: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, err := p.AcceptStop(t.Context(), stop)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.StopShared(t.Context(), i, time.Minute) }()
	<-ctx.Done()
	select {
	case err := <-done:
		t.Fatalf("the answer came before the end: %v", err)
	default:
	}
	if err := os.RemoveAll(p.RunDir); err != nil {
		t.Fatal(err)
	}
	ended()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestManyContextsAreWrittenAtOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	t.Setenv("KUBECONFIG", file)
	other := Profile{Name: "other", DataDir: filepath.Join(dir, "other")}
	all := []Profile{{Name: "ci-1", DataDir: filepath.Join(dir, "1")}, {Name: "ci-2", DataDir: filepath.Join(dir, "2")}}
	for _, p := range append(all, other) {
		if err := os.Mkdir(p.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := p.SaveKubeconfig(Credentials{Server: "https://" + p.Name, CA: []byte("x"), Cert: []byte("x"), Key: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Merge(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got, err := MergeAll(t.Context(), all, ""); err != nil || got != file {
		t.Fatalf("%s, %v", got, err)
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil || len(cfg.Contexts) != 3 || cfg.CurrentContext != other.Context() || cfg.Clusters["sampan-ci-2"].Server != "https://ci-2" {
		t.Errorf("%v, %v", cfg, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, %v", info.Mode(), err)
	}
	if err := ForgetAll(t.Context(), all, ""); err != nil {
		t.Fatal(err)
	}
	cfg, err = clientcmd.LoadFromFile(file)
	if err != nil || len(cfg.Contexts) != 1 || cfg.CurrentContext != other.Context() {
		t.Errorf("%v, %v", cfg, err)
	}
	if err := os.WriteFile(file, []byte("a: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeAll(t.Context(), all, ""); err == nil || !strings.Contains(err.Error(), "is not a kubeconfig") {
		t.Errorf("another file: %v", err)
	}
}
