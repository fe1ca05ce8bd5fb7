package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

const driverName = "cards.example.com"

// fakeDriver prepares each claim as one device with its name, and records the calls.
type fakeDriver struct {
	api.UnimplementedDRAPluginServer

	mu    sync.Mutex
	calls []string // guarded by mu
	fail  string   // guarded by mu; what is wrong with every claim
	skip  bool     // guarded by mu; answer for no claim
}

func (d *fakeDriver) NodePrepareResources(_ context.Context, r *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		d.calls = append(d.calls, "prepare "+c.GetName())
		if !d.skip {
			out.Claims[c.GetUid()] = &api.NodePrepareResourceResponse{Error: d.fail, Devices: []*api.Device{
				{PoolName: "pool", DeviceName: c.GetName(), RequestNames: []string{"card"}, CdiDeviceIds: []string{driverName + "/card=" + c.GetName()}},
				{PoolName: "pool", DeviceName: c.GetName() + "-fan", RequestNames: []string{"fan"}, CdiDeviceIds: []string{driverName + "/fan=" + c.GetName()}},
			}}
		}
	}
	return out, nil
}

func (d *fakeDriver) NodeUnprepareResources(_ context.Context, r *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		d.calls = append(d.calls, "unprepare "+c.GetName())
		if !d.skip {
			out.Claims[c.GetUid()] = &api.NodeUnprepareResourceResponse{Error: d.fail}
		}
	}
	return out, nil
}

func (d *fakeDriver) set(fail string, skip bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.skip = fail, skip
}

func (d *fakeDriver) history() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.calls, ", ")
}

// rig is a manager on a directory of its own.
type rig struct {
	t       *testing.T
	root    string
	claims  map[string]*resourcev1.ResourceClaim
	manager *Manager
	group   *run.Group
	wiped   chan string
}

func newRig(t *testing.T, root string) *rig {
	t.Helper()
	r := &rig{t: t, root: root, claims: map[string]*resourcev1.ResourceClaim{}, wiped: make(chan string, 10)}
	r.manager = New(Options{
		Root: root, Log: slog.New(slog.DiscardHandler), Registered: func() {}, Changed: func([]types.UID) {},
		Wipe: func(_ context.Context, driver string) error { r.wiped <- driver; return nil },
		Claim: func(_ context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			if c := r.claims[name]; c != nil {
				return c, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaims"}, name)
		},
	})
	if err := r.manager.Open(); err != nil {
		t.Fatal(err)
	}
	r.group = run.NewGroup(t.Context(), 0)
	t.Cleanup(r.group.Stop)
	r.group.Go(func(ctx context.Context) { _ = r.manager.Run(ctx) })
	if driver := <-r.wiped; driver != "" { // it runs now
		t.Fatalf("slices of %q deleted at the start, want those of all drivers", driver)
	}
	return r
}

// driver starts a driver and registers it.
func (r *rig) driver() *fakeDriver {
	r.t.Helper()
	d := &fakeDriver{}
	path := filepath.Join(r.root, "dra.sock")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		r.t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDRAPluginServer(server, d)
	r.group.Go(func(ctx context.Context) {
		defer context.AfterFunc(ctx, server.Stop)()
		_ = server.Serve(l)
	})
	if err := r.manager.Register(r.t.Context(), r.plugin()); err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *rig) plugin() pluginregistry.Plugin {
	return pluginregistry.Plugin{Socket: "reg.sock", Name: driverName, Endpoint: pluginregistry.KubeletDir + "/dra.sock", Versions: []string{api.DRAPluginService}}
}

// claim adds an allocated claim that is reserved for pods.
func (r *rig) claim(name string, pods ...string) {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "card", Driver: driverName, Pool: "pool", Device: name}},
	}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
	}
	r.claims[name] = c
}

// podWith returns a pod that uses claims.
func podWith(uid string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: uid, UID: types.UID(uid)}}
	c := corev1.Container{Name: "c"}
	for _, name := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "my-" + name, ResourceClaimName: &name})
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: "my-" + name})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

func (r *rig) expect(err error, want string) {
	r.t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		r.t.Fatalf("error %v, want %q", err, want)
	}
}

func TestClaimIsPreparedForItsPods(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.claim("x", "p1", "p2")
	p1, p2 := podWith("p1", "x"), podWith("p2", "x")
	r.expect(r.manager.Prepare(t.Context(), p1), "prepare dynamic resources: DRA driver cards.example.com is not registered")
	if r.manager.Holds("p1") {
		t.Fatal("a pod holds claims that no driver was asked for")
	}
	d := r.driver()
	r.expect(errors.Join(r.manager.Prepare(t.Context(), p1), r.manager.Prepare(t.Context(), p2)), "")
	ids, err := r.manager.Devices(p1, &p1.Spec.Containers[0])
	if got := fmt.Sprint(ids, err); got != "[cards.example.com/card=x cards.example.com/fan=x] <nil>" {
		t.Errorf("devices are %s", got)
	}
	p1.Spec.Containers[0].Resources.Claims[0].Request = "fan"
	if ids, err := r.manager.Devices(p1, &p1.Spec.Containers[0]); fmt.Sprint(ids, err) != "[cards.example.com/fan=x] <nil>" {
		t.Errorf("devices of one request are %s, %v", ids, err)
	}
	r.expect(r.manager.Unprepare(t.Context(), "p1"), "")
	if r.manager.Holds("p1") || !r.manager.Holds("p2") {
		t.Error("the claim is not the second pod's alone")
	}
	r.expect(r.manager.Unprepare(t.Context(), "p2"), "")
	if got, want := d.history(), "prepare x, unprepare x"; got != want {
		t.Errorf("calls: %s, want %s", got, want)
	}
}

