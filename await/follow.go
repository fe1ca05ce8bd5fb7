package await

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// A source is what one list and watch is about.
type source struct {
	schema.GroupVersionResource
	namespace, labels, fields string
	belongs                   bool // it is followed for what it explains, not for members
}

func (s source) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: s.labels, FieldSelector: s.fields}
}

// A report is what a source has to say. Exactly one of its parts is set: a whole
// new truth (list), one change, or trouble.
type report struct {
	from source

	listed bool
	list   []client.Object

	object  client.Object
	deleted bool

	err   error
	final bool // err will not go away by itself and the source has ended
}

// Pauses between attempts to reach a server. The longest one is short, because a
// wait should end soon after its server is back.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// follow tells what the source's objects are and then each change, until ctx is
// over, tell returns false or the server refuses for good. It outlives servers
// that go away and watches that are too old.
func follow(ctx context.Context, c client.Interface, s source, tell func(report) bool) {
	pause := firstPause
	// trouble reports an error and rests; it returns false when it is time to end.
	trouble := func(err error) bool {
		if ctx.Err() != nil {
			return false
		}
		if hopeless(err) {
			tell(report{from: s, err: err, final: true})
			return false
		}
		if !tell(report{from: s, err: err}) || !rest(ctx, pause) {
			return false
		}
		pause = min(2*pause, maxPause)
		return true
	}
	for {
		items, meta, err := c.List(ctx, s.GroupVersionResource, s.namespace, s.options())
		if err != nil {
			if !trouble(err) {
				return
			}
			continue
		}
		list := make([]client.Object, 0, len(items))
		for _, item := range items {
			if o, ok := item.(client.Object); ok {
				list = append(list, o)
			}
		}
		if !tell(report{from: s, listed: true, list: list}) {
			return
		}
		pause = firstPause
		revision := meta.ResourceVersion
		for fresh := true; fresh; {
			var told bool
			revision, told, err = followFrom(ctx, c, s, revision, tell)
			if told {
				pause = firstPause
			}
			switch {
			case ctx.Err() != nil || err == nil:
				return
			case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
				fresh = false
			case errors.Is(err, client.ErrWatchEnded):
				// Orderly, and no news; but a server that ends every watch at
				// once must not be asked in a tight circle.
				if !rest(ctx, pause) {
					return
				}
				pause = min(2*pause, maxPause)
			case !trouble(err):
				return
			}
		}
	}
}

// followFrom watches from a revision and returns the last one seen, whether
// anything was, and why the watch ended; nil if tell said so.
func followFrom(ctx context.Context, c client.Interface, s source, revision string, tell func(report) bool) (last string, told bool, err error) {
	opts := s.options()
	opts.ResourceVersion, opts.AllowWatchBookmarks = revision, true
	for e, err := range c.Watch(ctx, s.GroupVersionResource, s.namespace, opts) {
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
		if !tell(report{from: s, object: o, deleted: e.Type == watch.Deleted}) {
			return revision, told, nil
		}
	}
	return revision, told, client.ErrWatchEnded
}

// hopeless reports whether asking again would get the same answer.
func hopeless(err error) bool {
	var cert *client.CertificateError
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotAcceptable(err) || runtime.IsNotRegisteredError(err) || errors.As(err, &cert)
}

// rest pauses for d, stretched by up to a half so that many waiters do not come
// back in step, and reports whether ctx still holds.
func rest(ctx context.Context, d time.Duration) bool {
	return run.Pause(ctx, d+rand.N(d/2))
}
