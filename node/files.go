package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
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
	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/node/blockdevice"
	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/csi"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/references"
	"github.com/sampan-io/sampan/node/volume"
)

// files manages the files of pods in the node's file system:
//
//	ROOT/pods/UID/volumes/NAME   volumes; of one that lies elsewhere, a link to it
//	ROOT/pods/UID/hosts          the managed /etc/hosts
//	ROOT/pods/UID/last/...       termination messages
//	ROOT/pods/UID/parts/...      bind mounts of parts of volumes
//	ROOT/memory/UID/NAME         volumes with secrets in them; a tmpfs
//	ROOT/memory/UID/.used/NAME   links to what volumes have been given to the pod's group
//	ROOT/memory/UID/.certificates   keys and certificates of podCertificate sources, and their requests
type files struct {
	node volumeNode
	root string // empty: nothing is written
	uses *volume.Uses

	csi   *csi.Manager         // nil: there are no CSI drivers; written before volumes are used
	disks *blockdevice.Mounter // nil: there are no files; written before volumes are used

	selfChanges   signal // changes of the Node object
	driverChanges signal // a CSI driver has registered or gone, or a CSIDriver has changed
	use           usage  // of volumes and logs
}

// volumeNode holds what volumes need of the node.
type volumeNode struct {
	name            string
	client          client.Interface // as the node
	rootDir         string           // see [Options.RootDir]
	clusterDomain   string
	devicePluginDir string // see [Options.DevicePluginDir]
	seccompRoot     string // where the profiles of type Localhost are
	drivers         bool   // CSI drivers can register
	// localVolume returns the path on this machine of a PersistentVolume of the type local; nil means that of its spec.
	localVolume func(*corev1.PersistentVolume) string
	config      *kubeletconfig.Config

	references *references.Set
	recorder   *client.Recorder
	metrics    *metrics.Volumes
	log        *slog.Logger

	registered <-chan struct{}              // closed when the Node object exists
	self       func() (*corev1.Node, bool)  // the Node object
	memory     func() int64                 // of the machine, in bytes
	logs       func(pod *corev1.Pod) string // the directory of a pod's logs; "" if there is none
	users      func(pod *corev1.Pod) *cri.UserNamespace
	// recursiveReadOnly reports whether the runtime can mount everything below a mount read-only.
	recursiveReadOnly func() bool
	// changed is called when the status of the node has to be written again.
	changed func()
	// driverRegistered is called when a driver has registered for which pods may wait.
	driverRegistered func()
}

func newFiles(n volumeNode) *files { return &files{node: n, root: n.rootDir} }

// nodeChanged reports that the Node object has changed.
func (f *files) nodeChanged() { f.selfChanges.send() }

func (f *files) pod(uid types.UID) string { return filepath.Join(f.root, "pods", string(uid)) }

func (f *files) memory(uid types.UID) string { return filepath.Join(f.root, "memory", string(uid)) }

