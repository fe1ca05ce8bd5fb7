package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/sampan-io/sampan/internal/run"
)

const gpu = "example.com/gpu"

// fakePlugin is a plug-in whose devices a test sets.
type fakePlugin struct {
	api.UnimplementedDevicePluginServer
	lists chan []*api.Device
}

func (p *fakePlugin) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		select {
		case list := <-p.lists:
			if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (p *fakePlugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{
		Envs:    map[string]string{"GPUS": strings.Join(ids, ",")},
		Devices: []*api.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/gpu", Permissions: "rw"}},
	}}}, nil
}

// rig is a manager with one plug-in.
type rig struct {
	t       *testing.T
	dir     string
	changed chan struct{}
	manager *Manager
	plugin  *fakePlugin
	server  *grpc.Server
	group   *run.Group
}

func newRig(t *testing.T, dir string) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, changed: make(chan struct{}, 100), plugin: &fakePlugin{lists: make(chan []*api.Device)}}
	r.manager = New(Options{
		Dir: filepath.Join(dir, "plugins"), State: filepath.Join(dir, "devices.json"),
		Changed: func() { r.changed <- struct{}{} }, Log: slog.New(slog.DiscardHandler),
	})
	r.group = run.NewGroup(t.Context(), 0)
	t.Cleanup(r.group.Stop)
	r.group.Go(func(ctx context.Context) {
		if err := r.manager.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// register starts the plug-in and announces it. The call waits for the manager's socket.
func (r *rig) register() {
	r.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.dir, "plugins", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	announce := func(endpoint string) error {
		_, err := api.NewRegistrationClient(conn).Register(r.t.Context(),
			&api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: gpu}, grpc.WaitForReady(true))
		return err
	}
	if err := announce("../gpu.sock"); err == nil {
		r.t.Fatal("a socket outside of the directory was accepted")
	}
	l, err := net.Listen("unix", filepath.Join(r.dir, "plugins", "gpu.sock"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = grpc.NewServer()
	api.RegisterDevicePluginServer(r.server, r.plugin)
	r.group.Go(func(context.Context) { _ = r.server.Serve(l) })
	r.t.Cleanup(r.server.Stop)
	if err := announce("gpu.sock"); err != nil {
		r.t.Fatal(err)
	}
}

// report has the plug-in report devices, and waits until the manager knows them.
func (r *rig) report(health ...string) {
	r.t.Helper()
	var list []*api.Device
	for i, h := range health {
		list = append(list, &api.Device{ID: string(rune('a' + i)), Health: h})
	}
	r.plugin.lists <- list
	<-r.changed
}

func (r *rig) wantResources(capacity, allocatable int64) {
	r.t.Helper()
	all, usable := r.manager.Resources()
	if c, a := all[gpu], usable[gpu]; c.Value() != capacity || a.Value() != allocatable {
		r.t.Errorf("capacity %v and allocatable %v, want %d and %d", &c, &a, capacity, allocatable)
	}
}

func asking(uid types.UID, n int64) *corev1.Pod {
	limits := corev1.ResourceList{gpu: *resource.NewQuantity(n, resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("1")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: limits}}}},
	}
}

// devices returns which devices the container of a pod has.
func (r *rig) devices(uid types.UID) string {
	r.t.Helper()
	given, err := r.manager.Container(r.t.Context(), uid, "c")
	if err != nil {
		r.t.Fatal(err)
	}
	if len(given) == 0 {
		return ""
	}
	return given[0].GetEnvs()["GPUS"] + " " + given[0].GetDevices()[0].GetContainerPath()
}

func TestDevicesBelongToOneContainer(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir)
	r.register()
	r.report(api.Healthy, api.Unhealthy, api.Healthy, api.Healthy)
	r.wantResources(4, 3)
	if err := r.manager.Allocate(t.Context(), asking("p", 2)); err != nil {
		t.Fatal(err)
	}
	err := r.manager.Allocate(t.Context(), asking("q", 2))
	if want := "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is unexpected"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := r.manager.Allocate(t.Context(), asking("q", 1)); err != nil {
		t.Fatal(err)
	}
	if got := r.devices("p") + "; " + r.devices("q"); got != "a,c /dev/gpu; d /dev/gpu" {
		t.Errorf("devices %s", got)
	}

	// The devices of a claim are not the plug-in's.
	claiming := asking("claims", 4)
	claiming.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: gpu, RequestName: "r"}},
	}
	if err := r.manager.Allocate(t.Context(), claiming); err != nil || r.devices("claims") != "" {
		t.Errorf("a pod that has a claim got %q, %v", r.devices("claims"), err)
	}

	// The health of the devices of a container is for its status, and monitors can read which it has.
	r.report(api.Unhealthy, api.Unhealthy, api.Healthy, api.Healthy)
	if got := fmt.Sprint(r.manager.Status("p", "c")); got != "[{example.com/gpu [{a Unhealthy <nil>} {c Healthy <nil>}]}]" {
		t.Errorf("the status of the devices is %s", got)
	}
	if got := r.manager.Given("p", "c"); len(got) != 2 || got[0].GetResourceName() != gpu || got[0].GetDeviceIds()[0] != "a" || got[1].GetDeviceIds()[0] != "c" {
		t.Errorf("the devices of the container are %v", got)
	}
	if got := r.manager.Allocatable(); len(got) != 2 || got[0].GetDeviceIds()[0] != "c" || got[1].GetDeviceIds()[0] != "d" {
		t.Errorf("the devices that can be used are %v", got)
	}

	// A restarted agent knows what containers have, before the plug-in is back.
	r.server.Stop()
	r.group.Stop()
	r = newRig(t, dir)
	r.register()
	r.report(api.Healthy, api.Healthy, api.Healthy, api.Healthy)
	if got := r.devices("p"); got != "a,c /dev/gpu" {
		t.Errorf("after a restart the devices are %s", got)
	}
	r.manager.Release("p")
	if err := r.manager.Allocate(t.Context(), asking("r", 3)); err != nil {
		t.Fatal(err)
	}
	if got := r.devices("r"); got != "a,b,c /dev/gpu" {
		t.Errorf("devices %s", got)
	}

	r.server.Stop()
	<-r.changed
	r.wantResources(4, 0)
}

