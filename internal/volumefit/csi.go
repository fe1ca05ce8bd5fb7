package volumefit

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// ManagedAttach is the annotation of nodes whose agent leaves it to the controller to attach volumes.
const ManagedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// AttachmentName returns the name of the VolumeAttachment of a volume of a CSI driver on a node.
func AttachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// UniqueName returns the name of a volume of a CSI driver in the status of a node.
func UniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}

// Shareable reports whether a volume may be attached to several nodes.
func Shareable(v *corev1.PersistentVolume) bool {
	if len(v.Spec.AccessModes) == 0 {
		return true // nothing is known of it
	}
	for _, m := range v.Spec.AccessModes {
		if m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany {
			return true
		}
	}
	return false
}
