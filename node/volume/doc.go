// Package volume keeps the files of a pod's volumes.
//
// What is to be in a volume is a [Payload], made from a config map, a secret, the
// pod's own fields or several of them; making one is a function of values. [Write]
// brings a directory to a payload so that a reader sees the whole old state or the
// whole new one:
//
//	V1  Files lie in a directory of their own, "..data" is a symbolic link to it,
//	    and every name in the volume is a link through "..data". A change is one
//	    rename of that link, as in Kubernetes.
//	V2  A payload that is there already is not written again.
//	V3  No path of a payload leaves the volume.
//
// [Subpath] opens a part of a volume without following a link out of it.
//
// The package mounts nothing and fetches nothing.
package volume
