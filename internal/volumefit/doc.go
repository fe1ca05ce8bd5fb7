// Package volumefit decides which PersistentVolume fits which PersistentVolumeClaim, and defines the annotations
// by which the scheduler, the volume controller, provisioners and their upstream counterparts bind them.
//
// All of it is pure.
//
//	B1  A claim and a volume are bound when each names the other, the volume with the claim's UID. The volume is
//	    written first: claimRef is the lock.
//	B2  A volume that is reserved for a claim (claimRef without or with its UID) is for that claim only.
//	B3  Otherwise the smallest volume that fits is taken, the first by name of several.
package volumefit
