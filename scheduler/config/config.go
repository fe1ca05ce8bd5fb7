package config

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/document"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/extender"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

const (
	group   = "kubescheduler.config.k8s.io"
	version = group + "/v1"
	kind    = "KubeSchedulerConfiguration"
)

// A Config is the contents of a file.
type Config struct {
	// Profiles, InitialBackoff, MaxBackoff and Extenders belong into [scheduler.Options].
	Profiles       []scheduler.Profile
	InitialBackoff time.Duration
	MaxBackoff     time.Duration
	Extenders      []scheduler.Extender

	Kubeconfig string    // the server's; empty: not given
	Election   *Election // nil: not given
}

// Options puts the file's settings into options, which have the rest.
func (c Config) Options(o scheduler.Options) scheduler.Options {
	o.Profiles, o.InitialBackoff, o.MaxBackoff, o.Extenders = c.Profiles, c.InitialBackoff, c.MaxBackoff, c.Extenders
	return o
}

// Election configures the leader election of several schedulers.
type Election struct {
	Elect           bool
	LeaseDuration   time.Duration
	RenewDeadline   time.Duration
	RetryPeriod     time.Duration
	Namespace, Name string
}

// DefaultElection is upstream's.
func DefaultElection() Election {
	return Election{Elect: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, Namespace: metav1.NamespaceSystem, Name: "kube-scheduler"}
}

// Default is the configuration without a file.
func Default(plugins plugin.Set) Config {
	return Config{Profiles: []scheduler.Profile{{Name: corev1.DefaultSchedulerName, Plugins: plugins}}}
}

// Available is the choices of a file.
type Available struct {
	// Default is enabled unless the file says otherwise.
	Default plugin.Set

	// Others can be enabled.
	Others []plugin.Plugin
}

// Load reads a file. Paths in it are relative to the working directory, as upstream's are.
func Load(path string, from Available) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	return Parse(path, data, from)
}

// Parse reads the YAML or JSON of a file. The source is what errors call it. An error names the line and the path of
// each field that is wrong.
func Parse(source string, data []byte, from Available) (Config, error) {
	doc, err := document.Parse(source, data)
	if err != nil {
		return Config{}, err
	}
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(data, &head); err != nil || head.APIVersion != version || head.Kind != kind {
		return Config{}, fmt.Errorf("%s: apiVersion %q, kind %q: want %s, %s", source, head.APIVersion, head.Kind, version, kind)
	}
	var f file
	unknown, err := doc.DecodeKnown(&f)
	if err != nil {
		return Config{}, err
	}
	r := reader{from: from, errs: unknown}
	c := r.config(&f)
	if err := doc.Faults(r.errs); err != nil {
		return Config{}, err
	}
	return c, nil
}

// A reader collects faults.
type reader struct {
	from Available
	errs field.ErrorList
}

func (r *reader) fault(e *field.Error) { r.errs = append(r.errs, e) }

func (r *reader) config(f *file) Config {
	var c Config
	if p := f.Parallelism; p != nil && *p <= 0 {
		r.fault(field.Invalid(field.NewPath("parallelism"), *p, "should be an integer value greater than zero"))
	}
	c.InitialBackoff = r.seconds(f.PodInitialBackoffSeconds, 1, field.NewPath("podInitialBackoffSeconds"))
	c.MaxBackoff = r.seconds(f.PodMaxBackoffSeconds, 10, field.NewPath("podMaxBackoffSeconds"))
	if c.MaxBackoff < c.InitialBackoff {
		r.fault(field.Invalid(field.NewPath("podMaxBackoffSeconds"), int64(c.MaxBackoff/time.Second), "must be greater than or equal to PodInitialBackoffSeconds"))
	}
	share := r.percent(f.PercentageOfNodesToScore, field.NewPath("percentageOfNodesToScore"))
	if f.ClientConnection != nil {
		c.Kubeconfig = f.ClientConnection.Kubeconfig
	}
	c.Election = r.election(f.LeaderElection, field.NewPath("leaderElection"))
	var ignored []string
	c.Extenders, ignored = r.extenders(f.Extenders, field.NewPath("extenders"))
	if len(f.Profiles) == 0 {
		f.Profiles = []profile{{}}
	}
	path := field.NewPath("profiles")
	names := map[string]bool{}
	for i := range f.Profiles {
		p := r.profile(&f.Profiles[i], len(f.Profiles), ignored, path.Index(i))
		if f.Profiles[i].PercentageOfNodesToScore == nil {
			p.Share = share
		}
		if names[p.Name] && p.Name != "" {
			r.fault(field.Duplicate(path.Index(i).Child("schedulerName"), p.Name))
		}
		names[p.Name] = true
		c.Profiles = append(c.Profiles, p)
	}
	for i := 1; i < len(c.Profiles) && len(r.errs) == 0; i++ {
		if a, b := sortOf(c.Profiles[0]), sortOf(c.Profiles[i]); a != b {
			r.fault(field.Invalid(path.Index(i).Child("plugins", "queueSort"), b, fmt.Sprintf("has to match for all profiles: the first has %q", a)))
		}
	}
	return c
}

func sortOf(p scheduler.Profile) string {
	for _, e := range p.Plugins.At(plugin.AtQueueSort) {
		return e.Name()
	}
	return ""
}

func (r *reader) seconds(v *int64, without int64, path *field.Path) time.Duration {
	if v == nil {
		v = &without
	}
	if *v <= 0 || *v > 1<<30 {
		r.fault(field.Invalid(path, *v, "must be greater than 0"))
	}
	return time.Duration(*v) * time.Second
}

