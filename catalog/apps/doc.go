// Package apps describes the kinds of the group apps, version v1: Deployment,
// ReplicaSet, StatefulSet, DaemonSet and the ControllerRevision in which the last
// two keep their history.
//
// All but the last are a selector and a template of pods, and differ in how many pods
// there are and how one template is exchanged for another. The selector cannot
// change afterwards: the pods that are there would be lost or mixed up with others.
package apps
