package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/oidc"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/run"
)

// frontProxyClient is the name in the certificate with which the API server calls servers of aggregated APIs.
const frontProxyClient = "front-proxy-client"

// credentials are by what users and other programs are known, beside the authority of the cluster.
type credentials struct {
	tokens  *auth.Tokens
	issuers *oidc.Verifier
	proxy   *auth.FrontProxy
	headers auth.FrontProxyOptions
	proxies *proxyCAs
	used    chan *corev1.Secret // whose legacy tokens were used
}

// proxyCAs are the authorities of front proxies: the cluster's own and those of a file.
type proxyCAs struct {
	own   *pki.Authority
	extra []byte // PEM

	mu   sync.Mutex
	of   *x509.CertPool // guarded by mu; the pool of own when pool was made
	pool *x509.CertPool // guarded by mu
}

// Pool returns the same pool until something changes.
func (p *proxyCAs) Pool() *x509.CertPool {
	own := p.own.Pool()
	if len(p.extra) == 0 {
		return own
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of != own {
		p.of, p.pool = own, own.Clone()
		p.pool.AppendCertsFromPEM(p.extra)
	}
	return p.pool
}

// CertificatePEM returns the certificates of all.
func (p *proxyCAs) CertificatePEM() []byte { return append(p.own.CertificatePEM(), p.extra...) }

// newCredentials reads the files of the settings. The error names the flag or the field that is wrong.
func (c *cluster) newCredentials(objects auth.Lookup) (*credentials, error) {
	k := &credentials{used: make(chan *corev1.Secret, 64), proxies: &proxyCAs{own: c.frontProxy}}
	issuer := "https://kubernetes.default.svc." + c.domain()
	if c.alone != nil {
		issuer = c.alone.Issuer
	}
	var err error
	k.tokens, err = auth.NewTokens(auth.TokensOptions{
		Key: c.tokenKeys.Key, Former: c.tokenKeys.Former, Objects: objects, Issuer: issuer,
		Used: func(s *corev1.Secret) {
			select {
			case k.used <- s:
			default: // the next use records it
			}
		},
	})
	if err != nil {
		return nil, err
	}
	s := c.Settings.Authentication
	flags := oidc.Flags(s.OIDC)
	options := oidc.Options{File: s.Config, Disallowed: []string{issuer}, Log: c.Log}
	if options.Config, err = flags.Config(); err != nil {
		return nil, err
	}
	if k.issuers, err = oidc.New(options); err != nil {
		if s.Config != "" {
			err = fmt.Errorf("--authentication-config: %w", err)
		}
		return nil, err
	}
	if k.issuers.Anonymous() != nil && s.Anonymous != nil {
		return nil, errors.New("anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
	}
	if err := k.readRequestHeader(s.RequestHeader, c.authority); err != nil {
		return nil, err
	}
	k.proxy, err = auth.NewFrontProxy(k.headers)
	return k, err
}

// readRequestHeader fills in the settings of front proxies.
func (k *credentials) readRequestHeader(r local.RequestHeader, clients *pki.Authority) error {
	if r.ClientCAFile != "" {
		data, err := os.ReadFile(r.ClientCAFile)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
			err = fmt.Errorf("%s contains no certificate", r.ClientCAFile)
		}
		if err != nil {
			return fmt.Errorf("--requestheader-client-ca-file: %w", err)
		}
		if len(r.AllowedNames) == 0 && bytes.Contains(data, bytes.TrimSpace(clients.CertificatePEM())) {
			return errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")
		}
		k.proxies.extra = data
	}
	names := append(slices.Clone(r.AllowedNames), frontProxyClient)
	if r.ClientCAFile != "" && len(r.AllowedNames) == 0 {
		names = nil // any
	}
	or := func(given []string, standard string) []string {
		if len(given) > 0 {
			return given
		}
		return []string{standard}
	}
	k.headers = auth.FrontProxyOptions{
		ClientCAs: k.proxies.Pool, AllowedNames: names,
		UsernameHeaders: or(r.UsernameHeaders, "X-Remote-User"), UIDHeaders: or(r.UIDHeaders, "X-Remote-Uid"),
		GroupHeaders: or(r.GroupHeaders, "X-Remote-Group"), ExtraHeaderPrefixes: or(r.ExtraHeaderPrefixes, "X-Remote-Extra-"),
	}
	return nil
}

// anonymous returns which requests without credentials are served.
func (k *credentials) anonymous(s local.Authentication) auth.AnonymousAccess {
	if a := k.issuers.Anonymous(); a != nil {
		access := auth.AnonymousAccess{Disabled: !a.Enabled}
		for _, c := range a.Conditions {
			access.Paths = append(access.Paths, c.Path)
		}
		return access
	}
	return auth.AnonymousAccess{Disabled: s.Anonymous != nil && !*s.Anonymous}
}

// published is the contents of the ConfigMap extension-apiserver-authentication.
func (c *cluster) published(k *credentials) map[string]string {
	list := func(values []string) string {
		data, err := json.Marshal(append([]string{}, values...))
		if err != nil {
			panic(err) // strings always have a JSON form
		}
		return string(data)
	}
	return map[string]string{
		"client-ca-file":                     string(append(c.authority.CertificatePEM(), c.alone.clientCA()...)),
		"requestheader-client-ca-file":       string(k.proxies.CertificatePEM()),
		"requestheader-allowed-names":        list(k.headers.AllowedNames),
		"requestheader-username-headers":     list(k.headers.UsernameHeaders),
		"requestheader-uid-headers":          list(k.headers.UIDHeaders),
		"requestheader-group-headers":        list(k.headers.GroupHeaders),
		"requestheader-extra-headers-prefix": list(k.headers.ExtraHeaderPrefixes),
	}
}

func (c *cluster) pkiDir() string { return filepath.Join(c.Profile.DataDir, "pki") }

// credentialTasks returns the parts that keep keys, certificates and the administrator's kubeconfig valid, and follow
// changes of their files.
func (c *cluster) credentialTasks(p *controlPlane) run.Stage {
	changed := run.NewBell()
	notify := func() {
		changed.Ring()
	}
	c.authority.OnChange(notify)
	c.authority.OnChange(p.bootstrap.Refresh)
	c.frontProxy.OnChange(p.bootstrap.Refresh)
	stage := run.Stage{
		{Name: "certificates", Run: func(ctx context.Context) error {
			c.keepCertificates(ctx, p.url(), changed)
			return nil
		}},
		{Name: "files of keys", Run: func(ctx context.Context) error {
			var files []string
			for _, name := range []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"} {
				files = append(files, filepath.Join(c.pkiDir(), name))
			}
			if err := filewatch.Follow(ctx, files, func() { c.reloadKeys(ctx, p.credentials.tokens) }); err != nil {
				c.Log.WarnContext(ctx, "keys that are replaced by hand are read at the next start only", "err", err)
				<-ctx.Done()
			}
			return nil
		}},
		{Name: "use of tokens in secrets", Run: func(ctx context.Context) error {
			c.recordUse(ctx, p)
			return nil
		}},
	}
	if c.Settings.Authentication.Config != "" {
		stage = append(stage, run.Task{Name: "authentication configuration", Run: p.credentials.issuers.Run})
	}
	return stage
}

