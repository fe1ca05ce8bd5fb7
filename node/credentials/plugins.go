package credentials

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kubelet/config/v1"
	pluginv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/sampan-io/sampan/internal/document"
	"github.com/sampan-io/sampan/internal/oomscore"
)

const (
	group = "credentialprovider.kubelet.k8s.io"

	// pluginTime bounds one run of a plug-in, as in kubelets.
	pluginTime = time.Minute
	// pluginOutput bounds what a plug-in may write, in bytes.
	pluginOutput = 1 << 20
	// mostCached bounds the answers that are kept of one plug-in, and the tokens for it.
	mostCached = 1000
)

// Plugins are the credential provider plug-ins of a node. They are safe for concurrent use.
type Plugins struct {
	list    []*plugin
	metrics metrics
}

// A plugin is one program that provides credentials.
type plugin struct {
	configv1.CredentialProvider
	program string
	log     *slog.Logger
	now     func() time.Time
	took    prometheus.Observer
	failed  prometheus.Counter

	mu     sync.Mutex
	turns  map[string]*turn // guarded by mu; the runs that are under way, by image and identity
	cache  kept[*Keyring]   // guarded by mu; answers for an identity, by image, registry or everything
	tokens kept[string]     // guarded by mu; by pod and service account
}

// A turn is a run of a program, whose result all who ask meanwhile share.
type turn struct {
	done chan struct{} // closed when the run has ended
	keys *Keyring
	err  error
}

// kept are values that are kept for a time, at most mostCached.
type kept[V any] map[string]lasting[V]

type lasting[V any] struct {
	value V
	until time.Time
}

func (k kept[V]) get(key string, now time.Time) (V, bool) {
	l, ok := k[key]
	return l.value, ok && now.Before(l.until)
}

func (k kept[V]) put(key string, value V, now, until time.Time) {
	if len(k) >= mostCached {
		for other, l := range k {
			if len(k) >= mostCached || !now.Before(l.until) {
				delete(k, other)
			}
		}
	}
	k[key] = lasting[V]{value, until}
}

// Load reads the configuration of plug-ins from a file, or from the files *.json, *.yaml and *.yml in a directory. The
// programs are in the directory bin. The errors name the file and the field.
func Load(config, bin string, log *slog.Logger) (*Plugins, error) {
	files, err := configFiles(config)
	if err != nil {
		return nil, fmt.Errorf("image credential providers: %w", err)
	}
	p := &Plugins{metrics: newMetrics()}
	seen := map[string]bool{}
	sum := sha256.New()
	for _, file := range files {
		providers, err := read(file, sum)
		if err != nil {
			return nil, fmt.Errorf("image credential providers: %w", err)
		}
		for _, c := range providers {
			if seen[c.Name] {
				return nil, fmt.Errorf("image credential providers: %s: more than one provider has the name %q", file, c.Name)
			}
			seen[c.Name] = true
			program, err := exec.LookPath(filepath.Join(bin, c.Name))
			if err != nil {
				return nil, fmt.Errorf("image credential providers: program of provider %q: %w", c.Name, err)
			}
			p.list = append(p.list, &plugin{
				CredentialProvider: c, program: program, log: log, now: time.Now,
				turns: map[string]*turn{}, cache: kept[*Keyring]{}, tokens: kept[string]{},
				took: p.metrics.duration.WithLabelValues(c.Name), failed: p.metrics.errors.WithLabelValues(c.Name),
			})
		}
	}
	p.metrics.config.WithLabelValues("sha256:" + hex.EncodeToString(sum.Sum(nil))).Set(1)
	return p, nil
}

