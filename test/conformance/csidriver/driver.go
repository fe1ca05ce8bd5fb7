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

// largestVolume is the largest size of a volume in bytes.
const largestVolume = 1 << 40

// settings are the flags of the driver.
type settings struct {
	name, node    string
	dir           string // of the volumes and the state
	mutable       string // names of parameters that can be changed, with commas; "" means any
	attachable    bool   // volumes have to be attached before they are staged
	local         bool   // volumes have the topology of the node
	nodeExpansion bool   // an expansion has a part on the node
	modifiable    bool   // parameters can be changed
	strict        bool   // calls out of order are refused
	maxVolumes    int64  // on the node; 0 means no limit
	attachLimit   int64  // attached volumes; 0 means no limit
}

// A driver implements the three services of CSI. Its volumes are below settings.dir. Calls that use the state run one at a
// time: see [driver.lockCall]. So methods need no lock, and must not be called in any other way while the server runs.
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
	Staged    string            // staging path; "" if it is not staged
	Published []string          // target paths
	Mutable   map[string]string // parameters that can be changed
}

// A snapshot is a copy of a volume.
type snapshot struct {
	ID, Name, Source string
	Size, Created    int64 // bytes; Unix time
	Block            bool
}

// state has all volumes and snapshots. It is in the file state.json, so that the driver can be started again.
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
	f.BoolVar(&d.attachable, "enable-attach", false, "volumes have to be attached")
	f.BoolVar(&d.local, "enable-topology", true, "volumes are on one node")
	f.BoolVar(&d.nodeExpansion, "node-expand-required", true, "the node has a part in expanding volumes")
	f.BoolVar(&d.modifiable, "enable-controller-modify-volume", false, "parameters of volumes can be changed")
	f.BoolVar(&d.strict, "check-volume-lifecycle", false, "refuse calls in a wrong order")
	f.Int64Var(&d.maxVolumes, "maxvolumespernode", 0, "how many volumes the node can have; 0 means no limit")
	f.Int64Var(&d.attachLimit, "attach-limit", 0, "how many volumes can be attached; 0 means no limit")
	endpoint := f.String("endpoint", "unix:///tmp/csi.sock", "socket of the driver")
	backends := f.String("proxy-endpoint", "", "be a proxy for the driver that connects to this endpoint")
	_ = f.Parse(args) // it exits on errors
	if *backends != "" {
		return proxy(ctx, *endpoint, *backends)
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
	server := newServer(d)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(l)
}

// newServer returns a gRPC server with the services of a driver.
func newServer(d *driver) *grpc.Server {
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(logCall, d.lockCall))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	return server
}

// lockCall holds mu during a call. The identity service does not use the state, and has to answer probes while a large volume
// is copied.
func (d *driver) lockCall(ctx context.Context, request any, about *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if !strings.HasPrefix(about.FullMethod, "/"+csi.Identity_ServiceDesc.ServiceName+"/") {
		d.mu.Lock()
		defer d.mu.Unlock()
	}
	return handle(ctx, request)
}

// logCall logs a call and its answer in one line, in the form in which the suite looks for calls in the log of the driver.
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

// load reads the state. There is none if the driver is started for the first time.
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

// save writes the state. A driver that is killed leaves the old or the new one.
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

// find returns a volume. The error for one that does not exist has the code NotFound.
func (d *driver) find(id string) (*volume, error) {
	v, err := d.findIfExists(id)
	if err == nil && v == nil {
		err = notFound(id)
	}
	return v, err
}

// findIfExists returns a volume, or nil. Calls that undo something succeed if there is no volume.
func (d *driver) findIfExists(id string) (*volume, error) {
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume ID must not be empty")
	}
	return d.state.Volumes[id], nil
}

func notFound(id string) error { return status.Errorf(codes.NotFound, "volume %s not found", id) }

// require returns the error of a call that is out of order. It is nil if the volume is in the state that the call needs, or if
// the driver does not check that.
func (d *driver) require(inOrder bool, v *volume, format string, args ...any) error {
	if inOrder || !d.strict {
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
	if d.local {
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

// topology returns where volumes are; nil if they are everywhere.
func (d *driver) topology() *csi.Topology {
	if !d.local {
		return nil
	}
	return &csi.Topology{Segments: map[string]string{topologyKey: d.node}}
}

// checkMutable returns an error unless all parameters can be changed.
func (d *driver) checkMutable(parameters map[string]string) error {
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

// requestedSize returns the size of the volume that a request asks for.
func requestedSize(r *csi.CapacityRange) (int64, error) {
	size := cmp.Or(r.GetRequiredBytes(), r.GetLimitBytes(), 1<<20)
	most := int64(largestVolume)
	if r.GetLimitBytes() > 0 {
		most = min(most, r.GetLimitBytes())
	}
	if size > most {
		return 0, status.Errorf(codes.OutOfRange, "size %d: must be <= %d", size, most)
	}
	return size, nil
}
