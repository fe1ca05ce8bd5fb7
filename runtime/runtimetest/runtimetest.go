package runtimetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Target is the runtime to be tested.
type Target struct {
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient

	Image  string // name of a demo image that is there
	LogDir string // a directory for logs, on the runtime's machine, which is this one

	// Unlimited says that the machine has no cgroup controllers for memory, cpu and
	// processes: such limits are accepted, and nothing enforces them.
	Unlimited bool
}

// Run tests a runtime. It removes the pods that it makes.
func Run(t *testing.T, target Target) {
	tests := []struct {
		name string
		f    func(t *testing.T, k *Kit)
	}{
		{"version and status", versionAndStatus},
		{"a pod has an address and is listed", podIsListed},
		{"a container goes through its life", containerLife},
		{"names are taken once", namesAreTakenOnce},
		{"stopping and removing may be repeated", idempotence},
		{"what isn't there is NotFound", notFound},
		{"command, arguments, environment, directory", process},
		{"users and groups", users},
		{"logs are in CRI format", logs},
		{"long lines are written in parts", longLines},
		{"a log is reopened", reopenLog},
		{"exec answers output and exit code", execSync},
		{"exec ends at its timeout", execTimeout},
		{"exit codes", exitCodes},
		{"a command that can't be executed", startError},
		{"an ignored SIGTERM is followed by SIGKILL", grace},
		{"SIGTERM right after the start is delivered", stopAfterStart},
		{"OOM kills are reported", outOfMemory},
		{"files of the host are mounted", mounts},
		{"a read-only root", readOnlyRoot},
		{"nothing leads to the host", isolation},
		{"devices of the host can't be used", hostDevices},
		{"names are resolved as the pod wants", resolver},
		{"pods reach each other", network},
		{"containers of a pod share its network", sharedNetwork},
		{"containers of a pod share its processes", sharedProcesses},
		{"a container sees the processes of its target", targetProcesses},
		{"bad mounts are refused", badMounts},
		{"system calls are filtered as asked for", seccomp},
		{"limits can be changed", update},
		{"statistics are reported", stats},
		{"metrics have descriptors", metrics},
		{"every change is reported", events},
		{"images are listed and refused", images},
		{"bad requests are refused with all their faults", refusals},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.f(t, NewKit(t, target)) })
	}
}

// A Kit makes pods and containers for one test and removes them after it.
type Kit struct {
	Target
	t    testing.TB
	uids int
}

// NewKit returns a kit for a test.
func NewKit(t testing.TB, target Target) *Kit { return &Kit{Target: target, t: t} }

// patience bounds how long a test waits for something that should happen at once.
const patience = 30 * time.Second

// Context returns one that ends with the test's patience.
func (k *Kit) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	k.t.Cleanup(cancel)
	return ctx
}

// PodConfig returns the configuration of a plain pod.
func (k *Kit) PodConfig(name string) *cri.PodSandboxConfig {
	k.uids++
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{
			Name: name, Namespace: "test", Uid: fmt.Sprintf("%s-%d-%d", strings.ReplaceAll(k.t.Name(), "/", "-"), os.Getpid(), k.uids),
		},
		Hostname:     name,
		LogDirectory: filepath.Join(k.LogDir, strings.ReplaceAll(k.t.Name(), "/", "-"), name),
		Labels:       map[string]string{"pod": name},
		Annotations:  map[string]string{"note": "of " + name},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
		}},
	}
}

// Pod runs a pod. It is removed with the test.
func (k *Kit) Pod(config *cri.PodSandboxConfig) string {
	k.t.Helper()
	res, err := k.Runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		k.t.Fatalf("RunPodSandbox: %v", err)
	}
	id := res.GetPodSandboxId()
	k.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := k.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			k.t.Errorf("RemovePodSandbox: %v", err)
		}
	})
	return id
}

// ContainerConfig returns the configuration of a container with these arguments for
// the demo program.
func (k *Kit) ContainerConfig(name string, args ...string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: k.Image}, Args: args, LogPath: name + ".log",
		Labels: map[string]string{"container": name},
		Linux:  &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{}},
	}
}

