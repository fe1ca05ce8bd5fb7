// Package exit says how a command ends: the exit codes, the errors that carry one, and the
// lines in which an error is told.
//
// A verb returns an error and never exits. [With] gives an error a code of its own, [Usage]
// says that the command line is wrong; [Code] and [Explain] are for the one place that
// prints errors. A list of errors (errors.Join) is told line by line, and is
// [Gone] only if each of its errors is.
package exit
