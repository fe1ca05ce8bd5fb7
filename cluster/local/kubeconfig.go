package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/filelock"
	"github.com/sampan-io/sampan/wait"
)

// Credentials are the client certificate and key of a user of the cluster, and the CA certificate.
type Credentials struct {
	Server string // URL
	CA     []byte // PEM
	Cert   []byte // PEM
	Key    []byte // PEM
}

// KubeconfigOf returns a kubeconfig with one context.
func (p Profile) KubeconfigOf(c Credentials) *clientcmdapi.Config {
	name := p.Context()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.CA}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.Cert, ClientKeyData: c.Key}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	return cfg
}

// SaveKubeconfig writes the administrator's kubeconfig.
func (p Profile) SaveKubeconfig(c Credentials) error {
	data, err := clientcmd.Write(*p.KubeconfigOf(c))
	if err == nil {
		err = replace(p.Kubeconfig(), data)
	}
	if err != nil {
		return fmt.Errorf("writing the administrator's kubeconfig: %w", err)
	}
	return nil
}

// WithServer returns a kubeconfig with another URL of the API server in all of its clusters.
func WithServer(kubeconfig []byte, server string) ([]byte, error) {
	whole := server
	if !strings.Contains(server, "://") { // as clients understand it
		whole = "https://" + server
	}
	u, err := url.Parse(whole)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--server: must be a URL such as https://192.0.2.1:6443, got %q", server)
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16); err != nil || port == 0 {
		return nil, fmt.Errorf("--server: the port of %q must be 1 to 65535", server)
	}
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	for _, c := range cfg.Clusters {
		c.Server = u.String()
	}
	return clientcmd.Write(*cfg)
}

// SavedCredentials returns the credentials in the administrator's kubeconfig, or false if there is none
// that can be read.
func (p Profile) SavedCredentials() (Credentials, bool) {
	cfg, err := clientcmd.LoadFromFile(p.Kubeconfig())
	if err != nil {
		return Credentials{}, false
	}
	cluster, user := cfg.Clusters[p.Context()], cfg.AuthInfos[p.Context()]
	if cluster == nil || user == nil || cfg.Contexts[p.Context()] == nil || cfg.CurrentContext != p.Context() {
		return Credentials{}, false
	}
	return Credentials{
		Server: cluster.Server, CA: cluster.CertificateAuthorityData,
		Cert: user.ClientCertificateData, Key: user.ClientKeyData,
	}, true
}

// Merge writes the context of the profile into the user's kubeconfig (file, or
// if that is empty $KUBECONFIG or ~/.kube/config) and makes it the current context.
// Other contexts are not changed; the one that was current before is remembered, see
// [Profile.FormerContexts]. It blocks for up to a few seconds while another
// program writes the file, and returns the path of the file.
func (p Profile) Merge(ctx context.Context, file string) (string, error) {
	own, err := p.ownConfig()
	if err != nil {
		return "", err
	}
	former := ""
	written, err := modify(ctx, file, func(cfg *clientcmdapi.Config) (bool, error) {
		name := p.Context()
		open := tighten(kubeconfigPath(file))
		if cfg.CurrentContext == name && p.sameContext(cfg, own) {
			return false, nil // the file is not written for nothing: its disk may be full
		}
		if open != nil {
			return false, open
		}
		if cfg.CurrentContext != name {
			former = cfg.CurrentContext
		}
		p.putContext(cfg, own)
		cfg.CurrentContext = name
		return true, nil
	})
	if err == nil && former != "" {
		p.rememberContext(written, former)
	}
	return written, err
}