// open makes the directories. Secrets lie in memory where the process may mount.
func (f *files) open() error {
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
	if f.node.drivers {
		if err := shareMounts(f.root); err != nil { // before anything is mounted in it
			f.node.log.Warn("mounts that containers make do not appear on the node: pods of CSI drivers do not start", "dir", f.root, "err", err)
		}
	}
	memory := filepath.Join(f.root, "memory")
	mounted, err := mountinfo.Mounted(memory)
	if err != nil || mounted {
		return err
	}
	err = mountMemory(memory, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0711")
	if errors.Is(err, unix.EPERM) {
		f.node.log.Warn("no permission to mount a tmpfs: secrets of pods are kept on disk", "dir", memory)
		return nil
	}
	if err != nil {
		return fmt.Errorf("tmpfs at %s: %w", memory, err)
	}
	return nil
}

// pods returns the pods that have files.
func (f *files) pods() []types.UID {
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

// path returns the path of a volume.
func (f *files) path(pod *corev1.Pod, v *corev1.Volume) string {
	if v.Secret != nil || v.Projected != nil {
		return filepath.Join(f.memory(pod.UID), v.Name)
	}
	return filepath.Join(f.pod(pod.UID), "volumes", v.Name)
}

// readOnly reports whether containers may only read a volume.
func readOnly(v *corev1.Volume) bool {
	return v.Secret != nil || v.Projected != nil || v.ConfigMap != nil || v.DownwardAPI != nil
}

// isWritten reports whether the agent writes the content of a volume, and keeps it up to date while the pod runs. As in kubelet nothing
// is done again to volumes of other types once they are there.
func isWritten(v *corev1.Volume) bool { return readOnly(v) }

// setUp makes the volumes of a pod that are in used, and returns when a token in them has to be replaced (zero: never). Needed is
// when the pod first needed them. Errors are for users.
//
// The content of volumes comes first, because facts may be cancelled before ctx is: giving a volume to the pod's group takes as long as
// the volume is large.
func (f *files) setUp(ctx context.Context, pod *corev1.Pod, facts crispec.Facts, needed time.Time, used map[string]bool) (next time.Time, err error) {
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

// update writes what has changed in the volumes of a running pod, and returns when a token in them has to be replaced (zero: never).
// It goes on after a volume that fails. The errors are for users.
func (f *files) update(ctx context.Context, pod *corev1.Pod, facts crispec.Facts) (next time.Time, errs []error) {
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
func (f *files) volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, facts crispec.Facts, needed time.Time) (time.Time, error) {
	began := time.Now()
	refresh, err := f.make(ctx, pod, v, facts)
	// Volumes that are images are mounted by the runtime, and those of drivers by mountDrivers.
	if plugin := f.node.metrics.Plugin(pod.UID, v); v.Image == nil && plugin != metrics.NoPlugin && !strings.HasPrefix(plugin, metrics.CSIPlugin("")) {
		f.node.metrics.Mounted(plugin, needed, began, err)
	}
	if err != nil {
		return refresh, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err) // Kubernetes' words
	}
	return refresh, nil
}

func (f *files) make(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, facts crispec.Facts) (time.Time, error) {
	gid := -1
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		gid = int(*sc.FSGroup)
	}
	dir := f.path(pod, v)
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

// memorySize returns how large, in bytes, an empty directory in memory may become: its own limit, that of the memory of all
// containers together, or what the node has, whichever is least.
func (f *files) memorySize(pod *corev1.Pod, e *corev1.EmptyDirVolumeSource) int64 {
	size := f.node.memory()
	if limit := crispec.PodResources(pod, lifecycle.ClassOf(pod)).GetMemoryLimitInBytes(); limit > 0 {
		size = min(size, limit)
	}
	if e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
		size = min(size, e.SizeLimit.Value())
	}
	return size
}

// medium returns the file system of an empty directory and the options of its mount; "" means a directory on disk.
func (f *files) medium(pod *corev1.Pod, e *corev1.EmptyDirVolumeSource) (fileSystem, options string, err error) {
	switch {
	case e.Medium == corev1.StorageMediumDefault:
		return "", "", nil
	case e.Medium == corev1.StorageMediumMemory:
		return "tmpfs", "size=" + strconv.FormatInt(f.memorySize(pod, e), 10), nil
	case e.Medium == corev1.StorageMediumHugePages, strings.HasPrefix(string(e.Medium), string(corev1.StorageMediumHugePagesPrefix)):
		size, err := volume.PageSize(pod, e.Medium)
		return "hugetlbfs", "pagesize=" + strconv.FormatInt(size, 10), err
	}
	return "", "", fmt.Errorf("unknown storage medium %q", e.Medium)
}

// mountMedium mounts the file system of an empty directory.
func mountMedium(fileSystem, dir, options string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if fileSystem == "tmpfs" {
		return mountMemory(dir, flags, options)
	}
	return unix.Mount(fileSystem, dir, fileSystem, flags, options)
}

// emptyDir makes an empty directory, once.
func (f *files) emptyDir(ctx context.Context, pod *corev1.Pod, dir string, e *corev1.EmptyDirVolumeSource, gid int) error {
	if f.root == "" {
		return nil
	}
	fileSystem, options, err := f.medium(pod, e)
	if err != nil {
		return err
	}
	_, err = os.Stat(dir)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return err
	}
	if fresh {
		if err := os.MkdirAll(dir, 0o755); err != nil { // see the next step
			return err
		}
		if err := os.Chmod(dir, 0o777); err != nil { // containers run as any user
			return err
		}
	}
	if fileSystem != "" {
		// The directory may be there and the file system not: the machine was
		// restarted, or the agent ended right here.
		mounted, err := mountinfo.Mounted(dir)
		if err != nil {
			return err
		}
		if !mounted {
			fresh = true
			mode := "mode=0777,"
			if fileSystem == "tmpfs" {
				mode = "mode=1777," // that of the kernel, which kubelet keeps
			}
			if err := mountMedium(fileSystem, dir, mode+options); err != nil {
				return fmt.Errorf("%s at %s: %w", fileSystem, dir, err)
			}
		}
	}
	if gid >= 0 && fresh {
		return volume.Own(ctx, dir, gid)
	}
	return nil
}

