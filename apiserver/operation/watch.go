package operation

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/store"
)

// bookmarkPause is the least time between two bookmarks. The store reports progress to all watches
// together, once a minute; the pause is shorter, so that a watch that began in between does not miss a turn.
const bookmarkPause = 30 * time.Second

// lastBookmark is how long before its timeout a watch gets a bookmark, from which the client goes on,
// as in Kubernetes.
const lastBookmark = 2 * time.Second

// A Change is one event of a watch.
type Change struct {
	// Type is that of the event. An empty type is not an event: all events so far were sent, and
	// the next may take long, so buffered data should be sent.
	Type watch.EventType
	Item *codec.Item

	// Of a bookmark.
	ResourceVersion string
	Annotations     map[string]string
}

// Watch checks the options and returns the changes after the asked revision. They end
// with an error, or without one when ctx is over or the asked time is.
//
//	sendInitialEvents=true        the state, a bookmark that says so, what comes then
//	resourceVersion "" or "0"     the state, then what comes
//	  with sendInitialEvents=false  what comes from now on
//	resourceVersion N             what came after N
func (o *Operations) Watch(ctx context.Context, t Target, opts metav1.ListOptions) (iter.Seq2[Change, error], error) {
	c, err := Select(t.Kind, t.Namespace, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	if t.Name != "" && c.Name == "" {
		c.Name = t.Name
	}
	if err := o.Allow(ctx, &t, VerbWatch, c.Where, c.Name); err != nil {
		return nil, err
	}
	if err := checkListOptions(opts, true); err != nil {
		return nil, err
	}
	w := watching{operations: o, chosen: c, bookmarks: opts.AllowWatchBookmarks}
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		w.timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	// Without a timeout a watch in this process lasts, and nothing goes on from its revision.
	w.chosen.Query.Progress = w.bookmarks && (!t.Local || w.timeout > 0)
	if w.after, err = parseRevision(opts.ResourceVersion); err != nil {
		return nil, err
	}
	if opts.ResourceVersion == "" {
		if err := o.current(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case opts.SendInitialEvents == nil:
		w.initial = w.after == 0
	case *opts.SendInitialEvents:
		w.initial, w.markEnd = true, opts.AllowWatchBookmarks // the state must not be older than N
	case w.after == 0:
		w.after = o.store.Revision()
	}
	if err := o.reach(ctx, w.after); err != nil {
		return nil, err
	}
	return w.changes(ctx), nil
}

// A watching is one watch under way.
type watching struct {
	operations *Operations
	chosen     Selection

	initial   bool // send the state first
	markEnd   bool // and that this was it
	bookmarks bool
	timeout   time.Duration // 0: as long as ctx

	after  store.Revision // everything up to here was sent
	sent   store.Revision // the last one that the client knows
	marked time.Time      // when the client last received a revision; zero asks for a bookmark
}

func (w *watching) changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		if w.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, w.timeout)
			defer cancel()
		}
		if w.initial && !w.tellState(ctx, yield) {
			return
		}
		w.marked, w.sent = time.Now(), w.after
		if w.bookmarks && w.timeout > lastBookmark {
			early, cancel := context.WithTimeout(ctx, w.timeout-lastBookmark)
			defer cancel()
			if !w.follow(early, yield) || ctx.Err() != nil {
				return
			}
			w.marked = time.Time{}
		}
		w.follow(ctx, yield)
	}
}

// follow yields what is written until ctx is over. It reports whether to go on then.
func (w *watching) follow(ctx context.Context, yield func(Change, error) bool) bool {
	for ev, err := range w.operations.store.Watch(ctx, w.chosen.Query, w.after) {
		switch {
		case err != nil && ctx.Err() != nil:
			return true // the end that was asked for
		case err != nil:
			yield(Change{}, StoreFault(err))
			return false
		case ev.Key == "":
			w.after = max(w.after, ev.Revision)
			if w.bookmarks && (w.marked.IsZero() || w.after > w.sent && time.Since(w.marked) >= bookmarkPause) {
				w.sent, w.marked = w.after, time.Now()
				if !yield(bookmark(w.after, nil), nil) {
					return false
				}
			}
			if !yield(Change{}, nil) {
				return false
			}
		default:
			w.after = ev.Revision
			c, concerns, err := w.change(ctx, &ev)
			if err != nil {
				yield(Change{}, err)
				return false
			}
			if concerns {
				w.sent, w.marked = w.after, time.Now()
				if !yield(c, nil) {
					return false
				}
			}
		}
	}
	return false
}