func TestFaultsOfDriversAreReported(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver()
	r.claim("x", "p1")
	p := podWith("p1", "x")
	d.set("it is warm", false)
	r.expect(r.manager.Prepare(t.Context(), p), "NodePrepareResources failed for ResourceClaim x: it is warm")
	d.set(strings.Repeat("x", 2000), false)
	if err := r.manager.Prepare(t.Context(), p); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a long error is not shortened: %v", err)
	}
	d.set("", true)
	r.expect(r.manager.Prepare(t.Context(), p), "NodePrepareResources skipped 1 ResourceClaims")
	r.expect(r.manager.Unprepare(t.Context(), "p1"), "NodeUnprepareResources skipped 1 ResourceClaims")
	if !r.manager.Holds("p1") {
		t.Error("a claim is not held that was not unprepared")
	}
	r.expect(r.manager.Prepare(t.Context(), podWith("p1", "x")), "ResourceClaim x is being unprepared")
	d.set("", false)
	r.expect(r.manager.Unprepare(t.Context(), "p1"), "")

	r.expect(r.manager.Prepare(t.Context(), podWith("stranger", "x")), "pod stranger (stranger) is not allowed to use ResourceClaim x (uid-x)")
	r.expect(r.manager.Prepare(t.Context(), podWith("p1", "none")), "fetch ResourceClaim none")
	r.claims["x"].Status.Allocation = nil
	r.expect(r.manager.Prepare(t.Context(), p), "ResourceClaim x: not allocated")
}

func TestClaimsOutliveTheAgent(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, root)
	r.driver()
	r.claim("x", "p1")
	r.expect(r.manager.Prepare(t.Context(), podWith("p1", "x")), "")
	r.group.Stop()

	r = newRig(t, root)
	r.claim("x", "p1")
	if got := fmt.Sprint(r.manager.Pods()); got != "[p1]" {
		t.Errorf("pods with claims are %s", got)
	}
	if ids, err := r.manager.Devices(podWith("p1", "x"), &podWith("p1", "x").Spec.Containers[0]); len(ids) != 2 || err != nil {
		t.Errorf("devices are %v, %v", ids, err)
	}
	r.expect(r.manager.Unprepare(t.Context(), "p1"), "DRA driver cards.example.com is not registered")
	d := r.driver()
	r.expect(r.manager.Prepare(t.Context(), podWith("p1", "x")), "ResourceClaim x is being unprepared")
	r.expect(r.manager.Unprepare(t.Context(), "p1"), "")
	if got := d.history(); got != "unprepare x" {
		t.Errorf("calls: %s", got)
	}
	// A claim with the name of one that is still prepared is another one.
	r.expect(r.manager.Prepare(t.Context(), podWith("p1", "x")), "")
	r.claims["x"].UID = "new"
	r.claims["x"].Status.ReservedFor[0].UID = "p2"
	r.expect(r.manager.Prepare(t.Context(), podWith("p2", "x")), "old ResourceClaim with same name x and different UID uid-x still exists")
}

func TestDamagedRecordIsAnError(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(Options{Root: root}).Open(); err == nil || !strings.Contains(err.Error(), recordFile) {
		t.Errorf("opening a damaged record: %v", err)
	}
}

func TestPluginsAreChecked(t *testing.T) {
	r := newRig(t, t.TempDir())
	for want, edit := range map[string]func(p *pluginregistry.Plugin){
		"empty list of supported gRPC services":                   func(p *pluginregistry.Plugin) { p.Versions = nil },
		"none of services supported by the plugin":                func(p *pluginregistry.Plugin) { p.Versions = []string{"v9.DRAPlugin"} },
		`name "../x" of the DRA driver`:                           func(p *pluginregistry.Plugin) { p.Name = "../x" },
		`socket "/etc/x.sock" is not in /var/lib/kubelet`:         func(p *pluginregistry.Plugin) { p.Endpoint = "/etc/x.sock" },
		`socket "/var/lib/kubelet/../x" is not in`:                func(p *pluginregistry.Plugin) { p.Endpoint = "/var/lib/kubelet/../x" },
		"endpoint /var/lib/kubelet/dra.sock already registered f": func(*pluginregistry.Plugin) {},
	} {
		if strings.HasPrefix(want, "endpoint") {
			r.driver()
		}
		p := r.plugin()
		edit(&p)
		r.expect(r.manager.Register(t.Context(), p), want)
		if strings.HasPrefix(want, "endpoint") {
			r.manager.Remove(t.Context(), p)
		}
	}
}