// payload collects the content of a volume.
func (f *files) payload(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, facts crispec.Facts, p volume.Payload) (time.Time, error) {
	mode := func(m *int32) int32 {
		if m != nil {
			return *m
		}
		return 0o644
	}
	switch {
	case v.ConfigMap != nil:
		return time.Time{}, addConfigMap(p, pod, facts, v.ConfigMap.LocalObjectReference, v.ConfigMap.Items, mode(v.ConfigMap.DefaultMode), v.ConfigMap.Optional)
	case v.Secret != nil:
		return time.Time{}, addSecret(p, pod, facts, v.Secret.SecretName, v.Secret.Items, mode(v.Secret.DefaultMode), v.Secret.Optional)
	case v.DownwardAPI != nil:
		return time.Time{}, p.AddFields(v.DownwardAPI.Items, pod, facts, mode(v.DownwardAPI.DefaultMode))
	}
	var next time.Time
	for i, s := range v.Projected.Sources {
		m := mode(v.Projected.DefaultMode)
		var err error
		switch {
		case s.ConfigMap != nil:
			err = addConfigMap(p, pod, facts, s.ConfigMap.LocalObjectReference, s.ConfigMap.Items, m, s.ConfigMap.Optional)
		case s.Secret != nil:
			err = addSecret(p, pod, facts, s.Secret.Name, s.Secret.Items, m, s.Secret.Optional)
		case s.DownwardAPI != nil:
			err = p.AddFields(s.DownwardAPI.Items, pod, facts, m)
		case s.ClusterTrustBundle != nil:
			var b []byte
			b, err = f.node.references.At(ctx).TrustAnchors(s.ClusterTrustBundle)
			p[s.ClusterTrustBundle.Path] = volume.File{Data: b, Mode: m}
		case s.ServiceAccountToken != nil:
			var refresh time.Time
			refresh, err = f.token(ctx, pod, filepath.Join(f.path(pod, v), s.ServiceAccountToken.Path), s.ServiceAccountToken, m, p)
			next = sooner(next, refresh)
		case s.PodCertificate != nil:
			var refresh time.Time
			refresh, err = f.certificate(ctx, pod, v, i, m, p)
			next = sooner(next, refresh)
		case s == (corev1.VolumeProjection{}): // valid, and has no files
		default:
			err = errors.New("unsupported source of a projected volume")
		}
		if err != nil {
			return next, err
		}
	}
	return next, nil
}

func addConfigMap(p volume.Payload, pod *corev1.Pod, facts crispec.Facts, ref corev1.LocalObjectReference, items []corev1.KeyToPath, mode int32, optional *bool) error {
	may := optional != nil && *optional
	m, err := facts.Objects.ConfigMap(pod.Namespace, ref.Name)
	switch {
	case err != nil && may:
		return nil
	case err != nil:
		return err
	}
	return p.Add("configmap", volume.OfConfigMap(m), items, mode, may)
}

func addSecret(p volume.Payload, pod *corev1.Pod, facts crispec.Facts, name string, items []corev1.KeyToPath, mode int32, optional *bool) error {
	may := optional != nil && *optional
	s, err := facts.Objects.Secret(pod.Namespace, name)
	switch {
	case err != nil && may:
		return nil
	case err != nil:
		return err
	}
	return p.Add("secret", s.Data, items, mode, may)
}

// private returns a file with a token or a key in it. As in kubelet it is for its owner alone if all containers run as one user,
// whose it is then, or if the pod has an fsGroup, whose members may read it.
func private(pod *corev1.Pod, data []byte, mode int32) volume.File {
	f := volume.File{Data: data, Mode: mode, User: onlyUser(&pod.Spec)}
	if sc := pod.Spec.SecurityContext; f.User != nil || sc != nil && sc.FSGroup != nil {
		f.Mode = 0o600
	}
	return f
}

