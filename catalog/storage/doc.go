// Package storage is the kinds of storage.k8s.io/v1 that are served: StorageClass, and what drivers of the Container Storage
// Interface say about themselves: CSIDriver, CSINode, CSIStorageCapacity and VolumeAttachment.
//
// A class says who makes volumes for claims (its provisioner), how, and when. Claims and
// volumes are kinds of the core group (package core), and nothing here makes a volume.
package storage
