// Package volumefit knows which PersistentVolume fits which PersistentVolumeClaim, and by which marks the parts of a cluster that
// bind them speak to each other: the scheduler, the binder among the controllers, provisioners, and their upstream
// counterparts.
//
// All of it is pure.
//
//	B1  A claim and a volume are bound when each names the other, the volume with the claim's UID. The volume is
//	    written first: claimRef is the lock.
//	B2  A volume that is reserved for a claim (claimRef without or with its UID) is that claim's alone.
//	B3  Otherwise the smallest volume that fits is taken, the first by name of several.
package volumefit
