package runtimetest

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func logs(t *testing.T, k *Kit) {
	p := k.PodConfig("logs")
	pod := k.Pod(p)
	if got := k.OutputOf(pod, p, k.ContainerConfig("out", "echo", "hello")); got != "hello\n" {
		t.Errorf("standard output: %q", got)
	}
	if got := k.OutputOf(pod, p, k.ContainerConfig("open", "print", "no newline")); got != "no newline" {
		t.Errorf("output without a newline at its end: %q", got)
	}
	id, log := k.ContainerIn(pod, p, k.ContainerConfig("err", "complain", "alas"))
	k.Ended(id)
	if got := k.Log(log, "stderr"); got != "alas\n" {
		t.Errorf("standard error: %q", got)
	}
	// The log is complete when the end is reported, however much it is.
	const size = 1 << 20
	if got := k.OutputOf(pod, p, k.ContainerConfig("flood", "flood", "1048576")); len(got) != size {
		t.Errorf("of %d bytes %d are in the log", size, len(got))
	}
}

func longLines(t *testing.T, k *Kit) {
	line := strings.Repeat("x", 40_000)
	p := k.PodConfig("long")
	c := k.ContainerConfig("main", "echo", line)
	id, log := k.ContainerIn(k.Pod(p), p, c)
	k.Ended(id)
	if got := k.Log(log, "stdout"); got != line+"\n" {
		t.Errorf("a line of %d bytes came back with %d", len(line), len(got))
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), " stdout P "); n != 2 {
		t.Errorf("it was written in %d parts before the last, want 2 of 16 KiB", n)
	}
}

func reopenLog(t *testing.T, k *Kit) {
	id, log := k.Container("serve")
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Runtime.ReopenContainerLog(k.Context(), &cri.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	k.listening(id)
	if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 20}); err != nil {
		t.Fatal(err)
	}
	if got := k.Log(log, "stdout"); !strings.Contains(got, "ends") {
		t.Errorf("the new log holds %q", got)
	}
}

func execSync(t *testing.T, k *Kit) {
	id, _ := k.Container("sleep")
	if out, errs, code := k.Exec(id, "echo", "to", "you"); out != "to you\n" || errs != "" || code != 0 {
		t.Errorf("echo: %q %q %d", out, errs, code)
	}
	if out, errs, code := k.Exec(id, "complain", "no"); out != "" || errs != "no\n" || code != 0 {
		t.Errorf("complain: %q %q %d", out, errs, code)
	}
	if _, _, code := k.Exec(id, "exit", "42"); code != 42 {
		t.Errorf("exit 42: %d", code)
	}
	if out, _, _ := k.Exec(id, "flood", "300000"); len(out) != 300_000 {
		t.Errorf("of 300000 bytes %d came", len(out))
	}
	if out, _, _ := k.Exec(id, "id"); strings.Contains(out, "pid 1\n") {
		t.Error("the command is process 1")
	}
	_, err := k.Runtime.ExecSync(k.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"/no/such/file"}})
	if err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("a command that isn't there: %v, want an error with its name", err)
	}
}

func execTimeout(t *testing.T, k *Kit) {
	id, _ := k.Container("sleep")
	_, err := k.Runtime.ExecSync(k.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"/bin/demo", "sleep"}, Timeout: 1})
	wantCode(t, "ExecSync", err, codes.DeadlineExceeded)
	if out, _, _ := k.Exec(id, "list", "/proc"); strings.Count("\n"+out, "\n1\n") != 1 {
		t.Errorf("processes afterwards:\n%s", out)
	}
}

func exitCodes(t *testing.T, k *Kit) {
	p := k.PodConfig("codes")
	pod := k.Pod(p)
	for args, want := range map[string]struct {
		code   int32
		reason string
	}{
		"exit 0":  {0, "Completed"},
		"exit 3":  {3, "Error"},
		"nothing": {2, "Error"},
	} {
		name := strings.ReplaceAll(args, " ", "-")
		id, _ := k.ContainerIn(pod, p, k.ContainerConfig(name, strings.Fields(args)...))
		st := k.Ended(id)
		if st.GetExitCode() != want.code || st.GetReason() != want.reason || st.GetFinishedAt() == 0 {
			t.Errorf("%s: %d %s, want %d %s", args, st.GetExitCode(), st.GetReason(), want.code, want.reason)
		}
		_, err := k.Runtime.ExecSync(k.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"/bin/demo", "id"}})
		if status.Code(err) == codes.OK {
			t.Error("a command could be executed in a container that has ended")
		}
	}
}

