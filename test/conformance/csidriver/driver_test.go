package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func newDriver(t *testing.T) *driver {
	t.Helper()
	d := &driver{settings: settings{name: "d", node: "n", dir: t.TempDir(), attach: true, topology: true, expand: true, strict: true, mutable: "speed"}}
	if err := d.load(); err != nil {
		t.Fatal(err)
	}
	return d
}

// create makes a volume to mount.
func create(t *testing.T, d *driver, name string, size int64, from *csi.VolumeContentSource) *csi.Volume {
	t.Helper()
	a, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeContentSource: from,
		VolumeCapabilities: []*csi.VolumeCapability{{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.GetVolume()
}

func TestVolumeHasALife(t *testing.T) {
	d := newDriver(t)
	v := create(t, d, "a", 100, nil)
	if again := create(t, d, "a", 100, nil); again.GetVolumeId() != v.GetVolumeId() {
		t.Error("a second volume of one name")
	}
	if got := v.GetAccessibleTopology()[0].GetSegments()[topologyKey]; got != "n" {
		t.Errorf("it is at %q", got)
	}
	if err := os.WriteFile(filepath.Join(d.path(v.GetVolumeId()), "f"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	stage := &csi.NodeStageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: "/s", VolumeCapability: &csi.VolumeCapability{}}
	if _, err := d.NodeStageVolume(t.Context(), stage); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("staged before it is attached: %v", err)
	}
	if _, err := d.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: "n"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.NodeStageVolume(t.Context(), stage); err != nil {
		t.Fatal(err)
	}
	// The driver is started again.
	if err := d.load(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"deleted":  second(d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})),
		"detached": second(d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId()})),
	} {
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s while it is staged: %v", name, err)
		}
	}
	copied := create(t, d, "b", 200, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.GetVolumeId()},
	}})
	if data, err := os.ReadFile(filepath.Join(d.path(copied.GetVolumeId()), "f")); err != nil || string(data) != "data" {
		t.Errorf("the copy has %q, %v", data, err)
	}
	for _, err := range []error{
		second(d.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: "/s"})),
		second(d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId()})),
		second(d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(d.path(v.GetVolumeId())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the contents are left: %v", err)
	}
}

func second[A any](_ A, err error) error { return err }

func TestParametersAreChecked(t *testing.T) {
	d := newDriver(t)
	v := create(t, d, "a", 100, nil)
	change := func(name string) error {
		return second(d.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: v.GetVolumeId(), MutableParameters: map[string]string{name: "1"}}))
	}
	if err := change("speed"); err != nil {
		t.Error(err)
	}
	if err := change("colour"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a parameter that is not accepted: %v", err)
	}
	if _, err := wanted(&csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}); status.Code(err) != codes.OutOfRange {
		t.Errorf("a size above its limit: %v", err)
	}
}

// TestRegistrarFindsADriverBehindAProxy goes from the agent to a driver elsewhere, as in the tests of the suite that answer the
// calls themselves.
func TestRegistrarFindsADriverBehindAProxy(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	start := func(program func(context.Context, *flag.FlagSet, []string) error, args ...string) {
		go func() { ended <- program(ctx, flag.NewFlagSet("", flag.ContinueOnError), args) }()
	}
	start(runDriver, "--endpoint="+dir+"/csi.sock", "--proxy-endpoint=unix://"+dir+"/backend.sock")
	start(runRegistrar, "--csi-address="+dir+"/csi.sock", "--kubelet-registration-path=/x/csi.sock", "--plugin-registration-path="+dir, "--timeout=1m")
	// A connection whose other end has gone is not used.
	dial(t, dir+"/csi.sock").Close()
	dial(t, dir+"/backend.sock").Close()
	backend := dial(t, dir+"/backend.sock")
	// The driver answers at the other end of the connection.
	server := serveOn(t, newDriver(t), backend)
	defer server.Stop()
	conn, err := connect(dir + "/d-reg.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info, err := getInfo(t.Context(), conn)
	if err != nil || info.GetName() != "d" || info.GetEndpoint() != "/x/csi.sock" {
		t.Errorf("registered %v, %v", info, err)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}

// dial connects to a socket as soon as it is there.
func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	for t.Context().Err() == nil {
		var dialer net.Dialer
		if c, err := dialer.DialContext(t.Context(), "unix", path); err == nil {
			return c
		}
	}
	t.Fatal(t.Context().Err())
	return nil
}