// tellState yields the objects that there are and goes on from their revision. It
// reports whether to go on.
func (w *watching) tellState(ctx context.Context, yield func(Change, error) bool) bool {
	state, err := w.operations.store.List(w.chosen.Query, store.Page{})
	if err != nil {
		yield(Change{}, StoreFault(err))
		return false
	}
	all := make([]*codec.Item, len(state.Records))
	for i, rec := range state.Records {
		all[i] = codec.ItemOf(w.chosen.kind, rec.Key, rec.Value)
	}
	if all, err = w.chosen.readied(ctx, all); err != nil {
		yield(Change{}, err)
		return false
	}
	all = slices.DeleteFunc(all, func(i *codec.Item) bool { return !w.chosen.has(i) })
	if w.chosen.kind.Untyped() {
		if all, err = codec.Shown(ctx, w.chosen.kind, all); err != nil {
			yield(Change{}, err)
			return false
		}
	}
	for _, item := range all {
		if item.Fault() == nil && !yield(Change{Type: watch.Added, Item: item}, nil) {
			return false
		}
	}
	w.after = state.Revision
	if w.markEnd {
		return yield(bookmark(w.after, map[string]string{metav1.InitialEventsAnnotationKey: "true"}), nil)
	}
	return true
}

func bookmark(rev store.Revision, annotations map[string]string) Change {
	return Change{Type: watch.Bookmark, ResourceVersion: strconv.FormatUint(uint64(rev), 10), Annotations: annotations}
}

// change says what a write means to the watcher. The object is as it is stored, or, if it has no Go type, in the version of
// the watch.
func (w *watching) change(ctx context.Context, ev *store.Event) (ch Change, concerns bool, err error) {
	c := &w.chosen
	item := codec.ItemOf(c.kind, ev.Key, ev.Value)
	var before *codec.Item
	if ev.Prev.Value != nil {
		before = codec.ItemOf(c.kind, ev.Key, ev.Prev.Value)
	}
	if c.readsContent() {
		states := []*codec.Item{item}
		if before != nil {
			states = append(states, before)
		}
		if states, err = c.readied(ctx, states); err != nil {
			return Change{}, false, err
		}
		if item = states[0]; before != nil {
			before = states[1]
		}
	}
	ch, concerns = c.change(ev, item, before)
	if concerns && c.kind.Untyped() {
		if ch.Item, err = ch.Item.In(ctx, c.kind); err != nil || ch.Item.Fault() != nil {
			return Change{}, false, err
		}
	}
	return ch, concerns, nil
}

// change says what a write that made item of before means to a watcher of the chosen objects: one that comes into
// a selector is added, one that leaves it is deleted.
func (c *Selection) change(ev *store.Event, item, before *codec.Item) (ch Change, concerns bool) {
	was := before != nil && c.has(before)
	is := !ev.Deleted && c.has(item)
	switch {
	case is && was:
		return Change{Type: watch.Modified, Item: item}, true
	case is:
		return Change{Type: watch.Added, Item: item}, true
	case was && ev.Deleted:
		return Change{Type: watch.Deleted, Item: item}, true
	case was:
		return Change{Type: watch.Deleted, Item: before.RestateAt(ev.Revision)}, true
	}
	return Change{}, false
}

// String shows a change in a test or a log.
func (c Change) String() string {
	switch {
	case c.Item != nil:
		return fmt.Sprintf("%s %s@%s", c.Type, c.Item.Object().GetName(), c.Item.ResourceVersion())
	case c.Type == "":
		return "idle"
	}
	return fmt.Sprintf("%s @%s", c.Type, c.ResourceVersion)
}