func startError(t *testing.T, k *Kit) {
	p := k.PodConfig("broken")
	c := k.ContainerConfig("main")
	c.Command = []string{"/bin/nothing"}
	id := k.Create(k.Pod(p), p, c)
	_, err := k.Runtime.StartContainer(k.Context(), &cri.StartContainerRequest{ContainerId: id})
	if err == nil || !strings.Contains(err.Error(), "/bin/nothing") {
		t.Errorf("StartContainer = %v, want an error with the name of the command", err)
	}
	if st := k.Status(id); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128 || st.GetReason() != "StartError" || st.GetMessage() == "" {
		t.Errorf("status: %v", st)
	}
}

func grace(t *testing.T, k *Kit) {
	p := k.PodConfig("stubborn")
	c := k.ContainerConfig("main", "serve")
	c.Envs = []*cri.KeyValue{{Key: "DRAIN_SECONDS", Value: []byte("600")}}
	id, _ := k.ContainerIn(k.Pod(p), p, c)
	k.listening(id)
	if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if st := k.Status(id); st.GetExitCode() != 137 || st.GetReason() != "Error" {
		t.Errorf("status: %d %s, want 137 Error", st.GetExitCode(), st.GetReason())
	}
}

// stopAfterStart stops containers as soon as StartContainer has returned. The program
// handles SIGTERM, so none of them may need SIGKILL.
func stopAfterStart(t *testing.T, k *Kit) {
	const rounds = 25 // without the guarantee, most of them need SIGKILL
	p := k.PodConfig("brief")
	pod := k.Pod(p)
	for i := range rounds {
		c := k.ContainerConfig("main", "sleep")
		c.Metadata.Attempt = uint32(i)
		id, _ := k.ContainerIn(pod, p, c)
		if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 2}); err != nil {
			t.Fatal(err)
		}
		if st := k.Status(id); st.GetExitCode() == 137 {
			t.Errorf("round %d: the container did not get SIGTERM: %d %s", i, st.GetExitCode(), st.GetReason())
		}
	}
}

func outOfMemory(t *testing.T, k *Kit) {
	p := k.PodConfig("hungry")
	c := k.ContainerConfig("main", "memory", "200")
	c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 40 << 20}
	id, _ := k.ContainerIn(k.Pod(p), p, c)
	if k.Unlimited {
		if st := k.Status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING || st.GetResources().GetLinux().GetMemoryLimitInBytes() != 40<<20 {
			t.Errorf("status: %v, want one that runs, and the limit that was asked for", st)
		}
		return
	}
	if st := k.Ended(id); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
		t.Errorf("status: %d %s, want 137 OOMKilled", st.GetExitCode(), st.GetReason())
	}
}

func update(t *testing.T, k *Kit) {
	p := k.PodConfig("limits")
	c := k.ContainerConfig("main", "sleep")
	c.Linux.Resources = &cri.LinuxContainerResources{
		MemoryLimitInBytes: 64 << 20, CpuShares: 512, CpuQuota: 50_000, CpuPeriod: 100_000, OomScoreAdj: 500,
	}
	id, _ := k.ContainerIn(k.Pod(p), p, c)
	if out, _, _ := k.Exec(id, "read", "/proc/1/oom_score_adj"); out != "500\n" {
		t.Errorf("oom_score_adj is %q", out)
	}
	if _, err := k.Runtime.UpdateContainerResources(k.Context(), &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: &cri.LinuxContainerResources{
		MemoryLimitInBytes: 96 << 20, OomScoreAdj: 600,
	}}); err != nil {
		t.Fatal(err)
	}
	r := k.Status(id).GetResources().GetLinux()
	if r.GetMemoryLimitInBytes() != 96<<20 || r.GetCpuShares() != 512 || r.GetCpuQuota() != 50_000 || r.GetOomScoreAdj() != 600 {
		t.Errorf("resources: %v", r)
	}
	if out, _, _ := k.Exec(id, "read", "/proc/1/oom_score_adj"); out != "600\n" {
		t.Errorf("oom_score_adj is %q", out)
	}
	var limit string
	for _, file := range []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"} {
		if out, _, code := k.Exec(id, "read", file); code == 0 {
			limit = out
		}
	}
	if limit != "100663296\n" && !k.Unlimited {
		t.Errorf("the container's own cgroup says %q", limit)
	}
}

