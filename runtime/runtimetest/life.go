package runtimetest

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func versionAndStatus(t *testing.T, k *Kit) {
	v, err := k.Runtime.Version(k.Context(), &cri.VersionRequest{Version: "0.1.0"})
	if err != nil || v.GetRuntimeApiVersion() != "v1" || v.GetRuntimeName() == "" {
		t.Errorf("Version = %v, %v; want API version v1 and a name", v, err)
	}
	s, err := k.Runtime.Status(k.Context(), &cri.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.GetStatus().GetConditions() {
		// Others are notes: what the machine lacks, what is out of date.
		if !c.GetStatus() && (c.GetType() == cri.RuntimeReady || c.GetType() == cri.NetworkReady) {
			t.Errorf("condition %s is false: %s", c.GetType(), c.GetMessage())
		}
	}
}

func podIsListed(t *testing.T, k *Kit) {
	config := k.PodConfig("web")
	id := k.Pod(config)
	st, err := k.Runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	if s := st.GetStatus(); s.GetState() != cri.PodSandboxState_SANDBOX_READY || s.GetNetwork().GetIp() == "" || s.GetCreatedAt() == 0 ||
		s.GetMetadata().GetUid() != config.GetMetadata().GetUid() || s.GetAnnotations()["note"] != "of web" {
		t.Errorf("PodSandboxStatus = %v", s)
	}
	for name, f := range map[string]*cri.PodSandboxFilter{
		"id":    {Id: id},
		"state": {Id: id, State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}},
		"label": {Id: id, LabelSelector: map[string]string{"pod": "web"}},
	} {
		l, err := k.Runtime.ListPodSandbox(k.Context(), &cri.ListPodSandboxRequest{Filter: f})
		if err != nil || len(l.GetItems()) != 1 || l.GetItems()[0].GetId() != id {
			t.Errorf("ListPodSandbox by %s = %v, %v; want the pod", name, l, err)
		}
	}
	l, err := k.Runtime.ListPodSandbox(k.Context(), &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{"pod": "other"}}})
	if err != nil || len(l.GetItems()) != 0 {
		t.Errorf("ListPodSandbox by another label = %v, %v; want nothing", l, err)
	}
	if _, err := k.Runtime.StopPodSandbox(k.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	st, err = k.Runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil || st.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("PodSandboxStatus after the stop = %v, %v; want NOTREADY", st, err)
	}
}

func containerLife(t *testing.T, k *Kit) {
	p := k.PodConfig("life")
	pod := k.Pod(p)
	id := k.Create(pod, p, k.ContainerConfig("main", "serve"))
	if s := k.Status(id); s.GetState() != cri.ContainerState_CONTAINER_CREATED || s.GetCreatedAt() == 0 || s.GetStartedAt() != 0 {
		t.Errorf("created: %v", s)
	}
	k.Start(id)
	s := k.Status(id)
	if s.GetState() != cri.ContainerState_CONTAINER_RUNNING || s.GetStartedAt() < s.GetCreatedAt() || s.GetFinishedAt() != 0 {
		t.Errorf("started: %v", s)
	}
	if s.GetImageRef() == "" || s.GetImage().GetImage() != k.Image {
		t.Errorf("image %v, ref %q", s.GetImage(), s.GetImageRef())
	}
	if _, err := k.Runtime.StartContainer(k.Context(), &cri.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a running container could be started again")
	}
	l, err := k.Runtime.ListContainers(k.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		PodSandboxId: pod, State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}, LabelSelector: map[string]string{"container": "main"},
	}})
	if err != nil || len(l.GetContainers()) != 1 || l.GetContainers()[0].GetId() != id {
		t.Errorf("ListContainers = %v, %v; want the container", l, err)
	}
	k.listening(id)
	if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 20}); err != nil {
		t.Fatal(err)
	}
	s = k.Status(id)
	if s.GetState() != cri.ContainerState_CONTAINER_EXITED || s.GetFinishedAt() < s.GetStartedAt() || s.GetExitCode() != 0 || s.GetReason() != "Completed" {
		t.Errorf("stopped: %v", s)
	}
	if _, err := k.Runtime.RemoveContainer(k.Context(), &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	_, err = k.Runtime.ContainerStatus(k.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "ContainerStatus of a removed one", err, codes.NotFound)
}

func namesAreTakenOnce(t *testing.T, k *Kit) {
	p := k.PodConfig("twice")
	pod := k.Pod(p)
	_, err := k.Runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: p})
	wantCode(t, "a second sandbox of the same attempt", err, codes.AlreadyExists)
	c := k.ContainerConfig("main", "sleep")
	first := k.Create(pod, p, c)
	_, err = k.Runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
	wantCode(t, "a second container of the same attempt", err, codes.AlreadyExists)
	next := k.ContainerConfig("main", "sleep")
	next.Metadata.Attempt = 1
	if second := k.Create(pod, p, next); second == first {
		t.Error("both attempts have the same id")
	}
}

