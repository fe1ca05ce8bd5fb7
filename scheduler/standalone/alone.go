package standalone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/election"
	"github.com/sampan-io/sampan/internal/monitoring"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/config"
)

// Options configures a scheduler that runs alone. Connect and Plugins are required.
type Options struct {
	// Connect returns the server and the credentials; kubeconfig is the file that the configuration names, or "".
	Connect func(kubeconfig string) (*rest.Config, error)

	// Plugins are the plug-ins that a configuration can choose.
	Plugins config.Available

	ConfigFile string // KubeSchedulerConfiguration; empty means the default plug-ins in one profile
	Name       string // of that profile; empty means "default-scheduler". Not with ConfigFile

	// LeaderElect says whether one of several works at a time; nil means as configured, and no if it
	// says nothing.
	LeaderElect *bool

	// MetricsAddress is where /metrics, /livez and /readyz are served; empty means nowhere. Without a certificate it must be
	// an address of loopback.
	MetricsAddress    string
	CertFile, KeyFile string

	UserAgent string       // empty means "sampan-scheduler"
	Log       *slog.Logger // nil means slog.Default
}

// Run schedules until ctx is over and then returns nil. It ends with an error where there is nothing to go on with, and
// when the leader's lease is lost.
func Run(ctx context.Context, o Options) error {
	o.Log = cmp.Or(o.Log, slog.Default())
	conf := config.Default(o.Plugins.Default)
	conf.Profiles[0].Name = cmp.Or(o.Name, corev1.DefaultSchedulerName)
	if o.ConfigFile != "" {
		if o.Name != "" {
			return errors.New("--scheduler-name and --config must not be set both: the profiles of the configuration have names")
		}
		var err error
		if conf, err = config.Load(o.ConfigFile, o.Plugins); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	rc, err := o.Connect(conf.Kubeconfig)
	if err != nil {
		return err
	}
	api, err := client.NewREST(rc, client.RESTOptions{UserAgent: cmp.Or(o.UserAgent, "sampan-scheduler")})
	if err != nil {
		return err
	}
	s, err := scheduler.New(conf.Options(scheduler.Options{Client: api, Log: o.Log}))
	if err != nil {
		return err
	}
	work, err := o.work(s, api, o.election(conf))
	if err != nil {
		return err
	}
	if o.MetricsAddress == "" {
		return run.Stages(ctx, run.Stage{work})
	}
	serve, err := monitoring.Listen(ctx, monitoring.Options{Address: o.MetricsAddress, CertFile: o.CertFile, KeyFile: o.KeyFile, Log: o.Log}, s.Metrics())
	if err != nil {
		return err
	}
	return run.Stages(ctx, run.Stage{serve}, run.Stage{work})
}

// work returns the task that schedules: when the user has the rights for it and, if e is not nil, while it is the leader.
// One that lacks the rights must not lead, because others could work.
func (o Options) work(s *scheduler.Scheduler, api client.Interface, e *config.Election) (run.Task, error) {
	schedule := func(ctx context.Context) error {
		return run.Stages(ctx, run.Stage{{Name: "scheduler", Run: s.Run, Ready: s.Ready()}})
	}
	if e != nil {
		host, err := os.Hostname()
		if err != nil {
			return run.Task{}, err
		}
		schedule = func(ctx context.Context) error {
			return election.Run(ctx, election.Options{
				Client: api, Namespace: e.Namespace, Name: e.Name, Identity: host + "_" + string(uuid.NewUUID()),
				LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod, Log: o.Log,
			}, s.Run)
		}
	}
	reads, optional := s.Reads()
	needs := rightsOf(reads, optional, e)
	return run.Task{Name: "scheduler", Run: func(ctx context.Context) error {
		needs.await(ctx, api, o.Log)
		if ctx.Err() != nil {
			return nil
		}
		return schedule(ctx)
	}}, nil
}

// election returns how to elect a leader, or nil if there is no election.
func (o Options) election(c config.Config) *config.Election {
	e := c.Election
	if e == nil {
		if o.LeaderElect == nil {
			return nil
		}
		e = new(config.DefaultElection())
	}
	if o.LeaderElect != nil {
		e.Elect = *o.LeaderElect
	}
	if !e.Elect {
		return nil
	}
	return e
}
