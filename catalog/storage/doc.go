// Package storage is the kinds of storage.k8s.io/v1 that are served: StorageClass.
//
// A class says who makes volumes for claims (its provisioner), how, and when. Claims and
// volumes are kinds of the core group (package core), and nothing here makes a volume.
package storage
