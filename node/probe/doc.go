// Package probe asks containers whether they are well.
//
// A [Prober] asks once. A [Counter] turns answers into a verdict by the thresholds
// of a probe and says when to ask again; it is pure. The worker of a pod holds the
// counters of its containers beside its other timers, so a probe costs no
// goroutine between two questions.
//
// It knows http and tcp probes. Probes that run a command in the container, and
// gRPC ones, are more cases of Prober.
package probe
