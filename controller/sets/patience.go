package sets

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/names"
)

// deadlineAnnotation gives a StatefulSet or DaemonSet a field of a Deployment's spec:
// a number of seconds without progress after which it counts as stuck.
const deadlineAnnotation = names.ProgressDeadlineSeconds

// An advance is how a StatefulSet or DaemonSet has come on since the last status.
type advance struct {
	progressed, complete bool
	what, revision       string // for the message
}

// deadlineAfter sets the condition Progressing of an object that has a deadline, and
// returns how long it is until that passes (0: it does not run). The condition's
// transition time is that of the last progress.
func deadlineAfter[C any](obj client.Object, now time.Time, a *advance, conditions dependents.Conditions[C]) time.Duration {
	seconds, err := strconv.ParseInt(obj.GetAnnotations()[deadlineAnnotation], 10, 32)
	if err != nil || seconds <= 0 || obj.GetDeletionTimestamp() != nil {
		conditions.Drop(progressing)
		return 0
	}
	limit := time.Duration(seconds) * time.Second
	put := func(status metav1.ConditionStatus, reason, message string) {
		conditions.Set(metav1.Condition{
			Type:   progressing,
			Status: status, Reason: reason, Message: fmt.Sprintf("%s %q: revision %s %s", a.what, obj.GetName(), a.revision, message),
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	c, there := conditions.Find(progressing)
	switch {
	case a.complete:
		if !there || c.Reason != reasonRolledOut {
			put(metav1.ConditionTrue, reasonRolledOut, "has rolled out")
		}
		return 0
	case !there || a.progressed || c.Reason == reasonRolledOut:
		put(metav1.ConditionTrue, reasonRollingOut, "is rolling out")
		return limit
	case c.Reason == reasonTimedOut:
		return 0
	}
	if left := c.LastTransitionTime.Add(limit).Sub(now); left > 0 {
		return left
	}
	put(metav1.ConditionFalse, reasonTimedOut, "has made no progress in time")
	return 0
}

// The condition, and its reasons.
const (
	progressing      = "Progressing"
	reasonTimedOut   = "ProgressDeadlineExceeded"
	reasonRolledOut  = "RolledOut"
	reasonRollingOut = "RollingOut"
)