func idempotence(t *testing.T, k *Kit) {
	p := k.PodConfig("again")
	pod := k.Pod(p)
	id, _ := k.ContainerIn(pod, p, k.ContainerConfig("main", "serve"))
	k.listening(id) // before that it may not have said yet what SIGTERM means to it
	for range 2 {
		if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 20}); err != nil {
			t.Error("StopContainer:", err)
		}
	}
	for range 2 {
		if _, err := k.Runtime.RemoveContainer(k.Context(), &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error("RemoveContainer:", err)
		}
	}
	for range 2 {
		if _, err := k.Runtime.StopPodSandbox(k.Context(), &cri.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
			t.Error("StopPodSandbox:", err)
		}
	}
	for range 2 {
		if _, err := k.Runtime.RemovePodSandbox(k.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
			t.Error("RemovePodSandbox:", err)
		}
	}
	_, err := k.Runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
	wantCode(t, "PodSandboxStatus of a removed pod", err, codes.NotFound)
}

func notFound(t *testing.T, k *Kit) {
	ctx := k.Context()
	const id = "0123456789abcdef"
	_, err := k.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "ContainerStatus", err, codes.NotFound)
	_, err = k.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	wantCode(t, "StartContainer", err, codes.NotFound)
	_, err = k.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"/bin/demo"}})
	wantCode(t, "ExecSync", err, codes.NotFound)
	_, err = k.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	wantCode(t, "PodSandboxStatus", err, codes.NotFound)
	_, err = k.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, Config: k.ContainerConfig("main")})
	wantCode(t, "CreateContainer", err, codes.NotFound)
	p := k.PodConfig("noimage")
	pod := k.Pod(p)
	c := k.ContainerConfig("main")
	c.Image.Image = "registry.example/none:v0"
	_, err = k.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
	wantCode(t, "CreateContainer with an image that isn't there", err, codes.NotFound)
}

func events(t *testing.T, k *Kit) {
	stream := k.Watch(k.Context())
	p := k.PodConfig("watched")
	pod := k.Pod(p)
	id, _ := k.ContainerIn(pod, p, k.ContainerConfig("main", "exit", "7"))
	type step struct {
		id   string
		kind cri.ContainerEventType
	}
	next := func() (step, *cri.ContainerEventResponse) {
		t.Helper()
		for {
			e, err := stream.Recv()
			if err != nil {
				t.Fatal("waiting for an event: ", err)
			}
			if e.GetContainerId() == id || e.GetContainerId() == pod {
				return step{e.GetContainerId(), e.GetContainerEventType()}, e
			}
		}
	}
	expect := func(want step) *cri.ContainerEventResponse {
		t.Helper()
		got, e := next()
		if got != want {
			t.Fatalf("event %v of %.8s, want %v of %.8s", got.kind, got.id, want.kind, want.id)
		}
		if e.GetCreatedAt() == 0 {
			t.Error("an event has no time")
		}
		return e
	}
	expect(step{pod, cri.ContainerEventType_CONTAINER_CREATED_EVENT})
	e := expect(step{pod, cri.ContainerEventType_CONTAINER_STARTED_EVENT})
	if e.GetPodSandboxStatus().GetId() != pod || e.GetPodSandboxStatus().GetNetwork().GetIp() == "" {
		t.Errorf("the sandbox's event has the status %v", e.GetPodSandboxStatus())
	}
	expect(step{id, cri.ContainerEventType_CONTAINER_CREATED_EVENT})
	expect(step{id, cri.ContainerEventType_CONTAINER_STARTED_EVENT})
	e = expect(step{id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT})
	if c := e.GetContainersStatuses(); len(c) != 1 || c[0].GetId() != id || c[0].GetExitCode() != 7 || c[0].GetState() != cri.ContainerState_CONTAINER_EXITED {
		t.Errorf("the event of the end has the statuses %v", c)
	}
	if _, err := k.Runtime.RemovePodSandbox(k.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Fatal(err)
	}
	expect(step{pod, cri.ContainerEventType_CONTAINER_STOPPED_EVENT})
	expect(step{id, cri.ContainerEventType_CONTAINER_DELETED_EVENT})
	expect(step{pod, cri.ContainerEventType_CONTAINER_DELETED_EVENT})
}

func refusals(t *testing.T, k *Kit) {
	ctx := k.Context()
	_, err := k.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
		Linux: &cri.LinuxPodSandboxConfig{Sysctls: map[string]string{"kernel.panic": "1"}},
	}})
	wantCode(t, "RunPodSandbox", err, codes.InvalidArgument)
	for _, part := range []string{"metadata", "kernel.panic"} {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("RunPodSandbox: %v; want it to mention %s, too", err, part)
		}
	}
	p := k.PodConfig("refused")
	pod := k.Pod(p)
	c := k.ContainerConfig("")
	c.Envs = []*cri.KeyValue{{Key: "a=b"}}
	c.Mounts = []*cri.Mount{{ContainerPath: "/data", HostPath: "relative"}}
	_, err = k.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
	wantCode(t, "CreateContainer", err, codes.InvalidArgument)
	for _, part := range []string{"metadata", "a=b", "relative"} {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("CreateContainer: %v; want it to mention %s, too", err, part)
		}
	}
	c = k.ContainerConfig("main")
	c.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: []string{"FLY"}}
	_, err = k.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
	wantCode(t, "CreateContainer with an unknown capability", err, codes.InvalidArgument)
	l, err := k.Runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: pod}})
	if err != nil || len(l.GetContainers()) != 0 {
		t.Errorf("containers after refusals: %v, %v; want none", l, err)
	}
}
