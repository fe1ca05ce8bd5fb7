package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// The size of the storm.
const (
	stormWriters  = 24
	stormWatchers = 8
	stormObjects  = 5
	stormWrites   = 20 // of each writer
)

// Many clients of both kinds change a few objects in every way that there is, while others watch.
// No acknowledged change is lost, and the events of every watcher, played back, yield the stored
// objects in the end.
func TestStorm(t *testing.T) {
	for _, kept := range []string{"in memory", "on disk"} {
		t.Run(kept, func(t *testing.T) {
			var backend store.Backend
			if kept == "on disk" {
				var err error
				if backend, err = disk.Open(t.TempDir(), disk.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			st, err := store.Open(t.Context(), backend, store.Options{Decode: apiserver.NewLoader(apiservertest.Kinds(t)).Decode, Terms: apiserver.Terms(apiservertest.Kinds(t))})
			if err != nil {
				t.Fatal(err)
			}
			group := run.NewGroup(t.Context(), 0)
			group.Go(func(ctx context.Context) {
				if err := st.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			defer group.Stop()
			f := serve(t, func(o *apiserver.Options) { o.Store = st })
			newStorm(f).run()
		})
	}
}

// A storm is what the writers know to be true.
type storm struct {
	*fixture
	mu      sync.Mutex
	counted map[types.UID]int               // guarded by mu; acknowledged increments of an object
	ended   map[types.UID]*corev1.ConfigMap // guarded by mu; the last state in the event of each deleted object
}

func newStorm(f *fixture) *storm {
	return &storm{fixture: f, counted: map[types.UID]int{}, ended: map[types.UID]*corev1.ConfigMap{}}
}

func (s *storm) run() {
	writers, watchers := run.NewGroup(s.Context(), 0), run.NewGroup(s.Context(), 0)
	s.create(configMaps, configMap("begin", "odd=yes"))
	playbacks := make([]*playback, stormWatchers)
	for i := range playbacks {
		playbacks[i] = &playback{storm: s, odd: i%4 >= 2, objects: map[string]*corev1.ConfigMap{}, hears: make(chan struct{})}
		watchers.Go(func(ctx context.Context) {
			if i%2 == 0 {
				playbacks[i].watchLocal(ctx)
			} else {
				playbacks[i].watchHTTP(ctx)
			}
		})
	}
	for _, early := range playbacks[:stormWatchers/2] { // the others come when they come
		<-early.hears
	}
	for i := range stormWriters {
		writers.Go(func(ctx context.Context) {
			var do doer = localDoer{s.local}
			if i%2 == 0 {
				do = httpDoer{s.fixture}
			}
			for range stormWrites {
				if err := s.change(ctx, do, "c"+strconv.Itoa(rand.IntN(stormObjects))); err != nil {
					s.Errorf("writer %d: %v", i, err)
					return
				}
			}
		})
	}
	writers.Wait()
	end := configMap("end", "odd=yes") // marks the end for the watchers
	if _, err := s.local.Create(s.Context(), cmGVR, "default", "", end, metav1.CreateOptions{}, ""); err != nil {
		s.Fatal(err)
	}
	watchers.Wait()
	list := into[corev1.ConfigMapList](s.fixture, s.do("GET", configMaps, nil), 200)
	for i, p := range playbacks {
		var want, got []string
		for _, cm := range list.Items {
			if !p.odd || cm.Labels["odd"] == "yes" {
				want = append(want, cm.Name+"@"+cm.ResourceVersion+" n="+cm.Data["n"])
			}
		}
		for name, cm := range p.objects {
			got = append(got, name+"@"+cm.ResourceVersion+" n="+cm.Data["n"])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			s.Errorf("watcher %d played back: %q\nstored: %q", i, got, want)
		}
	}
	for _, cm := range list.Items {
		s.ended[cm.UID] = &cm
	}
	if len(s.ended) <= len(list.Items) {
		s.Error("nothing was deleted: the storm was none")
	}
	for uid, cm := range s.ended {
		if n, _ := strconv.Atoi(cm.Data["n"]); n != s.counted[uid] {
			s.Errorf("%s (%s) counts %d, and %d increments were acknowledged", cm.Name, uid, n, s.counted[uid])
		}
		delete(s.counted, uid)
	}
	if len(s.counted) > 0 {
		s.Errorf("increments were acknowledged of objects without an event: %v", s.counted)
	}
}

// change makes one random change, and counts it if it was acknowledged.
func (s *storm) change(ctx context.Context, do doer, name string) error {
	old, err := do.get(ctx, name)
	if apierrors.IsNotFound(err) {
		cm := configMap(name)
		cm.Data = map[string]string{"n": "0"}
		if err = do.create(ctx, cm); apierrors.IsAlreadyExists(err) {
			err = nil
		}
		return err
	}
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(old.Data["n"])
	next, odd := strconv.Itoa(n+1), map[bool]string{true: "yes", false: "no"}[n%2 == 0]
	var conflict bool
	switch rand.IntN(5) {
	case 0:
		cm := old.DeepCopy()
		cm.Data["n"] = next
		metav1.SetMetaDataLabel(&cm.ObjectMeta, "odd", odd)
		err = do.update(ctx, cm)
		conflict = apierrors.IsConflict(err)
	case 1:
		err = do.patch(ctx, name, types.JSONPatchType, fmt.Sprintf(
			`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/data/n","value":%q},{"op":"replace","path":"/data/n","value":%q},{"op":"add","path":"/metadata/labels","value":{"odd":%q}}]`,
			old.UID, old.Data["n"], next, odd))
		conflict = apierrors.IsInvalid(err)
	case 2:
		err = do.patch(ctx, name, types.StrategicMergePatchType, fmt.Sprintf(
			`{"metadata":{"resourceVersion":%q,"labels":{"odd":%q}},"data":{"n":%q}}`, old.ResourceVersion, odd, next))
		conflict = apierrors.IsConflict(err)
	case 3:
		// Without a version: it never conflicts, and counts nothing.
		err = do.patch(ctx, name, types.MergePatchType, fmt.Sprintf(`{"data":{"last":%q}}`, next))
		conflict = err == nil
	case 4:
		if rand.IntN(4) > 0 {
			return nil
		}
		err = do.remove(ctx, old)
		conflict = err == nil || apierrors.IsConflict(err)
	}
	switch {
	case conflict, apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted[old.UID]++
	return nil
}

// A doer makes requests in one of the two ways that there are.
type doer interface {
	get(ctx context.Context, name string) (*corev1.ConfigMap, error)
	create(ctx context.Context, cm *corev1.ConfigMap) error
	update(ctx context.Context, cm *corev1.ConfigMap) error
	patch(ctx context.Context, name string, kind types.PatchType, body string) error
	remove(ctx context.Context, cm *corev1.ConfigMap) error
}

type localDoer struct{ local *apiserver.Local }

func (d localDoer) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	obj, err := d.local.Get(ctx, cmGVR, "default", name, "")
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.ConfigMap), nil
}

func (d localDoer) create(ctx context.Context, cm *corev1.ConfigMap) error {
	_, err := d.local.Create(ctx, cmGVR, "default", "", cm, metav1.CreateOptions{}, "")
	return err
}

func (d localDoer) update(ctx context.Context, cm *corev1.ConfigMap) error {
	_, err := d.local.Update(ctx, cmGVR, "default", cm.Name, cm, metav1.UpdateOptions{}, "")
	return err
}

func (d localDoer) patch(ctx context.Context, name string, kind types.PatchType, body string) error {
	_, err := d.local.Patch(ctx, cmGVR, "default", name, kind, []byte(body), metav1.PatchOptions{}, "")
	return err
}

func (d localDoer) remove(ctx context.Context, cm *corev1.ConfigMap) error {
	return d.local.Delete(ctx, cmGVR, "default", cm.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(cm.UID))})
}

type httpDoer struct{ *fixture }

// ask sends a request and decodes the answer into out or into the error.
func (d httpDoer) ask(ctx context.Context, method, path, contentType string, body, out any) error {
	resp := d.open(ctx, method, configMaps+path, body, "Content-Type: "+contentType)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		failure := &apierrors.StatusError{}
		if err := json.Unmarshal(data, &failure.ErrStatus); err != nil {
			return err
		}
		return failure
	}
	return json.Unmarshal(data, out)
}

