// Package csi mounts volumes by drivers of the Container Storage Interface (CSI), as kubelet does.
//
// A driver is a program on the node, usually in a pod of a DaemonSet. It registers by a socket in the directory
// plugins_registry (package pluginregistry), and serves CSI on another one. The [Manager] stages a volume once on the
// node and publishes it to each pod.
//
//	csi-C1  Paths are those of kubelet, below Options.Root instead of /var/lib/kubelet:
//	        plugins_registry/NAME                                      sockets by which drivers register
//	        plugins/kubernetes.io/csi/DRIVER/SHA256/globalmount        where a volume is staged
//	        pods/UID/volumes/kubernetes.io~csi/VOLUME/mount            where it is published to a pod
//	        A driver whose socket is below /var/lib/kubelet gets paths below /var/lib/kubelet: its pod has Root
//	        mounted there.
//	csi-C2  A record is on disk (vol_data.json, with kubelet's fields) before a driver is called for a volume, and is
//	        removed after the driver has said that the volume is gone. So an interrupted operation is undone after a
//	        restart.
//	csi-C3  Calls for the same volume do not overlap. A driver that hangs delays only the pods with its volumes: each call
//	        has a time limit, and ends when its pod is deleted.
//	csi-C4  A volume is unstaged when no pod has it any more. That is tried again, with growing pauses, until the
//	        driver succeeds; until then the volume is in use ([Manager.InUse]) and is not detached.
//	csi-C5  A driver is not trusted with paths: its socket has to be in Root, no link leads out of it, and a volume that
//	        it has published must be a directory there, not a link. Volume handles appear in paths only as hashes.
//
// The package does not read objects from the API server: [Volume] has everything that a driver is given.
package csi