func (r *reader) percent(v *int32, path *field.Path) int {
	if v == nil {
		return 0
	}
	if *v < 0 || *v > 100 {
		r.fault(field.Invalid(path, *v, "not in valid range [0-100]"))
	}
	return int(*v)
}

func (r *reader) election(l *leaderElection, path *field.Path) *Election {
	if l == nil {
		return nil
	}
	e := DefaultElection()
	if l.LeaderElect != nil {
		e.Elect = *l.LeaderElect
	}
	e.LeaseDuration = cmp.Or(l.LeaseDuration.Duration, e.LeaseDuration)
	e.RenewDeadline = cmp.Or(l.RenewDeadline.Duration, e.RenewDeadline)
	e.RetryPeriod = cmp.Or(l.RetryPeriod.Duration, e.RetryPeriod)
	e.Name, e.Namespace = cmp.Or(l.ResourceName, e.Name), cmp.Or(l.ResourceNamespace, e.Namespace)
	r.errs = append(r.errs, e.validate(path)...)
	if l.ResourceLock != "" && l.ResourceLock != "leases" {
		r.fault(field.NotSupported(path.Child("resourceLock"), l.ResourceLock, []string{"leases"}))
	}
	return &e
}

func (e Election) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"leaseDuration", e.LeaseDuration}, {"renewDeadline", e.RenewDeadline}, {"retryPeriod", e.RetryPeriod}} {
		if d.d <= 0 {
			errs = append(errs, field.Invalid(path.Child(d.name), d.d.String(), "must be greater than zero"))
		}
	}
	if e.LeaseDuration <= e.RenewDeadline {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), e.LeaseDuration.String(), "LeaseDuration must be greater than RenewDeadline"))
	}
	if e.RenewDeadline <= e.RetryPeriod {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), e.RenewDeadline.String(), "RenewDeadline must be greater than RetryPeriod"))
	}
	for _, msg := range validation.IsDNS1123Subdomain(e.Name) {
		errs = append(errs, field.Invalid(path.Child("resourceName"), e.Name, msg))
	}
	for _, msg := range validation.IsDNS1123Label(e.Namespace) {
		errs = append(errs, field.Invalid(path.Child("resourceNamespace"), e.Namespace, msg))
	}
	return errs
}

// extenders also returns the resources that the scheduler itself is not to look at.
func (r *reader) extenders(list []extend, path *field.Path) (all []scheduler.Extender, ignored []string) {
	binders := 0
	for i := range list {
		x, path := &list[i], path.Index(i)
		o := extender.Options{
			URL: x.URLPrefix, Filter: x.FilterVerb, Prioritize: x.PrioritizeVerb, Preempt: x.PreemptVerb, Bind: x.BindVerb,
			Weight: x.Weight, Timeout: x.HTTPTimeout.Duration, NamesOnly: x.NodeCacheCapable, Ignorable: x.Ignorable,
		}
		if x.PrioritizeVerb != "" && x.Weight <= 0 {
			r.fault(field.Invalid(path.Child("weight"), x.Weight, "must have a positive weight applied to it"))
		}
		if x.HTTPTimeout.Duration < 0 {
			r.fault(field.Invalid(path.Child("httpTimeout"), x.HTTPTimeout.Duration.String(), "must not be negative"))
		}
		if x.BindVerb != "" {
			if binders++; binders > 1 {
				r.fault(field.Invalid(path.Child("bindVerb"), x.BindVerb, "only one extender can implement bind"))
			}
		}
		seen := map[string]bool{}
		for j, m := range x.ManagedResources {
			if m.Name == "" {
				r.fault(field.Required(path.Child("managedResources").Index(j).Child("name"), "names an extended resource"))
			} else if msgs := validation.IsQualifiedName(m.Name); len(msgs) > 0 {
				r.fault(field.Invalid(path.Child("managedResources").Index(j).Child("name"), m.Name, msgs[0]))
			}
			if seen[m.Name] {
				r.fault(field.Duplicate(path.Child("managedResources").Index(j).Child("name"), m.Name))
			}
			seen[m.Name] = true
			o.Resources = append(o.Resources, corev1.ResourceName(m.Name))
			if m.IgnoredByScheduler {
				ignored = append(ignored, m.Name)
			}
		}
		if t := x.TLSConfig; t != nil {
			if !x.EnableHTTPS {
				r.fault(field.Invalid(path.Child("enableHTTPS"), false, "must be true where tlsConfig is given"))
			}
			r.tls(t, &o, path.Child("tlsConfig"))
		}
		e, err := extender.New(o)
		if err != nil {
			r.fault(field.Invalid(path.Child("urlPrefix"), x.URLPrefix, err.Error()))
			continue
		}
		if x.EnableHTTPS && !strings.HasPrefix(strings.ToLower(x.URLPrefix), "https:") {
			r.fault(field.Invalid(path.Child("urlPrefix"), x.URLPrefix, "must begin with https:// where enableHTTPS is true"))
		}
		all = append(all, e)
	}
	return all, ignored
}

func (r *reader) tls(t *extendTLS, o *extender.Options, path *field.Path) {
	read := func(data []byte, file, name string) []byte {
		if len(data) > 0 || file == "" {
			return data
		}
		data, err := os.ReadFile(file)
		if err != nil {
			r.fault(field.Invalid(path.Child(name), file, err.Error()))
		}
		return data
	}
	var err error
	o.TLS, err = extender.ClientTLS(read(t.CAData, t.CAFile, "caFile"), read(t.CertData, t.CertFile, "certFile"), read(t.KeyData, t.KeyFile, "keyFile"), t.ServerName, t.Insecure)
	if err != nil {
		r.fault(field.Invalid(path, field.OmitValueType{}, err.Error()))
	}
}
