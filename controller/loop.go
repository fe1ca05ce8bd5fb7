package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
)

// pauses are the pauses before a key that failed is tried again.
var pauses = run.Backoff{First: 20 * time.Millisecond, Max: 2 * time.Minute}

// A Key names the object that a reconcile is about. The namespace is empty for
// cluster-scoped objects.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", or only the name if there is no namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// KeyOf returns the key of an object.
func KeyOf(obj metav1.Object) Key { return Key{obj.GetNamespace(), obj.GetName()} }

// A Result is the outcome of a reconcile that did not fail.
type Result struct {
	// After is when to reconcile the key again even if there is no event; 0 means not at all. It replaces the time that an
	// earlier reconcile of the key returned.
	After time.Duration
}

// Options configures a [Loop]. Name and Reconcile are required.
type Options struct {
	Name string // as it appears in logs

	// Reconcile brings the key's object to its wanted state. It reads its own
	// writes, see the package comment.
	Reconcile func(ctx context.Context, key Key) (Result, error)

	// Object returns the object of a key as the cache has it, or nil. With it and Quarantine, an object that ended an earlier
	// process while it was reconciled is left alone until it is changed. Both may be nil.
	Object     func(Key) client.Object
	Quarantine *quarantine.Quarantine

	Workers int               // keys worked on at the same time; 0 means 4
	Needs   []<-chan struct{} // must be ready before work begins (caches)
	Log     *slog.Logger      // nil means slog.Default
}

// A Loop reconciles keys; see the package comment. Its methods are safe for
// concurrent use.
type Loop struct {
	opts  Options
	queue *queue
	ready chan struct{}
}

// New returns a loop that has not started; call [Loop.Run]. Keys may be added
// before.
func New(opts Options) *Loop {
	if opts.Workers == 0 {
		opts.Workers = 4
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	opts.Log = opts.Log.With("controller", opts.Name)
	return &Loop{opts: opts, queue: newQueue(), ready: make(chan struct{})}
}

// Add asks for a reconcile of key as soon as a worker is free. It does not block.
func (l *Loop) Add(key Key) { l.queue.add(key, time.Time{}) }

// AddAfter asks for a reconcile of key after d, or now if that is not positive.
func (l *Loop) AddAfter(key Key, d time.Duration) {
	if d <= 0 {
		l.Add(key)
		return
	}
	l.queue.add(key, time.Now().Add(d))
}

// Ready is closed when the loop has begun to work.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// Task returns the loop as a task of the given stage.
func (l *Loop) Task() run.Task { return run.Task{Name: l.opts.Name, Run: l.Run, Ready: l.ready} }

// Run reconciles keys until ctx is cancelled, waits for the workers, and returns nil. It may
// be called once.
func (l *Loop) Run(ctx context.Context) error {
	for _, need := range l.opts.Needs {
		select {
		case <-need:
		case <-ctx.Done():
			return nil
		}
	}
	close(l.ready)
	l.measured(ctx)
	// An idle loop has no workers: each key gets a goroutine for the time that it
	// is worked on.
	workers := run.NewGroup(ctx, l.opts.Workers)
	defer workers.Stop()
	for {
		key, ok := l.queue.next(ctx)
		if !ok || !workers.Go(func(ctx context.Context) { l.work(ctx, key) }) {
			return nil
		}
	}
}

// work reconciles one key and plans what comes after.
func (l *Loop) work(ctx context.Context, key Key) {
	l.queue.begin(key)
	var result Result
	err := run.Catch(func() (err error) {
		end, ok := l.mark(key)
		if !ok {
			return nil
		}
		defer end()
		result, err = l.opts.Reconcile(ctx, key)
		return err
	})
	switch {
	case ctx.Err() != nil:
		l.queue.done(key, 0, false)
	case err != nil:
		failures := l.queue.done(key, 0, true)
		pause := l.queue.retry(key, failures)
		level := slog.LevelWarn
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || failures == 1 && apierrors.IsNotFound(err) || errors.Is(err, errAgain) {
			level = slog.LevelDebug // another client wrote first, which is to be expected
		}
		if _, ok := errors.AsType[*run.PanicError](err); ok {
			level = slog.LevelError
		}
		l.opts.Log.Log(ctx, level, "reconcile failed, trying again", "key", key.String(), "failures", failures, "pause", pause, "err", shortened{err})
	default:
		l.queue.done(key, result.After, false)
	}
}

// mark begins the work on the object of a key; see [quarantine.Quarantine.Begin].
func (l *Loop) mark(key Key) (end func(), ok bool) {
	if l.opts.Object != nil && l.opts.Quarantine != nil {
		switch o := l.opts.Object(key).(type) {
		case nil:
			l.opts.Quarantine.Forget(l.opts.Name, key.Namespace, key.Name)
		case quarantine.Object:
			return l.opts.Quarantine.Begin(l.opts.Name, o)
		}
	}
	return func() {}, true
}

// ObjectOf returns the function Object of [Options] for the objects of a cache.
func ObjectOf[T client.Object](c *cache.Cache[T]) func(Key) client.Object {
	return func(key Key) client.Object {
		if o, ok := c.Get(key.Namespace, key.Name); ok {
			return o
		}
		return nil
	}
}

// longestError is how much of an error is logged, in bytes. An error about an object can quote all of it, each time it is tried.
const longestError = 4 << 10

// shortened is an error for the log.
type shortened struct{ error }

// LogValue implements [slog.LogValuer].
func (s shortened) LogValue() slog.Value {
	if p, ok := errors.AsType[*run.PanicError](s.error); ok {
		return p.LogValue()
	}
	text := s.Error()
	if len(text) <= longestError {
		return slog.StringValue(text)
	}
	return slog.StringValue(fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:longestError], ""), len(text)))
}

// errAgain is what [Again] returns.
var errAgain = errors.New("try again")

// Again returns an error that asks for another try after the pause that a failure has,
// without a line in the log.
func Again(why string) error { return &again{why} }

type again struct{ why string }

func (e *again) Error() string        { return e.why }
func (e *again) Is(target error) bool { return target == errAgain }
