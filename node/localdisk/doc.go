// Package localdisk provisions persistent volumes that are directories of a node, for storage classes whose provisioner
// is sampan.dev/local. A cluster without a storage class gets one when it starts: "local", which is the default class
// and waits for the first consumer, so that the scheduler chooses the node of a volume.
//
// It has two parts. The provisioner runs once in a cluster. It is an external provisioner like those of other vendors, and
// uses only the API: it works with upstream's volume binder as well. The directories are made and removed by the agent of
// each node ([Handlers]), which the provisioner asks through the proxy subresource of the node. So the credential of a node
// needs no right to write PersistentVolumes (docs/decisions/0085).
//
//	D1  The directory is created before the volume, and the volume is deleted after the directory. If the Node object
//	    does not exist any more, the volume is deleted without its directory.
//	D2  A volume's name is derived from its claim's UID, so that a claim gets one volume, however often provisioning is
//	    tried.
//	D3  A directory is removed only if it has the name of a volume of this package and is in the directory of these.
//	D4  A volume has the path that the agent of its node returned, and can be mounted on a node of that name only.
//	D5  A node whose agent does not answer delays no volumes of other nodes.
//	D6  A data directory can be moved: a volume of this package whose path ends with "/volumes/NAME" is the directory NAME of
//	    the volumes of its node, unless only the path itself is there. Paths that users write stay as they are.
//
// Sizes are recorded and not enforced, as for hostPath volumes: all volumes share the file system of the data directory.
package localdisk
