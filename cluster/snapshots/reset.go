package snapshots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

// A Reset puts the objects of a running cluster back to a snapshot. Clients see it as deletions, creations and changes:
// watches go on, and every informer ends with the right objects, as after the same writes by users. To end all watches
// instead would make each client list again, for the same result.
//
// Objects that describe the present stay as they are: nodes and their objects, Leases, Events, volumes, published
// authorities. A pod or claim that is still there, by its UID, stays; one that has gone begins again.
type Reset struct {
	Store  *store.Store
	Decode func(key string, data []byte) (store.Value, error) // of the saved form
	Kinds  func() []*catalog.Kind                             // that are stored
	ID     func() string                                      // of the cluster

	// Cluster is the name of the cluster, and Ancestors are the IDs of the clusters that it was made from. A snapshot of
	// another one is refused.
	Cluster   string
	Ancestors []string

	Limit int64 // bytes that the records of a snapshot may have

	underWay sync.Mutex // held by the reset that runs
}

// A Reverted counts the changes of a reset.
type Reverted struct {
	Revision store.Revision `json:"revision"` // of the snapshot
	Written  int64          `json:"written"`
	Deleted  int64          `json:"deleted"`
}

// forceParameter is the query parameter that allows a snapshot of an unrelated cluster.
const forceParameter = "force"

const (
	resetWriters = 64 // at the same time, so that they share syncs of the disk

	// resetPasses is how often the objects are compared at least, if objects come and go: controllers may write between.
	resetPasses = 3

	// resetRepeats is how often they are compared at most, if others have changed objects that the reset was writing.
	resetRepeats = 10

	// resetTries is how often a write is tried in a pass.
	resetTries = 10
)

// leftAlone reports whether a reset does not touch a record.
func leftAlone(key string) bool {
	resource, _, _ := strings.Cut(key, "/")
	return ofNodes[resource] || resource == "persistentvolumes" || Change{}.Interest(key) == Drop || key == kubeSystem ||
		key == "services/default/kubernetes" || key == "endpointslices.discovery.k8s.io/default/kubernetes" || key == "endpoints/default/kubernetes"
}

// asItIs reports whether an object stays if one with its UID is there.
func asItIs(key string) bool {
	return strings.HasPrefix(key, "pods/") || strings.HasPrefix(key, "persistentvolumeclaims/")
}

// Apply puts the cluster back. It reads and checks all of the snapshot before it changes anything. Secrets in it must
// be plain. With force it may be of any cluster. One reset runs at a time; another one is a Conflict.
//
// Without an error each object has been as in the snapshot at one moment of the reset. Later writes of others
// stay. If they win too often, the error is a Conflict as well, and the reset can be repeated.
func (r *Reset) Apply(ctx context.Context, in io.Reader, force bool) (Reverted, error) {
	want, info, err := r.read(in)
	if err == nil && !force {
		err = r.related(info)
	}
	if err != nil {
		return Reverted{}, apierrors.NewBadRequest(err.Error())
	}
	if !r.underWay.TryLock() {
		return Reverted{}, conflict("another reset is under way: repeat this one when that one has ended; nothing was changed")
	}
	defer r.underWay.Unlock()
	out := Reverted{Revision: info.Revision}
	for pass := 1; ; pass++ {
		todo, err := r.compare(want)
		if err != nil {
			return out, err
		}
		t := &tally{out: &out, lost: map[string]bool{}}
		for _, steps := range [][]step{todo.first, todo.deletions, todo.rest} {
			if err := r.write(ctx, steps, t); err != nil {
				return out, err
			}
		}
		switch {
		case len(t.lost) == 0 && (!todo.changed || pass >= resetPasses):
			return out, nil
		case pass == resetRepeats:
			return out, conflict(fmt.Sprintf("other clients have changed objects while they were reset: %d, such as %s; all others are as in the snapshot. Repeat the reset, or stop these clients first",
				len(t.lost), t.one()))
		}
	}
}

// conflict is an error with the status 409.
func conflict(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: message,
	}}
}

// related returns an error unless the snapshot is of this cluster or of one that it was made from.
func (r *Reset) related(info snapshot.Info) error {
	if id := r.ID(); info.ClusterID != "" && (info.ClusterID == id || slices.Contains(r.Ancestors, info.ClusterID)) {
		return nil
	}
	return fmt.Errorf("the snapshot is of cluster %s (ID %s), and cluster %s (ID %s) was not made from that one: it would lose all its objects; nothing was changed. If that is wanted, pass --force to `sampan reset`, or the parameter %s=true in the URL",
		info.Cluster, info.ClusterID, r.Cluster, r.ID(), forceParameter)
}

