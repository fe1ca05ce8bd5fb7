package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/node/blockdevice"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/csi"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/references"
	"github.com/sampan-io/sampan/node/volume"
)

// Files manages the files of pods in the node's file system:
//
//	ROOT/pods/UID/volumes/NAME   volumes; of one that lies elsewhere, a link to it
//	ROOT/pods/UID/hosts          the managed /etc/hosts
//	ROOT/pods/UID/last/...       termination messages
//	ROOT/pods/UID/parts/...      bind mounts of parts of volumes
//	ROOT/memory/UID/NAME         volumes with secrets in them; a tmpfs
//	ROOT/memory/UID/.used/NAME   links to what volumes have been given to the pod's group
//	ROOT/memory/UID/.certificates   keys and certificates of podCertificate sources, and their requests
type Files struct {
	node Node
	root string // empty: nothing is written
	uses *volume.Uses

	csi   *csi.Manager         // nil: there are no CSI drivers; written before volumes are used
	disks *blockdevice.Mounter // nil: there are no files; written before volumes are used

	selfChanges   signal // changes of the Node object
	driverChanges signal // a CSI driver has registered or gone, or a CSIDriver has changed
	use           usage  // of volumes and logs
}

// Node holds what volumes need of the node.
type Node struct {
	Name            string
	Client          client.Interface // as the node
	RootDir         string           // see node.Options
	ClusterDomain   string
	DevicePluginDir string // see node.Options
	SeccompRoot     string // where the profiles of type Localhost are
	Drivers         bool   // CSI drivers can register
	// LocalVolume returns the path on this machine of a PersistentVolume of the type local; nil means that of its spec.
	LocalVolume func(*corev1.PersistentVolume) string
	Config      *kubeletconfig.Config

	References *references.Set
	Recorder   *client.Recorder
	Metrics    *metrics.Volumes
	Log        *slog.Logger

	Registered <-chan struct{}              // closed when the Node object exists
	Self       func() (*corev1.Node, bool)  // the Node object
	Memory     func() int64                 // of the machine, in bytes
	Logs       func(pod *corev1.Pod) string // the directory of a pod's logs; "" if there is none
	Users      func(pod *corev1.Pod) *cri.UserNamespace
	// RecursiveReadOnly reports whether the runtime can mount everything below a mount read-only.
	RecursiveReadOnly func() bool
	// Changed is called when the status of the node has to be written again.
	Changed func()
	// DriverRegistered is called when a driver has registered for which pods may wait.
	DriverRegistered func()
}

// New returns the files of the pods of a node.
func New(n Node) *Files { return &Files{node: n, root: n.RootDir} }

// Root returns the directory of all files, by its real path once it is open; "" if nothing is written.
func (f *Files) Root() string { return f.root }

// NodeChanged reports that the Node object has changed.
func (f *Files) NodeChanged() { f.selfChanges.send() }

// Dir returns the directory of a pod.
func (f *Files) Dir(uid types.UID) string { return filepath.Join(f.root, "pods", string(uid)) }

func (f *Files) memory(uid types.UID) string { return filepath.Join(f.root, "memory", string(uid)) }

// Open makes the directories. Secrets lie in memory where the process may mount.
func (f *Files) Open() error {
	if f.root == "" {
		return nil
	}
	for _, dir := range []string{"pods", "memory"} {
		if err := os.MkdirAll(filepath.Join(f.root, dir), 0o711); err != nil { // containers' users reach their own files
			return err
		}
	}
	// The kernel names mounts by their real paths.
	real, err := filepath.EvalSymlinks(f.root)
	if err != nil {
		return err
	}
	f.root = real
	f.uses = volume.NewUses(filepath.Join(real, "memory"))
	f.disks = blockdevice.New(real)
	if f.node.Drivers {
		if err := shareMounts(f.root); err != nil { // before anything is mounted in it
			f.node.Log.Warn("mounts that containers make do not appear on the node: pods of CSI drivers do not start", "dir", f.root, "err", err)
		}
	}
	memory := filepath.Join(f.root, "memory")
	mounted, err := mountinfo.Mounted(memory)
	if err != nil || mounted {
		return err
	}
	err = mountMemory(memory, mounts.NoSetuid|mounts.NoDevices|mounts.NoPrograms, "mode=0711")
	if errors.Is(err, unix.EPERM) {
		f.node.Log.Warn("no permission to mount a tmpfs: secrets of pods are kept on disk", "dir", memory)
		return nil
	}
	if err != nil {
		return fmt.Errorf("tmpfs at %s: %w", memory, err)
	}
	return nil
}

