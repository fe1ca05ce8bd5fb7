// Package follow keeps what parts of the API server know about stored objects equal to the store: admission plug-ins, policies of
// access, priority and fairness.
//
// They cannot use package client, which speaks to the API server, and read the store itself.
package follow

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A Store is the part of a [store.Store] that is followed.
type Store interface {
	List(q store.Query, p store.Page) (store.Listing, error)
	Watch(ctx context.Context, q store.Query, after store.Revision) iter.Seq2[store.Event, error]
}

// A Writer writes objects as the API server itself. It has methods of the local client of package apiserver.
type Writer interface {
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error)
	Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error)
}

// A Follower is called with the records of a query, by one goroutine at a time. The records are shared.
type Follower struct {
	// All is called with the state: first, and again whenever the events after an earlier state are gone. After an error
	// it is called again, later.
	All func(ctx context.Context, records []store.Record) error
	// Changed is called with each event after that.
	Changed func(ctx context.Context, ev store.Event)

	Log *slog.Logger // nil means slog.Default
}

// The pauses after errors double from the first to the longest one.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// Records calls f with the state of a query and then with what changes, until ctx is over or the store has ended.
// Other errors are logged: it begins again with the state after a pause.
func Records(ctx context.Context, st Store, q store.Query, f Follower) {
	pause := firstPause
	for ctx.Err() == nil {
		read, err := once(ctx, st, q, f)
		switch {
		case errors.Is(err, store.ErrStopped), ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, store.ErrExpired):
			continue
		case read:
			pause = firstPause
		}
		cmp.Or(f.Log, slog.Default()).WarnContext(ctx, "cannot follow stored objects, trying again", "prefix", q.Prefix, "pause", pause, "err", err)
		run.Pause(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// once takes the state and then what changes, until the watch ends. It reports whether the state was taken.
func once(ctx context.Context, st Store, q store.Query, f Follower) (read bool, err error) {
	state, err := st.List(q, store.Page{})
	if err != nil {
		return false, err
	}
	if err := f.All(ctx, state.Records); err != nil {
		return false, err
	}
	for ev, err := range st.Watch(ctx, q, state.Revision) {
		if err != nil {
			return true, err
		}
		if ev.Key != "" {
			f.Changed(ctx, ev)
		}
	}
	return true, nil
}
