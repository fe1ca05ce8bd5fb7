package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/api"
	"github.com/sampan-io/sampan/runtime/runtimetest"
)

// pidOf returns the process id of a container as the host sees it.
func (n *node) pidOf(id string) int {
	n.t.Helper()
	res, err := n.runtime.ContainerStatus(n.kit().Context(), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		n.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(res.GetInfo()["info"], `"pid":`)
	digits, _, _ := strings.Cut(rest, ",")
	pid, err := strconv.Atoi(digits)
	if err != nil || pid <= 0 {
		n.t.Fatalf("no pid in %v", res.GetInfo())
	}
	return pid
}

func (n *node) info() *api.InfoResponse {
	n.t.Helper()
	res, err := n.node.Info(n.kit().Context(), &api.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	return res
}

// awaitRestarts returns when the process has been restarted in place that often.
func (n *node) awaitRestarts(want int32) {
	n.t.Helper()
	for n.info().GetRestarts() < want {
		// Each call waits for the socket; the old program ends before the new one answers.
		if n.over() {
			n.t.Fatalf("the runtime ended\n%s", n.log)
		}
	}
}

func TestARestartInPlaceLosesNothing(t *testing.T) {
	n := newNode(t)
	n.flags = append(n.flags, "--container-log-max-size", "0") // the log of this test is larger
	n.start().withDemo()
	k := n.kit()
	pid := n.info().GetPid()
	p := k.PodConfig("stays")
	pod := k.Pod(p)
	stays, _ := k.ContainerIn(pod, p, k.ContainerConfig("stays", "sleep"))
	const size = 16 << 20
	flood, log := k.ContainerIn(pod, p, k.ContainerConfig("flood", "flood", strconv.Itoa(size)))
	victim, _ := k.ContainerIn(pod, p, k.ContainerConfig("victim", "sleep"))
	victimPid := n.pidOf(victim)

	// The container dies while its parent can't look, just before the restart.
	if err := n.proc.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, s := range []func() error{
		func() error { return syscall.Kill(victimPid, syscall.SIGKILL) },
		func() error { return n.proc.Process.Signal(syscall.SIGHUP) },
		func() error { return n.proc.Process.Signal(syscall.SIGCONT) },
	} {
		if err := s(); err != nil {
			t.Fatal(err)
		}
	}
	n.awaitRestarts(1)
	if _, err := n.node.Restart(k.Context(), &api.RestartRequest{}); err != nil {
		t.Fatal(err)
	}
	n.awaitRestarts(2)

	info := n.info()
	if info.GetPid() != pid || info.GetAdoptedPods() != 1 || info.GetAdoptedContainers() < 1 {
		t.Errorf("after two restarts: %v; want pid %d and the pod adopted", info, pid)
	}
	if st := k.Ended(victim); st.GetExitCode() != 137 || st.GetReason() != "Error" {
		t.Errorf("the killed container: %d %s, want 137 Error", st.GetExitCode(), st.GetReason())
	}
	if st := k.Ended(flood); st.GetExitCode() != 0 {
		t.Errorf("the writing container: %d %s", st.GetExitCode(), st.GetReason())
	}
	if got := len(k.Log(log, "stdout")); got != size {
		t.Errorf("of %d bytes %d are in the log", size, got)
	}
	if st := k.Status(stays); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the other container is %v", st.GetState())
	}
	if out, _, code := k.Exec(stays, "echo", "still here"); code != 0 || out != "still here\n" {
		t.Errorf("exec after the restarts: %q %d", out, code)
	}
}

func TestARestartWithABrokenProgramIsRefused(t *testing.T) {
	n := newNode(t).start()
	good, err := os.ReadFile(built.runtime)
	if err != nil {
		t.Fatal(err)
	}
	// A file of its own, so that other tests keep theirs.
	n.terminate()
	mine := n.path("runtime")
	if err := os.WriteFile(mine, good, 0o755); err != nil {
		t.Fatal(err)
	}
	n.startProgram(mine)
	for name, content := range map[string]string{"not a program": "hello", "another program": "#!/bin/sh\necho something else\n"} {
		if err := os.Remove(mine); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(mine, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := n.node.Restart(n.kit().Context(), &api.RestartRequest{})
		if err == nil || !strings.Contains(err.Error(), "not restarting") {
			t.Errorf("%s: Restart = %v, want a refusal", name, err)
		}
	}
	if got := n.info().GetRestarts(); got != 0 {
		t.Errorf("%d restarts", got)
	}
}

func TestContainersOutliveTheRuntime(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("stays")
	pod := k.Pod(p)
	stays, _ := k.ContainerIn(pod, p, k.ContainerConfig("stays", "sleep"))
	created := k.Create(pod, p, k.ContainerConfig("created", "echo", "late"))
	ended, _ := k.ContainerIn(pod, p, k.ContainerConfig("ended", "exit", "9"))
	k.Ended(ended)
	dies, _ := k.ContainerIn(pod, p, k.ContainerConfig("dies", "sleep"))
	flood, log := k.ContainerIn(pod, p, k.ContainerConfig("flood", "flood", "16777216"))
	diesPid, staysPid := n.pidOf(dies), n.pidOf(stays)
	n.kill()
	if err := syscall.Kill(diesPid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(staysPid, 0); err != nil {
		t.Fatalf("the container died with the runtime: %v", err)
	}
	n.start()

	if st := k.Status(stays); st.GetState() != cri.ContainerState_CONTAINER_RUNNING || n.pidOf(stays) != staysPid {
		t.Errorf("the running container: %v", st)
	}
	if st := k.Status(ended); st.GetExitCode() != 9 || st.GetReason() != "Error" {
		t.Errorf("the one that had ended: %d %s, want 9 Error", st.GetExitCode(), st.GetReason())
	}
	// Unknown, unless it was still a zombie when the new runtime came: then a new
	// kernel reports the exit code when init waits for it.
	if st := k.Ended(dies); !(st.GetExitCode() == 255 && st.GetReason() == "Unknown") && !(st.GetExitCode() == 137 && st.GetReason() == "Error") {
		t.Errorf("the one whose end nobody saw: %d %s, want 255 Unknown", st.GetExitCode(), st.GetReason())
	}
	// It writes more than fits into the FIFO, so it has waited for the new runtime
	// and wasn't killed by SIGPIPE. Only new kernels report its exit code.
	st := k.Ended(flood)
	if !(st.GetExitCode() == 0 && st.GetReason() == "Completed" || st.GetExitCode() == 255 && st.GetReason() == "Unknown") {
		t.Errorf("the one that was writing: %d %s", st.GetExitCode(), st.GetReason())
	}
	if data, err := os.ReadFile(log); err != nil || len(data) == 0 {
		t.Errorf("its log: %d bytes, %v", len(data), err)
	}
	k.Start(created)
	if st := k.Ended(created); st.GetExitCode() != 0 {
		t.Errorf("the one that had only been created: %d %s", st.GetExitCode(), st.GetMessage())
	}
	if out, _, code := k.Exec(stays, "echo", "still here"); code != 0 || out != "still here\n" {
		t.Errorf("exec: %q %d", out, code)
	}
	// Its address is still taken.
	old, err := n.runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
	if err != nil {
		t.Fatal(err)
	}
	other, err := n.runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: k.Pod(k.PodConfig("other"))})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := old.GetStatus().GetNetwork().GetIp(), other.GetStatus().GetNetwork().GetIp(); a == b || a == "" || b == "" {
		t.Errorf("addresses %q and %q", a, b)
	}
	if _, err := n.runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: stays, Timeout: 20}); err != nil {
		t.Fatal(err)
	}
	if st := k.Status(stays); st.GetState() != cri.ContainerState_CONTAINER_EXITED {
		t.Errorf("stopped: %v", st)
	}
}

