package encryption

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures an [Encryption].
type Options struct {
	// Keys is the path of the file with the cluster's own keys. [Encryption.Save] makes it if there is none.
	Keys string

	// Config is the path of an EncryptionConfiguration, which says the encrypted resources instead of the file with the
	// cluster's own keys. Values that are encrypted with those keys can be read all the same. Empty means none.
	Config string

	// Reload makes [Encryption.Run] read Config again when it has changed. The own keys always are.
	Reload bool

	// Former says that keys which were removed from Keys, and are in a file beside it, decrypt as well: see [FormerFile].
	Former bool

	// Advice is the sentence of errors about missing keys that says what to do, without a full stop. Empty means the
	// one for the start of a cluster.
	Advice string

	// Changed is called by Run when values on disk may have to be encrypted again. It must not block. Required for Run.
	Changed func()

	Log *slog.Logger // nil means slog.Default
}

// An Encryption encrypts and decrypts the values of a store. It is safe for concurrent use.
type Encryption struct {
	opts  Options
	rules atomic.Pointer[rules]

	// Nothing is encrypted before the keys are known to be on disk.
	saved  atomic.Pointer[error] // nil: not tried yet
	unkept *configuration        // the new keys, until they are saved; nil: there are none

	texts [2][]byte // of the two files, as they are in use; those of Run while it runs

	mu    sync.Mutex
	uses  map[string]int // guarded by mu; opened values, by the head of the key
	stale int            // guarded by mu; opened values that would be written otherwise now

	resealed atomic.Int64
	failures atomic.Int64
}

// A LockedError is returned for a value that cannot be read with the keys that there are. Nothing is wrong with the value.
type LockedError struct{ Reason string }

func (e *LockedError) Error() string {
	return "the record cannot be decrypted: " + e.Reason
}

// New reads the configuration. A file that is not valid is an error that names the file. Nothing is written.
func New(o Options) (*Encryption, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	e := &Encryption{opts: o, uses: map[string]int{}}
	r, err := e.read(time.Now())
	if err != nil {
		return nil, err
	}
	for _, p := range r.plugins {
		p.patient.Store(true)
	}
	e.rules.Store(r)
	return e, nil
}

// read reads the files.
func (e *Encryption) read(now time.Time) (*rules, error) {
	c, text, saved, err := ownKeys(e.opts.Keys, now, cmp.Or(e.opts.Advice, "Restore the file from a backup; without it the Secrets of the cluster cannot be read"))
	if err != nil {
		return nil, err
	}
	if !saved && e.unkept == nil {
		e.unkept = c
	}
	own, err := c.build(e.opts.Keys, e.opts.Log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.opts.Keys, err)
	}
	e.texts[0] = text
	if e.opts.Former {
		if err := own.addFormer(FormerFile(e.opts.Keys), e.opts.Log); err != nil {
			return nil, err
		}
	}
	if e.opts.Config == "" {
		return own, nil
	}
	if e.texts[1] != nil && !e.opts.Reload {
		c, err = parse(e.opts.Config, e.texts[1]) // changes count from the next start on
	} else {
		c, e.texts[1], err = load(e.opts.Config)
	}
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	r, err := c.build(e.opts.Config, e.opts.Log)
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %s: %w", e.opts.Config, err)
	}
	r.add(own.keys...)
	return r, nil
}

// Save makes the file with the cluster's own keys if there is none, and removes from it the older ones that no value needed
// that was opened. Call it when all values were opened: before it nothing is encrypted. If it fails, values that have to be
// encrypted cannot be written.
func (e *Encryption) Save(ctx context.Context) error {
	var err error
	if e.unkept != nil {
		if e.texts[0], err = save(e.opts.Keys, e.unkept); err != nil {
			err = fmt.Errorf("saving the keys of the cluster: %w", err)
		} else {
			e.unkept = nil
		}
	} else {
		e.prune(ctx)
	}
	for _, p := range e.rules.Load().plugins {
		p.patient.Store(false)
	}
	e.saved.Store(&err)
	return err
}

// Use is [Encryption.Save] for a program that has not opened all values: it keeps all keys in the file.
func (e *Encryption) Use(ctx context.Context) error {
	if e.unkept != nil {
		return e.Save(ctx)
	}
	var err error
	e.saved.Store(&err)
	return nil
}

