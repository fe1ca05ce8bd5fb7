package cache

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// parts is how many parts of one process read pods.
const parts = 5

// readers returns what follows for so many parts, each with an index of its own: each
// for itself, or all together.
func readers(together bool) (followers []*follower) {
	shared := NewShared(nil, nil)
	for range parts {
		indexes := Indexes[*corev1.Pod]{"node": func(p *corev1.Pod) []string {
			if p.Spec.NodeName == "" {
				return nil
			}
			return []string{p.Spec.NodeName}
		}}
		var c *Cache[*corev1.Pod]
		if together {
			c = Of(shared, client.Pods, indexes)
		} else {
			c = New(nil, client.Pods, Options[*corev1.Pod]{Indexes: indexes})
		}
		c.Subscribe(func(_, after *corev1.Pod) {
			if after == nil {
				panic("a pod is gone")
			}
		})
		if len(followers) == 0 || followers[0] != c.follower {
			followers = append(followers, c.follower)
		}
	}
	return followers
}

// BenchmarkShared measures how much less it costs to notify several parts of new pods when they
// share a cache, in one run, without what the server spends on each watch.
func BenchmarkShared(b *testing.B) {
	const pods = 1000
	objs := make([]*corev1.Pod, pods)
	for i := range objs {
		objs[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i))}}
	}
	notify := func(followers []*follower) time.Duration {
		start := time.Now()
		for _, f := range followers {
			for i, obj := range objs {
				f.set(keyOf(obj), obj, uint64(i+1))
			}
		}
		return time.Since(start)
	}
	var own, shared time.Duration
	for b.Loop() {
		own += notify(readers(false))
		shared += notify(readers(true))
	}
	b.ReportMetric(float64(own)/float64(shared), "x-cheaper")
}

// A script is a server whose watch yields the same events at once and then waits.
type script struct {
	client.Interface // nil: other requests panic
	events           []watch.Event
	played           func()
}

func (s *script) Watch(ctx context.Context, _ schema.GroupVersionResource, _ string, _ metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		for _, e := range s.events {
			if !yield(e, nil) {
				return
			}
		}
		s.played()
		yield(watch.Event{}, context.Cause(ctx))
	}
}

// BenchmarkFollow measures what it costs a cache to read 1,000 initial events and then 100 changes of each object, without
// what the server and its encoding cost.
func BenchmarkFollow(b *testing.B) {
	const pods, rounds = 1000, 100
	s := &script{}
	add := func(kind watch.EventType, i, revision int) {
		s.events = append(s.events, watch.Event{Type: kind, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: fmt.Sprint(revision),
		}}})
	}
	for i := range pods {
		add(watch.Added, i, i+1)
	}
	s.events = append(s.events, watch.Event{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: fmt.Sprint(pods), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}})
	for n := range pods * rounds {
		add(watch.Modified, n%pods, pods+n+1)
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		s.played = cancel
		c := New(s, client.Pods, Options[*corev1.Pod]{})
		if err := c.Run(ctx); err != nil || c.Revision() != fmt.Sprint(pods+pods*rounds) {
			b.Fatal(c.Revision(), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(s.events)), "ns/event")
}

// TestAChangeAllocatesNothing checks that notifying all subscribers of a change that leaves their
// indexes alone does not allocate.
func TestAChangeAllocatesNothing(t *testing.T) {
	followers := readers(true)
	if len(followers) != 1 {
		t.Fatalf("%d followers of one resource", len(followers))
	}
	var states [2]*corev1.Pod
	for i := range states {
		states[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u", ResourceVersion: fmt.Sprint(i + 1)}}
	}
	n := 0
	if got := testing.AllocsPerRun(100, func() {
		n++
		followers[0].set(keyOf(states[n%2]), states[n%2], uint64(n))
	}); got > 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
