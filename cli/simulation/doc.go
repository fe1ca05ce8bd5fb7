// Package simulation has the command simulate, which schedules the pods of objects on nodes
// that need not exist. It needs no server: kinds, defaults and rules come from the catalog,
// pods from the controllers' templates, and decisions from the scheduler, one pod at a time.
//
// It leaves out everything that depends on a running cluster: admission (quotas, limit
// ranges, priority classes by name), volumes, and pods that are created or deleted meanwhile.
package simulation