// prune removes own keys that are not used. It is not important: an error is logged.
func (e *Encryption) prune(ctx context.Context) {
	c, _, err := load(e.opts.Keys)
	if err != nil {
		return
	}
	own := c.own()
	if own == nil || len(own.Keys) < 2 {
		return
	}
	e.mu.Lock()
	used := func(k keyConfig) bool {
		for head := range e.uses {
			if strings.HasPrefix(head, prefix+"aesgcm:"+revision+":"+k.Name+":") {
				return true
			}
		}
		return false
	}
	var removed []keyConfig
	own.Keys = slices.Concat(own.Keys[:1], slices.DeleteFunc(slices.Clone(own.Keys[1:]), func(k keyConfig) bool {
		if used(k) {
			return false
		}
		removed = append(removed, k)
		return true
	}))
	e.mu.Unlock()
	if len(removed) == 0 {
		return
	}
	err = keepFormer(FormerFile(e.opts.Keys), removed)
	var text []byte
	if err == nil {
		text, err = save(e.opts.Keys, c)
	}
	if err != nil {
		e.opts.Log.WarnContext(ctx, "cannot remove keys that are no longer used", "file", e.opts.Keys, "err", err)
		return
	}
	e.texts[0] = text
	e.opts.Log.InfoContext(ctx, "removed keys that no record is encrypted with", "file", e.opts.Keys, "keys", keyNames(removed))
}

// Prime asks the KMS plug-ins for their keys, so that the first write does not fail. An error is logged, and Run tries again.
func (e *Encryption) Prime(ctx context.Context) {
	for _, p := range e.rules.Load().plugins {
		if err := p.check(ctx, 0); err != nil {
			e.opts.Log.WarnContext(ctx, "the plug-in of a KMS provider is not healthy", "name", p.name, "err", err)
		}
	}
}

// Seal returns the bytes to write for the value of a record. Its error is for the writer.
func (e *Encryption) Seal(record string, plain []byte) ([]byte, error) {
	rule := e.rules.Load().of(resourceOf(record))
	if rule.write == nil {
		return plain, nil
	}
	switch err := e.saved.Load(); {
	case err == nil:
		return nil, errors.New("the keys of the cluster are not saved yet")
	case *err != nil:
		return nil, *err
	}
	data, err := rule.write.seal(record, plain)
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", record, err)
	}
	return data, nil
}

// Open returns the value of a record, from its bytes. It is for the load of a store: it counts opened records. If keys
// are missing the error is a [*LockedError]. Any other error means that the record is damaged. It blocks while a KMS plug-in
// has to be asked.
func (e *Encryption) Open(record string, data []byte) ([]byte, error) {
	r := e.rules.Load()
	rule := r.of(resourceOf(record))
	plain, k, err := e.open(r, rule, record, data)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if k != nil {
		e.uses[k.head()]++
	}
	if outdated(rule, k, data) {
		e.stale++
	}
	return plain, nil
}

// Peek is [Encryption.Open] for a value that is no longer the one of its record: it counts nothing.
func (e *Encryption) Peek(record string, data []byte) ([]byte, error) {
	r := e.rules.Load()
	plain, _, err := e.open(r, r.of(resourceOf(record)), record, data)
	return plain, err
}

// outdated reports whether a value would be written in another way now.
func outdated(rule *rule, with key, data []byte) bool {
	switch {
	case rule.write == nil || with == nil:
		return rule.write != nil || with != nil
	case rule.write.head() != with.head():
		return true
	}
	return !rule.write.current(data)
}

// open decrypts a value. The key is nil if it was not encrypted.
func (e *Encryption) open(r *rules, rule *rule, record string, data []byte) ([]byte, key, error) {
	if !sealed(data) {
		if !rule.plain {
			return nil, nil, &LockedError{fmt.Sprintf(
				"it is not encrypted, and %s does not have the provider identity for this resource. Add identity as the last provider: `- identity: {}`. Nothing was changed", rule.source)}
		}
		return data, nil, nil
	}
	k := r.opener(data)
	if k == nil {
		return nil, nil, e.missing(r, data)
	}
	plain, err := k.open(record, data)
	return plain, k, err
}

// missing returns the error for a value whose key is not there.
func (e *Encryption) missing(r *rules, data []byte) error {
	provider, name := nameIn(data)
	files := e.opts.Keys
	if e.opts.Config != "" {
		files = e.opts.Config + " and " + e.opts.Keys
	}
	what := fmt.Sprintf("it is encrypted with the key %q of the provider %s, which is not in %s", name, provider, files)
	if slices.ContainsFunc(r.keys, func(k key) bool { return strings.HasPrefix(k.head(), prefix+provider+":"+revision+":"+name+":") }) {
		what = fmt.Sprintf("the key %q of the provider %s in %s is not the one that it is encrypted with", name, provider, files)
	}
	if e.unkept != nil {
		what += " (" + e.opts.Keys + " does not exist)"
	}
	advice := cmp.Or(e.opts.Advice, "Restore the file from a backup, or pass the one that has the key with --encryption-provider-config. Nothing was changed")
	return &LockedError{what + ". " + advice}
}