// onlyUser returns the user as whom all containers run, as far as the specification says; nil if one says nothing, or there are more.
func onlyUser(spec *corev1.PodSpec) (user *int64) {
	of := func(own *corev1.SecurityContext) bool {
		var uid *int64
		if spec.SecurityContext != nil {
			uid = spec.SecurityContext.RunAsUser
		}
		if own != nil && own.RunAsUser != nil {
			uid = own.RunAsUser
		}
		if uid == nil || user != nil && *user != *uid {
			return false
		}
		user = uid
		return true
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if !of(list[i].SecurityContext) {
				return nil
			}
		}
	}
	for i := range spec.EphemeralContainers {
		if !of(spec.EphemeralContainers[i].SecurityContext) {
			return nil
		}
	}
	return user
}

// token puts a service account token into p: the one that is in the volume until
// it is time for a new one.
func (f *files) token(ctx context.Context, pod *corev1.Pod, file string, s *corev1.ServiceAccountTokenProjection, mode int32, p volume.Payload) (time.Time, error) {
	if f.root == "" {
		return time.Time{}, nil // no process would read it
	}
	if b, err := os.ReadFile(file); err == nil {
		if refresh := volume.Refresh(string(b)); time.Now().Before(refresh) {
			p[s.Path] = private(pod, b, mode)
			return refresh, nil
		}
	}
	of := credentials.Of(pod)
	of.ServiceAccount = cmp.Or(of.ServiceAccount, "default")
	granted, err := requestToken(ctx, f.node.client, of, s.Audience, s.ExpirationSeconds, "")
	if err != nil {
		return time.Time{}, fmt.Errorf("failed to fetch token: %w", err) // Kubernetes' words
	}
	p[s.Path] = private(pod, []byte(granted.Token), mode)
	return nextToken(granted), nil
}

// mounts returns the mounts of one attempt at a container.
func (f *files) mounts(pod *corev1.Pod, c *corev1.Container, attempt int32, ips []string, images map[string]string, env func(string) (string, bool)) ([]*cri.Mount, error) {
	if f.root == "" {
		return nil, nil
	}
	var list []*cri.Mount
	hosts := true
	for i, vm := range c.VolumeMounts {
		var m *cri.Mount
		var err error
		if id, ok := images[vm.Name]; ok {
			m, err = imageMount(id, vm, env)
		} else {
			m, err = f.mount(pod, c, attempt, i, vm, env)
		}
		if err != nil {
			return nil, err
		}
		hosts = hosts && filepath.Clean(vm.MountPath) != "/etc/hosts"
		list = append(list, m)
	}
	if !hosts {
		return list, nil
	}
	path := filepath.Join(f.pod(pod.UID), "hosts")
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { // containers' users reach their own files
		return nil, err
	}
	own := ""
	if pod.Spec.HostNetwork {
		b, err := os.ReadFile("/etc/hosts")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		own = string(b)
	}
	// Written in place: running containers have this very file mounted.
	if err := os.WriteFile(path, []byte(crispec.Hosts(pod, ips, f.node.clusterDomain, own)), 0o644); err != nil { // containers of any user read it
		return nil, err
	}
	return append(list, &cri.Mount{ContainerPath: "/etc/hosts", HostPath: path}), nil
}

// blockDevices adds the volumes that a container uses as block devices.
func (f *files) blockDevices(pod *corev1.Pod, c *corev1.Container, config *cri.ContainerConfig) error {
	if f.root == "" {
		return nil
	}
	for _, d := range c.VolumeDevices {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == d.Name })
		if i < 0 {
			return fmt.Errorf("container %q uses volume %q, which the pod does not have", c.Name, d.Name)
		}
		v := &pod.Spec.Volumes[i]
		path, err := filepath.EvalSymlinks(f.path(pod, v))
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().Type()&fs.ModeDevice == 0 {
			err = fmt.Errorf("volume %q is %s, want a block device", d.Name, info.Mode().Type())
		}
		if err != nil {
			return err
		}
		rights := "mrw"
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly {
			rights = "mr"
		}
		config.Devices = append(config.Devices, &cri.Device{HostPath: path, ContainerPath: d.DevicePath, Permissions: rights})
	}
	return nil
}

