// Package waiting makes verbs wait, and is the verb wait.
//
// Verbs that write tell a [Listener] what they wrote; with --wait (see [AddFlags]) that is
// waited for: exactly these objects (UID), as they were written (generation, resource
// version). [For] waits for anything else, [Attend] prints what pods write meanwhile. What
// is decided, and why, is package await's; this one tells it: a picture on a terminal, an
// event per line with -o json, a line per change elsewhere (package progress draws both).
//
// W1  The exit code is that of the verdict; see package exit.
// W2  Ctrl-C ends the telling and changes nothing in the cluster; what goes on is said.
// W3  A terminal is left as it was found, whatever ends the wait, and while it is stopped
//
//	(Ctrl-Z); in the background nothing is drawn.
package waiting