func configFiles(config string) ([]string, error) {
	info, err := os.Stat(config)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{config}, nil
	}
	entries, err := os.ReadDir(config) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, ext) {
			files = append(files, filepath.Join(config, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("directory %s has no file *.json, *.yaml or *.yml", config)
	}
	return files, nil
}

// read reads one file, and writes it to sum.
func read(file string, sum io.Writer) ([]configv1.CredentialProvider, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, _ = sum.Write(text)
	doc, err := document.Parse(file, text)
	if err != nil {
		return nil, err
	}
	var c configv1.CredentialProviderConfig
	if err := doc.Decode(&c); err != nil {
		return nil, err
	}
	var faults field.ErrorList
	if c.Kind != "CredentialProviderConfig" {
		faults = append(faults, field.NotSupported(field.NewPath("kind"), c.Kind, []string{"CredentialProviderConfig"}))
	}
	// The three versions have the same fields.
	if versions := []string{"kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"}; !slices.Contains(versions, c.APIVersion) {
		faults = append(faults, field.NotSupported(field.NewPath("apiVersion"), c.APIVersion, versions))
	}
	if len(c.Providers) == 0 {
		faults = append(faults, field.Required(field.NewPath("providers"), "at least one is needed"))
	}
	for i := range c.Providers {
		faults = append(faults, check(&c.Providers[i], field.NewPath("providers").Index(i))...)
	}
	return c.Providers, doc.Faults(faults)
}

func check(p *configv1.CredentialProvider, at *field.Path) (faults field.ErrorList) {
	if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ ") {
		faults = append(faults, field.Invalid(at.Child("name"), p.Name, "must be the name of a file, without '/' and spaces"))
	}
	versions := []string{group + "/v1", group + "/v1beta1", group + "/v1alpha1"}
	if !slices.Contains(versions, p.APIVersion) {
		faults = append(faults, field.NotSupported(at.Child("apiVersion"), p.APIVersion, versions))
	}
	if len(p.MatchImages) == 0 {
		faults = append(faults, field.Required(at.Child("matchImages"), "at least one is needed"))
	}
	switch {
	case p.DefaultCacheDuration == nil:
		faults = append(faults, field.Required(at.Child("defaultCacheDuration"), ""))
	case p.DefaultCacheDuration.Duration < 0:
		faults = append(faults, field.Invalid(at.Child("defaultCacheDuration"), p.DefaultCacheDuration.Duration.String(), "must be >= 0"))
	}
	return append(faults, checkTokenAttributes(p, at.Child("tokenAttributes"))...)
}

// Lookup returns the credentials that the plug-ins have for an image of a pod, and its repository. A plug-in that fails has none; the
// failure is logged. The error joins those about service accounts and their tokens, which are for the users of the pod's namespace;
// those of the programs may not be.
func (p *Plugins) Lookup(ctx context.Context, image, repository string, pod Pod, accounts Accounts) ([]Credential, error) {
	if p == nil {
		return nil, nil
	}
	var found []Credential
	var errs []error
	for _, one := range p.list {
		if !slices.ContainsFunc(one.MatchImages, func(pattern string) bool { return Matches(pattern, repository) }) {
			continue
		}
		id, runs, err := one.identify(ctx, pod, accounts)
		if err == nil && !runs {
			continue
		}
		var keys *Keyring
		if err == nil {
			keys, err = one.provide(ctx, repository, id)
		} else {
			errs = append(errs, fmt.Errorf("credential provider plug-in %s: %w", one.Name, err))
		}
		if err != nil {
			one.log.Error("credential provider plug-in failed", "plugin", one.Name, "image", image,
				"namespace", pod.Namespace, "pod", pod.Name, "serviceAccount", pod.ServiceAccount, "err", err)
			continue
		}
		found = append(found, keys.Lookup(repository)...)
	}
	return found, errors.Join(errs...)
}

