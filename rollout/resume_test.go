package rollout_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/rollout"
)

// A way is a command that is interrupted everywhere.
type way struct {
	name   string
	before []func(*rollout.Options) // commands that come first, whose errors do not matter
	change func(*rollout.Options)   // nil: an update of web to v2
	end    string                   // name of the controller in the end
	image  string                   // of its pods
	made   int                      // pods in all; 0: it may vary
	back   bool                     // it ends as rolled back
	min    int                      // ready pods at any time; 0 means 3
	max    int                      // pods at any time; 0 means 4
}

// An interruption is what happens at a call.
type interruption struct {
	name string
	kill bool // the program ends
	lost bool // the call is carried out all the same
}

// TestResumeAfterEachCall interrupts the updater at its first,
// second, … call, with the call made or not, and the program killed or not, and runs
// it again if need be: the end is the same, no pod is made twice, and capacity is
// kept all the time.
func TestResumeAfterEachCall(t *testing.T) {
	three := intstr.Parse("100%")
	for _, w := range []way{
		{name: "rename", end: "web", image: "v2", made: 6},
		{name: "two names", change: func(o *rollout.Options) { o.NewName = "web2" }, end: "web2", image: "v2", made: 6},
		{name: "two names without surge", change: twoNames, end: "web2", image: "v2", made: 6, min: 2, max: 3},
		{name: "preserve", change: func(o *rollout.Options) { o.NewName, o.Cleanup = "web2", rollout.CleanupPreserve }, end: "web2", image: "v2", made: 6},
		{
			name: "whole controller", change: func(o *rollout.Options) { o.Image, o.New = "", newSpec(map[string]string{"app": "web2"}) },
			end: "web2", image: "v2", made: 6,
		},
		{
			name: "rollback", before: []func(*rollout.Options){func(o *rollout.Options) { o.Image, o.Surge = "slow", &three }},
			change: func(o *rollout.Options) { o.Image, o.Rollback = "", true }, end: "web", image: "v1", made: 6, max: 6,
		},
		{
			name: "rollback of canaries", before: []func(*rollout.Options){func(o *rollout.Options) { o.Canaries = 2 }},
			change: func(o *rollout.Options) { o.Image, o.Rollback = "", true }, end: "web", image: "v1", made: 7,
		},
		{
			name: "one name after two", before: []func(*rollout.Options){func(o *rollout.Options) { o.Canaries, o.NewName = 1, "web2" }},
			end: "web", image: "v2", made: 6,
		},
		{
			name: "promote", before: []func(*rollout.Options){func(o *rollout.Options) { o.Canaries = 1 }},
			change: func(o *rollout.Options) { o.Image, o.Promote = "", true }, end: "web", image: "v2", made: 6,
		},
		{
			name: "promote two names", before: []func(*rollout.Options){func(o *rollout.Options) { o.Canaries, o.NewName = 1, "web2" }},
			change: func(o *rollout.Options) { o.Image, o.Promote = "", true }, end: "web2", image: "v2", made: 6,
		},
		{
			name: "promote and preserve", before: []func(*rollout.Options){func(o *rollout.Options) {
				o.Canaries, o.NewName, o.Cleanup = 1, "web2", rollout.CleanupPreserve
			}},
			change: func(o *rollout.Options) { o.Image, o.Promote = "", true }, end: "web2", image: "v2", made: 6,
		},
		{name: "auto-rollback", change: func(o *rollout.Options) { o.Image, o.AutoRollback = "bad", true }, end: "web", image: "v1", back: true},
		{name: "replace", change: replacePods, end: "web", image: "v1", made: 6, min: 2, max: 3},
		{
			name: "replace with surge", change: func(o *rollout.Options) {
				one := intstr.FromInt32(1)
				replacePods(o)
				o.Surge = &one
			}, end: "web", image: "v1", // six or seven, as the last one goes before or after what is too many
		},
		{name: "another image first", before: []func(*rollout.Options){func(o *rollout.Options) { o.Image = "slow" }}, end: "web", image: "v2", made: 7},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			everyCall(t, w)
		})
	}
}

func everyCall(t *testing.T, w way) {
	for _, i := range []interruption{
		{"killed before", true, false},
		{"killed after", true, true},
		{"server away", false, false},
		{"answer lost", false, true},
	} {
		t.Run(i.name, func(t *testing.T) {
			for call, done := 1, false; !done; call++ {
				inCluster(t, func(t *testing.T, h *testCluster) { done = w.interrupted(t, h, i, call) }, web(3))
				if t.Failed() || call > 200 {
					t.Fatalf("%s: interrupted at call %d", i.name, call)
				}
			}
		})
	}
}

