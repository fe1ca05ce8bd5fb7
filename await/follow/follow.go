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

// A Source is the resource, namespace and selectors of one list and watch.
type Source struct {
	schema.GroupVersionResource
	Namespace      string // empty for all, and for cluster-scoped resources
	Labels, Fields string // selectors; empty ones pick everything
}

// A Report is one of [Page], [Changed], [Deleted], [Failed], [Unserved] and [Reached].
type Report interface{ isReport() }

// A Page is a part of a list.
type Page struct {
	Objects       []client.Object
	Begins, Whole bool      // this page is the first of a list; it is the last
	Was           types.UID // the object of a Question is deleted, and had this UID
}

// A Changed is an object that was added or modified.
type Changed struct{ Object client.Object }

// A Deleted is an object that was deleted, or that the source no longer selects.
type Deleted struct{ Object client.Object }

// A Failed is an error of a request. The follower retries unless the error is final.
type Failed struct {
	Err   error
	Final bool // retrying would not help, and the follower has stopped
}

// Unserved reports that the server does not serve the resource yet.
type Unserved struct{}

// Reached reports that the server answered, without an object.
type Reached struct{}

func (Page) isReport()     {}
func (Changed) isReport()  {}
func (Deleted) isReport()  {}
func (Failed) isReport()   {}
func (Unserved) isReport() {}
func (Reached) isReport()  {}

// The shortest and the longest pause between attempts to reach a server. The longest one is short, because a wait should
// end soon after its server is back.
const (
	FirstPause = 50 * time.Millisecond
	MaxPause   = 2 * time.Second
)

// pageSize limits how many decoded objects are in memory at a time while a list is read. Callers keep much less of each.
const pageSize = 250

// A Follower lists and watches one source. Client, Source and Handle are required.
type Follower struct {
	Client client.Interface
	Source Source
	Handle func(Report) bool // receives the reports in order, on the goroutine of Run; Run returns when it returns false

	Wait  bool            // retry if the server does not serve the resource yet
	Again <-chan struct{} // ends a pause, for example because the resource may be served now; may be nil

	Ask *Question // the blocking read that replaces the first list; may be nil

	failures int // in a row
}

// Run reports the objects of the source and then each change, until ctx is cancelled, Handle returns false or an error
// is final. It retries when the server cannot be reached, and lists again when a watch has expired.
func (f *Follower) Run(ctx context.Context) {
	f.failures = 0
	revision, err := f.ask(ctx)
	for {
		if err == nil && revision == "" {
			revision, err = f.list(ctx)
		}
		switch {
		case err == errStopped || ctx.Err() != nil: //nolint:errorlint // it is never wrapped
			return
		case err != nil && f.Wait && apierrors.IsNotFound(err):
			if !f.Handle(Unserved{}) || !f.rest(ctx) {
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

// goOn watches from a resource version and reports the changes. It returns true when a new list is needed, false when
// Run is to return.
func (f *Follower) goOn(ctx context.Context, revision string) bool {
	for {
		last, any, err := f.watch(ctx, revision)
		revision = last
		if any {
			f.failures = 0
		}
		switch {
		case ctx.Err() != nil || err == errStopped: //nolint:errorlint // it is never wrapped
			return false
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), f.Wait && apierrors.IsNotFound(err):
			return true
		case errors.Is(err, client.ErrWatchEnded):
			// The watch ended normally. Pause, because a server may end every watch at once.
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

// errStopped says that Handle returned false, or that the context was cancelled.
var errStopped = errors.New("the follower was stopped")

// trouble reports an error and pauses. It returns false if Run is to return.
func (f *Follower) trouble(ctx context.Context, err error) bool {
	if Hopeless(err) {
		f.Handle(Failed{Err: err, Final: true})
		return false
	}
	return f.Handle(Failed{Err: err}) && f.rest(ctx)
}

// rest pauses, twice as long each time and up to half longer at random, so that many clients do not retry in step. It
// returns false if ctx is cancelled.
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

// list reports the source's objects page by page and returns the resource version of the list.
func (f *Follower) list(ctx context.Context) (revision string, err error) {
	opts := f.Source.options()
	opts.Limit = pageSize
	for begins := true; ; begins = false {
		items, meta, err := f.Client.List(ctx, f.Source.GroupVersionResource, f.Source.Namespace, opts)
		if err != nil && opts.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
			// The continue token has expired: read everything in one page.
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
		if !f.Handle(Page{Objects: page, Begins: begins, Whole: meta.Continue == ""}) {
			return "", errStopped
		}
		if opts.Continue = meta.Continue; opts.Continue == "" {
			return meta.ResourceVersion, nil
		}
	}
}

// watch reports the changes after a resource version. It returns the last resource version, whether there was any
// event, and why the watch ended.
func (f *Follower) watch(ctx context.Context, revision string) (last string, any bool, err error) {
	opts := f.Source.options()
	opts.ResourceVersion, opts.AllowWatchBookmarks = revision, true
	for e, err := range f.Client.Watch(ctx, f.Source.GroupVersionResource, f.Source.Namespace, opts) {
		if err != nil {
			return revision, any, err
		}
		o, ok := e.Object.(client.Object)
		if !ok {
			continue
		}
		revision, any = o.GetResourceVersion(), true
		if e.Type == watch.Bookmark {
			continue
		}
		var r Report = Changed{o}
		if e.Type == watch.Deleted {
			r = Deleted{o}
		}
		if !f.Handle(r) {
			return revision, any, errStopped
		}
	}
	return revision, any, client.ErrWatchEnded
}

// Hopeless reports whether retrying the request would get the same error.
func Hopeless(err error) bool {
	var cert *client.CertificateError
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotAcceptable(err) || runtime.IsNotRegisteredError(err) || errors.As(err, &cert)
}
