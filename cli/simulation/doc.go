// Package simulation has the verb simulate: would objects fit on nodes that need not
// exist, where would their pods go, and what would be left. It needs no server: kinds,
// defaults and rules come from the catalog, pods from the controllers' own templates,
// and places from the scheduler's own decision, one pod after the other.
//
// What is left out is what only a cluster knows: admission (quotas, limit ranges,
// priority classes by name), volumes, and pods that come and go meanwhile.
package simulation