// containerPath returns where a container has a volume. As for kubelet a relative path begins at the root.
func containerPath(vm corev1.VolumeMount) string {
	if filepath.IsAbs(vm.MountPath) {
		return vm.MountPath
	}
	return "/" + vm.MountPath
}

// imageMount returns the mount of an image, or of a directory or file in it. Images are mounted read-only, and the runtime
// sees that the path stays in the image.
func imageMount(id string, vm corev1.VolumeMount, env func(string) (string, bool)) (*cri.Mount, error) {
	part, err := subPath(vm, env)
	if err != nil {
		return nil, err
	}
	return &cri.Mount{ContainerPath: containerPath(vm), Image: &cri.ImageSpec{Image: id}, ImageSubPath: part, Readonly: true}, nil
}

// subPath returns the part of a volume that a container mounts, in a form that cannot leave the volume by its names. It is empty for
// the whole volume: never because a variable in subPathExpr has no value. The errors are kubelet's.
func subPath(vm corev1.VolumeMount, env func(string) (string, bool)) (string, error) {
	part := vm.SubPath
	if vm.SubPathExpr != "" {
		missing := map[string]bool{}
		var err error
		if part, err = crispec.Expand(vm.SubPathExpr, func(name string) (string, bool) {
			value, ok := env(name)
			if value == "" {
				missing[name] = true
			}
			return value, ok
		}); err != nil {
			return "", fmt.Errorf("subPathExpr of volume %q %w", vm.Name, err)
		}
		if len(missing) > 0 {
			return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
		}
	}
	switch {
	case filepath.IsAbs(part):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", part)
	case slices.Contains(strings.Split(part, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", part)
	}
	return part, nil
}

func (f *files) mount(pod *corev1.Pod, c *corev1.Container, attempt int32, index int, vm corev1.VolumeMount, env func(string) (string, bool)) (*cri.Mount, error) {
	var v *corev1.Volume
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == vm.Name {
			v = &pod.Spec.Volumes[i]
		}
	}
	if v == nil {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name) // kubelet's words
	}
	recursive, err := recursiveReadOnly(vm, f.node.recursiveReadOnly())
	if err != nil {
		return nil, err
	}
	m := &cri.Mount{
		ContainerPath: containerPath(vm), HostPath: f.path(pod, v), Readonly: vm.ReadOnly || readOnly(v), RecursiveReadOnly: recursive,
	}
	if u := f.node.users(pod); u.GetMode() == cri.NamespaceMode_POD {
		m.UidMappings, m.GidMappings = u.GetUids(), u.GetGids()
	}
	if vm.MountPropagation != nil {
		switch *vm.MountPropagation {
		case corev1.MountPropagationHostToContainer:
			m.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			m.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		case corev1.MountPropagationNone:
		}
	}
	if isHosted(v) {
		if m.HostPath, err = os.Readlink(m.HostPath); err != nil {
			return nil, err
		}
		m.Readonly = m.Readonly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly || v.CSI != nil && v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
	}
	part, err := subPath(vm, env)
	if err != nil {
		return nil, err
	}
	if part == "" {
		return m, nil
	}
	// As by kubelet, a part that is not there is made as a directory in volumes of all types.
	source, err := volume.Subpath(m.HostPath, part)
	if err != nil {
		return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name, c.Name, err)
	}
	defer source.Close()
	// The part is bind mounted through its descriptor, so that nothing can be put
	// in its place between this look and the start of the container.
	target := f.part(pod, c, attempt, index)
	// An earlier try may have got this far: what it mounted is the volume's, and no
	// place to write to.
	if err := errors.Join(unplace(target), place(source, target)); err != nil {
		return nil, err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", source.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("subPath %q of volume %q: bind mount: %w", part, vm.Name, err)
	}
	m.HostPath = target
	return m, nil
}

