package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func newDriver(t *testing.T) *driver {
	t.Helper()
	d := &driver{settings: settings{name: "d", node: "n", dir: t.TempDir(), attachable: true, local: true, nodeExpansion: true, strict: true, mutable: "speed"}}
	if err := d.load(); err != nil {
		t.Fatal(err)
	}
	return d
}

// createRequest asks for a volume to mount.
func createRequest(name string, size int64, from *csi.VolumeContentSource) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeContentSource: from,
		VolumeCapabilities: []*csi.VolumeCapability{{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}},
	}
}

// create makes a volume to mount.
func create(t *testing.T, d *driver, name string, size int64, from *csi.VolumeContentSource) *csi.Volume {
	t.Helper()
	a, err := d.CreateVolume(t.Context(), createRequest(name, size, from))
	if err != nil {
		t.Fatal(err)
	}
	return a.GetVolume()
}

func TestCallsAreInOrder(t *testing.T) {
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
		"deleted":  errorOf(d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})),
		"detached": errorOf(d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId()})),
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
		errorOf(d.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: "/s"})),
		errorOf(d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId()})),
		errorOf(d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(d.path(v.GetVolumeId())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the contents are left: %v", err)
	}
}

// errorOf returns the error of a call.
func errorOf[A any](_ A, err error) error { return err }

func TestParametersAndSizesAreChecked(t *testing.T) {
	d := newDriver(t)
	v := create(t, d, "a", 100, nil)
	change := func(name string) error {
		return errorOf(d.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: v.GetVolumeId(), MutableParameters: map[string]string{name: "1"}}))
	}
	if err := change("speed"); err != nil {
		t.Error(err)
	}
	if err := change("colour"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a parameter that is not accepted: %v", err)
	}
	if _, err := requestedSize(&csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}); status.Code(err) != codes.OutOfRange {
		t.Errorf("a size above its limit: %v", err)
	}
}

// TestCallsRunOneAtATime needs the race detector to find state without a lock.
func TestCallsRunOneAtATime(t *testing.T) {
	d := newDriver(t)
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(d)
	go func() { _ = server.Serve(l) }() // until Stop
	defer server.Stop()
	conn, err := connect(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			if _, err := csi.NewControllerClient(conn).CreateVolume(t.Context(), createRequest(strconv.Itoa(i), 100, nil)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if err := d.load(); err != nil || len(d.state.Volumes) != 20 {
		t.Errorf("%d volumes are recorded, want 20; %v", len(d.state.Volumes), err)
	}
}

// A lateDriver refuses the first calls at once, and then has a name.
type lateDriver struct {
	csi.IdentityClient
	refusals int
	name     string
}

func (d *lateDriver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest, ...grpc.CallOption) (*csi.GetPluginInfoResponse, error) {
	if d.refusals--; d.refusals >= 0 {
		return nil, status.Error(codes.Unavailable, "not yet")
	}
	return &csi.GetPluginInfoResponse{Name: d.name}, nil
}

func TestRegistrarPausesBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		name, err := driverName(t.Context(), &lateDriver{refusals: 3, name: "d"}, time.Minute)
		if name != "d" || err != nil || time.Since(start) != 3*retryPause {
			t.Errorf("got %q, %v after %v, want d after %v", name, err, time.Since(start), 3*retryPause)
		}
	})
	if _, err := driverName(t.Context(), &lateDriver{}, time.Second); err == nil {
		t.Error("a driver without a name was accepted")
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
