// Package images makes images available to the pods of a node, and removes unused ones.
//
// A [Manager] pulls an image for a pod as the pull policy says, with the credentials of the pod, of the node, and of plug-ins; it
// divides the pulls that run at the same time among namespaces, and verifies that a pod may use an image that is on the node. It
// collects unused images by their age and by the space on their disk.
//
// It owns the queue of pulls and the records of pulled images. It sees no workers: a pod comes as a [Request], and a failure goes back
// in the words of the status of a container.
package images
