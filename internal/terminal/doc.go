// Package terminal keeps text of others from controlling the terminal of a user: control characters in the names,
// messages and errors of a cluster are shown and not obeyed. The standard streams of commands are a [Writer], so a
// command that prints is safe unless it asks for [Raw] or [Data]. It also has the signals of terminals, which not all systems have.
package terminal
