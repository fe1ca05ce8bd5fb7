// Package stats describes what a node, its pods and their containers use, in the two forms in which kubelets serve it: as
// metrics for Prometheus (/metrics/resource) and as a summary in JSON (/stats/summary).
//
// All values are measured when they are asked for. They are totals since the start of a container or of the node, and clients compute
// rates from two requests. Only summaries have rates, of CPU, from one summary to the next: [Rates].
package stats
