package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/internal/run"
)

// A Mode is how a request waits for a sink.
type Mode string

// The modes.
const (
	ModeBatch    Mode = "batch"           // not at all: events are queued
	ModeBlocking Mode = "blocking"        // until the sink has the event or failed
	ModeStrict   Mode = "blocking-strict" // the same, and the request fails if the sink fails at the stage RequestReceived
)

// Config is the values of the flags --audit-*. Its fields have the flags' names.
type Config struct {
	PolicyFile string // empty: nothing is recorded
	Log        Log
	Webhook    Webhook
}

// Log is the sink that writes a file.
type Log struct {
	Path       string // empty: no log; "-": standard output
	MaxAge     int    // days; 0: no bound
	MaxBackups int    // files; 0: no bound
	MaxSize    int    // megabytes; 0: no rotation
	Compress   bool
	Format     string // json or legacy
	Version    string
	Batch      Batch
	Truncate   Truncate
}

// Webhook is the sink that posts to an address.
type Webhook struct {
	ConfigFile     string // a kubeconfig; empty: no webhook
	InitialBackoff time.Duration
	Version        string
	Batch          Batch
	Truncate       Truncate
}

// Batch is the mode of a sink. All but Mode is for ModeBatch.
type Batch struct {
	Mode           Mode
	BufferSize     int // events
	MaxSize        int // events of a batch
	MaxWait        time.Duration
	ThrottleEnable bool
	ThrottleQPS    float64
	ThrottleBurst  int

	concurrent bool // several batches may be under way
}

// Truncate bounds the sizes of events and batches, in bytes.
type Truncate struct {
	Enabled      bool
	MaxBatchSize int64
	MaxEventSize int64
}

// DefaultConfig is upstream's.
func DefaultConfig() Config {
	truncate := Truncate{MaxBatchSize: 10 << 20, MaxEventSize: 100 << 10}
	return Config{
		Log: Log{
			MaxAge: 366, MaxBackups: 100, MaxSize: 100, Format: "json", Version: apiVersion,
			Batch: Batch{Mode: ModeBlocking, BufferSize: 10000, MaxSize: 1}, Truncate: truncate,
		},
		Webhook: Webhook{
			InitialBackoff: 10 * time.Second, Version: apiVersion, Truncate: truncate,
			Batch: Batch{Mode: ModeBatch, BufferSize: 10000, MaxSize: 400, MaxWait: 30 * time.Second, ThrottleEnable: true, ThrottleQPS: 10, ThrottleBurst: 15},
		},
	}
}

// validate returns the faults, in upstream's words.
func (c *Config) validate() error {
	var errs []error
	if l := &c.Log; l.Path != "" {
		errs = append(errs, l.Batch.validate("log"), l.Truncate.validate("log"), checkVersion(l.Version))
		if l.Format != "json" && l.Format != "legacy" {
			errs = append(errs, fmt.Errorf("invalid audit log format %s, allowed formats are %q", l.Format, "legacy,json"))
		}
		for _, n := range []struct {
			flag  string
			value int
		}{{"maxage", l.MaxAge}, {"maxbackup", l.MaxBackups}, {"maxsize", l.MaxSize}} {
			if n.value < 0 {
				errs = append(errs, fmt.Errorf("--audit-log-%s %d can't be a negative number", n.flag, n.value))
			}
		}
	}
	if w := &c.Webhook; w.ConfigFile != "" {
		errs = append(errs, w.Batch.validate("webhook"), w.Truncate.validate("webhook"), checkVersion(w.Version))
	}
	return errors.Join(errs...)
}

func checkVersion(v string) error {
	if v != apiVersion {
		return fmt.Errorf("invalid group version, allowed versions are %q", []string{apiVersion})
	}
	return nil
}

func (b *Batch) validate(sink string) error {
	if !slices.Contains([]Mode{ModeBatch, ModeBlocking, ModeStrict}, b.Mode) {
		return fmt.Errorf("invalid audit %s mode %s, allowed modes are %q", sink, b.Mode, "batch,blocking,blocking-strict")
	}
	switch {
	case b.Mode != ModeBatch:
	case b.BufferSize <= 0:
		return fmt.Errorf("invalid audit batch %s buffer size %v, must be a positive number", sink, b.BufferSize)
	case b.MaxSize <= 0:
		return fmt.Errorf("invalid audit batch %s max batch size %v, must be a positive number", sink, b.MaxSize)
	case b.ThrottleEnable && b.ThrottleQPS <= 0:
		return fmt.Errorf("invalid audit batch %s throttle QPS %v, must be a positive number", sink, b.ThrottleQPS)
	case b.ThrottleEnable && b.ThrottleBurst <= 0:
		return fmt.Errorf("invalid audit batch %s throttle burst %v, must be a positive number", sink, b.ThrottleBurst)
	}
	return nil
}

func (t *Truncate) validate(sink string) error {
	switch {
	case t.MaxEventSize <= 0:
		return fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number", sink, t.MaxEventSize)
	case t.MaxBatchSize < t.MaxEventSize:
		return fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)", sink, t.MaxBatchSize, t.MaxEventSize)
	}
	return nil
}

