// Package references watches the objects that the pods of a node refer to: ConfigMaps, Secrets, ClusterTrustBundles, and the
// certificate requests of the node.
//
// A [Set] has a separate watch for each ConfigMap and Secret, because a node may not read others; a watch runs while a pod holds its
// object. Changes are reported with the UIDs of the pods that hold the object. [Set.At] returns a reader that waits until an object has
// been listed. The package does nothing with the objects.
package references
