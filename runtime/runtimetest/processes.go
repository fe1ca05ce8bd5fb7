package runtimetest

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sharedProcesses checks the namespace mode POD of processes.
func sharedProcesses(t *testing.T, k *Kit) {
	p := k.PodConfig("shared")
	p.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	pod := k.Pod(p)
	st, err := k.Runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
	if got := st.GetStatus().GetLinux().GetNamespaces().GetOptions().GetPid(); err != nil || got != cri.NamespaceMode_POD {
		t.Errorf("the sandbox has the pid mode %v, %v, want POD", got, err)
	}
	config := func(name string, mode cri.NamespaceMode) *cri.ContainerConfig {
		c := k.ContainerConfig(name, "sleep")
		c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: mode}
		return c
	}
	first, _ := k.ContainerIn(pod, p, config("first", cri.NamespaceMode_POD))
	second, _ := k.ContainerIn(pod, p, config("second", cri.NamespaceMode_POD))
	alone, _ := k.ContainerIn(pod, p, config("alone", cri.NamespaceMode_CONTAINER))
	// Each exec sees itself, and beside that: process 1 and the two containers, or one.
	for id, want := range map[string]int{first: 4, second: 4, alone: 2} {
		if got := k.processes(id); len(got) != want {
			t.Errorf("processes %v, want %d", got, want)
		}
	}
	if out, _, _ := k.Exec(first, "read", "/proc/1/cmdline"); strings.Contains(out, "demo") {
		t.Errorf("process 1 is %q, which is a container's own", out)
	}
	if out, errs, code := k.Exec(first, "list", "/proc/1/root"); code == 0 {
		t.Errorf("a container can list the root of process 1: %q %q", out, errs)
	}
	l, err := k.Runtime.ListContainers(k.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: pod}})
	if err != nil || len(l.GetContainers()) != 3 {
		t.Errorf("ListContainers = %v, %v, want three", l.GetContainers(), err)
	}
	// A container ends with all its processes, and no other does.
	if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: first, Timeout: 20}); err != nil {
		t.Fatal(err)
	}
	if s := k.Status(first); s.GetState() != cri.ContainerState_CONTAINER_EXITED || s.GetExitCode() == 137 {
		t.Errorf("the stopped container: %v", s)
	}
	if got := k.processes(second); len(got) != 3 {
		t.Errorf("processes after the end of one container: %v, want 3", got)
	}
	// An orphan becomes a child of process 1, which does not keep it as a zombie.
	orphan := config("orphan", cri.NamespaceMode_POD)
	orphan.Args = []string{"spawn"}
	id, _ := k.ContainerIn(pod, p, orphan)
	k.Ended(id)
	if got := k.processes(second); len(got) != 3 {
		t.Errorf("processes after the end of a container with an orphan: %v, want 3", got)
	}
	if _, err := k.Runtime.StopPodSandbox(k.Context(), &cri.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{second, alone} {
		if s := k.Status(id); s.GetState() != cri.ContainerState_CONTAINER_EXITED {
			t.Errorf("after the stop of the sandbox: %v", s)
		}
	}
}

// processes lists the process ids that a container sees.
func (k *Kit) processes(id string) []string {
	k.t.Helper()
	out, _, _ := k.Exec(id, "list", "/proc")
	return slices.DeleteFunc(strings.Fields(out), func(name string) bool { return strings.Trim(name, "0123456789") != "" })
}

func badMounts(t *testing.T, k *Kit) {
	p := k.PodConfig("mounts")
	pod := k.Pod(p)
	dir := t.TempDir()
	for name, m := range map[string]*cri.Mount{
		"writable":          {RecursiveReadOnly: true},
		"host to container": {RecursiveReadOnly: true, Readonly: true, Propagation: cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		"bidirectional":     {RecursiveReadOnly: true, Readonly: true, Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL},
	} {
		m.ContainerPath, m.HostPath = "/data", dir
		c := k.ContainerConfig("main", "sleep")
		c.Mounts = []*cri.Mount{m}
		_, err := k.Runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
		wantCode(t, "a mount that is recursively read-only and "+name, err, codes.InvalidArgument)
	}
}

// seccomp checks that no profile means no filter, as CRI has it.
func seccomp(t *testing.T, k *Kit) {
	p := k.PodConfig("filter")
	pod := k.Pod(p)
	for name, tt := range map[string]struct {
		profile *cri.SecurityProfile
		want    string
	}{
		"none":       {nil, "Seccomp:\t0"},
		"unconfined": {&cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}, "Seccomp:\t0"},
	} {
		c := k.ContainerConfig(name, "id")
		c.Linux.SecurityContext.Seccomp = tt.profile
		wantLines(t, k.OutputOf(pod, p, c), tt.want)
	}
}

