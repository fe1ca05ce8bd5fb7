// Package config reads KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) and says what it means for
// package scheduler.
//
// Reading is strict: an unknown field, a duplicate, a plug-in or a point that there is not is an error that
// names the field. Every fault is told at once, and a file with faults configures nothing.
//
// Fields that are about how upstream's program is built are read and have no effect: parallelism, enableProfiling,
// enableContentionProfiling, delayCacheUntilActive, and clientConnection but for kubeconfig. Decisions here are
// made one after the other.
package config
