// Package attach holds the controller that attaches volumes of CSI drivers to the nodes whose pods use them, and detaches
// them: kube-controller-manager's attach/detach controller. It also reports that a driver has to expand a claim.
//
// To attach is to create a VolumeAttachment and to wait until the driver's external-attacher has set status.attached; to
// detach is to delete it. The controller then lists the volume in status.volumesAttached of the node, whose agent mounts it
// only then. The agent lists its volumes in status.volumesInUse.
//
//	attach-A1  A volume is attached to a node while a pod that has not finished is bound to the node and uses its claim, if
//	           the driver needs that (attachRequired) and the agent leaves it to the controller.
//	attach-A2  A volume that the node uses is not detached, unless the node has the taint out-of-service, or is not Ready and
//	           the detachment has waited for six minutes. A node that is gone uses nothing.
//	attach-A3  Before it is detached, it is removed from volumesAttached, with a write that fails if the node has changed
//	           since it was read. So a node that begins to use the volume is noticed, or sees that it is not attached.
//	attach-A4  A volume that only one node may have is attached to a second one when the first VolumeAttachment is gone.
//	attach-A5  The controller deletes only VolumeAttachments with the name that it would give them.
//
// The decision about a volume on a node is a pure function, [plan].
package attach