// Create creates a container.
func (k *Kit) Create(pod string, podConfig *cri.PodSandboxConfig, config *cri.ContainerConfig) string {
	k.t.Helper()
	res, err := k.Runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: config, SandboxConfig: podConfig})
	if err != nil {
		k.t.Fatalf("CreateContainer: %v", err)
	}
	return res.GetContainerId()
}

// Start starts a container.
func (k *Kit) Start(id string) {
	k.t.Helper()
	if _, err := k.Runtime.StartContainer(k.Context(), &cri.StartContainerRequest{ContainerId: id}); err != nil {
		k.t.Fatalf("StartContainer: %v", err)
	}
}

// Container creates and starts a container with a pod of its own.
func (k *Kit) Container(args ...string) (id string, log string) {
	k.t.Helper()
	p := k.PodConfig("alone")
	return k.ContainerIn(k.Pod(p), p, k.ContainerConfig("main", args...))
}

// ContainerIn creates and starts a container.
func (k *Kit) ContainerIn(pod string, p *cri.PodSandboxConfig, c *cri.ContainerConfig) (id, log string) {
	k.t.Helper()
	id = k.Create(pod, p, c)
	k.Start(id)
	return id, filepath.Join(p.GetLogDirectory(), c.GetLogPath())
}

// Status returns a container's status.
func (k *Kit) Status(id string) *cri.ContainerStatus {
	k.t.Helper()
	res, err := k.Runtime.ContainerStatus(k.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		k.t.Fatalf("ContainerStatus: %v", err)
	}
	return res.GetStatus()
}

// Watch opens a stream of events that has begun when Watch returns.
func (k *Kit) Watch(ctx context.Context) cri.RuntimeService_GetContainerEventsClient {
	k.t.Helper()
	stream, err := k.Runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		k.t.Fatalf("GetContainerEvents: %v", err)
	}
	return stream
}

// Ended waits for a container's end and returns its status.
func (k *Kit) Ended(id string) *cri.ContainerStatus {
	k.t.Helper()
	ctx := k.Context()
	stream := k.Watch(ctx)
	for {
		if st := k.Status(id); st.GetState() == cri.ContainerState_CONTAINER_EXITED {
			return st
		}
		for {
			event, err := stream.Recv()
			if err != nil {
				k.t.Fatalf("waiting for the end of %s, which is %v: %v", id, k.Status(id).GetState(), err)
			}
			if event.GetContainerId() == id {
				break
			}
		}
	}
}

// OutputOf runs a container to its end and returns what it wrote to standard
// output. It fails the test unless the container ends with 0.
func (k *Kit) OutputOf(pod string, p *cri.PodSandboxConfig, c *cri.ContainerConfig) string {
	k.t.Helper()
	id, log := k.ContainerIn(pod, p, c)
	st := k.Ended(id)
	if st.GetExitCode() != 0 {
		k.t.Fatalf("%q ended with %d (%s %s): %s%s", c.GetArgs(), st.GetExitCode(), st.GetReason(), st.GetMessage(), k.Log(log, "stdout"), k.Log(log, "stderr"))
	}
	return k.Log(log, "stdout")
}

var logLine = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([PF]) (.*)$`)

// Log reads what a stream has written to a log in CRI's format.
func (k *Kit) Log(path, stream string) string {
	k.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		k.t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		m := logLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			k.t.Fatalf("%q is not a line of a log in CRI's format", line)
		}
		if m[2] != stream {
			continue
		}
		b.WriteString(m[4])
		if m[3] == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Exec runs a command in a container.
func (k *Kit) Exec(id string, cmd ...string) (string, string, int32) {
	k.t.Helper()
	res, err := k.Runtime.ExecSync(k.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/bin/demo"}, cmd...), Timeout: 20})
	if err != nil {
		k.t.Fatalf("ExecSync %q: %v", cmd, err)
	}
	return string(res.GetStdout()), string(res.GetStderr()), res.GetExitCode()
}

func wantCode(t testing.TB, what string, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%s: %v, want code %v", what, err, code)
	}
}

func wantLines(t testing.TB, got string, want ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	for _, w := range want {
		if !slices.Contains(lines, w) {
			t.Errorf("no line %q in:\n%s", w, got)
		}
	}
}
