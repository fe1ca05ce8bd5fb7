package follow

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// A Source is what one list and watch is about.
type Source struct {
	schema.GroupVersionResource
	Namespace      string // empty for all, and for cluster-scoped resources
	Labels, Fields string // selectors; empty ones pick everything
}

// A Report is what a source has to say: part of a list, one change, or trouble.
type Report struct {
	Page          []client.Object // part of a list
	Begins, Whole bool            // with this page a list begins; it is now complete
	Was           types.UID       // of a list without the object: it was there before, and had this UID

	Object  client.Object
	Deleted bool

	Err   error
	Final bool // Err will not go away by itself and the source has ended

	Unserved bool // the server does not serve the resource, or know the kind, yet
	Reached  bool // the server was there, though it has said nothing yet
}

// The pauses between attempts to reach a server. The longest one is short, because a wait
// should end soon after its server is back.
const (
	FirstPause = 50 * time.Millisecond
	MaxPause   = 2 * time.Second
)

// pageSize bounds how many decoded objects there are at a time while a list is read: what
// is kept of each is much less.
const pageSize = 250

// A Follower follows one source. Client, Source and Tell are required.
type Follower struct {
	Client client.Interface
	Source Source
	Tell   func(Report) bool // false ends it

	Wait  bool            // for a resource that is not served yet
	Again <-chan struct{} // says that it may be, now; nil if nobody does

	Ask *Question // what is asked before the first list; nil for nothing

	failures int // in a row
}

// Run tells what the source's objects are and then each change, until ctx is
// over, Tell returns false or the server refuses for good. It outlives servers
// that go away and watches that are too old.
func (f *Follower) Run(ctx context.Context) {
	f.failures = 0
	revision, err := f.ask(ctx)
	for {
		if err == nil && revision == "" {
			revision, err = f.list(ctx)
		}
		switch {
		case err == errTold || ctx.Err() != nil: //nolint:errorlint // it is never wrapped
			return
		case err != nil && f.Wait && apierrors.IsNotFound(err):
			if !f.Tell(Report{Unserved: true}) || !f.rest(ctx) {
				return
			}
		case err != nil:
			if !f.trouble(ctx, err) {
				return
			}
		default:
			f.failures = 0
			if !f.goOn(ctx, revision) {
				return
			}
		}
		revision, err = "", nil
	}
}

// goOn tells the changes after a revision, and returns true when everything must be
// listed again.
func (f *Follower) goOn(ctx context.Context, revision string) bool {
	for {
		last, told, err := f.watch(ctx, revision)
		revision = last
		if told {
			f.failures = 0
		}
		switch {
		case ctx.Err() != nil || err == errTold: //nolint:errorlint // it is never wrapped
			return false
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), f.Wait && apierrors.IsNotFound(err):
			return true
		case errors.Is(err, client.ErrWatchEnded):
			// Orderly, and no news; but a server that ends every watch at
			// once must not be asked in a tight circle.
			if !f.rest(ctx) {
				return false
			}
		case !f.trouble(ctx, err):
			return false
		}
	}
}

func (s Source) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: s.Labels, FieldSelector: s.Fields}
}

// errTold says that nobody listens any more.
var errTold = errors.New("told to stop")

// trouble reports an error and rests; it returns false when it is time to end.
func (f *Follower) trouble(ctx context.Context, err error) bool {
	if Hopeless(err) {
		f.Tell(Report{Err: err, Final: true})
		return false
	}
	return f.Tell(Report{Err: err}) && f.rest(ctx)
}

// rest pauses, for longer each time and stretched by up to a half so that many
// waiters do not come back in step, and reports whether ctx still holds.
func (f *Follower) rest(ctx context.Context) bool {
	f.failures++
	d := run.Backoff{First: FirstPause, Max: MaxPause}.Pause(f.failures)
	if f.Again == nil {
		return run.Pause(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.Again:
		f.failures = 0
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// list tells the source's objects page by page and returns their revision.
func (f *Follower) list(ctx context.Context) (revision string, err error) {
	opts := f.Source.options()
	opts.Limit = pageSize
	for begins := true; ; begins = false {
		items, meta, err := f.Client.List(ctx, f.Source.GroupVersionResource, f.Source.Namespace, opts)
		if err != nil && opts.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
			// Too much is changing to read it in pages.
			opts.Limit, opts.Continue, begins = 0, "", true
			items, meta, err = f.Client.List(ctx, f.Source.GroupVersionResource, f.Source.Namespace, opts)
		}
		if err != nil {
			return "", err
		}
		page := make([]client.Object, 0, len(items))
		for _, item := range items {
			if o, ok := item.(client.Object); ok {
				page = append(page, o)
			}
		}
		if !f.Tell(Report{Page: page, Begins: begins, Whole: meta.Continue == ""}) {
			return "", errTold
		}
		if opts.Continue = meta.Continue; opts.Continue == "" {
			return meta.ResourceVersion, nil
		}
	}
}

// watch tells the changes after a revision and returns the last one seen, whether
// anything was, and why it ended.
func (f *Follower) watch(ctx context.Context, revision string) (last string, told bool, err error) {
	opts := f.Source.options()
	opts.ResourceVersion, opts.AllowWatchBookmarks = revision, true
	for e, err := range f.Client.Watch(ctx, f.Source.GroupVersionResource, f.Source.Namespace, opts) {
		if err != nil {
			return revision, told, err
		}
		o, ok := e.Object.(client.Object)
		if !ok {
			continue
		}
		revision, told = o.GetResourceVersion(), true
		if e.Type == watch.Bookmark {
			continue
		}
		if !f.Tell(Report{Object: o, Deleted: e.Type == watch.Deleted}) {
			return revision, told, errTold
		}
	}
	return revision, told, client.ErrWatchEnded
}

// Hopeless reports whether asking again would get the same answer.
func Hopeless(err error) bool {
	var cert *client.CertificateError
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotAcceptable(err) || runtime.IsNotRegisteredError(err) || errors.As(err, &cert)
}