// wanted is a record of the snapshot.
type wanted struct {
	data   []byte
	uid    types.UID // of pods and claims
	ending bool      // a pod or claim that is being deleted
}

// goal is the state that a reset brings a cluster to.
type goal struct {
	objects map[string]wanted // by key
	claims  map[string]string // that they have, see [store.Options.Claims], and the key of the object
}

// read reads a snapshot for this cluster.
func (r *Reset) read(in io.Reader) (goal, snapshot.Info, error) {
	want := goal{objects: map[string]wanted{}, claims: map[string]string{}}
	s, err := snapshot.NewReader(in)
	if err != nil {
		return want, snapshot.Info{}, err
	}
	if err := checkTexts(s.Info); err != nil {
		return want, s.Info, err
	}
	if s.Info.Secrets != snapshot.Plain {
		return want, s.Info, errors.New("the Secrets in the snapshot are encrypted")
	}
	kinds := map[string]*catalog.Kind{}
	for _, k := range r.Kinds() {
		kinds[strings.TrimSuffix(k.Prefix(""), "/")] = k
	}
	change := Change{Nodes: true, UID: types.UID(r.ID())}
	same := s.Info.ClusterID == r.ID()
	size := int64(0)
	_, err = s.Read(snapshot.Sink{Record: func(e store.Entry) error {
		if leftAlone(e.Key) {
			return nil
		}
		if size += int64(e.Size()); r.Limit > 0 && size > r.Limit {
			return fmt.Errorf("the records of the snapshot have more than %d bytes", r.Limit)
		}
		e.Data = bytes.Clone(e.Data)
		w := wanted{data: e.Data}
		resource, _, _ := strings.Cut(e.Key, "/")
		if kind := kinds[resource]; kind != nil && (asItIs(e.Key) || resource == "secrets" && !same) {
			keep, err := forReset(change, kind, &e, &w)
			if err != nil || !keep {
				return err
			}
		}
		want.objects[e.Key] = w
		if w.data == nil {
			return nil
		}
		v, err := decoded(r.Decode, e.Key, w.data)
		if err != nil {
			return err
		}
		for _, claim := range codec.Claims(e.Key, v) {
			if other := want.claims[claim]; other != "" && other != e.Key {
				return fmt.Errorf("the snapshot has %s in %s and in %s, and only one object may have it", claim, other, e.Key)
			}
			want.claims[claim] = e.Key
		}
		return nil
	}})
	return want, s.Info, err
}

// decoded returns the value of a record of a snapshot. It is an error if it cannot be read.
func decoded(decode func(key string, data []byte) (store.Value, error), key string, data []byte) (store.Value, error) {
	v, err := decode(key, data)
	if i, ok := v.(*codec.Item); err == nil && ok {
		err = i.Fault()
	}
	if err != nil {
		return nil, fmt.Errorf("record %q of the snapshot cannot be read: %w", key, err)
	}
	return v, nil
}

// forReset makes an object of the snapshot one that a running cluster can begin with.
func forReset(c Change, kind *catalog.Kind, e *store.Entry, w *wanted) (keep bool, err error) {
	item, err := codec.LoadItem(kind, e.Data)
	if err != nil {
		return false, fmt.Errorf("record %s: %w", e.Key, err)
	}
	obj, err := item.Fresh()
	if err != nil {
		return false, err
	}
	w.uid, w.ending = obj.GetUID(), obj.GetDeletionTimestamp() != nil
	// A pod of a DaemonSet that is still there stays; otherwise its controller makes another one.
	keep = c.Apply(obj)
	if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		Unbind(claim)
	}
	if !keep {
		w.data = nil
		return asItIs(e.Key), nil
	}
	err = encode(kind, obj, e)
	w.data = e.Data
	return true, err
}

// A step is a write that a pass makes.
type step struct {
	key  string
	data []byte       // nil deletes
	now  store.Record // zero if there is none
}

// A plan is the writes of a pass, in their order.
type plan struct {
	first, deletions, rest []step
	changed                bool // objects are made or deleted
}

