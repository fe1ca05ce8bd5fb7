// Package waiting adds waiting to commands (--wait, --logs, …), and has the command wait.
//
// Commands that write objects pass each one to a [Listener]; with --wait (see [AddFlags]) the command then waits for
// exactly these objects (UID) as they were written (generation, resource version). [For] waits for any other request,
// and [Attend] prints the output of pods meanwhile. Package await decides when a wait ends and why; this package prints
// it: as a picture on a terminal, as JSON events with -o json, otherwise as one line per change. Package progress formats
// all three.
//
// W1  The exit code follows from the verdict; see package exit.
// W2  Ctrl-C ends the wait and changes nothing in the cluster; a message lists what is not done yet.
// W3  A terminal is left as it was, however the wait ends, and while the process is stopped (Ctrl-Z). In the background
// nothing is drawn.
package waiting
