// Package wait repeats a condition until it holds.
//
// There is one loop, [Until], and one description of its rhythm, [Pace]. The
// loop works on the caller's goroutine, starts no other, allocates nothing per
// try, looks first and looks last: a condition that holds at the start or at the
// limit is never reported as missed. A condition says "no" with false, "no, and
// this is why" with [NotYet], and "never" with any other error.
//
// The forms that Kubernetes began with in 2014 stand over the same idea, for
// code that was written against them: [ConditionFunc], [Poll], [PollCycles],
// [PollWithContext], [WaitFunc], [WaitFor], [ErrWaitTimeout] and [Forever]. They
// differ from Until in one thing that their users rely on: the first look comes
// after the first interval.
//
// To wait for something that announces itself, wait on its channel or watch:
// this package is for what does not.
package wait