// MergeAll writes the contexts of several clusters into the user's kubeconfig as [Profile.Merge] does, at once: clientcmd
// writes the whole file for each context. The current context stays. If $KUBECONFIG lists several files, the contexts are
// written to the one that Merge writes to.
func MergeAll(ctx context.Context, all []Profile, file string) (string, error) {
	var own []*clientcmdapi.Config
	for _, p := range all {
		cfg, err := p.ownConfig()
		if err != nil {
			return "", err
		}
		own = append(own, cfg)
	}
	return edit(ctx, file, func(cfg *clientcmdapi.Config) (changed bool) {
		for i, p := range all {
			if !p.sameContext(cfg, own[i]) {
				p.putContext(cfg, own[i])
				changed = true
			}
		}
		return changed
	})
}

// ForgetAll takes the contexts of several clusters out of the file that [MergeAll] has written them to. If the current
// context is one of them, there is none then.
func ForgetAll(ctx context.Context, all []Profile, file string) error {
	_, err := edit(ctx, file, func(cfg *clientcmdapi.Config) (changed bool) {
		for _, p := range all {
			name := p.Context()
			changed = changed || cfg.Clusters[name] != nil || cfg.AuthInfos[name] != nil || cfg.Contexts[name] != nil
			delete(cfg.Clusters, name)
			delete(cfg.AuthInfos, name)
			delete(cfg.Contexts, name)
			if cfg.CurrentContext == name {
				cfg.CurrentContext, changed = "", true
			}
		}
		return changed
	})
	return err
}

// edit changes one file, the kubeconfig that is written, and returns its path. It blocks as [Profile.Merge] does.
func edit(ctx context.Context, file string, change func(*clientcmdapi.Config) bool) (string, error) {
	written := kubeconfigPath(file)
	defer takeTurns(filepath.Dir(written))()
	pace := wait.Pace{First: 10 * time.Millisecond, Limit: lockPatience}
	err := wait.Until(ctx, pace, func(context.Context) (bool, error) {
		unlock, err := lockKubeconfig(written)
		if errors.Is(err, fs.ErrExist) {
			return false, wait.NotYet(fmt.Errorf("writing the kubeconfig: %w: another program is writing it; remove the lock file if none is", err))
		}
		if err != nil {
			return false, fmt.Errorf("writing the kubeconfig: %w", err)
		}
		defer unlock()
		return true, editLocked(written, change)
	})
	return written, err
}

// editLocked changes a kubeconfig whose lock the caller has.
func editLocked(file string, change func(*clientcmdapi.Config) bool) error {
	if err := checkKubeconfig(file); err != nil {
		return err
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		cfg, err = clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	open := tighten(file)
	if !change(cfg) {
		return nil
	}
	if open != nil {
		return open
	}
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // a link stays one
	}
	if err := replace(file, data); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// lockKubeconfig locks a kubeconfig as clientcmd does: with a file beside it. The error is [fs.ErrExist] if another
// program has locked it.
func lockKubeconfig(file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // as kubectl makes it
		return nil, err
	}
	lock := file + ".lock"
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return nil, err
	}
	_ = f.Close()
	return func() { _ = os.Remove(lock) }, nil
}

// ownConfig returns the administrator's kubeconfig that the cluster has written.
func (p Profile) ownConfig() (*clientcmdapi.Config, error) {
	own, err := clientcmd.LoadFromFile(p.Kubeconfig())
	if err == nil && (own.Clusters[p.Context()] == nil || own.AuthInfos[p.Context()] == nil || own.Contexts[p.Context()] == nil) {
		err = fmt.Errorf("%s has no context %q", p.Kubeconfig(), p.Context())
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's credentials: %w", err)
	}
	return own, nil
}

// putContext puts the context of the profile into a kubeconfig.
func (p Profile) putContext(cfg, own *clientcmdapi.Config) {
	name := p.Context()
	cfg.Clusters[name] = own.Clusters[name]
	cfg.AuthInfos[name] = own.AuthInfos[name]
	cfg.Contexts[name] = own.Contexts[name]
	// clientcmd writes each of these back to where it came from.
	for _, origin := range []*string{&cfg.Clusters[name].LocationOfOrigin, &cfg.AuthInfos[name].LocationOfOrigin, &cfg.Contexts[name].LocationOfOrigin} {
		*origin = ""
	}
}