// TestAKilledRuntimeLeavesNoHalves kills the runtime at random moments while pods
// are made and removed, and looks at what it then finds, and leaves (R2, R4).
func TestAKilledRuntimeLeavesNoHalves(t *testing.T) {
	n := newNode(t)
	before := world(t, n)
	n.start().withDemo()
	ctx := t.Context()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 6 {
		var clients sync.WaitGroup
		for c := range 3 {
			clients.Go(func() {
				for i := range 20 {
					p := n.kit().PodConfig(fmt.Sprintf("r%d-c%d-%d", round, c, i))
					p.Metadata.Uid = p.Metadata.Name
					pod, err := n.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: p})
					if err != nil {
						return
					}
					id, err := n.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
						PodSandboxId: pod.GetPodSandboxId(), SandboxConfig: p, Config: n.kit().ContainerConfig("main", "sleep"),
					})
					if err != nil {
						return
					}
					if _, err := n.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id.GetContainerId()}); err != nil {
						return
					}
					if i%2 == 0 {
						_, _ = n.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()})
					}
				}
			})
		}
		<-time.After(time.Duration(random.IntN(300)) * time.Millisecond) // the moment is what is random
		n.kill()
		clients.Wait()
		n.start()
		pods, err := n.runtime.ListPodSandbox(n.kit().Context(), &cri.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for _, p := range pods.GetItems() {
			known[p.GetId()] = true
			st, err := n.runtime.PodSandboxStatus(n.kit().Context(), &cri.PodSandboxStatusRequest{PodSandboxId: p.GetId()})
			if err != nil {
				t.Fatal(err)
			}
			if p.GetState() == cri.PodSandboxState_SANDBOX_READY && st.GetStatus().GetNetwork().GetIp() == "" {
				t.Errorf("pod %s is ready and has no address", p.GetMetadata().GetName())
			}
		}
		list, err := n.runtime.ListContainers(n.kit().Context(), &cri.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.GetContainers() {
			if !known[c.GetPodSandboxId()] {
				t.Errorf("container %s belongs to no pod", c.GetId())
			}
			if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
				if !alive(n.pidOf(c.GetId())) {
					n.kit().Ended(c.GetId()) // it was being killed; this is noticed a moment later
				}
			}
		}
	}
	n.terminate()
	same(t, before, world(t, n))
}