// interrupted reports whether the command made no such call.
func (w way) interrupted(t *testing.T, h *testCluster, i interruption, call int) bool {
	h.settled("web", 3, 3, 1<<30)
	for _, change := range w.before {
		_, _ = h.update(h.s, t.Context(), change)
	}
	h.expect(cmp.Or(w.min, 3), cmp.Or(w.max, 4))
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	f := &faultClient{Interface: h.s, at: call, lost: i.lost}
	if i.kill {
		f.kill = kill
	}
	first, err := h.update(f, ctx, w.change)
	firstErr := err
	second := ""
	if i.kill && f.count() >= call || call <= 1 { // the first request of all is not tried twice
		second, err = h.update(h.s, t.Context(), w.change)
	}
	if !w.well(err, second != "" || f.count() >= call) {
		t.Errorf("interrupted at call %d: it ended with %v\nfirst: %v\n%ssecond:\n%s", call, err, firstErr, first, second)
		return true
	}
	made := w.made
	if strings.Count(first, "Deleting pod") == 3 && strings.Contains(second, "(3 left") {
		made = 0 // only the last response was lost, and a new command replaces the pods again
	}
	h.ends(w.end, w.image, 3, made)
	return f.count() < call
}

// well reports whether a command ended as it should. Interrupted at its last call,
// there may be nothing left to do for it when it is run again.
func (w way) well(err error, interrupted bool) bool {
	switch {
	case w.back:
		return errors.As(err, new(*rollout.RolledBackError))
	case err == nil:
		return true
	}
	return interrupted && (apierrors.IsNotFound(err) || errors.As(err, new(*rollout.DoneError)))
}

// TestResumeWithOneName kills an update with two names and repeats it with the first of them: it is resumed, and its
// controller gets the old name.
func TestResumeWithOneName(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		killedAt(t, h, 16, func(o *rollout.Options) { o.NewName = "web2" })
		if rc := clienttest.Find(h.s, client.ReplicationControllers, "default", "web2"); rc == nil || *rc.Spec.Replicas == 0 {
			t.Fatalf("the update was killed at %+v, want some pods of web2", rc)
		}
		out := h.mustUpdate(nil)
		if !strings.HasPrefix(out, "Found existing update in progress (web2), resuming.\n") || !strings.HasSuffix(out, "Renaming web2 to web\n") {
			t.Errorf("it printed\n%s", out)
		}
		h.end("web", "v2", 3, 6)
	}, web(3))
}

// TestAnotherNameUndoesFirst stops an update at its canaries and begins the same with another name. It prints that the first
// is undone, and not that it is resumed; the dry run shows the same.
func TestAnotherNameUndoesFirst(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		h.mustUpdate(func(o *rollout.Options) { o.NewName, o.Canaries = "web2", 1 })
		o := rollout.Options{Client: h.s, Namespace: "default", Old: "web", Image: "v2", NewName: "web3"}
		u, err := rollout.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if rc, undoes, err := u.Target(t.Context()); err != nil || rc.Name != "web3" || undoes != "web2" {
			t.Errorf("the dry run: %v, undoes %q, %v", rc, undoes, err)
		}
		out := h.mustUpdate(func(o *rollout.Options) { o.NewName = "web3" })
		const want = "Found existing update in progress (web2) to something else, undoing it first.\nSetting \"web\" replicas to 3\nScaling up web from "
		if !strings.HasPrefix(out, want) || strings.Contains(out, "resuming") {
			t.Errorf("it printed\n%s", out)
		}
		h.end("web3", "v2", 3, 8)
	}, web(3))
}

// killedAt kills a command at one call.
func killedAt(t *testing.T, h *testCluster, call int, change func(*rollout.Options)) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	if out, err := h.update(&faultClient{Interface: h.s, kill: kill, at: call}, ctx, change); err == nil {
		t.Fatalf("it was complete before call %d:\n%s", call, out)
	}
}

// An outage is a client whose calls fail for some time, watches included.
type outage struct {
	client.Interface
	of     string      // resource; empty means all
	answer error       // nil means that there is none
	over   func() bool // whether calls are answered
}

func (o *outage) fails(gvr schema.GroupVersionResource) error {
	switch {
	case o.over() || o.of != "" && o.of != gvr.Resource:
		return nil
	case o.answer != nil:
		return o.answer
	}
	return &client.UnreachableError{Server: "https://there", Err: fmt.Errorf("connection refused")}
}

func (o *outage) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, sub string) (runtime.Object, error) {
	if err := o.fails(gvr); err != nil {
		return nil, err
	}
	return o.Interface.Get(ctx, gvr, namespace, name, sub)
}

func (o *outage) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if err := o.fails(gvr); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	return o.Interface.List(ctx, gvr, namespace, opts)
}

func (o *outage) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		for e, err := range o.Interface.Watch(ctx, gvr, namespace, opts) {
			if away := o.fails(gvr); away != nil {
				yield(watch.Event{}, away)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (o *outage) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, sub string) (runtime.Object, error) {
	if err := o.fails(gvr); err != nil {
		return nil, err
	}
	return o.Interface.Create(ctx, gvr, namespace, name, obj, opts, sub)
}

func (o *outage) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, sub string) (runtime.Object, error) {
	if err := o.fails(gvr); err != nil {
		return nil, err
	}
	return o.Interface.Update(ctx, gvr, namespace, name, obj, opts, sub)
}

func (o *outage) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, sub string) (runtime.Object, error) {
	if err := o.fails(gvr); err != nil {
		return nil, err
	}
	return o.Interface.Patch(ctx, gvr, namespace, name, kind, patch, opts, sub)
}

func (o *outage) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	if err := o.fails(gvr); err != nil {
		return err
	}
	return o.Interface.Delete(ctx, gvr, namespace, name, opts)
}