// Reseal returns the bytes to write when a record is copied on disk: its value, encrypted as it would be now. If that
// fails, which is logged, it returns the data that it was given.
func (e *Encryption) Reseal(record string, data []byte) []byte {
	r := e.rules.Load()
	rule := r.of(resourceOf(record))
	if rule.write == nil && !sealed(data) {
		return data
	}
	if err := e.saved.Load(); err == nil || *err != nil {
		return data
	}
	if rule.write != nil && bytes.HasPrefix(data, []byte(rule.write.head())) && rule.write.current(data) {
		return data
	}
	plain, _, err := e.open(r, rule, record, data)
	if err == nil {
		if rule.write == nil {
			e.resealed.Add(1)
			return plain
		}
		var out []byte
		if out, err = rule.write.seal(record, plain); err == nil {
			e.resealed.Add(1)
			return out
		}
	}
	if e.failures.Add(1) == 1 {
		e.opts.Log.Warn("cannot encrypt a record again; it stays as it is, and so may others", "record", record, "err", err)
	}
	return data
}

// Stale returns how many of the values that were opened would be written otherwise now.
func (e *Encryption) Stale() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stale
}

// Resealed returns how many values were encrypted again.
func (e *Encryption) Resealed() int64 { return e.resealed.Load() }

// HasPlugins reports whether a health check is of use: there are KMS providers, or may be after a change of the file.
func (e *Encryption) HasPlugins() bool {
	return len(e.rules.Load().plugins) > 0 || e.opts.Config != "" && e.opts.Reload
}

// Health returns an error if a KMS plug-in is not healthy. A result may be a few seconds old.
func (e *Encryption) Health(ctx context.Context) error {
	var errs []error
	for i, p := range e.rules.Load().plugins {
		if err := p.check(ctx, healthyFor); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Run follows the files and the KMS plug-ins until ctx ends. If the system cannot report changes of files, it logs that.
func (e *Encryption) Run(ctx context.Context) error {
	follow := func(r *rules) *run.Group {
		g := run.NewGroup(ctx, 0)
		for _, p := range r.plugins {
			g.Go(func(ctx context.Context) { p.run(ctx, e.opts.Changed) })
		}
		return g
	}
	current := follow(e.rules.Load())
	defer func() { current.Stop() }()
	files := []string{e.opts.Keys}
	if e.opts.Config != "" && e.opts.Reload {
		files = append(files, e.opts.Config)
	}
	err := filewatch.Follow(ctx, files, func() {
		r, err := e.reload(ctx)
		switch {
		case err != nil:
			e.opts.Log.ErrorContext(ctx, "cannot use the changed encryption configuration; the earlier one stays in use", "err", err)
		case r != nil:
			current.Stop()
			current = follow(r)
			e.opts.Log.InfoContext(ctx, "using the changed encryption configuration")
			e.opts.Changed()
		}
	})
	if err != nil { // such as too many users of inotify: everything else works
		e.opts.Log.WarnContext(ctx, "changes of the encryption configuration are not noticed before the next start", "err", err)
		<-ctx.Done()
	}
	return nil
}

// reloadTimeout is how long the KMS plug-ins of a changed file have to become healthy, at least; upstream's.
const reloadTimeout = 10 * time.Second

// reload uses the changed files, and returns nil if they have not changed.
func (e *Encryption) reload(ctx context.Context) (*rules, error) {
	before := e.texts
	if e.unkept != nil {
		return nil, nil // the file does not exist
	}
	r, err := e.read(time.Now())
	if e.unkept != nil { // the file has gone: its keys are in memory, and must not be replaced by new ones
		e.unkept, e.texts = nil, before
		return nil, fmt.Errorf("%s does not exist; restore it from a backup before the next start", e.opts.Keys)
	}
	if err != nil {
		e.texts = before
		return nil, err
	}
	if bytes.Equal(before[0], e.texts[0]) && bytes.Equal(before[1], e.texts[1]) {
		r.close()
		return nil, nil // nothing has changed
	}
	timed, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	for _, p := range r.plugins {
		for err := p.check(timed, 0); err != nil; err = p.check(timed, 0) {
			if !run.Pause(timed, 100*time.Millisecond) {
				r.close()
				e.texts = before
				return nil, fmt.Errorf("health check for new transformers failed: %w", err)
			}
		}
	}
	// Keys that are no longer in the files go on decrypting until the next start, by when nothing needs them.
	old := e.rules.Load()
	r.add(old.keys...)
	e.rules.Store(r)
	for _, p := range old.plugins {
		if !slices.Contains(r.keys, key(p)) {
			p.close() // another one has its name
		}
	}
	return r, nil
}
