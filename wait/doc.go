// Package wait repeats a condition until it holds.
//
// There is one loop, [Until] (or [For], if the condition has a result), and one description of its intervals, [Pace]:
//
//	err := wait.Until(ctx, wait.Pace{First: time.Second, Limit: time.Minute}, func(ctx context.Context) (bool, error) {
//		n, err := countReady(ctx)
//		if err != nil {
//			return false, err // ends the wait
//		}
//		if n < 3 {
//			return false, wait.NotYet(fmt.Errorf("%d of 3 are ready", n)) // in the error at the limit
//		}
//		return true, nil
//	})
//
// The loop runs on the caller's goroutine, starts no other, allocates nothing per try, and returns promptly when its
// context is cancelled. It calls the condition before the first pause and once more at the limit, so a condition that
// is true at the start or at the limit is never reported as missed. A condition returns false if it is not true yet, a
// [NotYet] error to give a reason, and any other error to end the wait. With [Pace.Wake] the condition is called when an
// event happened, so it need not be polled. The package works under testing/synctest.
//
// The functions that Kubernetes had in 2014 are here as well, for code that was written for them: [ConditionFunc],
// [Poll], [PollCycles], [PollWithContext], [WaitFunc], [WaitFor], [Poller], [ErrWaitTimeout] and [Forever]. They call the
// condition first after the first interval, because their users rely on it.
//
// For code that uses today's k8s.io/apimachinery/pkg/util/wait, APIMACHINERY.md lists the replacement of each name.
package wait