// compare returns the writes that make the objects those of the snapshot. An object that has a claim which another one
// gets is deleted first, and made again if it stays; the error is about a claim of an object that cannot be deleted.
func (r *Reset) compare(want goal) (todo plan, err error) {
	var saver codec.Saver
	seen := map[string]bool{}
	for rec := range r.Store.Freeze().All() {
		gone := leftAlone(rec.Key) && homeless(rec.Key, want.objects)
		claim, yields := want.yields(rec)
		if leftAlone(rec.Key) {
			switch {
			case gone:
				todo.deletions = append(todo.deletions, step{key: rec.Key, now: rec})
			case yields:
				return todo, apierrors.NewBadRequest(fmt.Sprintf("the snapshot has %s in %s, and in this cluster it belongs to %s, which a reset does not change",
					claim, want.claims[claim], rec.Key))
			}
			continue
		}
		seen[rec.Key] = true
		w, ok := want.objects[rec.Key]
		data, readable := saver.Saved(rec.Value)
		differs := !readable || !bytes.Equal(data, w.data)
		revived := false
		if ok && (differs || asItIs(rec.Key)) {
			if revived, err = r.revived(rec, w); err != nil {
				return todo, err
			}
		}
		switch {
		case !ok:
			todo.deletions = append(todo.deletions, step{key: rec.Key, now: rec})
		case revived:
			// Clients do not expect an object that is being deleted to stay, so it is deleted, and made again.
			if w, err = r.renewed(rec.Key, w); err != nil {
				return todo, err
			}
			want.objects[rec.Key] = w
			todo.deletions = append(todo.deletions, step{key: rec.Key, now: rec})
			if w.data != nil {
				todo.rest = append(todo.rest, step{key: rec.Key, data: w.data})
			}
		case asItIs(rec.Key) && w.uid == uidOf(rec.Value):
		case w.data == nil:
			todo.deletions = append(todo.deletions, step{key: rec.Key, now: rec})
		case differs && yields:
			todo.deletions = append(todo.deletions, step{key: rec.Key, now: rec})
			todo.rest = append(todo.rest, step{key: rec.Key, data: w.data})
		case differs:
			todo.rest = append(todo.rest, step{key: rec.Key, data: w.data, now: rec})
		}
	}
	todo.changed = len(todo.deletions) > 0
	for key, w := range want.objects {
		if seen[key] || w.data == nil {
			continue
		}
		todo.changed = true
		if s := (step{key: key, data: w.data}); strings.HasPrefix(key, "namespaces/") || strings.HasPrefix(key, "customresourcedefinitions.") {
			todo.first = append(todo.first, s)
		} else {
			todo.rest = append(todo.rest, s)
		}
	}
	return todo, nil
}

// yields returns a claim of a record that another object of the snapshot has.
func (g goal) yields(rec store.Record) (claim string, yields bool) {
	if len(g.claims) == 0 {
		return "", false
	}
	for _, claim := range codec.Claims(rec.Key, rec.Value) {
		if owner, ok := g.claims[claim]; ok && owner != rec.Key {
			return claim, true
		}
	}
	return "", false
}

// revived reports whether an object that is being deleted is in the snapshot and is not being deleted there.
func (r *Reset) revived(rec store.Record, w wanted) (bool, error) {
	i, ok := rec.Value.(*codec.Item)
	if !ok || i.Object().GetDeletionTimestamp() == nil {
		return false, nil
	}
	if asItIs(rec.Key) {
		return !w.ending && w.uid != "", nil
	}
	if w.data == nil {
		return false, nil
	}
	v, err := r.Decode(rec.Key, w.data)
	if err != nil {
		return false, err
	}
	wantedItem, ok := v.(*codec.Item)
	return ok && wantedItem.Object().GetDeletionTimestamp() == nil, nil
}

// renewed gives a pod or claim of the snapshot a new UID: the node may still be ending the containers of the one that
// was being deleted, and its volume may be given back. Other objects have the UIDs of the snapshot.
func (r *Reset) renewed(key string, w wanted) (wanted, error) {
	if !asItIs(key) || w.data == nil {
		return w, nil
	}
	v, err := r.Decode(key, w.data)
	if err != nil {
		return w, err
	}
	item, ok := v.(*codec.Item)
	if !ok {
		return w, nil
	}
	obj, err := item.Fresh()
	if err != nil {
		return w, err
	}
	w.uid = uuid.NewUUID()
	obj.SetUID(w.uid)
	e := store.Entry{Key: key}
	resource, _, _ := strings.Cut(key, "/")
	for _, kind := range r.Kinds() {
		if strings.TrimSuffix(kind.Prefix(""), "/") == resource {
			err = encode(kind, obj, &e)
		}
	}
	w.data = e.Data
	return w, err
}

