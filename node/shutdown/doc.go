// Package shutdown ends the pods of a node in order before the machine shuts down.
//
// [Periods] reads from the configuration of the node how long the pods of which priority may take to end, and [Groups]
// divides pods accordingly; both are pure. An [Inhibitor] delays the shutdown of the machine by a lock of systemd-logind
// (a delay inhibitor, https://systemd.io/INHIBITOR_LOCKS) and reports when a shutdown begins or is cancelled. Orders and limits
// are those of upstream's kubelet.
package shutdown
