// Package progress tells people and programs how a wait goes on.
//
// It is a pure core: news about objects (await.Progress) and the time go in, text
// comes out. A [Tree] is the picture of a wait on a terminal: an object per line,
// below it what it owns and what holds that up, each with its cause, cut to the
// size of the terminal; what does not fit is summed up. [Lines] is the same wait as
// a line per change, for logs. [Event] is one line of the stream for programs, and
// [Report] what is said about an object that a wait ended without.
//
// [Screen] is the one part that does something: it keeps a picture at the bottom of
// a terminal, drawn over in place, while text runs by above it.
//
//	P1  Text from the cluster never reaches the terminal as control characters.
//	P2  No line is wider than the terminal, no picture higher.
//	P3  The picture is replaced by one write per frame, so it does not flicker.
//	P4  After Close the cursor is there, and nothing of the picture is left.
//
// It does not wait, ask a server, or read a clock.
package progress