// Pods returns the pods that have files.
func (f *Files) Pods() []types.UID {
	if f.root == "" {
		return nil
	}
	var list []types.UID
	seen := map[types.UID]bool{}
	for _, dir := range []string{"pods", "memory"} {
		entries, _ := os.ReadDir(filepath.Join(f.root, dir)) // not there: none
		for _, e := range entries {
			if uid := types.UID(e.Name()); !seen[uid] {
				seen[uid] = true
				list = append(list, uid)
			}
		}
	}
	return list
}

// Path returns the path of a volume.
func (f *Files) Path(pod *corev1.Pod, v *corev1.Volume) string {
	if v.Secret != nil || v.Projected != nil {
		return filepath.Join(f.memory(pod.UID), v.Name)
	}
	return filepath.Join(f.Dir(pod.UID), "volumes", v.Name)
}

// isWritten reports whether the agent writes the content of a volume, and keeps it up to date while the pod runs.
// Containers may only read it. As in kubelet nothing is done again to volumes of other types once they are there.
func isWritten(v *corev1.Volume) bool {
	return v.Secret != nil || v.Projected != nil || v.ConfigMap != nil || v.DownwardAPI != nil
}

// SetUp makes the volumes of a pod that are in used, and returns when a token in them has to be replaced (zero: never). Needed is
// when the pod first needed them. Errors are for users.
//
// The content of volumes comes first, because facts may be cancelled before ctx is: giving a volume to the pod's group takes as long as
// the volume is large.
func (f *Files) SetUp(ctx context.Context, pod *corev1.Pod, facts crispec.Facts, needed time.Time, used map[string]bool) (next time.Time, err error) {
	for _, written := range []bool{true, false} {
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if !used[v.Name] || isWritten(v) != written {
				continue
			}
			refresh, err := f.volume(ctx, pod, v, facts, needed)
			if err != nil {
				return next, err
			}
			next = sooner(next, refresh)
		}
	}
	return next, nil
}

// Update writes what has changed in the volumes of a running pod, and returns when a token in them has to be replaced (zero: never).
// It goes on after a volume that fails. The errors are for users.
func (f *Files) Update(ctx context.Context, pod *corev1.Pod, facts crispec.Facts) (next time.Time, errs []error) {
	used := volume.Used(&pod.Spec)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !used[v.Name] || !isWritten(v) {
			continue
		}
		refresh, err := f.volume(ctx, pod, v, facts, time.Time{})
		if err != nil {
			errs = append(errs, err)
		}
		next = sooner(next, refresh)
	}
	return next, errs
}

// volume makes one volume, and measures how long that takes.
func (f *Files) volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, facts crispec.Facts, needed time.Time) (time.Time, error) {
	began := time.Now()
	refresh, err := f.make(ctx, pod, v, facts)
	// Volumes that are images are mounted by the runtime, and those of drivers by MountDrivers.
	if plugin := f.node.Metrics.Plugin(pod.UID, v); v.Image == nil && plugin != metrics.NoPlugin && !strings.HasPrefix(plugin, metrics.CSIPlugin("")) {
		f.node.Metrics.Mounted(plugin, needed, began, err)
	}
	if err != nil {
		return refresh, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err) // Kubernetes' words
	}
	return refresh, nil
}

