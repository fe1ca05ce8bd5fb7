package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// topologyKey is the label of nodes that says where a volume is.
const topologyKey = "topology.hostpath.csi/node"

// settings are the flags of the driver.
type settings struct {
	name, node, dir, mutable                 string
	attach, topology, expand, modify, strict bool
	maxVolumes, attachLimit                  int64
}

// A driver implements the three services of CSI. Its volumes are below settings.dir.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	settings

	mu    sync.Mutex
	state state // guarded by mu
}

// A volume is a directory, or the file behind a block device.
type volume struct {
	ID, Name  string
	Size      int64
	Block     bool
	Ephemeral bool
	Attached  bool
	ReadOnly  bool              // as it is attached
	Staged    string            // where; empty if it is not
	Published []string          // where
	Mutable   map[string]string // parameters that can be changed
}

// A snapshot is a copy of a volume.
type snapshot struct {
	ID, Name, Source string
	Size, Created    int64 // bytes; Unix time
	Block            bool
}

// state is what the driver knows, in the file state.json.
type state struct {
	Volumes   map[string]*volume   // by ID
	Snapshots map[string]*snapshot // by ID
}

func runDriver(ctx context.Context, f *flag.FlagSet, args []string) error {
	d := &driver{}
	f.StringVar(&d.name, "drivername", "hostpath.csi.k8s.io", "name of the driver")
	f.StringVar(&d.node, "nodeid", "", "the driver's name of the node")
	f.StringVar(&d.dir, "statedir", "/csi-data-dir", "directory of the volumes")
	f.StringVar(&d.mutable, "accepted-mutable-parameter-names", "", "comma-separated parameters of volumes that can be changed; all if it is empty")
	f.BoolVar(&d.attach, "enable-attach", false, "volumes have to be attached")
	f.BoolVar(&d.topology, "enable-topology", true, "volumes are on one node")
	f.BoolVar(&d.expand, "node-expand-required", true, "the node has a part in expanding volumes")
	f.BoolVar(&d.modify, "enable-controller-modify-volume", false, "parameters of volumes can be changed")
	f.BoolVar(&d.strict, "check-volume-lifecycle", false, "refuse calls in a wrong order")
	f.Int64Var(&d.maxVolumes, "maxvolumespernode", 0, "how many volumes the node can have; 0 means no limit")
	f.Int64Var(&d.attachLimit, "attach-limit", 0, "how many volumes can be attached; 0 means no limit")
	endpoint := f.String("endpoint", "unix:///tmp/csi.sock", "socket of the driver")
	drivers := f.String("proxy-endpoint", "", "be a proxy for the driver that connects to this endpoint")
	_ = f.Parse(args) // it exits on errors
	if *drivers != "" {
		return proxy(ctx, *endpoint, *drivers)
	}
	if d.node == "" {
		return errors.New("--nodeid must not be empty")
	}
	if err := d.load(); err != nil {
		return err
	}
	l, err := listen(ctx, *endpoint)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logCall))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(l)
}

// logCall logs a call and its answer in a line that the suite reads.
func logCall(ctx context.Context, request any, about *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	line := struct {
		Method            string
		Request, Response any
		Error             string
		FullError         any
	}{Method: about.FullMethod, Request: request, Response: answer}
	if err != nil {
		line.Error, line.FullError = err.Error(), status.Convert(err).Proto()
	}
	text, failed := json.Marshal(line)
	if failed != nil {
		text = []byte(failed.Error())
	}
	log.Printf("gRPCCall: %s", text)
	return answer, err
}

func (d *driver) stateFile() string { return filepath.Join(d.dir, "state.json") }

// path returns where the contents of a volume or a snapshot are.
func (d *driver) path(id string) string { return filepath.Join(d.dir, id) }

func (d *driver) load() error {
	d.state = state{Volumes: map[string]*volume{}, Snapshots: map[string]*snapshot{}}
	if err := os.MkdirAll(d.dir, 0o750); err != nil {
		return err
	}
	data, err := os.ReadFile(d.stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d.state)
	}
	return err
}

// save writes the state. The caller holds mu.
func (d *driver) save() error {
	data, err := json.Marshal(d.state)
	if err == nil {
		err = os.WriteFile(d.stateFile()+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(d.stateFile()+".new", d.stateFile())
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// find returns a volume. The caller holds mu.
func (d *driver) find(id string) (*volume, error) {
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume ID must not be empty")
	}
	v := d.state.Volumes[id]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s not found", id)
	}
	return v, nil
}

// wrong returns the error of a call in a wrong order; nil if the driver does not check that.
func (d *driver) wrong(v *volume, format string, args ...any) error {
	if !d.strict {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "volume %s "+format, append([]any{v.ID}, args...)...)
}

// GetPluginInfo implements the identity service.
func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

// GetPluginCapabilities implements the identity service.
func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	all := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if d.topology {
		all = append(all, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	r := &csi.GetPluginCapabilitiesResponse{}
	for _, c := range all {
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: c}}})
	}
	return r, nil
}

// Probe implements the identity service.
func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// where returns the topology of volumes.
func (d *driver) where() *csi.Topology {
	if !d.topology {
		return nil
	}
	return &csi.Topology{Segments: map[string]string{topologyKey: d.node}}
}

// accepts checks parameters that can be changed.
func (d *driver) accepts(parameters map[string]string) error {
	if d.mutable == "" {
		return nil
	}
	names := strings.Split(d.mutable, ",")
	for name := range parameters {
		if !slices.Contains(names, name) {
			return status.Errorf(codes.InvalidArgument, "parameter %q can't be changed, want one of %s", name, d.mutable)
		}
	}
	return nil
}

// wanted returns the size of a volume that a request asks for.
func wanted(r *csi.CapacityRange) (int64, error) {
	const largest = 1 << 40
	size := cmp.Or(r.GetRequiredBytes(), r.GetLimitBytes(), 1<<20) //nolint:mnd // default
	if size > largest || r.GetLimitBytes() > 0 && size > r.GetLimitBytes() {
		return 0, status.Errorf(codes.OutOfRange, "size %d: must be <= %d", size, int64(largest))
	}
	return size, nil
}
