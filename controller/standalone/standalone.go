package standalone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/election"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/manager"
	"github.com/sampan-io/sampan/internal/monitoring"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures controllers that run alone. Connect is required.
type Options struct {
	// Connect returns the server and the credentials.
	Connect func() (*rest.Config, error)

	Selection manager.Selection

	// AccountCredentials makes each controller act as its service account of kube-system. Otherwise all act as the user of Connect.
	AccountCredentials bool

	ServiceAccountKeyFile                         string // with which tokens of Secrets are signed; empty means that none are
	RootCAFile                                    string // for pods; empty means the authority that Connect names
	ClusterSigningCertFile, ClusterSigningKeyFile string // with which certificates are signed; empty means that none are

	Election *Election // nil means that no leader is elected

	// MetricsAddress is where /metrics, /livez and /readyz are served; empty means nowhere. Without a certificate it must be
	// an address of loopback.
	MetricsAddress    string
	CertFile, KeyFile string

	UserAgent string       // empty means "kube-controller-manager", which is then the manager of the fields that controllers write
	Log       *slog.Logger // nil means slog.Default
}

// An Election is that of one of several instances, which works. Each duration must be more than the next.
type Election struct {
	Namespace, Name                           string // of the Lease
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// DefaultElection returns the election that upstream's kube-controller-manager takes part in.
func DefaultElection() Election {
	return Election{
		Namespace: "kube-system", Name: "kube-controller-manager",
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	}
}

// Check returns an error for settings with which no leader can be elected.
func (e *Election) Check() error {
	var errs []error
	if e.LeaseDuration <= e.RenewDeadline {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v: must be greater than --leader-elect-renew-deadline=%v", e.LeaseDuration, e.RenewDeadline))
	}
	if e.RenewDeadline <= e.RetryPeriod+e.RetryPeriod/5 {
		errs = append(errs, fmt.Errorf("--leader-elect-renew-deadline=%v: must be greater than --leader-elect-retry-period=%v with jitter, which is %v",
			e.RenewDeadline, e.RetryPeriod, e.RetryPeriod+e.RetryPeriod/5))
	}
	if e.LeaseDuration < time.Second {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v: must be >= 1s", e.LeaseDuration))
	}
	if e.RetryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--leader-elect-retry-period=%v: must be > 0", e.RetryPeriod))
	}
	if e.Namespace == "" || e.Name == "" {
		errs = append(errs, errors.New("--leader-elect-resource-namespace and --leader-elect-resource-name must not be empty"))
	}
	return errors.Join(errs...)
}

// material is the keys and certificates of the controllers.
type material struct {
	roots     roots
	signer    *tokenSigner // nil: none
	authority *authority   // nil: none
}

func (o Options) material(cfg *rest.Config) (m material, err error) {
	if m.roots, err = readRoots(o.RootCAFile, cfg); err != nil {
		return m, fmt.Errorf("--root-ca-file: %w", err)
	}
	if o.ServiceAccountKeyFile != "" {
		if m.signer, err = readSigner(o.ServiceAccountKeyFile); err != nil {
			return m, fmt.Errorf("--service-account-private-key-file: %w", err)
		}
	}
	if (o.ClusterSigningCertFile == "") != (o.ClusterSigningKeyFile == "") {
		return m, errors.New("--cluster-signing-cert-file and --cluster-signing-key-file must be set both, or neither")
	}
	if o.ClusterSigningCertFile != "" {
		if m.authority, err = newAuthority(o.ClusterSigningCertFile, o.ClusterSigningKeyFile); err != nil {
			return m, fmt.Errorf("--cluster-signing-cert-file and --cluster-signing-key-file: %w", err)
		}
	}
	return m, nil
}

// Run runs the controllers until ctx is cancelled and then returns nil. It returns an error if the options are invalid, if the
// server cannot be used, and if the leader's Lease is lost.
func Run(ctx context.Context, o Options) error {
	o.Log = cmp.Or(o.Log, slog.Default())
	if err := o.Selection.Check(); err != nil {
		return err
	}
	if o.Election != nil {
		if err := o.Election.Check(); err != nil {
			return err
		}
	}
	cfg, err := o.Connect()
	if err != nil {
		return err
	}
	m, err := o.material(cfg)
	if err != nil {
		return err
	}
	agent := cmp.Or(o.UserAgent, "kube-controller-manager")
	api, err := client.NewREST(cfg, client.RESTOptions{UserAgent: agent})
	if err != nil {
		return err
	}
	work := func(ctx context.Context) error { return o.work(ctx, cfg, api, m, agent) }
	if e := o.Election; e != nil {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		candidate := election.Options{
			Client: api, Namespace: e.Namespace, Name: e.Name, Identity: host + "_" + string(uuid.NewUUID()),
			LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod, Log: o.Log,
		}
		lead := work
		work = func(ctx context.Context) error { return election.Run(ctx, candidate, lead) }
	}
	if o.MetricsAddress == "" {
		return work(ctx)
	}
	queues := &controller.Metrics{}
	serve, err := monitoring.Listen(ctx, monitoring.Options{Address: o.MetricsAddress, CertFile: o.CertFile, KeyFile: o.KeyFile, Log: o.Log}, queues)
	if err != nil {
		return err
	}
	return run.Stages(controller.WithMetrics(ctx, queues), run.Stage{serve}, run.Stage{{Name: "controllers", Run: work}})
}

