package criclient_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/criclient"
)

// eventless is a container runtime without an event stream, with one pod.
type eventless struct {
	cri.UnimplementedRuntimeServiceServer
	mu    sync.Mutex
	state cri.ContainerState
}

func (e *eventless) set(s cri.ContainerState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = s
}

func (*eventless) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "old"}, nil
}

func (*eventless) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{Id: "s", Metadata: &cri.PodSandboxMetadata{Uid: "u1"}}}}, nil
}

func (e *eventless) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c", PodSandboxId: "s", State: e.state}}}, nil
}

func (e *eventless) StartContainer(context.Context, *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	e.set(cri.ContainerState_CONTAINER_RUNNING)
	return &cri.StartContainerResponse{}, nil
}

// TestRuntimeWithoutEvents has the agent find changes by itself: what there is, then a change that follows a call, then one that does not.
func TestRuntimeWithoutEvents(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	old := &eventless{state: cri.ContainerState_CONTAINER_CREATED}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, old)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { _ = server.Serve(l) })
	defer g.Wait()
	defer server.Stop()
	rt, err := criclient.Dial("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	changes := 0
	defer func() {
		if changes != 3 {
			t.Errorf("%d changes, want 3", changes)
		}
	}()
	for e, err := range rt.Events(t.Context()) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e == nil:
			continue
		}
		if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "u1" {
			t.Errorf("a change of pod %q", uid)
		}
		changes++
		if changes == 1 { // the pod was there
			if err := rt.StartContainer(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
		} else if changes == 2 {
			old.set(cri.ContainerState_CONTAINER_EXITED)
		} else {
			break
		}
	}
}
