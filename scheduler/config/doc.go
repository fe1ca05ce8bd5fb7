// Package config reads KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) and converts it to options of package
// scheduler.
//
// Reading is strict: an unknown field, a duplicate field, an unknown plug-in or an unknown point is an error with the
// path of the field. All errors of a file are reported together, and a file with errors is not used.
//
// Fields about the structure of upstream's program are accepted and have no effect: parallelism, enableProfiling,
// enableContentionProfiling, delayCacheUntilActive, and clientConnection except for kubeconfig. This scheduler makes one
// decision after the other.
package config