// TestPluginsOfKubeletsDirectory registers plug-ins in the second directory, unless another program serves it.
func TestPluginsOfKubeletsDirectory(t *testing.T) {
	dir, also := t.TempDir(), t.TempDir()
	start := func(name string) func() {
		m := New(Options{Dir: filepath.Join(dir, name), Also: also, State: filepath.Join(dir, name+".json"), Changed: func() {}, Log: slog.New(slog.DiscardHandler)})
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) {
			if err := m.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		return g.Stop
	}
	ask := func(at string) error {
		conn, err := grpc.NewClient("unix://"+filepath.Join(at, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = api.NewRegistrationClient(conn).Register(t.Context(), &api.RegisterRequest{Version: api.Version, Endpoint: "../x", ResourceName: gpu}, grpc.WaitForReady(true))
		return err
	}
	stop := start("first")
	defer stop()
	if err := ask(also); err == nil || !strings.Contains(err.Error(), "is not the name of a socket in "+also) {
		t.Errorf("in the second directory: %v", err)
	}
	// The second manager leaves the first one its socket.
	defer start("second")()
	if err := ask(filepath.Join(dir, "second")); err == nil || !strings.Contains(err.Error(), "is not the name of a socket in "+dir) {
		t.Errorf("in the directory of the second manager: %v", err)
	}
	if err := ask(also); err == nil || !strings.Contains(err.Error(), also) {
		t.Errorf("in the second directory: %v", err)
	}
}

// TestRecordsAfterAPowerCut starts with a record that is empty, as file systems leave files that were not synced.
func TestRecordsAfterAPowerCut(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "devices.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, dir)
	r.register()
	r.report(api.Healthy, api.Healthy)
	r.wantResources(2, 2)
}

// TestPodsWaitForDevicesOfEndingPods asks for devices that pods have which are running, ending or gone.
func TestPodsWaitForDevicesOfEndingPods(t *testing.T) {
	r := newRig(t, t.TempDir())
	holding := map[types.UID]Holding{}
	asked := make(chan types.UID, 10)
	r.manager.opts.Holder = func(pod types.UID) Holding {
		asked <- pod
		return holding[pod]
	}
	r.register()
	r.report(api.Healthy, api.Healthy)
	if err := r.manager.Allocate(t.Context(), asking("p", 2)); err != nil {
		t.Fatal(err)
	}
	want := "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected"
	if err := r.manager.Allocate(t.Context(), asking("q", 1)); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	<-asked

	// The devices of a pod that is ending are not given away before its containers have ended.
	holding["p"] = Ending
	done := make(chan error, 1)
	r.group.Go(func(ctx context.Context) { done <- r.manager.Allocate(ctx, asking("q", 1)) })
	<-asked
	if got := r.devices("p") + "; " + r.devices("q"); got != "a,b /dev/gpu; " {
		t.Errorf("devices %s", got)
	}
	r.manager.Release("p")
	if err := <-done; err != nil || r.devices("q") != "a /dev/gpu" {
		t.Errorf("after the wait: %s, %v", r.devices("q"), err)
	}

	// A pod that ends while it waits gets none.
	holding["q"] = Ending
	ctx, cancel := context.WithCancel(t.Context())
	r.group.Go(func(context.Context) { done <- r.manager.Allocate(ctx, asking("s", 2)) })
	<-asked
	cancel()
	if err := <-done; err == nil || r.devices("s") != "" {
		t.Errorf("a pod that is cancelled has %q, %v", r.devices("s"), err)
	}

	holding["q"] = Gone
	if err := r.manager.Allocate(t.Context(), asking("s", 2)); err != nil || r.devices("s") != "a,b /dev/gpu" {
		t.Errorf("devices of a pod that is gone: %s, %v", r.devices("s"), err)
	}
}

// TestInitContainersShareDevices gives the devices of init containers to the containers that run after them, and to no
// one else.
func TestInitContainersShareDevices(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.register()
	r.report(api.Healthy, api.Healthy, api.Healthy, api.Healthy)
	container := func(name string, n int64) corev1.Container {
		c := asking("", n).Spec.Containers[0]
		c.Name = name
		return c
	}
	sidecar, always := container("sidecar", 1), corev1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{container("first", 4), sidecar, container("second", 3)},
		Containers:     []corev1.Container{container("c", 2), container("d", 1)},
	}}
	if err := r.manager.Allocate(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"first": "a,b,c,d", "sidecar": "a", "second": "b,c,d", "c": "b,c", "d": "d"} {
		var got []string
		for _, d := range r.manager.Given("p", name) {
			got = append(got, d.GetDeviceIds()...)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("container %s has the devices %v, want %s", name, got, want)
		}
	}
	if err := r.manager.Allocate(t.Context(), asking("q", 1)); err == nil {
		t.Errorf("another pod has %s", r.devices("q"))
	}
}