// alive reports whether a process runs; one that only waits for its parent to take
// notice of its end doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func world(t *testing.T, n *node) string {
	t.Helper()
	w, err := runtimetest.World(n.name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func same(t *testing.T, before, after string) {
	t.Helper()
	if before == after {
		return
	}
	had, has := map[string]bool{}, map[string]bool{}
	for l := range strings.Lines(before + "\n") {
		had[l] = true
	}
	for l := range strings.Lines(after + "\n") {
		has[l] = true
		if !had[l] {
			t.Errorf("left behind: %s", l)
		}
	}
	for l := range had {
		if !has[l] {
			t.Errorf("gone: %s", l)
		}
	}
}

func TestNothingIsLeft(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, n *node){
		"after SIGTERM": func(_ *testing.T, n *node) { n.terminate() },
		"after clean": func(t *testing.T, n *node) {
			n.kill()
			for range 2 {
				if out, err := n.command("clean").CombinedOutput(); err != nil {
					t.Errorf("clean: %v\n%s", err, out)
				}
			}
		},
		"after clean of what came back": func(t *testing.T, n *node) {
			n.kill()
			n.start()
			n.kill()
			if out, err := n.command("clean").CombinedOutput(); err != nil {
				t.Errorf("clean: %v\n%s", err, out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.flag("--pod-cidr", "10.99.0.0/24,fd99::/64")
			n.flag("--service-cidr", "10.98.0.0/24,fd98::/112")
			before := world(t, n)
			n.start().withDemo()
			k := n.kit()
			var pids []int
			for i := range 3 {
				p := k.PodConfig(fmt.Sprintf("p%d", i))
				pod, err := n.runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: p})
				if err != nil {
					t.Fatal(err)
				}
				id, _ := k.ContainerIn(pod.GetPodSandboxId(), p, k.ContainerConfig("main", "sleep"))
				pids = append(pids, n.pidOf(id))
			}
			if w := world(t, n); !strings.Contains(w, "ip_forward 1") || !strings.Contains(w, "link spt0") || !strings.Contains(w, "table ip "+n.name) ||
				!strings.Contains(w, "ip6_forward 1") || !strings.Contains(w, "table ip6 "+n.name) ||
				!strings.Contains(w, "route {Ifindex") || !strings.Contains(w, "10.98.0.0/24") || !strings.Contains(w, "fd98::/112") {
				t.Errorf("while it serves the world is\n%s", w)
			}
			end(t, n)
			same(t, before, world(t, n))
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d is left", pid)
				}
			}
			for _, dir := range []string{"state", "s"} {
				if _, err := os.Stat(n.path(dir)); err == nil {
					t.Errorf("%s is left", dir)
				}
			}
			if left, err := os.ReadDir(n.path("root/containers")); err == nil && len(left) > 0 {
				t.Errorf("what containers wrote is left: %v", left)
			}
		})
	}
}