// retryKeys is the pause after keys could not be written, such as to a full disk.
const retryKeys = time.Hour

// keepCertificates replaces what is about to expire, and writes the kubeconfig when that or the authority changes.
func (c *cluster) keepCertificates(ctx context.Context, url string, changed <-chan struct{}) {
	for {
		next, err := c.maintain(url, time.Now())
		if err != nil {
			c.Log.ErrorContext(ctx, "cannot renew keys and certificates", "err", err)
			next = time.Now().Add(retryKeys)
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// maintain does the work that is due, and returns when the next is.
func (c *cluster) maintain(url string, now time.Time) (time.Time, error) {
	ca, err := c.authority.Maintain(now)
	proxy, proxyErr := c.frontProxy.Maintain(now)
	key, keyErr := pki.MaintainTokenKey(c.pkiDir(), now)
	due, kubeconfigErr := c.renewKubeconfig(url, now)
	return slices.MinFunc([]time.Time{ca, proxy, key, due}, time.Time.Compare), errors.Join(err, proxyErr, keyErr, kubeconfigErr)
}

// renewKubeconfig writes the administrator's kubeconfig if that is due, and returns when it is next.
func (c *cluster) renewKubeconfig(url string, now time.Time) (time.Time, error) {
	if err := c.writeKubeconfig(url, now); err != nil {
		return time.Time{}, err
	}
	saved, _ := c.Profile.SavedCredentials()
	due := pki.Renewable(saved.Cert)
	if !due.After(now) {
		return time.Time{}, fmt.Errorf("%s has no valid certificate", c.Profile.Kubeconfig())
	}
	return due, nil
}

// reloadKeys reads the files of keys again.
func (c *cluster) reloadKeys(ctx context.Context, tokens *auth.Tokens) {
	for name, a := range map[string]*pki.Authority{"ca.crt": c.authority, "front-proxy-ca.crt": c.frontProxy} {
		switch changed, err := a.Reload(time.Now()); {
		case err != nil:
			c.Log.ErrorContext(ctx, "the authority is not changed: its files have errors", "file", name, "err", err)
		case changed:
			c.Log.InfoContext(ctx, "the certificates of an authority have changed", "file", name)
		}
	}
	keys, err := pki.OpenTokenKeys(c.pkiDir())
	if err == nil && !keys.Equal(c.tokenKeys) {
		if err = tokens.SetKeys(keys.Key, keys.Former); err == nil {
			c.tokenKeys = keys
			c.Log.InfoContext(ctx, "the keys of tokens have changed", "accepted", 1+len(keys.Former))
		}
	}
	if err != nil {
		c.Log.ErrorContext(ctx, "the keys of tokens are not changed: their files have errors", "err", err)
	}
}

// recordUse labels Secrets whose tokens are used, once a day.
func (c *cluster) recordUse(ctx context.Context, p *controlPlane) {
	api := p.as("system:apiserver", auth.GroupMasters)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-p.credentials.used:
			now, err := client.Secrets.Get(ctx, api, s.Namespace, s.Name)
			if err != nil || now.UID != s.UID {
				continue
			}
			today, needed := auth.MarkUsed(now, time.Now())
			if !needed {
				continue
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid": now.UID, "labels": map[string]string{auth.LegacyLastUsedLabel: today},
			}})
			if err == nil {
				_, err = client.Secrets.Patch(ctx, api, s.Namespace, s.Name, types.MergePatchType, patch, "")
			}
			if err != nil && ctx.Err() == nil {
				c.Log.WarnContext(ctx, "failed to label legacy service account token with last-used date", "secret", cmp.Or(s.Namespace, "?")+"/"+s.Name, "err", err)
			}
		}
	}
}
