package blockdevice

// DefaultType is the file system of volumes that name none, as in kubelet.
const DefaultType = "ext4"

// A Request is one mount.
type Request struct {
	Device  string   // absolute path of a block device
	Dir     string   // where to mount it; made if it does not exist
	Type    string   // of the file system; "" means [DefaultType]
	Options []string // of mount(8); with "ro" the device is neither formatted nor checked
}
