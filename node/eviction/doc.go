// Package eviction decides when a node lacks memory, disk space, inodes or process IDs, and which of its pods ends then.
//
// The signals, the default thresholds, the order of the pods and the messages are those of upstream's kubelet. The package
// measures nothing and keeps no time of its own: a [Monitor] gets the observations and the time, and a caller gets the victim
// from [Victim] and ends it. [Exceeded] checks one pod against its own limits of local storage.
package eviction
