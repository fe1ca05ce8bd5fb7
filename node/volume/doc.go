// Package volume writes the files of a pod's volumes.
//
// The content of a volume is a [Payload], made from a ConfigMap, a Secret, the pod's own fields or several of them;
// making one is a function of values. [Write] updates a directory to a payload so that a reader sees either the whole
// old content or the whole new one:
//
//	V1  Files are stored in a separate directory, "..data" is a symbolic link to it, and every name in the volume is a
//	    link through "..data". A change is one rename of that link, as in Kubernetes.
//	V2  A payload that is already written is not written again.
//	V3  No path of a payload leaves the volume.
//
// [Subpath] opens a part of a volume without following a link out of it. [MakeMountPoints] makes the directories in a read-only volume
// on which containers have other mounts. [Own] gives a volume to a pod's group, and [Uses] records which pods have a volume, so that this
// happens once.
//
// The package does not mount volumes and does not read objects from the API server.
package volume
