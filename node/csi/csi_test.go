package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

// fakeDriver is a driver whose volumes are directories. It records the calls.
type fakeDriver struct {
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	info  registration.PluginInfo
	about csi.NodeGetInfoResponse
	caps  []csi.NodeServiceCapability_RPC_Type

	mu       sync.Mutex
	calls    []string                  // guarded by mu
	fail     map[string]error          // guarded by mu; by name of the call
	hang     map[string]chan struct{}  // guarded by mu; by name of the call; closed when it has begun
	stop     func()                    // guarded by mu; is called by NodeGetInfo
	mount    func(target string) error // of NodePublishVolume
	requests map[string]any            // guarded by mu; the last of each call
	statuses chan *registration.RegistrationStatus
	server   *grpc.Server
}

func (d *fakeDriver) called(ctx context.Context, name, about string, request any) error {
	d.mu.Lock()
	d.calls = append(d.calls, name+" "+about)
	d.requests[name] = request
	err, hang := d.fail[name], d.hang[name]
	d.mu.Unlock()
	if hang != nil {
		close(hang)
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (d *fakeDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: d.info.GetType(), Name: d.info.GetName(), Endpoint: d.info.GetEndpoint(), SupportedVersions: d.info.GetSupportedVersions()}, nil
}

func (d *fakeDriver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.statuses <- s
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *fakeDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csi.NodeGetInfoResponse{NodeId: d.about.GetNodeId(), MaxVolumesPerNode: d.about.GetMaxVolumesPerNode(), AccessibleTopology: d.about.GetAccessibleTopology()}, nil
}

func (d *fakeDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range d.caps {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (d *fakeDriver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, d.called(ctx, "stage", r.GetVolumeId(), r)
}

func (d *fakeDriver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, d.called(ctx, "unstage", r.GetVolumeId(), r)
}

func (d *fakeDriver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := d.called(ctx, "publish", r.GetVolumeId(), r); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, d.mount(r.GetTargetPath())
}

func (d *fakeDriver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := d.called(ctx, "unpublish", r.GetVolumeId(), r); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, os.RemoveAll(r.GetTargetPath())
}

func (d *fakeDriver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{}, d.called(ctx, "expand", r.GetVolumeId(), r)
}

func (d *fakeDriver) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Used: 7}}}, d.called(ctx, "stats", r.GetVolumeId(), r)
}

func (d *fakeDriver) history() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.calls, ", ")
}

func (d *fakeDriver) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// rig is a manager on a directory of its own, and what it reports.
type rig struct {
	t         *testing.T
	root      string
	manager   *Manager
	group     *run.Group
	installed chan Info
	changed   chan struct{}
	done      chan string // operations that have ended
	refuse    error       // what Install returns
	pauses    chan bool   // each pause ends with one of these
}

