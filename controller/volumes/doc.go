// Package volumes holds the controllers of PersistentVolumeClaims and PersistentVolumes: the binder, the protection of
// claims, volumes and VolumeAttributesClasses that are in use, and the controller that creates claims for generic ephemeral volumes.
//
// The changes of a claim ([planClaim]) or a volume ([planVolume]) are a pure function of the object and the state of the
// cluster, and tested with stories. Package internal/volumefit says which volume fits a claim, here and in the scheduler.
// Messages of events, annotations and finalizers are the same as upstream's: external provisioners and upstream's scheduler
// work with this binder, and this scheduler works with upstream's binder.
//
//	volumes-V1  A claim gets the volume that is reserved for it, or else the smallest that fits among the volumes with the
//	            fewest access modes. If its class waits for the first consumer it gets only a reserved volume: the
//	            scheduler reserves it.
//	volumes-V2  Binding writes the volume first (claimRef with the UID of the claim) and then the claim. Each write is made
//	            only if it is missing, so that an interrupted binding is completed.
//	volumes-V3  A claim that was bound to a volume that does not exist any more is Lost for good. A volume whose claim was
//	            deleted is Released, and is not bound again because it has the data of that claim. The server decides
//	            whether a claim was deleted, the cache does not.
//	volumes-V4  The controllers do not delete volumes. The provisioner of a volume does; a volume without one becomes
//	            Failed.
//	volumes-V5  A claim exists while a pod with a node uses it, and a volume while it is Bound.
//	volumes-V6  An event is written once, and again only when it changes.
//
// Provisioners create volumes; package node/localdisk is one.
package volumes
