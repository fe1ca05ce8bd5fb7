// Package localdisk is a provisioner of volumes that are directories of a node: of storage classes whose provisioner is
// sampan.dev/local. A cluster that has no class of storage when it starts gets one, "local", which is the default and waits
// for the first consumer: the scheduler says on which node a volume is to be.
//
// It is an external provisioner like those of other makers, and needs nothing but the API: it works beside upstream's
// binder as well.
//
//	D1  The directory is there before the volume is, and the volume is gone after the directory.
//	D2  A volume's name is made of its claim's UID, so that a claim gets one, however often it is tried.
//	D3  No directory is removed unless it is called as a volume of this package is, and lies where these lie.
//
// Sizes are noted and not enforced, as for hostPath volumes: all share the file system of the data directory.
package localdisk
