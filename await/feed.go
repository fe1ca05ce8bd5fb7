package await

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/run"
)

// A feed holds the objects of one source: members, parts of members, or both.
type feed struct {
	source

	// targets are the targets whose objects the feed has. Without targets the feed only explains.
	targets       []*Target
	members       map[types.NamespacedName]*member
	seen          bool // it has had a member
	reportedEmpty bool // progress has reported that the selector matches nothing
	closed        bool // new objects do not become members, because the wait is for the deletion of the listed ones

	synced   bool     // the first list is complete, or has failed for good
	failed   bool     // the list has failed for good
	late     bool     // it was started after the wait began
	unserved bool     // the server does not serve the resource yet
	again    run.Bell // retries an unserved resource at once
	named    *name    // its object is one that pods name; nil for other feeds
	news     bool     // its objects are CustomResourceDefinitions, which are followed to find new kinds
	lost     error    // why the server cannot be reached; nil if it can

	epoch  uint32 // number of the list that is being read
	nodes  map[types.UID]*node
	slices map[types.UID]*discoveryv1.EndpointSlice // without endpoints; enough to remove them from the forest
}

// explain returns the feed of a source that only explains. It starts one unless a feed that includes the source exists.
func (w *watcher) explain(s source) *feed {
	broad := s
	broad.labels, broad.of = "", ""
	for _, known := range []source{s, broad} {
		if f := w.feeds[known]; f != nil {
			return f
		}
	}
	f := &feed{source: s, late: true}
	w.feeds[s] = f
	w.every = append(w.every, f)
	w.pending++
	w.start(f)
	return f
}

// A source is the subject of one list and watch.
type source struct {
	schema.GroupVersionResource
	namespace, labels, fields string

	of types.UID // the listed objects are parts of this object, whatever their owner references say; may be empty
}

// A report is a step of the source of a feed. It is one of package follow or of the following.
type report struct {
	follow.Step
	from *feed
}

// The steps that only this package has. The embedded Step is nil.
type (
	// A resolved has the resource of the kind of a target, which was unknown before.
	resolved struct {
		follow.Step
		target Target
	}

	// An unserved reports that the server does not serve the resource yet.
	unserved struct{ follow.Step }

	// A reached reports that the server answered a question, without an object.
	reached struct{ follow.Step }

	// A deleted is an empty list: the object of a question is deleted, and had this UID.
	deleted struct {
		follow.Page
		was types.UID
	}
)

// read sends the steps of a source that matter to a wait, until it ends or send returns false.
func read(ctx context.Context, f follow.Follower, send func(follow.Step) bool) {
	f.PageSize = pageSize
	for step := range f.Steps(ctx) {
		switch s := step.(type) {
		case follow.Bookmark, follow.Expired: // a new list follows the latter
			continue
		case *follow.Changed:
			kept := *s // it is read on another goroutine
			step = &kept
		case follow.Failed:
			if apierrors.IsNotFound(s.Err) && !s.Final {
				step = unserved{}
			}
		}
		if !send(step) {
			return
		}
	}
}

// pageSize limits how many decoded objects are in memory at a time while a list is read. A wait keeps much less of each.
const pageSize = 250

// receive handles one report.
func (w *watcher) receive(r report) error {
	f := r.from
	if failure, failed := r.Step.(follow.Failed); failed {
		return w.trouble(f, failure.Err, failure.Final)
	}
	if f.lost != nil {
		// One source is enough: the others that were lost will recover soon.
		if f.lost = nil; w.away {
			w.away = false
			w.progress(ConnectionRestored{})
		}
	}
	switch news := r.Step.(type) {
	case reached:
		f.late = true // an error from now on does not end the wait as one at its beginning does
		return nil
	case resolved:
		w.settleKind(f, news.target)
		return nil
	case unserved:
		f.unserved = true
		w.sweep(f, f.epoch+1)
		w.listed(f)
		w.watchDefinitions()
		return nil
	}
	if f.news {
		w.kindsChanged(r.Step)
		return nil
	}
	if f.named != nil {
		return w.nameReported(f, r.Step)
	}
	switch news := r.Step.(type) {
	case follow.Deleted:
		return w.unshow(f, news.Object)
	case *follow.Changed:
		return w.show(f, news.Object, true)
	case follow.Page:
		return w.page(f, news)
	case deleted:
		for _, m := range f.members {
			m.uid = cmp.Or(news.was, m.uid)
		}
		return w.page(f, news.Page)
	}
	return nil
}

// page handles a part of a list.
func (w *watcher) page(f *feed, p follow.Page) error {
	if p.Begins {
		f.epoch++
	}
	for _, o := range p.Objects {
		if err := w.show(f, o, f.synced); err != nil {
			return err
		}
	}
	if p.Whole {
		f.unserved = false
		w.sweep(f, f.epoch)
		w.listed(f)
	}
	return nil
}

// trouble handles an error of a source.
func (w *watcher) trouble(f *feed, err error, final bool) error {
	switch {
	case len(f.targets) > 0 && (final || !f.synced && !f.late):
		return err
	case final && w.decides(f):
		return err
	case final:
		// Parts only explain; the wait continues without them.
		f.failed = true
		w.listed(f)
		return nil
	}
	if !w.away {
		w.away = true
		w.progress(ConnectionLost{err})
	}
	f.lost = err
	return nil
}