func stats(t *testing.T, k *Kit) {
	p := k.PodConfig("stats")
	pod := k.Pod(p)
	id, log := k.ContainerIn(pod, p, k.ContainerConfig("main", "memory", "30"))
	for !strings.Contains(k.Log(log, "stdout"), "holding") {
		k.Exec(id, "exit")
	}
	res, err := k.Runtime.ContainerStats(k.Context(), &cri.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	s := res.GetStats()
	if s.GetMemory().GetWorkingSetBytes().GetValue() < 30<<20 || s.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 || s.GetAttributes().GetId() != id {
		t.Errorf("stats: %v", s)
	}
	l, err := k.Runtime.ListContainerStats(k.Context(), &cri.ListContainerStatsRequest{Filter: &cri.ContainerStatsFilter{PodSandboxId: pod}})
	if err != nil || len(l.GetStats()) != 1 {
		t.Errorf("ListContainerStats = %v, %v; want those of one container", l, err)
	}
	own, err := k.Runtime.PodSandboxStats(k.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: pod})
	if err != nil {
		t.Fatal(err)
	}
	all, err := k.Runtime.ListPodSandboxStats(k.Context(), &cri.ListPodSandboxStatsRequest{Filter: &cri.PodSandboxStatsFilter{LabelSelector: p.GetLabels()}})
	if err != nil || len(all.GetStats()) != 1 {
		t.Fatalf("ListPodSandboxStats = %v, %v; want those of one pod", all, err)
	}
	for _, s := range []*cri.PodSandboxStats{own.GetStats(), all.GetStats()[0]} {
		l := s.GetLinux()
		if s.GetAttributes().GetId() != pod || s.GetAttributes().GetMetadata().GetName() != p.GetMetadata().GetName() ||
			l.GetMemory().GetWorkingSetBytes().GetValue() < 30<<20 || l.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 ||
			l.GetNetwork().GetDefaultInterface().GetName() == "" {
			t.Errorf("stats of the pod: %v", s)
		}
		if len(l.GetContainers()) != 1 || l.GetContainers()[0].GetAttributes().GetId() != id || l.GetContainers()[0].GetMemory().GetWorkingSetBytes().GetValue() < 30<<20 {
			t.Errorf("stats of the containers of the pod: %v", l.GetContainers())
		}
	}
	if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	ended, err := k.Runtime.PodSandboxStats(k.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: pod})
	if err != nil || len(ended.GetStats().GetLinux().GetContainers()) != 0 {
		t.Errorf("PodSandboxStats after the end of the container = %v, %v; want none of a container", ended, err)
	}
}

func images(t *testing.T, k *Kit) {
	st, err := k.Images.ImageStatus(k.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: k.Image}})
	if err != nil || st.GetImage().GetId() == "" || st.GetImage().GetSize() == 0 {
		t.Fatalf("ImageStatus = %v, %v", st, err)
	}
	byID, err := k.Images.ImageStatus(k.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: st.GetImage().GetId()}})
	if err != nil || byID.GetImage().GetId() != st.GetImage().GetId() {
		t.Errorf("ImageStatus by id = %v, %v", byID, err)
	}
	none := &cri.ImageSpec{Image: "registry.example/none:v0"}
	missing, err := k.Images.ImageStatus(k.Context(), &cri.ImageStatusRequest{Image: none})
	if err != nil || missing.GetImage() != nil {
		t.Errorf("ImageStatus of one that isn't there = %v, %v; want no image and no error", missing, err)
	}
	if _, err := k.Images.PullImage(k.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: k.Image}}); err != nil {
		t.Errorf("PullImage of one that is there: %v", err)
	}
	l, err := k.Images.ListImages(k.Context(), &cri.ListImagesRequest{})
	if err != nil || len(l.GetImages()) == 0 {
		t.Errorf("ListImages = %v, %v", l, err)
	}
	fs, err := k.Images.ImageFsInfo(k.Context(), &cri.ImageFsInfoRequest{})
	if err != nil || len(fs.GetImageFilesystems()) != 1 || fs.GetImageFilesystems()[0].GetUsedBytes().GetValue() == 0 {
		t.Errorf("ImageFsInfo = %v, %v", fs, err)
	}
	if _, err := k.Images.RemoveImage(k.Context(), &cri.RemoveImageRequest{Image: none}); err != nil {
		t.Errorf("RemoveImage of one that isn't there: %v", err)
	}
}
