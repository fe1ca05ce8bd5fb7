package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/clustertest"
)

// simulated starts a cluster with simulated nodes and returns a client's
// configuration, with no limit on the rate of requests.
func simulated(t *testing.T, nodes int) (*clustertest.Cluster, *rest.Config) {
	t.Helper()
	c := clustertest.New(t, clustertest.Options{Program: sampanProgram, Nodes: nodes})
	return c, configFrom(t, c.Kubeconfig)
}

func configFrom(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

func clientset(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// A served cluster has data and an address that outlive its process, other than
// those of clustertest.
type served struct {
	data string
	port int
	cmd  *exec.Cmd
}

func newServed(t *testing.T) *served {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := &served{data: filepath.Join(t.TempDir(), "data"), port: port}
	s.start(t)
	t.Cleanup(func() {
		if err := s.kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start runs the program and blocks until it is ready.
func (s *served) start(t *testing.T) {
	t.Helper()
	told, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = told.Close() }()
	s.cmd = exec.Command(sampanProgram, "serve", "--report", "--simulated-nodes=1", "--name="+filepath.Base(filepath.Dir(s.data)),
		"--data-dir="+s.data, fmt.Sprintf("--api-port=%d", s.port))
	s.cmd.ExtraFiles = []*os.File{tell}
	s.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Dir(s.data))
	log, err := os.OpenFile(s.data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.cmd.Stderr = log
	err = s.cmd.Start()
	_ = tell.Close()
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(told); lines.Scan(); {
		var report map[string]any
		if err := json.Unmarshal(lines.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		if report["ready"] != nil {
			return
		}
	}
	said, _ := os.ReadFile(s.data + ".log")
	t.Fatalf("sampan serve did not get ready:\n%s", said)
}

// kill ends the program as kill -9 does.
func (s *served) kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.cmd.Wait() // it was killed
	return nil
}

func (s *served) kubeconfig() string { return filepath.Join(s.data, "admin.kubeconfig") }
