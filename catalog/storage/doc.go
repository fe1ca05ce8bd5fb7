// Package storage has the kinds of storage.k8s.io/v1 that are served: StorageClass,
// VolumeAttributesClass, and the objects of drivers of the Container Storage Interface: CSIDriver,
// CSINode, CSIStorageCapacity and VolumeAttachment.
//
// A class names the provisioner that makes volumes for claims, and says how and when. Claims and
// volumes are kinds of the core group (package core). This package does not make volumes.
package storage
