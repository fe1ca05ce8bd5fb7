// Package pressure evicts pods from a node that lacks memory, disk space, inodes or process IDs, and pods that use more local storage than
// their limits.
//
// An [Evictor] measures the node and its pods from time to time, sets the conditions of pressure, and ends one pod at a time, in the order
// that package eviction decides. It sees a pod with a worker as a [Pod]; an eviction is mail to the worker.
package pressure
