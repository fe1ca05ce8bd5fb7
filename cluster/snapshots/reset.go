package snapshots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	// resetPasses is how often the objects are compared: controllers may write between.
	resetPasses = 3
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
// be plain. With force it may be of any cluster.
func (r Reset) Apply(ctx context.Context, in io.Reader, force bool) (Reverted, error) {
	want, info, err := r.read(in)
	if err == nil && !force {
		err = r.related(info)
	}
	if err != nil {
		return Reverted{}, apierrors.NewBadRequest(err.Error())
	}
	out := Reverted{Revision: info.Revision}
	for range resetPasses {
		changed, err := r.pass(ctx, want, &out)
		if err != nil || !changed {
			return out, err
		}
	}
	return out, nil
}

// related returns an error unless the snapshot is of this cluster or of one that it was made from.
func (r Reset) related(info snapshot.Info) error {
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

// read reads a snapshot for this cluster.
func (r Reset) read(in io.Reader) (map[string]wanted, snapshot.Info, error) {
	s, err := snapshot.NewReader(in)
	if err != nil {
		return nil, snapshot.Info{}, err
	}
	if err := checkTexts(s.Info); err != nil {
		return nil, s.Info, err
	}
	if s.Info.Secrets != snapshot.Plain {
		return nil, s.Info, errors.New("the Secrets in the snapshot are encrypted")
	}
	kinds := map[string]*catalog.Kind{}
	for _, k := range r.Kinds() {
		kinds[strings.TrimSuffix(k.Prefix(""), "/")] = k
	}
	change := Change{Nodes: true, UID: types.UID(r.ID())}
	same := s.Info.ClusterID == r.ID()
	want, size := map[string]wanted{}, int64(0)
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
		want[e.Key] = w
		return nil
	}})
	return want, s.Info, err
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
	key   string
	data  []byte       // nil deletes
	now   store.Record // zero if there is none
	again []byte       // of an object that is made after the deletion; nil: none is
}

// pass writes the differences, and reports whether it has made or deleted an object.
func (r Reset) pass(ctx context.Context, want map[string]wanted, out *Reverted) (changed bool, err error) {
	var first, rest, deletions []step
	var saver codec.Saver
	seen := map[string]bool{}
	for rec := range r.Store.Freeze().All() {
		if leftAlone(rec.Key) {
			if homeless(rec.Key, want) {
				deletions = append(deletions, step{key: rec.Key, now: rec})
			}
			continue
		}
		seen[rec.Key] = true
		w, ok := want[rec.Key]
		data, readable := saver.Saved(rec.Value)
		differs := !readable || !bytes.Equal(data, w.data)
		revived := false
		if ok && (differs || asItIs(rec.Key)) {
			if revived, err = r.revived(rec, w); err != nil {
				return changed, err
			}
		}
		switch {
		case !ok:
			deletions = append(deletions, step{key: rec.Key, now: rec})
		case revived:
			// Clients do not expect an object that is being deleted to stay, so it is deleted, and made again.
			if w, err = r.renewed(rec.Key, w); err != nil {
				return changed, err
			}
			want[rec.Key] = w
			deletions = append(deletions, step{key: rec.Key, now: rec, again: w.data})
		case asItIs(rec.Key) && w.uid == uidOf(rec.Value):
		case w.data == nil:
			deletions = append(deletions, step{key: rec.Key, now: rec})
		case differs:
			rest = append(rest, step{key: rec.Key, data: w.data, now: rec})
		}
	}
	for key, w := range want {
		if seen[key] || w.data == nil {
			continue
		}
		changed = true
		if s := (step{key: key, data: w.data}); strings.HasPrefix(key, "namespaces/") || strings.HasPrefix(key, "customresourcedefinitions.") {
			first = append(first, s)
		} else {
			rest = append(rest, s)
		}
	}
	changed = changed || len(deletions) > 0
	for _, steps := range [][]step{first, deletions, rest} {
		if err := r.write(ctx, steps, out); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// revived reports whether an object that is being deleted is in the snapshot and is not being deleted there.
func (r Reset) revived(rec store.Record, w wanted) (bool, error) {
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
func (r Reset) renewed(key string, w wanted) (wanted, error) {
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

// write makes writes side by side. One that loses against another write is left to the next pass.
func (r Reset) write(ctx context.Context, steps []step, out *Reverted) error {
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
				s := steps[i]
				err := r.commit(ctx, s, out)
				if err == nil && s.again != nil {
					err = r.commit(ctx, step{key: s.key, data: s.again}, out)
				}
				if err != nil {
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

func (r Reset) commit(ctx context.Context, s step, out *Reverted) error {
	w := store.Write{Key: s.key, Expect: s.now.Revision, Delete: s.data == nil, Frees: s.data == nil, Author: resetter}
	count := &out.Written
	if w.Delete {
		w.Value, count = apiserver.Restate(s.now.Value), &out.Deleted
	} else {
		v, err := r.Decode(s.key, s.data)
		if err != nil {
			return err
		}
		w.Value = v
	}
	_, err := r.Store.Commit(ctx, w)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		atomic.AddInt64(count, 1)
	}
	return err
}

// ServeHTTP implements [http.Handler] for PUT of [Path].
func (r Reset) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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
