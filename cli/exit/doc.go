// Package exit defines how a command exits: the exit codes, the errors that carry one, and
// the text of an error message.
//
// A command returns an error and never calls os.Exit. [With] gives an error an exit code,
// [Usage] marks a usage error; [Code] and [Explain] are for the one place that prints
// errors. A joined error (errors.Join) is printed line by line, and is [Gone] only if each
// of its errors is.
package exit