// homeless reports whether a record is in a namespace that the snapshot does not have.
func homeless(key string, want map[string]wanted) bool {
	parts := strings.SplitN(key, "/", 3)
	if len(parts) < 3 || "namespaces/"+parts[1] == kubeSystem {
		return false
	}
	_, there := want["namespaces/"+parts[1]]
	return !there
}

func uidOf(v store.Value) types.UID {
	if i, ok := v.(*codec.Item); ok {
		return i.Object().GetUID()
	}
	return ""
}

// A tally counts the writes of a pass.
type tally struct {
	mu   sync.Mutex
	out  *Reverted
	lost map[string]bool // keys of objects that others have written instead
}

// one returns one of the lost keys, always the same.
func (t *tally) one() string { return slices.Min(slices.Collect(maps.Keys(t.lost))) }

func (t *tally) lose(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost[key] = true
}

func (t *tally) wrote(deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if deleted {
		t.out.Deleted++
	} else {
		t.out.Written++
	}
}

// write makes writes side by side. One that loses against another write is left to the next pass.
func (r *Reset) write(ctx context.Context, steps []step, t *tally) error {
	var next atomic.Int64
	errs := make(chan error, resetWriters)
	g := run.NewGroup(ctx, 0)
	for range min(resetWriters, len(steps)) {
		g.Go(func(ctx context.Context) {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(steps) {
					return
				}
				if err := r.commit(ctx, steps[i], t); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	g.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// resetter is the author of the writes of a reset.
var resetter = store.Author{User: "system:apiserver", Agent: "sampan reset"}

// commit makes a write. If others have changed the object meanwhile it is tried again, a few times.
func (r *Reset) commit(ctx context.Context, s step, t *tally) error {
	var value store.Value
	if s.data != nil {
		var err error
		if value, err = decoded(r.Decode, s.key, s.data); err != nil {
			return err
		}
	}
	for range resetTries {
		w := store.Write{Key: s.key, Value: value, Expect: s.now.Revision, Delete: s.data == nil, Frees: s.data == nil, Author: resetter}
		if w.Delete {
			w.Value = apiserver.Restate(s.now.Value)
		}
		_, err := r.Store.Commit(ctx, w)
		switch {
		case err == nil:
			t.wrote(w.Delete)
			return nil
		case errors.Is(err, store.ErrNotFound): // deleted by another
			return nil
		case errors.Is(err, store.ErrClaimed): // by a write since the comparison
			t.lose(s.key)
			return nil
		case !errors.Is(err, store.ErrConflict):
			return err
		}
		now, err := r.Store.Get(s.key)
		switch {
		case errors.Is(err, store.ErrNotFound) && w.Delete:
			return nil
		case errors.Is(err, store.ErrNotFound):
			now = store.Record{}
		case err != nil:
			return err
		case !sameObject(s.now, now): // the next pass decides about it
			t.lose(s.key)
			return nil
		}
		s.now = now
	}
	t.lose(s.key)
	return nil
}

// sameObject reports whether two records are of one object, and both or neither is being deleted.
func sameObject(a, b store.Record) bool {
	i, ok := a.Value.(*codec.Item)
	j, too := b.Value.(*codec.Item)
	if !ok || !too {
		return false
	}
	return i.Object().GetUID() == j.Object().GetUID() && (i.Object().GetDeletionTimestamp() == nil) == (j.Object().GetDeletionTimestamp() == nil)
}

// ServeHTTP implements [http.Handler] for PUT of [Path].
func (r *Reset) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	force := false
	if text := req.URL.Query().Get(forceParameter); text != "" {
		var err error
		if force, err = strconv.ParseBool(text); err != nil {
			httpserver.WriteError(w, req, apierrors.NewBadRequest(fmt.Sprintf("%s: must be true or false, got %q", forceParameter, text)))
			return
		}
	}
	out, err := r.Apply(req.Context(), req.Body, force)
	if err != nil {
		httpserver.WriteError(w, req, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // a client that has gone needs no answer
}
