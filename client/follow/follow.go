package follow

import (
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// A Source is the resource, namespace and selectors of one list and watch.
type Source struct {
	schema.GroupVersionResource
	Namespace      string // empty for all, and for cluster-scoped resources
	Labels, Fields string // selectors; empty ones pick everything
}

// A Client makes the requests of a [Follower]. See [client.Interface], which implements it.
type Client interface {
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error]
}

// A Follower lists and watches one source. Client and Source are required.
type Follower struct {
	Client Client
	Source Source

	// Stream reads lists as the first events of a watch (WatchList), so that no list is in memory as a whole. A server
	// that refuses that is sent list requests.
	Stream bool

	// PageSize is the number of objects in each answer to a list request. 0 means all.
	PageSize int64

	// After is the revision after which the first watch begins, for callers that know the objects at that revision.
	// Empty means to begin with a list.
	After string

	// Check returns an error for an object that the caller cannot handle. It counts as an error of the request. Nil
	// accepts all objects.
	Check func(client.Object) error

	Retry Retry           // nil means Eager
	Again <-chan struct{} // ends a pause, for example because the resource may be served now; may be nil
}

// Steps returns the objects of the source and then each change, until ctx is cancelled, the caller leaves the loop or
// Retry gives up. The loop may be run again; it then begins with a list again.
func (f Follower) Steps(ctx context.Context) iter.Seq[Step] {
	if f.Retry == nil {
		f.Retry = Eager
	}
	return func(yield func(Step) bool) {
		r := reader{Follower: f, yield: yield, listed: f.After != "", revision: f.After}
		for r.next(ctx) {
		}
	}
}

// A reader is the state of one loop over the steps of a follower.
type reader struct {
	Follower
	yield    func(Step) bool
	listed   bool   // the caller has a complete list
	revision string // up to which it has all changes since
	fresh    bool   // there was none yet
	failures int    // in a row
	changed  Changed
}

// errLeft says that the caller has left the loop.
var errLeft = errors.New("the caller left the loop")

// next reads until there is an error, reports it and pauses. It returns false if the loop is over.
func (r *reader) next(ctx context.Context) bool {
	err := r.read(ctx)
	if err == errLeft || ctx.Err() != nil { //nolint:errorlint // it is never wrapped
		return false
	}
	if r.listed && expired(err) {
		if r.listed = false; !r.yield(Expired{err}) {
			return false
		}
		if !r.fresh {
			return true
		}
		// A list that expires at once is not read again without a pause.
		r.failures++
		pause, _ := r.Retry(err, r.failures)
		return r.rest(ctx, pause)
	}
	r.failures++
	pause, again := r.Retry(err, r.failures)
	if ended := r.listed && errors.Is(err, client.ErrWatchEnded); !ended {
		if !r.yield(Failed{Err: err, Final: !again, Failures: r.failures, Pause: pause}) || !again {
			return false
		}
	}
	return r.rest(ctx, pause)
}

// read makes a list, if one is needed, and then watches. It returns why the watch ended.
func (r *reader) read(ctx context.Context) error {
	if !r.listed && !r.Stream {
		if err := r.list(ctx); err != nil {
			return err
		}
	}
	err := r.watch(ctx)
	if r.Stream && !r.listed && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		r.Stream = false
		return r.read(ctx)
	}
	return err
}

func (s Source) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: s.Labels, FieldSelector: s.Fields}
}

// list reports the source's objects page by page.
func (r *reader) list(ctx context.Context) error {
	opts := r.Source.options()
	opts.Limit = r.PageSize
	for begins := true; ; begins = false {
		items, meta, err := r.Client.List(ctx, r.Source.GroupVersionResource, r.Source.Namespace, opts)
		if err != nil && opts.Continue != "" && expired(err) {
			// The continue token has expired: read everything in one page.
			opts.Limit, opts.Continue, begins = 0, "", true
			items, meta, err = r.Client.List(ctx, r.Source.GroupVersionResource, r.Source.Namespace, opts)
		}
		if err != nil {
			return err
		}
		page := Page{Objects: make([]client.Object, len(items)), Begins: begins, Whole: meta.Continue == ""}
		for i, item := range items {
			if page.Objects[i], err = r.object(item); err != nil {
				return err
			}
		}
		if page.Whole {
			page.Revision = meta.ResourceVersion
		}
		if err := r.report(page); err != nil || page.Whole {
			return err
		}
		opts.Continue = meta.Continue
	}
}

// report reports a part of a list.
func (r *reader) report(p Page) error {
	if p.Whole {
		r.listed, r.revision, r.fresh, r.failures = true, p.Revision, true, 0
	}
	if !r.yield(p) {
		return errLeft
	}
	return nil
}

// object returns a server's object in a form that the caller can handle.
func (r *reader) object(sent runtime.Object) (client.Object, error) {
	o, ok := sent.(client.Object)
	if !ok {
		return nil, fmt.Errorf("the server sent a %T, want an object", sent)
	}
	if r.Check != nil {
		return o, r.Check(o)
	}
	return o, nil
}

// watch reports the changes after the last revision, or after a list that the watch begins with. It returns why the
// watch ended.
func (r *reader) watch(ctx context.Context) error {
	opts := r.Source.options()
	opts.AllowWatchBookmarks = true
	if r.listed {
		opts.ResourceVersion = r.revision
	} else {
		yes := true
		opts.SendInitialEvents, opts.ResourceVersionMatch = &yes, metav1.ResourceVersionMatchNotOlderThan
	}
	page := Page{Begins: true}
	for e, err := range r.Client.Watch(ctx, r.Source.GroupVersionResource, r.Source.Namespace, opts) {
		if err != nil {
			return err
		}
		o, err := r.object(e.Object)
		if err != nil {
			return err
		}
		if !r.listed {
			err = r.initial(&page, e.Type, o)
		} else {
			err = r.change(e.Type, o)
		}
		if err != nil {
			return err
		}
	}
	return client.ErrWatchEnded // by a client that breaks C3
}

// change reports an event.
func (r *reader) change(kind watch.EventType, o client.Object) error {
	var s Step
	revision := o.GetResourceVersion()
	switch kind {
	case watch.Added, watch.Modified:
		r.changed = Changed{Object: o, Added: kind == watch.Added}
		s = &r.changed
	case watch.Deleted:
		s = Deleted{o}
	case watch.Bookmark:
		s = Bookmark{revision}
	default:
		return fmt.Errorf("unknown event type %q", kind)
	}
	if r.fresh, r.failures = false, 0; revision != "" {
		r.revision = revision
	}
	if !r.yield(s) {
		return errLeft
	}
	return nil
}

// streamed is how many objects a page has that is read from a watch. It limits how many whole objects are in memory for
// callers that keep only parts of them.
const streamed = 250

// initial adds an event of a list to its current page, and reports the page when it is full or the last one.
func (r *reader) initial(page *Page, kind watch.EventType, o client.Object) error {
	switch kind {
	case watch.Added, watch.Modified:
		if page.Objects = append(page.Objects, o); len(page.Objects) < streamed {
			return nil
		}
	case watch.Deleted:
	case watch.Bookmark:
		if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nil
		}
		page.Whole, page.Revision = true, o.GetResourceVersion()
	default:
		return fmt.Errorf("unknown event type %q", kind)
	}
	err := r.report(*page)
	*page = Page{}
	if err == nil && kind == watch.Deleted && !r.yield(Deleted{o}) {
		return errLeft
	}
	return err
}
