// Package volumes manages the files of the pods of a node: their volumes of all types, the managed /etc/hosts, termination messages, and
// the bind mounts of parts of volumes.
//
// [Files] makes the volumes of a pod before its sandbox ([Files.MountDrivers] for volumes whose mount may take long, because a driver does it or a
// file system is made, then [Files.SetUp]), keeps them up to date while the pod runs ([Files.Update], [Files.RevisitDrivers]), gives each
// container its mounts ([Files.Mounts], [Files.BlockDevices]), and unmounts and removes everything when the containers have ended
// ([Files.ReleaseDrivers], [Files.Unmount], [Files.Remove]). A restarted agent finds the files of earlier pods ([Files.Pods]).
//
// It owns the directory of the agent below pods and memory, the CSI drivers and the CSINode object, the mounts of block devices, and the
// tokens and certificates in volumes. It sees no workers: what it needs of the node is in [Node], and a driver that has registered is
// reported by a function.
package volumes
