// Dradriver is a small driver of dynamic resource allocation, for tests. It publishes two devices of a node, one and two, and
// is built on upstream's library for drivers. A container with a device has the variable DEVICE with its name, the file
// /device/claim with the name of its claim, and a device file.
//
// It appends what it is asked to DATA/calls. The name of a claim asks for a fault: "hang-…" hangs and "refuse-…" fails, once in
// the life of DATA.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type driver struct{ name, node, data, cdi string }

func main() {
	d := &driver{}
	flag.StringVar(&d.name, "name", "cards.example.com", "name of the driver")
	flag.StringVar(&d.node, "node", "node", "name of the node")
	flag.StringVar(&d.data, "data", "/data", "directory of the driver's files, which has the same path on the node")
	flag.StringVar(&d.cdi, "cdi", "/var/run/cdi", "directory of files for the container runtime")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := d.run(ctx); err != nil {
		log.Fatal(err)
	}
}

// run works until ctx is cancelled.
func (d *driver) run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, dir := range []string{d.data, filepath.Join(kubeletplugin.KubeletPluginsDir, d.name)} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(client))
	if err != nil {
		return err
	}
	defer helper.Stop()
	err = helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		d.node: {Slices: []resourceslice.Slice{{Devices: []resourcev1.Device{{Name: "one"}, {Name: "two"}}}}},
	}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// note appends a line to the file of calls.
func (d *driver) note(format string, args ...any) error {
	f, err := os.OpenFile(filepath.Join(d.data, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// once reports whether this is the first call with these words.
func (d *driver) once(words string) bool {
	return os.Mkdir(filepath.Join(d.data, "once-"+words), 0o700) == nil
}

// PrepareResourceClaims writes a file for the container runtime for each claim.
func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		devices, err := d.prepare(ctx, c)
		all[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return all, nil
}

func (d *driver) prepare(ctx context.Context, c *resourcev1.ResourceClaim) ([]kubeletplugin.Device, error) {
	switch {
	case strings.HasPrefix(c.Name, "hang-") && d.once(c.Name):
		if err := d.note("prepare %s hangs", c.Name); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	case strings.HasPrefix(c.Name, "refuse-") && d.once(c.Name):
		return nil, errors.New("the card is warm")
	}
	shared := filepath.Join(d.data, "claims", string(c.UID))
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(shared, "claim"), []byte(c.Name), 0o644); err != nil {
		return nil, err
	}
	var devices []kubeletplugin.Device
	var edits []any
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != d.name {
			continue
		}
		name := string(c.UID) + "-" + r.Device
		edits = append(edits, map[string]any{"name": name, "containerEdits": map[string]any{
			"env":         []string{"DEVICE=" + r.Device},
			"deviceNodes": []any{map[string]any{"path": "/dev/card-" + r.Device, "hostPath": "/dev/null"}},
			"mounts":      []any{map[string]any{"hostPath": shared, "containerPath": "/device", "options": []string{"ro", "bind"}}},
		}})
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CDIDeviceIDs: []string{d.name + "/card=" + name},
		})
	}
	b, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": d.name + "/card", "devices": edits})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.file(c.UID), b, 0o600); err != nil {
		return nil, err
	}
	return devices, d.note("prepare %s", c.Name)
}

func (d *driver) file(claim types.UID) string {
	return filepath.Join(d.cdi, d.name+"-"+string(claim)+".json")
}

// UnprepareResourceClaims removes these files.
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := map[types.UID]error{}
	for _, c := range claims {
		all[c.UID] = errors.Join(os.RemoveAll(d.file(c.UID)), os.RemoveAll(filepath.Join(d.data, "claims", string(c.UID))), d.note("unprepare %s", c.Name))
	}
	return all, nil
}

// HandleError prints errors in the background.
func (d *driver) HandleError(_ context.Context, err error, message string) {
	log.Print(message, ": ", err)
}

// WatchHealthStatus reports that the devices are healthy, and that device two is not if there is the file DATA/warm.
func (d *driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := time.NewTicker(time.Second) // a test driver may poll a file
	defer ticker.Stop()
	for {
		two := kubeletplugin.DeviceHealth{PoolName: d.node, DeviceName: "two", Health: kubeletplugin.HealthStatusHealthy}
		if _, err := os.Stat(filepath.Join(d.data, "warm")); err == nil {
			two.Health, two.Message = kubeletplugin.HealthStatusUnhealthy, "it is warm"
		}
		report := kubeletplugin.DeviceHealthReport{Devices: []kubeletplugin.DeviceHealth{
			{PoolName: d.node, DeviceName: "one", Health: kubeletplugin.HealthStatusHealthy}, two,
		}}
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