func (d httpDoer) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	return cm, d.ask(ctx, "GET", "/"+name, "", nil, cm)
}

func (d httpDoer) create(ctx context.Context, cm *corev1.ConfigMap) error {
	return d.ask(ctx, "POST", "", "application/json", cm, &corev1.ConfigMap{})
}

func (d httpDoer) update(ctx context.Context, cm *corev1.ConfigMap) error {
	return d.ask(ctx, "PUT", "/"+cm.Name, "application/json", cm, &corev1.ConfigMap{})
}

func (d httpDoer) patch(ctx context.Context, name string, kind types.PatchType, body string) error {
	return d.ask(ctx, "PATCH", "/"+name, string(kind), body, &corev1.ConfigMap{})
}

func (d httpDoer) remove(ctx context.Context, cm *corev1.ConfigMap) error {
	return d.ask(ctx, "DELETE", "/"+cm.Name, "application/json",
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(cm.UID))}, &metav1.Status{})
}

// A playback collects the events of a watcher.
type playback struct {
	*storm
	odd     bool // it watches a selector alone
	objects map[string]*corev1.ConfigMap
	last    uint64        // the highest revision of all events
	begun   bool          // something came that is not the first state
	hears   chan struct{} // closed with the first event
}

func (p *playback) selector() string {
	if p.odd {
		return "odd=yes"
	}
	return ""
}

