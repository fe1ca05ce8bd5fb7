package await

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/await/follow"
	"github.com/sampan-io/sampan/client"
)

// A feed is what comes from one source: members, what belongs to members, or both.
type feed struct {
	source

	// Of members. Without targets the feed only explains.
	targets []*Target
	members map[types.NamespacedName]*member
	seen    bool // it has had a member
	lacking bool // it was told that a selector picks nothing
	closed  bool // what appears now is none of those whose end is waited for

	synced   bool          // it has been listed
	failed   bool          // it never will be
	late     bool          // it was started in mid-wait
	unserved bool          // the server does not know the resource yet
	again    chan struct{} // wakes who asks for that
	news     bool          // it only tells that kinds have changed
	lost     error         // why the server can't be reached; nil when it can

	epoch  uint32 // of the list that is being read
	nodes  map[types.UID]*node
	slices map[types.UID]*discoveryv1.EndpointSlice // as far as needed to take them away
}

// explain begins to follow a source that only explains, unless one that has all of it
// is followed already, and returns the feed.
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

// A source is what one list and watch is about.
type source struct {
	schema.GroupVersionResource
	namespace, labels, fields string

	of types.UID // what is listed belongs to this object, whatever it says itself
}

// A report is what a feed has to say.
type report struct {
	follow.Report
	from     *feed
	resolved *Target // what a target is whose kind was not known
}

// hear takes in one report.
func (w *watcher) hear(r report) error {
	f := r.from
	if r.Err != nil {
		return w.trouble(f, r.Err, r.Final)
	}
	if f.lost != nil {
		// The other sources that were lost will soon know, too.
		if f.lost = nil; w.away {
			w.away = false
			w.progress(Progress{Back: true})
		}
	}
	switch {
	case r.Reached:
		f.late = true // what goes wrong now goes wrong in mid-wait
	case r.resolved != nil:
		w.settleKind(f, *r.resolved)
	case r.Unserved:
		f.unserved = true
		w.sweep(f, f.epoch+1)
		w.listed(f)
		w.watchDefinitions()
	case f.news:
		w.kindsChanged(r)
	case r.Deleted:
		return w.unshow(f, r.Object)
	case r.Object != nil:
		return w.show(f, r.Object, true)
	default:
		if r.Begins {
			f.epoch++
		}
		for _, o := range r.Page {
			if err := w.show(f, o, f.synced); err != nil {
				return err
			}
		}
		if r.Whole {
			f.unserved = false
			for _, m := range f.members {
				m.uid = cmp.Or(r.Was, m.uid)
			}
			w.sweep(f, f.epoch)
			w.listed(f)
		}
	}
	return nil
}

// trouble takes in that a source can't be read.
func (w *watcher) trouble(f *feed, err error, final bool) error {
	switch {
	case len(f.targets) > 0 && (final || !f.synced && !f.late):
		return err
	case final && w.decides(f):
		return err
	case final:
		// What belongs to an object only explains; a wait goes on without it.
		f.failed = true
		w.listed(f)
		return nil
	}
	if !w.away {
		w.away = true
		w.progress(Progress{Lost: err})
	}
	f.lost = err
	return nil
}

// decides reports whether a wait can't be decided without a feed: the others only
// explain.
func (w *watcher) decides(f *feed) bool {
	return len(f.targets) > 0 || w.req.For.needsParts() &&
		(f.GroupVersionResource == client.Pods.GroupVersionResource || f.GroupVersionResource == client.EndpointSlices.GroupVersionResource)
}

// lost is why a source that decides can't be followed at the moment, nil if all can.
func (w *watcher) lost() error {
	for _, f := range w.every {
		if f.lost != nil && w.decides(f) {
			return f.lost
		}
	}
	return nil
}

// listed notes that a feed is complete, or never will be.
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
	for _, m := range w.members { // what was not known now is
		w.touch(m)
	}
}

// show takes in an object that exists.
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
	n.sight(f)
	if !n.there || len(n.sightings) == 1 || !follow.Newer(n.version, o.GetResourceVersion()) {
		var under []types.UID
		for _, s := range n.sightings {
			under = append(under, s.by.of)
		}
		w.forest.keep(n, given)
		w.forest.place(n.kind, w.forest.slim(o), under...)
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

// unshow takes in that an object is gone, or no longer what the source selects.
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

// sweep drops what a list did not have.
func (w *watcher) sweep(f *feed, epoch uint32) {
	for _, n := range f.nodes {
		if n.sighting(f).epoch != epoch {
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
	for key, m := range f.members { // named ones that never were
		if m.node == nil {
			w.absent(f, key, m)
		}
	}
}

// leave takes a node out of a feed.
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
	n.unsight(f)
	if len(n.sightings) == 0 {
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

func (n *node) sighting(f *feed) *sighting {
	for i := range n.sightings {
		if n.sightings[i].by == f {
			return &n.sightings[i]
		}
	}
	return nil
}

func (n *node) sight(f *feed) {
	if s := n.sighting(f); s != nil {
		s.epoch = f.epoch
		return
	}
	n.sightings = append(n.sightings, sighting{f, f.epoch})
}

func (n *node) unsight(f *feed) {
	for i := range n.sightings {
		if n.sightings[i].by == f {
			n.sightings = append(n.sightings[:i], n.sightings[i+1:]...)
			return
		}
	}
}