// tighten takes the permission to read a kubeconfig from all but its owner, before a key is written to it. One that is not
// there yet is made so. The path may be a symbolic link: the file behind it counts.
func tighten(file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	const others = 0o077
	mode := info.Mode().Perm()
	if mode&others == 0 {
		return nil
	}
	if err := os.Chmod(file, mode&^others); err != nil {
		return fmt.Errorf("%s is open to other users (mode %04o), and the administrator's key is not written to such a file: %w; run `chmod 600` on it, or pass another file with --kubeconfig", file, mode, err)
	}
	return nil
}

// FormerContexts are the contexts that were current before a cluster became the current one, by the path of the
// kubeconfig; the last one first.
type FormerContexts map[string][]string

func (p Profile) formerContextsFile() string { return filepath.Join(p.DataDir, "former-contexts.json") }

// FormerContexts returns what [Profile.Merge] has remembered. It is in the data directory, so read it before
// [Profile.Remove].
func (p Profile) FormerContexts() FormerContexts {
	var all FormerContexts
	_ = read(p.formerContextsFile(), &all) // without it no context becomes the current one, which is no fault
	return all
}

// rememberContext remembers the former context of a kubeconfig. The cluster does not depend on it: it is not an error
// if it cannot be written.
func (p Profile) rememberContext(file, former string) {
	if abs, err := filepath.Abs(file); err == nil {
		p.keepFormer(abs, append([]string{former}, p.FormerContexts()[abs]...))
	}
}

// keepFormer remembers the former contexts of a kubeconfig, each once and without the cluster's own.
func (p Profile) keepFormer(path string, contexts []string) {
	all := p.FormerContexts()
	if all == nil {
		all = FormerContexts{}
	}
	var kept []string
	for _, c := range contexts {
		if c != p.Context() && !slices.Contains(kept, c) {
			kept = append(kept, c)
		}
	}
	all[path] = kept
	if data, err := json.Marshal(all); err == nil {
		_ = replace(p.formerContextsFile(), data)
	}
}

// bequeath gives the former contexts of a cluster whose context is removed to the clusters that have that one as a
// former context.
func (p Profile) bequeath(path string, former []string) {
	clusters, _ := p.Clusters() // an unreadable cluster has no former contexts
	for _, c := range clusters {
		theirs := c.FormerContexts()[path]
		if i := slices.Index(theirs, p.Context()); i >= 0 {
			c.keepFormer(path, slices.Concat(theirs[:i], former, theirs[i+1:]))
		}
	}
}

// sameContext reports whether two kubeconfigs have the same for the context of the profile,
// wherever they were read from.
func (p Profile) sameContext(a, b *clientcmdapi.Config) bool {
	name := p.Context()
	parts := func(c *clientcmdapi.Config) []any {
		cluster, user, context := c.Clusters[name].DeepCopy(), c.AuthInfos[name].DeepCopy(), c.Contexts[name].DeepCopy()
		if cluster == nil || user == nil || context == nil {
			return nil
		}
		cluster.LocationOfOrigin, user.LocationOfOrigin, context.LocationOfOrigin = "", "", ""
		return []any{cluster, user, context}
	}
	return equality.Semantic.DeepEqual(parts(a), parts(b))
}

// Forget takes the context of the profile out of the user's kubeconfig. If it is the current one, the context that
// was current before becomes that again, or the last one before it that still exists. It blocks as [Profile.Merge]
// does.
func (p Profile) Forget(ctx context.Context, file string, former FormerContexts) error {
	var before []string
	if abs, err := filepath.Abs(kubeconfigPath(file)); err == nil {
		before = former[abs]
		p.bequeath(abs, before)
	}
	_, err := modify(ctx, file, func(cfg *clientcmdapi.Config) (bool, error) {
		name := p.Context()
		if cfg.Clusters[name] == nil && cfg.AuthInfos[name] == nil && cfg.Contexts[name] == nil && cfg.CurrentContext != name {
			return false, nil
		}
		delete(cfg.Clusters, name)
		delete(cfg.AuthInfos, name)
		delete(cfg.Contexts, name)
		if cfg.CurrentContext == name {
			cfg.CurrentContext = ""
			if i := slices.IndexFunc(before, func(c string) bool { return cfg.Contexts[c] != nil }); i >= 0 {
				cfg.CurrentContext = before[i]
			}
		}
		return true, nil
	})
	return err
}

