// Package storagemigration describes the StorageVersionMigration, kind of the group storagemigration.k8s.io,
// version v1: the wish that all objects of a resource are stored again, in the version that is stored today.
//
// Nothing in this program acts on it: a kind is stored in one version.
package storagemigration