// targetProcesses checks the namespace mode TARGET of processes, by which a container for debugging sees those of
// another one.
func targetProcesses(t *testing.T, k *Kit) {
	p := k.PodConfig("target")
	pod := k.Pod(p)
	first, _ := k.ContainerIn(pod, p, k.ContainerConfig("first", "sleep"))
	config := func(name, target string) *cri.ContainerConfig {
		c := k.ContainerConfig(name, "sleep")
		c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: target}
		return c
	}
	debug, _ := k.ContainerIn(pod, p, config("debug", first))
	if got := k.processes(debug); len(got) != 3 {
		t.Errorf("processes %v, want those of both containers and the command itself", got)
	}
	// The container for debugging ends alone, and the target takes it along.
	if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: debug}); err != nil {
		t.Fatal(err)
	}
	if got := k.processes(first); len(got) != 2 {
		t.Errorf("processes %v after the end of the container for debugging, want 2", got)
	}
	late := k.Create(pod, p, config("late", first))
	again, _ := k.ContainerIn(pod, p, config("again", first))
	if _, err := k.Runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: first}); err != nil {
		t.Fatal(err)
	}
	if s := k.Ended(again); s.GetExitCode() != 137 {
		t.Errorf("after its target the container has ended with %d, want 137", s.GetExitCode())
	}
	if _, err := k.Runtime.StartContainer(k.Context(), &cri.StartContainerRequest{ContainerId: late}); err == nil || !strings.Contains(err.Error(), first) {
		t.Errorf("a container whose target has ended: %v", err)
	}
	other := k.PodConfig("other")
	foreign, _ := k.ContainerIn(k.Pod(other), other, k.ContainerConfig("main", "sleep"))
	for name, target := range map[string]string{"none": "", "unknown": "x", "ended": first, "of another pod": foreign} {
		_, err := k.Runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: config("bad", target), SandboxConfig: p})
		wantCode(t, "a target that is "+name, err, codes.InvalidArgument)
	}
}

// metrics checks that each metric has a descriptor, and the labels that it names.
func metrics(t *testing.T, k *Kit) {
	p := k.PodConfig("metrics")
	pod := k.Pod(p)
	id, _ := k.ContainerIn(pod, p, k.ContainerConfig("main", "sleep"))
	d, err := k.Runtime.ListMetricDescriptors(k.Context(), &cri.ListMetricDescriptorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, one := range d.GetDescriptors() {
		labels[one.GetName()] = one.GetLabelKeys()
	}
	res, err := k.Runtime.ListPodSandboxMetrics(k.Context(), &cri.ListPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	check := func(all []*cri.Metric, container string) {
		for _, m := range all {
			keys, ok := labels[m.GetName()]
			if !ok || len(keys) != len(m.GetLabelValues()) {
				t.Errorf("%s has the labels %v with the values %v", m.GetName(), keys, m.GetLabelValues())
				continue
			}
			found[m.GetName()] = true
			for i, key := range keys {
				want, known := map[string]string{"pod": "metrics", "namespace": "test", "container": container}[key]
				if got := m.GetLabelValues()[i]; known && got != want {
					t.Errorf("%s: %s is %q, want %q", m.GetName(), key, got, want)
				}
			}
		}
	}
	for _, one := range res.GetPodMetrics() {
		if one.GetPodSandboxId() != pod {
			continue
		}
		check(one.GetMetrics(), "")
		for _, c := range one.GetContainerMetrics() {
			if c.GetContainerId() == id {
				check(c.GetMetrics(), "main")
			}
		}
	}
	for _, name := range []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_network_receive_bytes_total", "container_start_time_seconds", "container_oom_events_total"} {
		if !found[name] {
			t.Errorf("%s is missing", name)
		}
	}
}