// work runs the controllers.
func (o Options) work(ctx context.Context, cfg *rest.Config, api *client.REST, m material, agent string) error {
	served, err := o.await(ctx, api)
	if err != nil || ctx.Err() != nil {
		return err
	}
	metadata, err := client.NewREST(cfg, client.RESTOptions{Metadata: true, UserAgent: agent})
	if err != nil {
		return err
	}
	config := controller.Config{Client: api, Caches: cache.NewShared(api, o.Log), Log: o.Log}
	autoscaler := api
	if o.AccountCredentials {
		all := &accounts{api: api, config: rest.AnonymousClientConfig(cfg), agent: agent}
		var failed error
		as := func(account string) *client.REST {
			c, err := all.client(account)
			failed = errors.Join(failed, err)
			return c
		}
		config.As = func(account string) client.Interface { return as(account) }
		if autoscaler = as(manager.Autoscaler); failed != nil {
			return failed // the others would be made from the same configuration
		}
	}
	options := manager.Options{
		Config: config, Selection: o.Selection, Resources: served.own, Served: []cache.Served{served.Served}, Metadata: metadata,
		Others: elsewhere{served, config.For("namespace-controller").Client}, Raw: autoscaler, Roots: m.roots,
	}
	if m.signer != nil {
		options.Signer = m.signer
	}
	if m.authority != nil {
		options.Authority = m.authority
	}
	made := manager.New(options)
	for _, l := range made.Left {
		o.Log.WarnContext(ctx, "a controller does not run", "controller", l.Name, "why", l.Why)
	}
	if len(made.Names) == 0 {
		return errors.New("--controllers: selects no controller that can run")
	}
	o.Log.InfoContext(ctx, "running controllers", "controllers", made.Names)
	stage := append(made.Stage, served.task(config))
	if m.authority != nil {
		stage = append(stage, run.Task{Name: "certificate and key", Run: func(ctx context.Context) error { return m.authority.follow(ctx, o.Log) }})
	}
	return run.Stages(ctx, run.Stage{{Name: "caches", Run: config.Caches.Run}}, stage)
}

// await returns the server's catalog, when it answers. A server that cannot be used is an error.
func (o Options) await(ctx context.Context, api *client.REST) (*catalog, error) {
	for failures := 1; ; failures++ {
		err := ready(ctx, api)
		if err == nil {
			var c *catalog
			if c, err = newCatalog(ctx, api, api); err == nil || errors.Is(err, errTooOld) {
				return c, err
			}
		}
		if failures == 1 && ctx.Err() == nil {
			o.Log.WarnContext(ctx, "the resources of the server cannot be read; trying again", "err", err)
		}
		if !run.Pause(ctx, run.Backoff{First: time.Second, Max: 30 * time.Second}.Pause(failures)) {
			return nil, nil // the program ends
		}
	}
}

// ready returns an error unless the server is ready. Before that, discovery may lack resources of the server itself.
func ready(ctx context.Context, server raw) error {
	resp, err := server.Do(ctx, client.RawRequest{Path: "/readyz"})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil // it does not say
	}
	if err != nil {
		return fmt.Errorf("the server is not ready: %w", err)
	}
	return resp.Body.Close()
}

// task returns the task that reads discovery after each change of a CustomResourceDefinition or an APIService, until it agrees
// with the definitions: the server publishes it a moment later.
func (c *catalog) task(config controller.Config) run.Task {
	var needs []<-chan struct{}
	var loop *controller.Loop
	follow := func(r client.Resource[client.Object]) *cache.Cache[client.Object] {
		if !c.isOwn(r.GroupResource()) {
			return nil // the server does not have such objects
		}
		all := cache.Of(config.Caches, r, nil)
		all.Subscribe(func(_, _ client.Object) { loop.Add(controller.Key{Name: "discovery"}) })
		needs = append(needs, all.Ready())
		return all
	}
	definitions := follow(definitionKind)
	follow(serviceKind)
	loop = controller.New(controller.Options{
		Name: "served-resources", Workers: 1, Log: config.Log, Needs: needs,
		Reconcile: func(ctx context.Context, _ controller.Key) (controller.Result, error) {
			var defined []*definition
			if definitions != nil {
				var err error
				if defined, err = parseAll[definition](definitions.List("")); err != nil {
					return controller.Result{}, err
				}
				c.define(defined)
			}
			all, err := c.read(ctx)
			if err != nil || definitions == nil {
				return controller.Result{}, err
			}
			if !c.agrees(all, defined) {
				return controller.Result{}, controller.Again("discovery is behind the definitions of custom resources")
			}
			return controller.Result{}, nil
		},
	})
	return loop.Task()
}

func absolute(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}
