package oidc

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/internal/filewatch"
)

// Options configures a [Verifier].
type Options struct {
	// File is the path of an AuthenticationConfiguration. It is read by New, and again when it changes. Empty means Config.
	File   string
	Config *Config

	// Disallowed are issuers that have tokens of their own kind, such as this cluster.
	Disallowed []string

	Log *slog.Logger // nil means slog.Default
}

// A Verifier verifies the tokens of the configured issuers. It is safe for concurrent use.
type Verifier struct {
	opts    Options
	first   *Config // at the start
	data    []byte  // of the file when it was last read
	issuers atomic.Pointer[map[string]*issuer]

	mu    sync.Mutex
	known map[[sha256.Size]byte]verified // guarded by mu
}

// verified is the user of a token, which need not be verified again for a while.
type verified struct {
	by    *issuer
	user  *auth.User
	until time.Time
}

const (
	remember = 10 * time.Second // how long a good token is not verified again, as upstream
	maxKnown = 1024             // tokens
)

// New returns a verifier, or an error that names the fault in the configuration. It does not connect to an issuer.
func New(opts Options) (*Verifier, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	v := &Verifier{opts: opts, known: map[[sha256.Size]byte]verified{}}
	c := opts.Config
	if opts.File != "" {
		var err error
		if v.data, err = os.ReadFile(opts.File); err == nil {
			c, err = ParseConfig(opts.File, v.data)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to load authentication configuration: %w", err)
		}
	}
	if c == nil {
		c = &Config{}
	}
	v.first = c
	issuers, errs := c.compile(opts.Disallowed)
	if err := errs.ToAggregate(); err != nil {
		return nil, fmt.Errorf("invalid authentication configuration: %w", err)
	}
	v.use(issuers)
	return v, nil
}

// Anonymous returns the configuration of requests without credentials, or nil. It does not change.
func (v *Verifier) Anonymous() *Anonymous { return v.first.Anonymous }

// use replaces the issuers. Keys of an issuer whose configuration is as before stay.
func (v *Verifier) use(issuers []*issuer) {
	byURL := make(map[string]*issuer, len(issuers))
	before := v.issuers.Load()
	for _, is := range issuers {
		if before != nil {
			if old := (*before)[is.config.Issuer.URL]; old != nil && reflect.DeepEqual(old.config.Issuer, is.config.Issuer) {
				is.keys = old.keys
			}
		}
		byURL[is.config.Issuer.URL] = is
	}
	v.issuers.Store(&byURL)
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.known)
}

// Verify returns the user of a token of that issuer, or an Unauthorized status error. It returns nil and no error if the
// issuer is not configured.
func (v *Verifier) Verify(ctx context.Context, issuer, token string) (*auth.User, error) {
	is := (*v.issuers.Load())[canonical(issuer)]
	if is == nil {
		return nil, nil
	}
	sum, now := sha256.Sum256([]byte(token)), time.Now()
	v.mu.Lock()
	known, ok := v.known[sum]
	v.mu.Unlock()
	if ok && known.by == is && now.Before(known.until) {
		return known.user, nil
	}
	u, expires, err := is.verify(ctx, token, now)
	if err != nil {
		return nil, apierrors.NewUnauthorized(err.Error())
	}
	if u.Name != auth.Anonymous && !u.In(auth.GroupUnauthenticated) && !u.In(auth.GroupAuthenticated) {
		u.Groups = append(slices.Clip(u.Groups), auth.GroupAuthenticated)
	}
	if until := now.Add(remember); expires.After(until) {
		expires = until
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxKnown {
		clear(v.known)
	}
	v.known[sum] = verified{is, u, expires}
	return u, nil
}

// Run follows the file until ctx is cancelled, then returns nil. A file with errors changes nothing.
func (v *Verifier) Run(ctx context.Context) error {
	if v.opts.File == "" {
		<-ctx.Done()
		return nil
	}
	err := filewatch.Follow(ctx, []string{v.opts.File}, func() { v.reload(ctx) })
	if err != nil {
		v.opts.Log.ErrorContext(ctx, "changes of the authentication configuration count at the next start only", "file", v.opts.File, "err", err)
		<-ctx.Done()
	}
	return nil
}

// reload reads the file again.
func (v *Verifier) reload(ctx context.Context) {
	data, err := os.ReadFile(v.opts.File)
	if err == nil && slices.Equal(data, v.data) {
		return
	}
	var c *Config
	if err == nil {
		v.data = data
		c, err = ParseConfig(v.opts.File, data)
	}
	if err == nil {
		err = v.change(c)
	}
	if err != nil {
		v.opts.Log.ErrorContext(ctx, "the authentication configuration is not changed: the file has errors", "file", v.opts.File, "err", err)
		return
	}
	v.opts.Log.InfoContext(ctx, "reloaded authentication config", "file", v.opts.File, "issuers", len(c.JWT))
}

// change replaces the configuration of the issuers.
func (v *Verifier) change(c *Config) error {
	issuers, errs := c.compile(v.opts.Disallowed)
	if !reflect.DeepEqual(c.Anonymous, v.first.Anonymous) {
		errs = append(errs, field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file"))
	}
	if err := errs.ToAggregate(); err != nil {
		return err
	}
	v.use(issuers)
	return nil
}