// decides reports whether the wait cannot be decided without this feed. Other feeds only explain.
func (w *watcher) decides(f *feed) bool {
	return len(f.targets) > 0 || w.req.For.needsParts() &&
		(f.GroupVersionResource == client.Pods.GroupVersionResource || f.GroupVersionResource == client.EndpointSlices.GroupVersionResource)
}

// lost returns why a source that decides cannot be read at the moment, nil if all can.
func (w *watcher) lost() error {
	for _, f := range w.every {
		if f.lost != nil && w.decides(f) {
			return f.lost
		}
	}
	return nil
}

// listed marks the first list of a feed as complete, or as failed for good.
func (w *watcher) listed(f *feed) {
	if f.synced {
		return
	}
	f.synced = true
	if len(f.targets) > 0 {
		w.unsynced--
		f.closed = w.req.For.has(Deleted)
		w.spaceOf(f)
		return
	}
	w.pending--
	for _, m := range w.members { // their parts may be known now
		w.touch(m)
	}
}

// show adds or updates an object. fresh reports whether it came from a watch.
func (w *watcher) show(f *feed, given client.Object, fresh bool) error {
	o, err := typed(given)
	if err != nil {
		return err
	}
	member := len(f.targets) > 0
	switch o := o.(type) {
	case *corev1.Event:
		w.forest.note(o, fresh, f.epoch)
		if !member {
			return nil
		}
	case *discoveryv1.EndpointSlice:
		if f.slices == nil {
			f.slices = map[types.UID]*discoveryv1.EndpointSlice{}
		}
		f.slices[o.UID] = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, Labels: o.Labels, Generation: int64(f.epoch),
		}}
		w.forest.slice(o)
		if !member {
			return nil
		}
	}
	name := ""
	if member {
		name = f.targets[0].Kind
	}
	if name == "" {
		name = client.KindOf(o).Kind
	}
	n := w.forest.node(w.forest.kindOf(f.GroupVersionResource, name), o)
	if f.nodes == nil {
		f.nodes = map[types.UID]*node{}
	}
	f.nodes[n.uid] = n
	n.observe(f)
	if !n.there || len(n.observations) == 1 || !newer(n.version, o.GetResourceVersion()) {
		var under []types.UID
		for _, s := range n.observations {
			under = append(under, s.by.of)
		}
		w.forest.keep(n, given)
		w.forest.place(n.kind, w.forest.slim(o), under...)
		w.lookAt(n)
	}
	if n.resource == client.Services.GroupVersionResource {
		w.servicesChanged(n.namespace)
	}
	if member {
		w.enroll(f, n)
	} else if f.GroupVersionResource == client.Namespaces.GroupVersionResource {
		w.touchAbsent()
	}
	return nil
}

// unshow removes an object that was deleted or that the source no longer selects.
func (w *watcher) unshow(f *feed, o client.Object) error {
	o, err := typed(o)
	if err != nil {
		return err
	}
	switch o := o.(type) {
	case *corev1.Event:
		w.forest.unnote(o)
	case *discoveryv1.EndpointSlice:
		delete(f.slices, o.UID)
		w.forest.unslice(o)
	}
	if n := f.nodes[idOf(o)]; n != nil {
		w.leave(f, n)
	}
	return nil
}

// sweep removes the objects that were not in the list with this epoch.
func (w *watcher) sweep(f *feed, epoch uint32) {
	for _, n := range f.nodes {
		if n.observation(f).epoch != epoch {
			w.leave(f, n)
		}
	}
	for id, s := range f.slices {
		if uint32(s.Generation) != epoch {
			delete(f.slices, id)
			w.forest.unslice(s)
		}
	}
	if f.GroupVersionResource == client.Events.GroupVersionResource && len(f.targets) == 0 && f.synced {
		for about, notes := range w.forest.notes {
			if len(notes) > 0 && (f.namespace == "" || notes[0].Namespace == f.namespace) {
				w.forest.dropNotes(about, func(n events.Note) bool { return n.Epoch != epoch })
			}
		}
	}
	for key, m := range f.members { // named members that do not exist
		if m.node == nil {
			w.absent(f, key, m)
		}
	}
}

// leave removes a node from a feed.
func (w *watcher) leave(f *feed, n *node) {
	delete(f.nodes, n.uid)
	if f.GroupVersionResource == client.Services.GroupVersionResource {
		w.servicesChanged(n.namespace)
	}
	if len(f.targets) > 0 {
		key := types.NamespacedName{Namespace: n.namespace, Name: n.name}
		if m := f.members[key]; m != nil && m.node == n {
			w.absent(f, key, m)
		}
		w.spaceOf(f)
	} else if f.GroupVersionResource == client.Namespaces.GroupVersionResource {
		w.touchAbsent()
	}
	n.unobserve(f)
	if len(n.observations) == 0 {
		w.forest.remove(n)
		return
	}
	if f.of != "" {
		var owners []*node
		for _, o := range n.owners {
			if o.uid != f.of {
				owners = append(owners, o)
			}
		}
		w.forest.link(n, owners, n.revision)
	}
}

func (n *node) observation(f *feed) *observation {
	for i := range n.observations {
		if n.observations[i].by == f {
			return &n.observations[i]
		}
	}
	return nil
}

func (n *node) observe(f *feed) {
	if s := n.observation(f); s != nil {
		s.epoch = f.epoch
		return
	}
	n.observations = append(n.observations, observation{f, f.epoch})
}

func (n *node) unobserve(f *feed) {
	for i := range n.observations {
		if n.observations[i].by == f {
			n.observations = append(n.observations[:i], n.observations[i+1:]...)
			return
		}
	}
}
