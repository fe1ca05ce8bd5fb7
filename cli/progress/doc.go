// Package progress formats the progress and the result of a wait for terminals, logs and programs.
//
// It has pure functions from changes (await.Progress) and the time to text. A [Tree] is the picture of a wait on a
// terminal: one line per object, below it the parts that hold it up, each with its cause, cut to the size of the
// terminal; objects that do not fit are counted. [Lines] has one line per change, for logs. An [Event] is one line of
// the JSON stream for programs. [Report] describes an object at the end of a wait that it was not done in.
//
// [Screen] is the only part with side effects: it keeps a picture at the bottom of a terminal and redraws it in place,
// while other output scrolls above it.
//
//	P1  Text from the cluster never reaches the terminal as control characters.
//	P2  No line is wider than the terminal, no picture higher.
//	P3  The picture is replaced by one write per frame, so it does not flicker.
//	P4  After Close the cursor is visible, and nothing of the picture is left.
//
// The package does not wait, call a server, or read a clock.
package progress