func (p *playback) watchLocal(ctx context.Context) {
	for ev, err := range p.local.Watch(ctx, cmGVR, "default", metav1.ListOptions{LabelSelector: p.selector()}) {
		if err != nil {
			p.Errorf("watch: %v", err)
			return
		}
		if cm := ev.Object.(*corev1.ConfigMap); p.hear(ev.Type, cm) {
			return
		}
	}
}

func (p *playback) watchHTTP(ctx context.Context) {
	resp := p.open(ctx, "GET", configMaps+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector="+p.selector(), nil)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var ev struct {
			Type   watch.EventType
			Object corev1.ConfigMap
		}
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			p.Error(err)
			return
		}
		if p.hear(ev.Type, &ev.Object) {
			return
		}
	}
	p.Errorf("a watch ended early: %v", lines.Err())
}

// hear plays one event, and reports whether it was the last.
func (p *playback) hear(kind watch.EventType, cm *corev1.ConfigMap) (last bool) {
	rv, err := strconv.ParseUint(cm.ResourceVersion, 10, 64)
	if err != nil {
		p.Error(err)
		return true
	}
	if p.last == 0 {
		close(p.hears)
	}
	known := p.objects[cm.Name]
	// The state comes first, in the order of names; then all in the order of revisions.
	p.begun = p.begun || kind != watch.Added
	switch {
	case kind == watch.Bookmark:
		p.last = max(p.last, rv)
		return false
	case (kind == watch.Added) != (known == nil):
		p.Errorf("%s of %s@%d, which the watcher knew as %v", kind, cm.Name, rv, known)
	case known != nil && known.UID != cm.UID:
		p.Errorf("%s of %s@%d turns it into another object", kind, cm.Name, rv)
	case p.begun && rv <= p.last:
		p.Errorf("%s of %s@%d after revision %d", kind, cm.Name, rv, p.last)
	}
	p.last = max(p.last, rv)
	p.objects[cm.Name] = cm
	if kind == watch.Deleted {
		delete(p.objects, cm.Name)
		if !p.odd { // with a selector it may only have left it
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ended[cm.UID] = cm
		}
	}
	return cm.Name == "end"
}
