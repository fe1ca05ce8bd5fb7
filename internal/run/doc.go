// Package run owns every goroutine of the program.
//
// A part of the program is a function Run(ctx) error that works until its
// context is cancelled. [Stages] starts such parts in order, each stage when the one
// before it is ready, and stops them in the reverse order; the first part that
// ends on its own ends the run. [Group] is for the goroutines inside one part: a
// bounded or unbounded set whose owner waits for all of them.
//
// No other package writes a go statement, so a stack dump of a stopped program
// is empty and each line in one of a running program has an owner.
package run
