package cluster

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/standin"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// alone is what an API server is made from that runs without scheduler and nodes, and without controllers unless some
// are selected. Its methods work for nil.
type alone struct {
	*standin.Server
	clients *x509.CertPool // authorities of client certificates
}

// enabled returns the plug-ins that are used, or an error that names a flag with the name of an unknown plug-in.
func (a *alone) enabled(plugins []admission.Plugin) ([]admission.Plugin, error) {
	if a == nil {
		return plugins, nil
	}
	var known []string
	for _, p := range plugins {
		known = append(known, p.Name())
	}
	slices.Sort(known)
	for flag, names := range map[string][]string{"enable": a.EnabledAdmission, "disable": a.DisabledAdmission} {
		for _, name := range names {
			if !slices.Contains(known, name) {
				return nil, fmt.Errorf("--%s-admission-plugins: unknown plug-in %q, want one of %s", flag, name, strings.Join(slices.Compact(known), ", "))
			}
		}
	}
	return slices.DeleteFunc(plugins, func(p admission.Plugin) bool { return slices.Contains(a.DisabledAdmission, p.Name()) }), nil
}

// clientCA returns the authorities of client certificates beside the cluster's own.
func (a *alone) clientCA() []byte {
	if a == nil {
		return nil
	}
	return a.ClientCA
}

// RunServer runs only the API server and the selected controllers until ctx is over, as kube-apiserver in tests of
// controllers. Its objects are in the directory of the data of --etcd-servers. A nil log means slog.Default.
func RunServer(ctx context.Context, s *standin.Server, version string, log *slog.Logger) error {
	if log == nil {
		log = slog.Default()
	}
	dir, err := standin.DataDir(ctx, s.Etcd)
	if err != nil {
		return err
	}
	c := &cluster{
		Options: Options{
			Profile:  local.Profile{Name: "kube-apiserver", DataDir: dir},
			Settings: local.Settings{Server: s.Flags, Networks: local.Networks{Services: s.Services}},
			Version:  version, Process: NewProcess(1, log), Log: log,
		},
		started: time.Now(), notices: newNotices(), queues: &controller.Metrics{},
		tokenKeys: s.TokenKeys, alone: &alone{Server: s},
	}
	backend, err := c.openStore()
	if err != nil {
		return err
	}
	running := false
	defer func() {
		if !running { // otherwise the store has closed it
			_ = backend.Close()
		}
	}()
	if err := c.prepareServer(); err != nil {
		return err
	}
	c.alone.clients = c.authority.Pool().Clone()
	c.alone.clients.AppendCertsFromPEM(s.ClientCA)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address.String())
	if err != nil {
		return err
	}
	control, err := c.newControlPlane(ctx, backend, []net.Listener{l})
	if err != nil {
		return err
	}
	if err := c.measure(control); err != nil {
		_ = l.Close()
		return err
	}
	working, err := c.aloneControllers(control)
	if err != nil {
		_ = l.Close()
		return err
	}
	common := run.Stage{{Name: "memory", Run: c.Process.Run}}
	stages := append(slices.Concat([]run.Stage{common}, c.controlStages(control), working), slices.Concat(c.noticeTasks(control.as("system:apiserver", "system:masters")), run.Stage{
		{Name: "use of tokens in secrets", Run: func(ctx context.Context) error {
			c.recordUse(ctx, control)
			return nil
		}},
	}))
	running = true
	return run.Stages(controller.WithMetrics(ctx, c.queues), stages...)
}

// aloneControllers returns the stages of the controllers that were selected for an API server alone: none unless some
// were.
func (c *cluster) aloneControllers(control *controlPlane) ([]run.Stage, error) {
	c.Settings.Controllers = c.alone.Controllers
	if c.alone.Controllers == "" {
		return nil, nil
	}
	caches := cache.NewShared(control.as(controllerManager), c.Log)
	made, err := c.controllers(control, caches)
	if err != nil {
		return nil, err
	}
	return []run.Stage{{{Name: "caches", Run: caches.Run, Ready: caches.Ready()}}, made}, nil
}