// calls returns how many calls of a method have succeeded by the metrics.
func (r *rig) calls(method string) (n uint64) {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.manager.Metrics())
	families, err := registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["method_name"] == method && labels["driver_name"] == "disks.example.com" && labels["grpc_status_code"] == "OK" && labels["migrated"] == "false" {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

func newRig(t *testing.T, root string) *rig {
	t.Helper()
	r := &rig{t: t, root: root, installed: make(chan Info, 100), changed: make(chan struct{}, 1), done: make(chan string, 100), pauses: make(chan bool)}
	r.manager = New(Options{
		Root: root, Node: "n1", Log: slog.New(slog.DiscardHandler), Registered: func() {},
		Install:   func(_ context.Context, i Info) error { r.installed <- i; return r.refuse },
		Uninstall: func(_ context.Context, name string) error { r.installed <- Info{Driver: "-" + name}; return nil },
		Done: func(driver, operation string, _ time.Time, err error) {
			r.done <- fmt.Sprintf("%s of %s: %v", operation, driver, err)
		},
		Pause: func(ctx context.Context, _ time.Duration) bool {
			select {
			case r.pauses <- true:
				return true
			case <-ctx.Done():
				return false
			}
		},
		Changed: func() {
			select {
			case r.changed <- struct{}{}:
			default:
			}
		},
	})
	registry := pluginregistry.New(pluginregistry.Options{
		Sockets: pluginregistry.Sockets(root), Log: slog.New(slog.DiscardHandler),
		Handlers: map[string]pluginregistry.Handler{registration.CSIPlugin: r.manager},
	})
	if err := errors.Join(registry.Open(), r.manager.Open()); err != nil {
		t.Fatal(err)
	}
	r.group = run.NewGroup(t.Context(), 0)
	t.Cleanup(r.group.Stop)
	r.group.Go(func(ctx context.Context) {
		if err := registry.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.group.Go(func(ctx context.Context) {
		if err := r.manager.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// driver starts a driver whose registration socket has the given name.
func (r *rig) driver(socket string, edit func(d *fakeDriver)) *fakeDriver {
	r.t.Helper()
	own := filepath.Join(r.root, "plugins", socket)
	d := &fakeDriver{
		caps: []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
		fail: map[string]error{}, hang: map[string]chan struct{}{}, requests: map[string]any{}, statuses: make(chan *registration.RegistrationStatus, 100),
		mount: func(target string) error { return os.MkdirAll(target, 0o750) },
	}
	d.info.Type, d.info.Name, d.info.Endpoint, d.info.SupportedVersions = registration.CSIPlugin, "disks.example.com", own, []string{"1.0.0"}
	d.about.NodeId = "node-1"
	if edit != nil {
		edit(d)
	}
	d.server = grpc.NewServer()
	csi.RegisterNodeServer(d.server, d)
	registration.RegisterRegistrationServer(d.server, d)
	for _, path := range []string{own, filepath.Join(r.root, "plugins_registry", socket)} {
		_ = os.Remove(path)
		l, err := net.Listen("unix", path)
		if err != nil {
			r.t.Fatal(err)
		}
		r.group.Go(func(context.Context) { _ = d.server.Serve(l) })
	}
	r.t.Cleanup(d.server.Stop)
	return d
}

// registered waits until the manager has reported how the registration went.
func (d *fakeDriver) registered(t *testing.T, fault string) {
	t.Helper()
	s := <-d.statuses
	if s.GetPluginRegistered() != (fault == "") || !strings.Contains(s.GetError(), fault) {
		t.Fatalf("registered=%t with error %q, want error %q", s.GetPluginRegistered(), s.GetError(), fault)
	}
}

func disk(pod string) *Volume {
	return &Volume{
		Pod: types.UID("uid-" + pod), Name: "pv-1", Driver: "disks.example.com", Handle: "../../disk 1", Attached: true, AccessMode: corev1.ReadWriteOnce,
	}
}

// mount holds, stages and publishes a volume.
func (r *rig) mount(v *Volume) error {
	if err := errors.Join(r.manager.Hold(v), r.manager.Stage(r.t.Context(), v)); err != nil {
		return err
	}
	return r.manager.Publish(r.t.Context(), v, false)
}

// unused waits until no volume is in use.
func (r *rig) unused() {
	r.t.Helper()
	for len(r.manager.InUse()) > 0 {
		<-r.changed
	}
}

// leftovers returns what is left of volumes on disk.
func (r *rig) leftovers() []string {
	r.t.Helper()
	var all []string
	err := filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (d.Name() == recordFile || d.Name() == "globalmount" || d.Name() == "mount") {
			all = append(all, strings.TrimPrefix(path, r.root))
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func TestVolumeIsStagedOnceAndPublishedToEachPod(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", func(d *fakeDriver) {
		d.about.MaxVolumesPerNode, d.about.AccessibleTopology = 5, &csi.Topology{Segments: map[string]string{"example.com/rack": "r1"}}
	})
	d.registered(t, "")
	if i := <-r.installed; i.NodeID != "node-1" || i.MaxVolumes != 5 || i.Topology["example.com/rack"] != "r1" {
		t.Errorf("installed %+v", i)
	}
	for _, pod := range []string{"a", "b", "a"} { // the third changes nothing
		if err := r.mount(disk(pod)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := d.history(), "stage ../../disk 1, publish ../../disk 1, publish ../../disk 1"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	if got := r.manager.InUse(); !slices.Equal(got, []corev1.UniqueVolumeName{"kubernetes.io/csi/disks.example.com^../../disk 1"}) {
		t.Errorf("in use: %v", got)
	}
	if err := r.manager.Release(t.Context(), disk("a").Pod); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(d.history(), "unstage") {
		t.Error("unstaged while a pod has it")
	}
	if err := r.manager.Release(t.Context(), disk("b").Pod); err != nil {
		t.Fatal(err)
	}
	r.unused()
	if got, want := d.history(), "unpublish ../../disk 1, unpublish ../../disk 1, unstage ../../disk 1"; !strings.HasSuffix(got, want) {
		t.Errorf("calls %s, want at the end %s", got, want)
	}
	if left := r.leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, want := range []string{"volume_unmount", "volume_unmount", "unmount_device"} {
		if got := <-r.done; got != want+" of disks.example.com: <nil>" {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for method, want := range map[string]uint64{"NodeGetInfo": 1, "NodeStageVolume": 1, "NodePublishVolume": 2, "NodeUnpublishVolume": 2, "NodeUnstageVolume": 1} {
		if got := r.calls("/csi.v1.Node/" + method); got != want {
			t.Errorf("%d calls of %s are counted, want %d", got, method, want)
		}
	}
	// A driver that goes is removed from the objects of the node.
	if err := os.Remove(filepath.Join(r.root, "plugins_registry", "disks.sock")); err != nil {
		t.Fatal(err)
	}
	if i := <-r.installed; i.Driver != "-disks.example.com" {
		t.Errorf("uninstalled %+v", i)
	}
	if err := r.manager.Stage(t.Context(), disk("a")); err == nil || !strings.Contains(err.Error(), "driver name disks.example.com not found in the list of registered CSI drivers") {
		t.Errorf("stage without a driver: %v", err)
	}
}

func TestPathsAreThoseOfTheDriver(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("pod.sock", func(d *fakeDriver) {
		d.info.Endpoint = "/var/lib/kubelet/plugins/pod.sock"
		d.mount = func(target string) error { // in its container
			return os.MkdirAll(filepath.Join(r.root, strings.TrimPrefix(target, pluginregistry.KubeletDir)), 0o750)
		}
	})
	d.registered(t, "")
	if err := r.mount(disk("a")); err != nil {
		t.Fatal(err)
	}
	stage, publish := d.requests["stage"].(*csi.NodeStageVolumeRequest), d.requests["publish"].(*csi.NodePublishVolumeRequest)
	if got, want := stage.GetStagingTargetPath(), "/var/lib/kubelet/plugins/kubernetes.io/csi/disks.example.com/"+hash("../../disk 1")+"/globalmount"; got != want {
		t.Errorf("staged at %s, want %s", got, want)
	}
	if got, want := publish.GetTargetPath(), "/var/lib/kubelet/pods/"+string(disk("a").Pod)+"/volumes/kubernetes.io~csi/pv-1/mount"; got != want {
		t.Errorf("published at %s, want %s", got, want)
	}
	if publish.GetStagingTargetPath() != stage.GetStagingTargetPath() {
		t.Errorf("staged at %s and %s", publish.GetStagingTargetPath(), stage.GetStagingTargetPath())
	}
}

func TestRestartFindsWhatIsMounted(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, root)
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	if err := r.mount(disk("a")); err != nil {
		t.Fatal(err)
	}
	// The second pod's volume was being published when the agent was killed.
	begun := make(chan struct{})
	d.set(func() { d.hang["publish"] = begun })
	r.group.Go(func(context.Context) { _ = r.mount(disk("b")) })
	<-begun
	d.server.Stop()
	r.group.Stop()

	r = newRig(t, root)
	if got := len(r.manager.InUse()); got != 1 {
		t.Fatalf("%d volumes in use after a restart, want 1", got)
	}
	if err := r.manager.Release(t.Context(), disk("b").Pod); err == nil {
		t.Error("released without a driver")
	}
	d = r.driver("disks.sock", nil)
	d.registered(t, "")
	for _, pod := range []string{"a", "b"} {
		if err := r.manager.Release(t.Context(), disk(pod).Pod); err != nil {
			t.Fatal(err)
		}
	}
	r.unused()
	if got, want := d.history(), "unpublish ../../disk 1, unpublish ../../disk 1, unstage ../../disk 1"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	if left := r.leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestUnstagingIsTriedUntilItSucceeds(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, root)
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	d.set(func() { d.fail["unstage"] = status.Error(codes.Internal, "busy") })
	if err := r.mount(disk("a")); err != nil {
		t.Fatal(err)
	}
	if err := r.manager.Release(t.Context(), disk("a").Pod); err != nil {
		t.Fatal(err)
	}
	if len(r.manager.InUse()) != 1 {
		t.Error("a volume that is not unstaged is not in use")
	}
	d.set(func() { delete(d.fail, "unstage") })
	r.unused()
	if left := r.leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestDriverThatHangsDelaysOnlyItsPod(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	begun := make(chan struct{})
	d.set(func() { d.hang["stage"] = begun })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	v := disk("a")
	if err := r.manager.Hold(v); err != nil {
		t.Fatal(err)
	}
	r.group.Go(func(context.Context) { ended <- r.manager.Stage(ctx, v) })
	<-begun
	d.set(func() { delete(d.hang, "stage") })
	other := disk("b")
	other.Handle, other.Name = "other", "pv-2"
	if err := r.mount(other); err != nil {
		t.Errorf("another volume: %v", err)
	}
	cancel() // the pod is deleted
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("stage: %v", err)
	}
	if err := r.manager.Release(t.Context(), v.Pod); err != nil {
		t.Fatal(err)
	}
	for slices.ContainsFunc(r.manager.InUse(), func(n corev1.UniqueVolumeName) bool { return strings.HasSuffix(string(n), "disk 1") }) {
		<-r.changed
	}
	if !strings.HasSuffix(d.history(), "unstage ../../disk 1") {
		t.Errorf("calls %s: what may be staged is to be unstaged", d.history())
	}
}

func TestVolumeForOnePod(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	one := func(pod string) *Volume {
		v := disk(pod)
		v.AccessMode = corev1.ReadWriteOncePod
		return v
	}
	for _, tt := range []struct{ pod, fault string }{
		{"a", ""}, {"b", "volume uses the ReadWriteOncePod access mode and is already in use by another pod"}, {"a", ""},
	} {
		if err := r.manager.Hold(one(tt.pod)); fmt.Sprint(err) != cmp.Or(tt.fault, "<nil>") {
			t.Errorf("pod %s: %v, want %q", tt.pod, err, tt.fault)
		}
	}
	if err := errors.Join(r.manager.Release(t.Context(), one("b").Pod), r.manager.Release(t.Context(), one("a").Pod), r.manager.Hold(one("b"))); err != nil {
		t.Errorf("after the first pod: %v", err)
	}
}

func TestVolumeThatNeedsNoAttachmentAnyMore(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	if err := r.mount(disk("a")); err != nil {
		t.Fatal(err)
	}
	<-r.changed
	v := disk("a")
	v.Attached = false
	if err := r.mount(v); err != nil {
		t.Fatal(err)
	}
	<-r.changed
	if got := r.manager.InUse(); len(got) > 0 {
		t.Errorf("%v must not be detached", got)
	}
}

func TestDriverIsAskedAgain(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", func(d *fakeDriver) { d.about.MaxVolumesPerNode = 5 })
	d.registered(t, "")
	<-r.installed
	d.set(func() { d.about.MaxVolumesPerNode = 8 })
	if got := r.manager.Drivers(); !slices.Equal(got, []string{"disks.example.com"}) {
		t.Errorf("drivers %v", got)
	}
	if err := r.manager.Refresh(t.Context(), "disks.example.com"); err != nil {
		t.Fatal(err)
	}
	if i := <-r.installed; i.MaxVolumes != 8 {
		t.Errorf("installed %+v", i)
	}
	if err := r.manager.Refresh(t.Context(), "other"); err == nil {
		t.Error("a driver that is not there was asked")
	}
}

// TestVolumeInUseThatIsNotExpanded has a driver that expands volumes only when they are not in use.
func TestVolumeInUseThatIsNotExpanded(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	expand := func(fault error) error {
		d.set(func() { d.fail["expand"] = fault })
		_, err := r.manager.Expand(t.Context(), disk("a"), 9<<30, nil)
		return err
	}
	if err := r.mount(disk("a")); err != nil {
		t.Fatal(err)
	}
	if err := expand(status.Error(codes.Internal, "broken")); RefusedInUse(err) || r.manager.ExpansionRefused(disk("a")) {
		t.Errorf("after another error: %v, expansion refused %t", err, r.manager.ExpansionRefused(disk("a")))
	}
	if err := expand(status.Error(codes.FailedPrecondition, "in use")); !RefusedInUse(err) || !r.manager.ExpansionRefused(disk("a")) || !r.manager.ExpansionRefused(disk("b")) {
		t.Errorf("a volume in use: %v, expansion refused %t", err, r.manager.ExpansionRefused(disk("a")))
	}
	if err := r.manager.Release(t.Context(), disk("a").Pod); err != nil {
		t.Fatal(err)
	}
	r.unused()
	if err := r.mount(disk("b")); err != nil || r.manager.ExpansionRefused(disk("b")) {
		t.Errorf("after the volume had left the node: expansion refused %t, %v", r.manager.ExpansionRefused(disk("b")), err)
	}
}

// TestUsageIsReadWhileTheDriverHangs has a driver that hangs when it is asked about the use of a volume: one reader
// waits for it.
func TestUsageIsReadWhileTheDriverHangs(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", func(d *fakeDriver) { d.caps = append(d.caps, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) })
	d.registered(t, "")
	if err := r.mount(disk("a")); err != nil {
		t.Fatal(err)
	}
	read := func(ctx context.Context, age time.Duration) (used int64) {
		t.Helper()
		parts, _, err := r.manager.Stats(ctx, disk("a").Pod, "pv-1", age)
		if err != nil {
			t.Error(err)
		}
		for _, p := range parts {
			used += p.GetUsed()
		}
		return used
	}
	for _, age := range []time.Duration{0, time.Hour} {
		if used := read(t.Context(), age); used != 7 {
			t.Errorf("%d bytes used, want 7", used)
		}
	}
	if n := strings.Count(d.history(), "stats"); n != 1 {
		t.Errorf("the driver was asked %d times, want once for two readers", n)
	}
	begun := make(chan struct{})
	d.set(func() { d.hang["stats"] = begun })
	ctx, cancel := context.WithCancel(t.Context())
	r.group.Go(func(context.Context) { <-begun; cancel() })
	for _, ctx := range []context.Context{ctx, t.Context(), t.Context()} { // only the first one may be cancelled
		if used := read(ctx, 0); used != 7 {
			t.Errorf("%d bytes used while the driver hangs, want 7 as before", used)
		}
	}
	if n := strings.Count(d.history(), "stats"); n != 2 {
		t.Errorf("the driver was asked %d times, want twice", n)
	}
}

// TestRemovedDriverIsNotInstalledAgain removes a driver while it answers a Refresh, which is not counted then.
func TestRemovedDriverIsNotInstalledAgain(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	if i := <-r.installed; i.Driver != "disks.example.com" {
		t.Errorf("installed %+v", i)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	d.set(func() { d.stop = func() { close(asked); <-answer } })
	refreshed := make(chan error, 1)
	r.group.Go(func(ctx context.Context) { refreshed <- r.manager.Refresh(ctx, "disks.example.com") })
	<-asked
	r.manager.Remove(t.Context(), pluginregistry.Plugin{Socket: "disks.sock"})
	close(answer)
	if err := <-refreshed; err == nil || !strings.Contains(err.Error(), "not found in the list of registered CSI drivers") {
		t.Errorf("Refresh returned %v, want that there is no such driver", err)
	}
	if n := r.calls("/csi.v1.Node/NodeGetInfo"); n != 0 {
		t.Errorf("metrics have %d calls of a driver that was removed", n)
	}
	close(r.installed)
	var writes []string
	for i := range r.installed {
		writes = append(writes, i.Driver)
	}
	if !slices.Equal(writes, []string{"-disks.example.com"}) {
		t.Errorf("writes %q, want only the removal of the driver", writes)
	}
}

func TestFailedCallsLeaveNothing(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	for _, call := range []string{"stage", "publish"} {
		d.set(func() {
			d.fail = map[string]error{call: status.Error(codes.InvalidArgument, strings.Repeat("x", 5000))}
		})
		err := r.mount(disk("a"))
		if err == nil || len(err.Error()) > 2000 {
			t.Errorf("%s: error of %d bytes", call, len(fmt.Sprint(err)))
		}
		if err := r.manager.Release(t.Context(), disk("a").Pod); err != nil {
			t.Fatal(err)
		}
		r.unused()
		if left := r.leftovers(); len(left) > 0 {
			t.Errorf("%s: left: %v", call, left)
		}
	}
	if h := d.history(); strings.Count(h, "unpublish") > 0 {
		t.Errorf("calls %s: nothing was published", h)
	}
}

func TestDriverMayNotLeadOutside(t *testing.T) {
	r := newRig(t, t.TempDir())
	outside := t.TempDir()
	d := r.driver("disks.sock", func(d *fakeDriver) {
		d.mount = func(target string) error { return os.Symlink(outside, target) }
	})
	d.registered(t, "")
	if err := r.mount(disk("a")); err == nil || !strings.Contains(err.Error(), "want a directory") {
		t.Errorf("published as a link: %v", err)
	}
	if err := r.manager.Release(t.Context(), disk("a").Pod); err != nil {
		t.Fatal(err)
	}
	for _, v := range []*Volume{
		{Pod: "../x", Name: "n", Driver: "d", Handle: "h"},
		{Pod: "x", Name: "../n", Driver: "d", Handle: "h"},
		{Pod: "x", Name: "n", Driver: "../d", Handle: "h"},
		{Pod: "x", Name: "n", Driver: "d"},
		{Name: "n", Driver: "d", Handle: "h"},
	} {
		if r.manager.Hold(v) == nil {
			t.Errorf("volume %+v was accepted", v)
		}
	}
}

// TestLinksOfDriversAreNotFollowed replaces directories that the agent works in by links to one outside of the agent's.
func TestLinksOfDriversAreNotFollowed(t *testing.T) {
	var outside string
	replace := func(t *testing.T, dir string) {
		t.Helper()
		if err := errors.Join(os.Rename(dir, dir+".old"), os.Symlink(outside, dir)); err != nil {
			t.Error(err)
		}
	}
	check := func(t *testing.T) {
		t.Helper()
		entries, err := os.ReadDir(outside)
		if len(entries) != 1 || err != nil {
			t.Errorf("the directory outside has %v, %v, want the file", entries, err)
		}
	}
	setUp := func(t *testing.T, edit func(d *fakeDriver)) *rig {
		t.Helper()
		outside = t.TempDir()
		if err := os.WriteFile(filepath.Join(outside, "pv-1"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, t.TempDir())
		r.driver("disks.sock", edit).registered(t, "")
		return r
	}
	block := func() *Volume { v := disk("a"); v.Block = true; return v }

	t.Run("of staged block devices", func(t *testing.T) {
		r := setUp(t, func(d *fakeDriver) { d.mount = func(target string) error { return os.WriteFile(target, nil, 0o600) } })
		if err := r.mount(block()); err != nil {
			t.Fatal(err)
		}
		replace(t, filepath.Join(r.root, "plugins/kubernetes.io/csi/volumeDevices/staging"))
		if err := r.manager.Release(t.Context(), block().Pod); err != nil {
			t.Error(err)
		}
		r.manager.mu.Lock()
		e := r.manager.volumes[key{block().Driver, block().Handle}]
		r.manager.mu.Unlock()
		if err := r.manager.unstage(t.Context(), e); err == nil || !strings.Contains(err.Error(), "staging is L---------, want a directory") {
			t.Errorf("unstage: %v", err)
		}
		check(t)
	})
	t.Run("of a pod's volume", func(t *testing.T) {
		r := setUp(t, func(d *fakeDriver) {
			d.mount = func(target string) error {
				replace(t, filepath.Dir(target))
				return nil
			}
		})
		for range 2 {
			if err := r.mount(disk("a")); err == nil || !strings.Contains(err.Error(), "pv-1 is L---------, want a directory") {
				t.Errorf("publish: %v", err)
			}
		}
		if err := r.manager.Release(t.Context(), disk("a").Pod); err != nil {
			t.Error(err)
		}
		check(t)
	})
	t.Run("of a pod's volumes", func(t *testing.T) {
		r := setUp(t, nil)
		if err := r.mount(disk("a")); err != nil {
			t.Fatal(err)
		}
		replace(t, r.manager.published(disk("a").Pod))
		if err := r.manager.Release(t.Context(), disk("a").Pod); err != nil {
			t.Error(err)
		}
		check(t)
	})
	t.Run("of files that get a group", func(t *testing.T) {
		r := setUp(t, nil)
		v := disk("a")
		v.Group = new(int64(os.Getgid()))
		if err := r.mount(v); err != nil {
			t.Fatal(err)
		}
		target := r.manager.Path(v.Pod, v.Name)
		mounted, err := r.manager.checkTarget(target, false)
		if err != nil {
			t.Fatal(err)
		}
		defer mounted.Close()
		replace(t, target)
		if err := v.setGroup(t.Context(), mounted); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{outside: false, target + ".old": true} {
			if info, err := os.Stat(path); err != nil || (info.Mode()&fs.ModeSetgid != 0) != want {
				t.Errorf("%s was given to the group: %t, %v, want %t", path, !want, err, want)
			}
		}
	})
}

func TestRegistrationIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edit  func(d *fakeDriver)
		fault string
	}{
		{"no name", func(d *fakeDriver) { d.info.Name = "" }, "name"},
		{"a path for a name", func(d *fakeDriver) { d.info.Name = "../../etc" }, "name"},
		{"another type", func(d *fakeDriver) { d.info.Type = "DRAPlugin" }, "no handler registered for plugin type: DRAPlugin"},
		{"no versions", func(d *fakeDriver) { d.info.SupportedVersions = nil }, "empty list for supported versions"},
		{"version 2", func(d *fakeDriver) { d.info.SupportedVersions = []string{"2.0.0"} }, "None of the versions"},
		{"socket elsewhere", func(d *fakeDriver) { d.info.Endpoint = "/run/docker.sock" }, "is not in"},
		{"socket outside", func(d *fakeDriver) { d.info.Endpoint = "/var/lib/kubelet/../../../run/docker.sock" }, "is not in"},
		{"no node", func(d *fakeDriver) { d.about.NodeId = "" }, "driverNodeID must not be empty"},
		{"a long name of the node", func(d *fakeDriver) { d.about.NodeId = strings.Repeat("x", 257) }, "at most 256"},
		{"a bad number", func(d *fakeDriver) { d.about.MaxVolumesPerNode = -1 }, "max_volumes_per_node"},
		{"a bad label", func(d *fakeDriver) {
			d.about.AccessibleTopology = &csi.Topology{Segments: map[string]string{"a/b/c": "x"}}
		}, "topology a/b/c"},
		{"a huge message", func(d *fakeDriver) {
			d.about.AccessibleTopology = &csi.Topology{Segments: map[string]string{"a": strings.Repeat("x", 2<<20)}}
		}, "larger than max"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, t.TempDir())
			r.driver("bad.sock", tt.edit).registered(t, tt.fault)
			if len(r.manager.drivers) > 0 {
				t.Error("it is registered")
			}
		})
	}
	t.Run("a link to a socket outside", func(t *testing.T) {
		r := newRig(t, t.TempDir())
		outside := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", outside)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := os.Symlink(outside, filepath.Join(r.root, "plugins", "link")); err != nil {
			t.Fatal(err)
		}
		r.driver("bad.sock", func(d *fakeDriver) { d.info.Endpoint = filepath.Join(r.root, "plugins", "link") }).registered(t, "Error while dialing")
	})
	t.Run("the name of another driver", func(t *testing.T) {
		r := newRig(t, t.TempDir())
		r.driver("good.sock", nil).registered(t, "")
		r.driver("thief.sock", nil).registered(t, "Another driver with the same name is already registered with a higher supported version")
		if d, err := r.manager.driver("disks.example.com"); err != nil || d.socket != "good.sock" {
			t.Errorf("driver %+v, %v", d, err)
		}
	})
}

func TestDirectoryOfBlockDeviceGoesWithItsLastPod(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.driver("disks.sock", func(d *fakeDriver) { d.mount = func(target string) error { return os.WriteFile(target, nil, 0o600) } }).registered(t, "")
	dir := filepath.Dir(r.manager.Device("u", "pv-1"))
	for _, pod := range []string{"a", "b"} {
		v := disk(pod)
		v.Block = true
		if err := r.mount(v); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		pod  string
		left bool
	}{{"a", true}, {"b", false}} {
		if err := r.manager.Release(t.Context(), disk(tt.pod).Pod); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(dir); (err == nil) != tt.left {
			t.Errorf("after pod %s: %v, want it left: %t", tt.pod, err, tt.left)
		}
	}
}

// TestLongHandlesHaveRecords restarts the agent, in a directory whose name is a pattern, with a volume whose handle is
// as long as possible.
func TestLongHandlesHaveRecords(t *testing.T) {
	root := filepath.Join(t.TempDir(), "[a")
	if err := os.Mkdir(root, 0o750); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, root)
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	v := disk("a")
	v.Handle = strings.Repeat("<", maxHandle) // six bytes each in JSON
	if err := r.mount(v); err != nil {
		t.Fatal(err)
	}
	d.server.Stop()
	r.group.Stop()
	r = newRig(t, root)
	if n := len(r.manager.InUse()); n != 1 {
		t.Errorf("%d volumes in use after a restart, want 1", n)
	}
	v.Handle += "<"
	if err := r.manager.Hold(v); err == nil || err.Error() != "the volumeHandle has 65537 bytes, want at most 65536" {
		t.Errorf("a longer handle: %v", err)
	}
}

func TestBadRecordsAreIgnored(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"plugins/kubernetes.io/csi/d/aa/" + recordFile:             `{"driverName":"d","volumeHandle":"x"}`, // elsewhere than it says
		"plugins/kubernetes.io/csi/d/bb/" + recordFile:             "{",
		"pods/u/volumes/kubernetes.io~csi/v/" + recordFile:         `{"driverName":"../d","volumeHandle":"x"}`,
		"pods/u/volumes/kubernetes.io~csi/no-record-yet/something": "x",
	} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, root)
	if n := len(r.manager.volumes); n > 0 {
		t.Errorf("%d volumes", n)
	}
	if err := r.manager.Release(t.Context(), "u"); err != nil {
		t.Error(err)
	}
}
