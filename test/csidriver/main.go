// Csidriver is a small driver of the Container Storage Interface, for the project's own tests. Its volumes are directories in
// --data, or, as block devices, the file that --device names. It registers by itself, as node-driver-registrar does for other
// drivers. The tests of upstream's suite use another driver, that of test/conformance/csidriver.
//
// Attributes of volumes ask for faults: "fault" is CALL=FAULT, for example "stage=hang". A fault happens once per volume, in
// the life of --data:
//
//	hang     the call does not return
//	die      the driver ends in the middle of the call
//	refuse   the call fails
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	name, node, data, endpoint, device string
	limit                              int64
	group                              bool
}

func main() {
	d := &driver{}
	flag.StringVar(&d.name, "name", "disks.example.com", "name of the driver")
	flag.StringVar(&d.node, "node", "node", "the driver's name of the node")
	flag.StringVar(&d.data, "data", "", "directory of the volumes")
	flag.StringVar(&d.endpoint, "kubelet-path", "", "path of the socket as the kubelet sees it; --socket, if it is empty")
	flag.StringVar(&d.device, "device", "/dev/null", "device that stands for block volumes")
	flag.Int64Var(&d.limit, "limit", 0, "how many volumes the node can have")
	flag.BoolVar(&d.group, "mount-group", false, "set the group of volumes")
	socket := flag.String("socket", "", "socket of the driver")
	registry := flag.String("registry", "", "socket of its registration; none, if it is empty")
	flag.Parse()
	if d.endpoint == "" {
		d.endpoint = *socket
	}
	if err := d.serve(*socket, *registry); err != nil {
		log.Fatal(err)
	}
}

// serve works until the program gets a signal to end, and removes its sockets then.
func (d *driver) serve(sockets ...string) error {
	if err := os.MkdirAll(d.data, 0o750); err != nil {
		return err
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	registration.RegisterRegistrationServer(server, d)
	ended := make(chan error, len(sockets))
	for _, path := range sockets {
		if path == "" {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		go func() { ended <- server.Serve(l) }()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		server.Stop()
		return nil
	}
}

// GetInfo implements the registration of plug-ins.
func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.name, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus prints how the registration went.
func (d *driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Println("registered:", s.GetPluginRegistered(), s.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo implements the identity service.
func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

// GetPluginCapabilities implements the identity service.
func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

// Probe implements the identity service.
func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// ControllerGetCapabilities implements the controller service.
func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{
		Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME},
	}}}}, nil
}

// ControllerPublishVolume attaches a volume.
func (d *driver) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	d.log("attach", r.GetVolumeId(), r.GetNodeId())
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"slot": "7"}}, d.fault(ctx, "attach", r.GetVolumeId(), r.GetVolumeContext())
}

// ControllerUnpublishVolume detaches a volume.
func (d *driver) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	d.log("detach", r.GetVolumeId(), r.GetNodeId())
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// NodeGetInfo describes the node.
func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: d.limit, AccessibleTopology: &csi.Topology{
		Segments: map[string]string{"topology." + d.name + "/node": d.node},
	}}, nil
}

// NodeGetCapabilities says what the driver can do.
func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	can := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	}
	if d.group {
		can = append(can, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	for _, c := range can {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

// log records a call in the file "calls".
func (d *driver) log(words ...string) {
	f, err := os.OpenFile(filepath.Join(d.data, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, strings.Join(words, " "))
}

// fault does what an attribute of a volume asks for, once.
func (d *driver) fault(ctx context.Context, call, volume string, attributes map[string]string) error {
	fault, is := strings.CutPrefix(attributes["fault"], call+"=")
	if !is {
		return nil
	}
	done := filepath.Join(d.data, ".fault-"+call+"-"+escape(volume))
	f, err := os.OpenFile(done, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil // it has happened
	}
	f.Close()
	switch fault {
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "die":
		os.Exit(1)
	}
	return status.Error(codes.Internal, "refused as asked")
}

func escape(volume string) string { return strings.ReplaceAll(volume, "/", "_") }

// dir returns the directory of a volume.
func (d *driver) dir(volume string) string { return filepath.Join(d.data, "volume-"+escape(volume)) }

// bind mounts source at target, unless that is done.
func bind(source, target string, readOnly bool) error {
	var a, b unix.Stat_t
	if err := errors.Join(unix.Stat(source, &a), unix.Stat(target, &b)); err != nil {
		return err
	}
	if a.Dev == b.Dev && a.Ino == b.Ino && a.Rdev == b.Rdev {
		return nil
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// unbind undoes bind.
func unbind(target string) error {
	for {
		err := unix.Unmount(target, 0)
		if err == nil {
			continue
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
}

// keys returns the keys of secrets and attributes, for the record of calls.
func keys(m map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(m)), ",") }

// NodeStageVolume mounts a volume on the node.
func (d *driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.log("stage", r.GetVolumeId(), "secrets="+keys(r.GetSecrets()), "slot="+r.GetPublishContext()["slot"])
	if err := os.MkdirAll(d.dir(r.GetVolumeId()), 0o777); err != nil {
		return nil, err
	}
	if err := d.fault(ctx, "stage", r.GetVolumeId(), r.GetVolumeContext()); err != nil {
		return nil, err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	return &csi.NodeStageVolumeResponse{}, bind(d.dir(r.GetVolumeId()), r.GetStagingTargetPath(), false)
}

// NodeUnstageVolume unmounts a volume.
func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.log("unstage", r.GetVolumeId())
	return &csi.NodeUnstageVolumeResponse{}, unbind(r.GetStagingTargetPath())
}

// NodePublishVolume mounts a volume for a pod. A volume without a staging path is made for the pod, with its attributes in a file.
func (d *driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.log("publish", r.GetVolumeId(), "pod="+r.GetVolumeContext()["csi.storage.k8s.io/pod.name"], "secrets="+keys(r.GetSecrets()),
		"group="+r.GetVolumeCapability().GetMount().GetVolumeMountGroup())
	if err := d.fault(ctx, "publish", r.GetVolumeId(), r.GetVolumeContext()); err != nil {
		return nil, err
	}
	source, target := r.GetStagingTargetPath(), r.GetTargetPath()
	if r.GetVolumeCapability().GetBlock() != nil {
		if err := os.WriteFile(target, nil, 0o600); err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, bind(d.device, target, false)
	}
	if source == "" {
		source = d.dir(r.GetVolumeId())
		b, err := json.Marshal(r.GetVolumeContext())
		if err := errors.Join(err, os.MkdirAll(source, 0o777), os.WriteFile(filepath.Join(source, "attributes"), b, 0o644)); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, bind(source, target, r.GetReadonly())
}

// NodeUnpublishVolume undoes NodePublishVolume.
func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	d.log("unpublish", r.GetVolumeId())
	err := unbind(r.GetTargetPath())
	if err == nil {
		err = os.Remove(r.GetTargetPath())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

// NodeGetVolumeStats says that a volume has 1,000 bytes.
func (d *driver) NodeGetVolumeStats(context.Context, *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: 1000, Used: 400, Available: 600}, {Unit: csi.VolumeUsage_INODES, Total: 10, Used: 4, Available: 6},
	}}, nil
}

// NodeExpandVolume says that the file system has the wanted size, or that the volume is in use if its name begins so.
func (d *driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	d.log("expand", r.GetVolumeId(), fmt.Sprint(r.GetCapacityRange().GetRequiredBytes()))
	if strings.HasPrefix(r.GetVolumeId(), "in-use") {
		return nil, status.Error(codes.FailedPrecondition, "the volume is in use")
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}