func (f *Files) make(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, facts crispec.Facts) (time.Time, error) {
	gid := -1
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		gid = int(*sc.FSGroup)
	}
	dir := f.Path(pod, v)
	switch {
	case v.Image != nil:
		return time.Time{}, nil // the runtime mounts it
	case v.EmptyDir != nil:
		return time.Time{}, f.emptyDir(ctx, pod, dir, v.EmptyDir, gid)
	case !isWritten(v) && f.root == "":
		return time.Time{}, nil // a simulated pod has no volumes and no process that reads files
	case !isWritten(v):
		return time.Time{}, f.hosted(ctx, pod, v, gid)
	}
	limited, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	p := volume.Payload{}
	next, err := f.payload(limited, pod, v, facts, p)
	if err != nil || f.root == "" {
		return next, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // containers run as any user
		return next, err
	}
	if err := volume.MakeMountPoints(dir, &pod.Spec, v.Name, p); err != nil {
		return next, err
	}
	_, err = volume.Write(dir, p, gid)
	return next, err
}

// messageFile returns where the termination message of one attempt at a container
// lies.
func (f *Files) messageFile(pod *corev1.Pod, c *corev1.Container, attempt int32) string {
	return filepath.Join(f.Dir(pod.UID), "last", c.Name, strconv.Itoa(int(attempt)))
}

// Forget removes the files of one attempt at a container, which has been removed: a
// container may be restarted for ever.
func (f *Files) Forget(pod *corev1.Pod, c *corev1.Container, attempt int32) error {
	if f.root == "" {
		return nil
	}
	var errs []error
	for i, vm := range c.VolumeMounts {
		if vm.SubPath == "" && vm.SubPathExpr == "" {
			continue
		}
		errs = append(errs, unplace(f.part(pod, c, attempt, i)))
	}
	errs = append(errs, remove(f.messageFile(pod, c, attempt)))
	return errors.Join(errs...)
}

// remove removes a file or an empty directory, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CreateMessageFile creates the file into which a container may write its termination
// message, and returns its path.
func (f *Files) CreateMessageFile(pod *corev1.Pod, c *corev1.Container, attempt int32) (string, error) {
	if f.root == "" || c.TerminationMessagePath == "" {
		return "", nil
	}
	path := f.messageFile(pod, c, attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { // containers' users reach their own files
		return "", err
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil { // containers run as any user
		return "", err
	}
	return path, os.Chmod(path, 0o666) // whatever the umask says
}

// volumes returns the directories of a pod that have its volumes.
func (f *Files) volumes(uid types.UID) []string {
	return []string{filepath.Join(f.Dir(uid), "volumes"), filepath.Join(f.Dir(uid), "parts"), f.memory(uid)}
}

// Mounted reports whether there are volumes of the pod.
func (f *Files) Mounted(uid types.UID) bool {
	return f.root != "" && isDirectory(uid) && slices.ContainsFunc(f.volumes(uid), func(dir string) bool {
		_, err := os.Lstat(dir)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// Unmount unmounts everything of the pod, and removes its volumes. Its other files stay until [Files.Remove].
func (f *Files) Unmount(uid types.UID) error {
	if f.root == "" || !isDirectory(uid) {
		return nil
	}
	if err := unmountDirectory(f.Dir(uid)); err != nil {
		return err
	}
	var errs []error
	for _, dir := range f.volumes(uid) {
		errs = append(errs, removal.Tree(dir))
	}
	return errors.Join(errs...)
}

// Remove removes the pod's files. Everything is unmounted.
func (f *Files) Remove(uid types.UID) error {
	if f.root == "" || !isDirectory(uid) {
		return nil
	}
	return removal.Tree(f.Dir(uid))
}

// isDirectory reports whether a UID is the name of one directory, so that removing it removes only files of the pod.
func isDirectory(uid types.UID) bool {
	return uid != "" && uid != "." && uid != ".." && !strings.ContainsRune(string(uid), '/')
}

// sooner returns the earlier of two times, of which zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lookupTime is how long a volume waits for the first answer about an object that it names.
const lookupTime = 10 * time.Second
