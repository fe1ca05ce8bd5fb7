// Package logs reads the log of a container in the format of container runtimes for Kubernetes: one file per attempt,
// one entry per line,
//
//	2030-01-02T15:04:05.123456789Z stdout F the output
//
// where P instead of F means that the line continues in the next entry.
//
// [Read] prints all of a log or its end, and can follow it until the container has ended. The end is found by reading
// backwards, so it costs no more for a long log than for a short one; following sleeps on inotify.
//
// A log that is rotated, by the runtime or by a client of ReopenContainerLog, is followed from file to file; see the
// type follower. Without following, only the file that is written to is read, like the kubelet does.
//
// The package does not rotate logs.
package logs