// provide returns what the plug-in says about an image to an identity. Only one run for the two is under way at a time.
func (p *plugin) provide(ctx context.Context, image string, id identity) (*Keyring, error) {
	key := image + id.key
	for {
		p.mu.Lock()
		if keys := p.cached(image, id); keys != nil {
			p.mu.Unlock()
			return keys, nil
		}
		other := p.turns[key]
		if other == nil {
			break
		}
		p.mu.Unlock()
		select {
		case <-other.done:
			if !errors.Is(other.err, context.Canceled) { // the pod of that run has ended
				return other.keys, other.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	own := &turn{done: make(chan struct{}), err: errors.New("the run of the plug-in was cut off")}
	p.turns[key] = own
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.turns, key)
		p.mu.Unlock()
		close(own.done)
	}()
	own.keys, own.err = p.ask(ctx, image, id)
	return own.keys, own.err
}

// ask runs the program, and keeps its answer.
func (p *plugin) ask(ctx context.Context, image string, id identity) (*Keyring, error) {
	began := p.now()
	res, err := p.run(ctx, image, id)
	p.took.Observe(p.now().Sub(began).Seconds())
	if err != nil {
		p.failed.Inc()
		return nil, err
	}
	if err := p.echoed(id, res); err != nil {
		return nil, err
	}
	keys := &Keyring{}
	for at, a := range res.Auth {
		c := credential(a.Username, a.Password, "", Source{})
		c.ServiceAccount = id.account
		keys.put(strings.TrimPrefix(strings.TrimPrefix(at, "https://"), "http://"), c)
	}
	return keys, p.keep(image, id, res, keys)
}

// cacheKeys are the keys under which answers about an image to an identity may be kept.
func cacheKeys(image string, id identity) map[pluginv1.PluginCacheKeyType]string {
	registry, _, _ := strings.Cut(image, "/")
	return map[pluginv1.PluginCacheKeyType]string{
		pluginv1.ImagePluginCacheKeyType: "image " + image + id.key, pluginv1.RegistryPluginCacheKeyType: "registry " + registry + id.key,
		pluginv1.GlobalPluginCacheKeyType: "all " + id.key,
	}
}

// cached returns a kept answer. The caller holds mu.
func (p *plugin) cached(image string, id identity) *Keyring {
	keys := cacheKeys(image, id)
	for _, kind := range []pluginv1.PluginCacheKeyType{pluginv1.ImagePluginCacheKeyType, pluginv1.RegistryPluginCacheKeyType, pluginv1.GlobalPluginCacheKeyType} {
		if answer, ok := p.cache.get(keys[kind], p.now()); ok {
			return answer
		}
	}
	return nil
}

// keep keeps an answer as long as it says, or else as the configuration says.
func (p *plugin) keep(image string, id identity, res *pluginv1.CredentialProviderResponse, keys *Keyring) error {
	key, ok := cacheKeys(image, id)[res.CacheKeyType]
	if !ok {
		return fmt.Errorf("cacheKeyType: must be Image, Registry or Global, got %q", res.CacheKeyType)
	}
	duration := cmp.Or(res.CacheDuration, p.DefaultCacheDuration).Duration
	if duration <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.cache.put(key, keys, now, now.Add(duration))
	return nil
}

// run runs the program: the request is its standard input, the response its standard output. Only its
// standard error gets into an error.
func (p *plugin) run(ctx context.Context, image string, id identity) (*pluginv1.CredentialProviderResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	request, err := json.Marshal(pluginv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.APIVersion, Kind: "CredentialProviderRequest"},
		Image:    image, ServiceAccountToken: id.token, ServiceAccountAnnotations: id.annotations,
	})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, p.program, p.Args...) // the administrator's program
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &limited{to: &out, left: pluginOutput, strict: true}, &limited{to: &errs, left: 4 << 10}
	cmd.Env = os.Environ()
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	// A program that does not end in time ends with all that it has started: it is tried again and again.
	endTogether(cmd)
	cmd.WaitDelay = time.Second // for a child that keeps its output open
	if err := oomscore.Run(cmd); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	var res pluginv1.CredentialProviderResponse
	if json.Unmarshal(out.Bytes(), &res) != nil {
		return nil, errors.New("its output is not a CredentialProviderResponse") // without the output, which may have credentials
	}
	if res.APIVersion != p.APIVersion || res.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("its output is a %.50q of version %.50q; want CredentialProviderResponse of version %s", res.Kind, res.APIVersion, p.APIVersion)
	}
	return &res, nil
}

// limited passes at most left bytes on. More is a failure if it is strict, and dropped otherwise.
type limited struct {
	to     io.Writer
	left   int
	strict bool
}

func (l *limited) Write(data []byte) (int, error) {
	if len(data) > l.left && l.strict {
		return 0, fmt.Errorf("more than %d bytes of output", pluginOutput)
	}
	n := min(len(data), l.left)
	l.left -= n
	if _, err := l.to.Write(data[:n]); err != nil {
		return 0, err
	}
	return len(data), nil
}
