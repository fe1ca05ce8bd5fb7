package clusters

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/snapshots"
)

// saves is the state of the snapshots that a running cluster saves by itself.
type saves struct {
	Every   string     `json:"every"`
	Dir     string     `json:"dir"`
	Last    *time.Time `json:"last,omitempty"`    // of the newest one; nil: there is none
	Next    *time.Time `json:"next,omitempty"`    // when the next one is due; it may be in the past while it fails
	Failed  *time.Time `json:"failed,omitempty"`  // of the last attempt, if that failed
	Failure string     `json:"failure,omitempty"` // why
}

// String returns a line for users.
func (s saves) String() string {
	text := "every " + s.Every
	if s.Last != nil {
		text += ", last " + s.Last.UTC().Format(time.RFC3339)
	} else {
		text += ", none so far"
	}
	if s.Failed != nil {
		return text + fmt.Sprintf("; the attempt at %s failed: %s", s.Failed.UTC().Format(time.RFC3339), printable(s.Failure))
	}
	return text + ", next " + s.Next.UTC().Format(time.RFC3339)
}

// savesOf returns the state of the snapshots that a running cluster saves by itself, or nil if it does not.
func savesOf(ctx context.Context, p local.Profile, i local.Instance) (*saves, error) {
	if i.Member {
		return nil, nil
	}
	plan, err := p.SnapshotPlan()
	if err != nil || plan.Period() == 0 {
		return nil, err
	}
	schedule := snapshots.Schedule{Dir: plan.Dir, Name: p.Name, Every: plan.Period()}
	out := &saves{Every: plan.Every, Dir: plan.Dir}
	last := schedule.Last()
	next := i.Started
	if !last.IsZero() {
		out.Last, next = &last, last.Add(plan.Period())
	}
	out.Next = &next
	if i.Starting() {
		return out, nil
	}
	out.Failed, out.Failure, err = failureSince(ctx, p, last)
	return out, err
}

// failureSince returns when and why a snapshot could not be saved since the last one, by the Event of the cluster.
func failureSince(ctx context.Context, p local.Profile, last time.Time) (*time.Time, string, error) {
	ctx, cancel := context.WithTimeout(ctx, conditionsLimit)
	defer cancel()
	api, err := administrator(p)
	var all []*corev1.Event
	if err == nil {
		all, _, err = client.Events.List(ctx, api, metav1.NamespaceDefault, metav1.ListOptions{FieldSelector: "reason=" + snapshots.FailedReason})
	}
	if err != nil {
		return nil, "", fmt.Errorf("whether snapshots fail cannot be read: %w", err)
	}
	var newest *corev1.Event
	for _, e := range all {
		if e.LastTimestamp.After(last) && (newest == nil || e.LastTimestamp.After(newest.LastTimestamp.Time)) {
			newest = e
		}
	}
	if newest == nil {
		return nil, "", nil
	}
	return &newest.LastTimestamp.Time, newest.Message, nil
}
