// Package wait repeats a condition until it holds.
//
// There is one loop, [Until], which [For] gives a result, and one description of its
// rhythm, [Pace]:
//
//	err := wait.Until(ctx, wait.Pace{First: time.Second, Limit: time.Minute}, func(ctx context.Context) (bool, error) {
//		n, err := countReady(ctx)
//		if err != nil {
//			return false, err // ends the wait
//		}
//		if n < 3 {
//			return false, wait.NotYet(fmt.Errorf("%d of 3 are ready", n)) // told if time runs out
//		}
//		return true, nil
//	})
//
// The loop works on the caller's goroutine and starts no other, allocates nothing per
// try, ends promptly with its context, and looks first and last: a condition that holds
// at the start or at the limit is never reported as missed. A condition says "no" with
// false, "no, and this is why" with [NotYet], and "never" with any other error. What
// announces itself need not be polled: with [Pace.Wake] tries are made when something
// happened, or when time has passed, or both. Everything here works under
// testing/synctest, with the bubble's clock.
//
// The forms that Kubernetes began with in 2014 stand over the same idea, for
// code that was written against them: [ConditionFunc], [Poll], [PollCycles],
// [PollWithContext], [WaitFunc], [WaitFor], [Poller], [ErrWaitTimeout] and [Forever]. They
// differ from Until in one thing that their users rely on: the first look comes
// after the first interval.
//
// For code that uses k8s.io/apimachinery/pkg/util/wait of today, the file
// APIMACHINERY.md beside this one says for each of its names what to write here.
package wait
