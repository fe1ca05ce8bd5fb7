// Package metrics holds the metrics of a node agent, under the names of upstream's kubelet.
//
// [New] makes all of them. Each part of the agent counts in the part of [Metrics] that is named after its subject: pods, images,
// volumes, resizes, devices, processors, the start of the node. The package owns the registries of /metrics and /metrics/probes, and
// drops the samples of a pod that is gone. It reads nothing of the agent: collectors that do are added with [Metrics.Serve].
package metrics