// recursiveReadOnly reports whether everything mounted below a mount is read-only as well. Errors are in kubelet's words.
func recursiveReadOnly(vm corev1.VolumeMount, able bool) (bool, error) {
	switch {
	case vm.RecursiveReadOnly == nil, *vm.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled:
		return false, nil
	case !vm.ReadOnly:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	case vm.MountPropagation != nil && *vm.MountPropagation != corev1.MountPropagationNone:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, *vm.MountPropagation)
	case *vm.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible:
		return able, nil
	case *vm.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("unknown recursive read-only mode %q", *vm.RecursiveReadOnly)
	case !able:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
	}
	return true, nil
}

// catchUp brings those volumes up to date of which a container mounts a part that is not there: the variable that names the part
// may be newer than what was written to the volume, and a missing part is made as a directory.
func (f *files) catchUp(ctx context.Context, pod *corev1.Pod, c *corev1.Container, facts crispec.Facts, env func(string) (string, bool)) error {
	if f.root == "" {
		return nil
	}
	for _, vm := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == vm.Name && isWritten(&v) && v.Image == nil })
		if part, err := subPath(vm, env); i < 0 || err != nil || part == "" {
			continue // mounts reports the error
		} else if found, err := volume.Find(f.path(pod, &pod.Spec.Volumes[i]), part); err == nil {
			_ = found.Close()
			continue
		}
		if _, err := f.volume(ctx, pod, &pod.Spec.Volumes[i], facts, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// part returns where the part of a volume is mounted for one attempt at a container.
func (f *files) part(pod *corev1.Pod, c *corev1.Container, attempt int32, index int) string {
	return filepath.Join(f.pod(pod.UID), "parts", fmt.Sprintf("%s-%d-%d", c.Name, attempt, index))
}

// messageFile returns where the termination message of one attempt at a container
// lies.
func (f *files) messageFile(pod *corev1.Pod, c *corev1.Container, attempt int32) string {
	return filepath.Join(f.pod(pod.UID), "last", c.Name, strconv.Itoa(int(attempt)))
}

// forget removes the files of one attempt at a container, which has been removed: a
// container may be restarted for ever.
func (f *files) forget(pod *corev1.Pod, c *corev1.Container, attempt int32) error {
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

// unplace undoes place and all mounts on it.
func unplace(target string) error {
	for {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EINVAL): // nothing is mounted there
			return remove(target)
		case err != nil:
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
}

// remove removes a file or an empty directory, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// place makes an empty file or directory to mount source on.
func place(source *os.File, target string) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(target, 0o755) // is mounted over
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, nil, 0o600)
}

// createMessageFile creates the file into which a container may write its termination
// message, and returns its path.
func (f *files) createMessageFile(pod *corev1.Pod, c *corev1.Container, attempt int32) (string, error) {
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
func (f *files) volumes(uid types.UID) []string {
	return []string{filepath.Join(f.pod(uid), "volumes"), filepath.Join(f.pod(uid), "parts"), f.memory(uid)}
}

// mounted reports whether there are volumes of the pod.
func (f *files) mounted(uid types.UID) bool {
	return f.root != "" && isDirectory(uid) && slices.ContainsFunc(f.volumes(uid), func(dir string) bool {
		_, err := os.Lstat(dir)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// unmount unmounts everything of the pod, and removes its volumes. Its other files stay until [files.remove].
func (f *files) unmount(uid types.UID) error {
	if f.root == "" || !isDirectory(uid) {
		return nil
	}
	if err := unmountDirectory(f.pod(uid)); err != nil {
		return err
	}
	var errs []error
	for _, dir := range f.volumes(uid) {
		errs = append(errs, removal.Tree(dir))
	}
	return errors.Join(errs...)
}

// remove removes the pod's files. Everything is unmounted.
func (f *files) remove(uid types.UID) error {
	if f.root == "" || !isDirectory(uid) {
		return nil
	}
	return removal.Tree(f.pod(uid))
}

// isDirectory reports whether a UID is the name of one directory, so that removing it removes only files of the pod.
func isDirectory(uid types.UID) bool {
	return uid != "" && uid != "." && uid != ".." && !strings.ContainsRune(string(uid), '/')
}

// mountMemory mounts a tmpfs whose content is not written to swap, if the kernel can do that (Linux 6.4, and outside user namespaces).
func mountMemory(dir string, flags uintptr, options string) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", flags, options+",noswap")
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		return unix.Mount("tmpfs", dir, "tmpfs", flags, options)
	}
	return err
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
