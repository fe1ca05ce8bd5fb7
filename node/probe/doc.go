// Package probe runs the probes of containers.
//
// A [Prober] probes once. A [Counter] applies the thresholds of a probe to the results and returns when to probe next;
// it is pure. The worker of a pod holds the counters of its containers with its other timers, so a probe costs no
// goroutine between two attempts.
//
// [Network] runs HTTP, TCP and gRPC probes. Exec probes need the container runtime; the node agent runs them.
package probe