// An Auditor records requests. A nil Auditor records nothing. It is safe for concurrent use.
type Auditor struct {
	policy *Policy
	sinks  []*sink
	target string // URL of the webhook; empty if there is none
	log    *slog.Logger
	ready  chan struct{}

	work    context.Context //nolint:containedctx // the life of what sinks do, ended by Run
	endWork context.CancelFunc

	events   prometheus.Counter
	rejected prometheus.Counter
	levels   *prometheus.CounterVec
	errors   *prometheus.CounterVec

	mu       sync.Mutex
	lost     map[string]int       // guarded by mu; events that were dropped and not logged yet, by plug-in
	reported map[string]time.Time // guarded by mu; when that was logged
}

// New reads the files that the configuration names. It returns nil without an error if nothing would be recorded, because
// there is no policy or no sink.
func New(c Config, log *slog.Logger) (*Auditor, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.PolicyFile == "" {
		if c.Log.Path != "" || c.Webhook.ConfigFile != "" {
			log.Warn("no audit policy file provided (--audit-policy-file): no events will be recorded")
		}
		return nil, nil // a nil Auditor records nothing
	}
	policy, warning, err := loadPolicy(c.PolicyFile)
	if warning != nil {
		log.Warn("audit policy has unknown fields, which are ignored", "err", warning)
	}
	if err == nil && c.Log.Path == "" && c.Webhook.ConfigFile == "" {
		log.Warn("an audit policy file is provided, but neither --audit-log-path nor --audit-webhook-config-file: no events will be recorded")
		return nil, nil // a nil Auditor records nothing
	}
	if err != nil {
		return nil, err
	}
	a := &Auditor{
		policy: policy, log: log, ready: make(chan struct{}), lost: map[string]int{}, reported: map[string]time.Time{},
		events:   prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_audit_event_total", Help: "Audit events that were generated and sent to the audit backend."}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_audit_requests_rejected_total", Help: "Requests that were rejected because of an error of audit logging."}),
		levels:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_audit_level_total", Help: "Requests by the level of their policy."}, []string{"level"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_audit_error_total", Help: "Audit events that were not recorded, by the plug-in that failed."}, []string{"plugin"}),
	}
	a.work, a.endWork = context.WithCancel(context.Background()) //nolint:forbidigo // ended by Run; an event may come before
	if c.Log.Path != "" {
		to, err := openLog(&c.Log)
		if err != nil {
			return nil, err
		}
		s := a.newSink("log", c.Log.Batch, c.Log.Truncate, to)
		s.legacy = c.Log.Format == "legacy"
		a.sinks = append(a.sinks, s)
	}
	if c.Webhook.ConfigFile != "" {
		to, err := openWebhook(&c.Webhook)
		if err != nil {
			return nil, errors.Join(err, a.closeSinks())
		}
		a.target = to.url
		c.Webhook.Batch.concurrent = true
		a.sinks = append(a.sinks, a.newSink("webhook", c.Webhook.Batch, c.Webhook.Truncate, to))
	}
	return a, nil
}

// Target returns the URL to which events are posted, or "".
func (a *Auditor) Target() string {
	if a == nil {
		return ""
	}
	return a.target
}

// Describe implements [prometheus.Collector].
func (a *Auditor) Describe(to chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{a.events, a.rejected, a.levels, a.errors} {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (a *Auditor) Collect(to chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{a.events, a.rejected, a.levels, a.errors} {
		c.Collect(to)
	}
}

// record gives an event to all sinks. It reports false if the request has to be refused.
func (a *Auditor) record(e *Event, data []byte) bool {
	a.events.Inc()
	good := true
	for _, s := range a.sinks {
		good = s.record(e, data) && good
	}
	if !good && e.Stage == RequestReceived {
		a.rejected.Inc()
	}
	return good
}

// reportPause is how often lost events are logged.
const reportPause = time.Minute

// failed counts events that a plug-in did not record, and logs that now and then.
func (a *Auditor) failed(plugin string, err error, events int) {
	a.errors.WithLabelValues(plugin).Add(float64(max(events, 1)))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost[plugin] += events
	if at := a.reported[plugin]; !at.IsZero() && time.Since(at) < reportPause {
		return
	}
	a.log.Error("audit events were not recorded", "plugin", plugin, "events", a.lost[plugin], "err", err)
	a.reported[plugin], a.lost[plugin] = time.Now(), 0
}

// flushTimeout is how long sinks have at the end to record queued events.
const flushTimeout = 10 * time.Second

// Ready is closed once Run works.
func (a *Auditor) Ready() <-chan struct{} { return a.ready }

// Run sends queued events until ctx ends, and then the rest, for at most ten seconds. The API server must have ended by
// then. Run may be called once.
func (a *Auditor) Run(ctx context.Context) error {
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	for _, s := range a.sinks {
		g.Go(s.run)
	}
	close(a.ready)
	<-ctx.Done()
	for _, s := range a.sinks {
		s.end()
	}
	limit := time.AfterFunc(flushTimeout, a.endWork)
	defer limit.Stop()
	g.Wait()
	a.endWork()
	a.mu.Lock()
	for plugin, events := range a.lost {
		if events > 0 {
			a.log.ErrorContext(ctx, "audit events were not recorded", "plugin", plugin, "events", events)
		}
	}
	a.mu.Unlock()
	if err := a.closeSinks(); err != nil {
		a.log.WarnContext(ctx, "closing an audit sink", "err", err)
	}
	return nil
}

func (a *Auditor) closeSinks() error {
	var errs []error
	for _, s := range a.sinks {
		errs = append(errs, s.to.close())
	}
	return errors.Join(errs...)
}
