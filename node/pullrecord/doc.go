// Package pullrecord remembers with which credentials images were pulled, so that a pod without them can't use a
// private image that another pod has pulled (KEP-2535).
//
// The records are files as kubelets keep them, below a directory: pulling/sha256-HASH for a pull that has begun, and
// pulled/sha256-HASH for an image that was pulled, with the secrets that gave access to it, or the note that all pods
// of the node have it.
//
//	P1  The file about a pull is written before the pull begins, and removed after the record of the image is written:
//	    an image whose origin is unknown after a crash counts as pulled, and is verified.
//	P2  If a record can't be read or written, the credentials are verified with the registry.
package pullrecord
