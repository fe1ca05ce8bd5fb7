package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"
)

// template is the directory of etcd's data with all that the tests have in common: the definition of Websites and the
// settings of the controller. Each test starts an API server with a copy of it, and so has a cluster of its own.
var template string

// TestMain prepares the template.
func TestMain(m *testing.M) { os.Exit(prepareAndRun(m)) }

func prepareAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "website")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	template = filepath.Join(dir, "template")
	if err := errors.Join(programs(dir), prepare()); err != nil {
		fmt.Fprintln(os.Stderr, "preparing the tests:", err)
		return 1
	}
	return m.Run()
}

// programs makes sampan the kube-apiserver and etcd that envtest starts, unless KUBEBUILDER_ASSETS names others. It is
// the program that the variable SAMPAN names, or else the one in PATH.
func programs(dir string) error {
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		return nil
	}
	program, err := exec.LookPath(cmp.Or(os.Getenv("SAMPAN"), "sampan"))
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return fmt.Errorf("there is no sampan: %w; set SAMPAN or KUBEBUILDER_ASSETS", err)
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return os.Setenv("KUBEBUILDER_ASSETS", dir)
}

// prepare makes the template, with an API server that runs only for that.
func prepare() (err error) {
	if err := os.Mkdir(template, 0o700); err != nil {
		return err
	}
	env := environment(template)
	env.CRDDirectoryPaths, env.ErrorIfCRDPathMissing = []string{"config/websites.yaml"}, true
	cfg, err := env.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	text, err := os.ReadFile("config/settings.yaml")
	if err != nil {
		return err
	}
	settings := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(text, settings); err != nil {
		return err
	}
	return c.Create(context.Background(), settings)
}

// environment returns an API server that is not started yet. Its objects are in a directory. Beside it the controllers
// run that delete dependents and the contents of namespaces.
func environment(data string) *envtest.Environment {
	env := &envtest.Environment{}
	env.ControlPlane.Etcd = &envtest.Etcd{DataDir: data}
	env.ControlPlane.GetAPIServer().Configure().Append("controllers", "garbage-collector-controller", "namespace")
	return env
}

// fork starts an API server with a copy of the template and the controller of Websites, until the end of the test. It
// returns a client with all rights.
func fork(t *testing.T) client.WithWatch {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(template)); err != nil {
		t.Fatal(err)
	}
	env := environment(data)
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metrics.Options{BindAddress: "0"}, Logger: testr.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	// controller-runtime lets a process have one controller of a name, for its metrics. Here each test has one.
	if err := setUp(mgr, controller.Options{SkipNameValidation: new(true)}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