// Mergeable reports a fault of the user's kubeconfig (see [Profile.Merge])
// so that nothing can be written to it. One that is not there yet is fine.
func Mergeable(file string) error {
	paths := clientcmd.NewDefaultPathOptions()
	paths.LoadingRules.ExplicitPath = file
	if _, err := paths.GetStartingConfig(); err != nil {
		return fmt.Errorf("reading the kubeconfig, to write the cluster's context: %w; repair it, or pass another file with --kubeconfig", err)
	}
	return nil
}

// lockPatience is how long another program (kubectl config, say) may take to write
// the kubeconfig, which is a matter of milliseconds.
const lockPatience = 5 * time.Second

// kubeconfigPath returns the path of the kubeconfig that is written.
func kubeconfigPath(file string) string {
	return cmp.Or(file, clientcmd.NewDefaultPathOptions().GetDefaultFilename())
}

// UserKubeconfig returns the absolute path of the user's kubeconfig, as [Profile.Merge] takes it.
func UserKubeconfig(file string) (string, error) { return filepath.Abs(kubeconfigPath(file)) }

// modify changes the kubeconfig, unless change says that there is nothing to, or returns an error. Programs like this
// one take turns; the lock of others is a file, so there is nothing to wait on but the clock.
func modify(ctx context.Context, file string, change func(*clientcmdapi.Config) (bool, error)) (string, error) {
	paths := clientcmd.NewDefaultPathOptions()
	paths.LoadingRules.ExplicitPath = file
	written := kubeconfigPath(file)
	defer takeTurns(filepath.Dir(written))()
	pace := wait.Pace{First: 10 * time.Millisecond, Limit: lockPatience}
	err := wait.Until(ctx, pace, func(context.Context) (bool, error) {
		cfg, err := paths.GetStartingConfig()
		if err != nil {
			return false, fmt.Errorf("reading the kubeconfig: %w", err)
		}
		if changed, err := change(cfg); err != nil || !changed {
			return true, err
		}
		if err := checkKubeconfig(written); err != nil {
			return false, err
		}
		err = clientcmd.ModifyConfig(paths, *cfg, false)
		if errors.Is(err, fs.ErrExist) {
			return false, wait.NotYet(fmt.Errorf("writing the kubeconfig: %w: another program is writing it; remove the lock file if none is", err))
		}
		if err != nil {
			return false, fmt.Errorf("writing the kubeconfig: %w", err)
		}
		return true, nil
	})
	return written, err
}

// checkKubeconfig returns an error for a file that would lose data: clientcmd reads any YAML as a kubeconfig without
// contexts, and overwrites it.
func checkKubeconfig(file string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err == nil {
		for _, name := range []string{"apiVersion", "kind", "clusters", "contexts", "users", "current-context", "preferences", "extensions"} {
			if _, ok := fields[name]; ok {
				return nil
			}
		}
	}
	return fmt.Errorf("%s is not a kubeconfig, and is left as it is: move it away, or pass another file with --kubeconfig", file)
}

// takeTurns blocks while another program like this one changes a kubeconfig in the
// directory: without that, one of two that read it at the same time would undo
// the other's changes. Where a lock cannot be had, on some network file systems, it is as
// without one; whether there is anything to write, and can be, is not said here.
func takeTurns(dir string) (release func()) {
	_ = os.MkdirAll(dir, 0o755) // as kubectl makes it
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	_ = filelock.Lock(d)
	return func() { _ = d.Close() }
}
