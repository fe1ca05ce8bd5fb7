package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/podstate"
)

// The reasons of events about selectors.
const (
	reasonUnmatched = "SelectorMatchesNothing"
	reasonMatched   = "SelectorMatches"
)

// unmatchedPatience is how long a selector may match no pod before there is an event about it: a service is often created a
// moment before its pods, and they may all be replaced at the same time.
const unmatchedPatience = 15 * time.Second

// unmatched remembers the services whose selectors match no pod.
type unmatched struct {
	events *client.Recorder
	client client.Interface

	mu    sync.Mutex
	empty map[controller.Key]*emptiness // guarded by mu
}

// emptiness is the state of a service whose selector matches nothing.
type emptiness struct {
	since    time.Time // when it began, or we did
	reported bool      // an event says so
}

// look writes an event about a service whose selector matches no pod, and another one when it matches again. It returns
// after what time to call it again; 0 means not at all. It is called for one key at a time.
func (u *unmatched) look(ctx context.Context, svc *corev1.Service, pods []*corev1.Pod, others func() []*corev1.Pod) (time.Duration, error) {
	key := controller.KeyOf(svc)
	live := 0
	for _, p := range pods {
		if !podstate.Finished(p) {
			live++
		}
	}
	now, reported := time.Now(), false
	u.mu.Lock()
	e := u.empty[key]
	switch {
	case live > 0 || svc.DeletionTimestamp != nil:
		delete(u.empty, key)
	case e == nil:
		e = &emptiness{since: now}
		u.empty[key] = e
	}
	if e != nil {
		reported = e.reported
	}
	u.mu.Unlock()

	switch {
	case live > 0 && reported:
		u.events.Event(svc, corev1.EventTypeNormal, reasonMatched, "Its selector matches %s again", count(live, "pod"))
		return 0, nil
	case live > 0, svc.DeletionTimestamp != nil, reported:
		return 0, nil
	}
	if wait := unmatchedPatience - now.Sub(e.since); wait > 0 {
		return wait, nil
	}
	// An earlier process may have written the event.
	said, err := u.said(ctx, svc)
	if err != nil {
		return 0, err
	}
	if !said {
		u.events.Event(svc, corev1.EventTypeWarning, reasonUnmatched, "%s", why(svc, others()))
	}
	u.mu.Lock()
	e.reported = true
	u.mu.Unlock()
	return 0, nil
}

// said reports whether the newest event about the selector of a service says that it
// matches nothing.
func (u *unmatched) said(ctx context.Context, svc *corev1.Service) (bool, error) {
	about := fields.Set{"involvedObject.kind": "Service", "involvedObject.name": svc.Name, "involvedObject.uid": string(svc.UID)}
	all, _, err := client.Events.List(ctx, u.client, svc.Namespace, metav1.ListOptions{FieldSelector: about.String()})
	if apierrors.IsForbidden(err) {
		return false, nil // upstream's role has no such right; after a restart the event is written again
	}
	if err != nil {
		return false, fmt.Errorf("events of service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	all = slices.DeleteFunc(all, func(e *corev1.Event) bool { return e.Reason != reasonUnmatched && e.Reason != reasonMatched })
	if len(all) == 0 {
		return false, nil
	}
	newest := slices.MaxFunc(all, func(a, b *corev1.Event) int {
		// The warning is written after some time, and the normal event at once.
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), cmp.Compare(b.Reason, a.Reason))
	})
	return newest.Reason == reasonUnmatched, nil
}

func (u *unmatched) forget(key controller.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.empty, key)
}

// why says in words that no pod has the labels of a selector, and which of them is at
// fault if the others are there.
func why(svc *corev1.Service, pods []*corev1.Pod) string {
	var all, missing []string
	for _, key := range slices.Sorted(maps.Keys(svc.Spec.Selector)) {
		label := key + "=" + svc.Spec.Selector[key]
		all = append(all, label)
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			value, ok := p.Labels[key]
			return ok && value == svc.Spec.Selector[key] && !podstate.Finished(p)
		}) {
			missing = append(missing, label)
		}
	}
	text := fmt.Sprintf("No pod in namespace %s matches its selector %s", svc.Namespace, strings.Join(all, ","))
	if len(missing) > 0 && len(missing) < len(all) {
		text += "; none has " + strings.Join(missing, " or ")
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
