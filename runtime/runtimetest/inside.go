package runtimetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func process(t *testing.T, k *Kit) {
	p := k.PodConfig("process")
	pod := k.Pod(p)
	c := k.ContainerConfig("env")
	c.Command = []string{"/bin/demo", "read"}
	c.Args = []string{"/proc/self/environ"}
	c.Envs = []*cri.KeyValue{{Key: "A", Value: []byte("one")}, {Key: "DEMO_VERSION", Value: []byte("mine")}, {Key: "A", Value: []byte("two")}}
	env := strings.ReplaceAll(k.OutputOf(pod, p, c), "\x00", "\n")
	wantLines(t, env, "A=two", "DEMO_VERSION=mine", "HOSTNAME=process", "PATH=/bin")
	if strings.Contains(env, "A=one") {
		t.Error("the value that was replaced is still there")
	}
	c = k.ContainerConfig("dir", "id")
	c.WorkingDir = "/made/for/me"
	wantLines(t, k.OutputOf(pod, p, c), "directory /made/for/me", "hostname process", "pid 1")
	if got := k.OutputOf(pod, p, k.ContainerConfig("args", "echo", "a b", "c")); got != "a b c\n" {
		t.Errorf("echo said %q", got)
	}
}

func users(t *testing.T, k *Kit) {
	p := k.PodConfig("users")
	pod := k.Pod(p)
	group := &cri.Int64Value{Value: 3000}
	tests := []struct {
		name string
		sc   *cri.LinuxContainerSecurityContext
		want []string
	}{
		{"root", &cri.LinuxContainerSecurityContext{}, []string{"uid 0", "gid 0"}},
		{"number", &cri.LinuxContainerSecurityContext{RunAsUser: &cri.Int64Value{Value: 4711}}, []string{"uid 4711", "gid 0"}},
		{"name", &cri.LinuxContainerSecurityContext{RunAsUsername: "demo"}, []string{"uid 1000", "gid 1000", "groups [1000 2000]", "CapEff:	0000000000000000"}},
		{
			"known-number", &cri.LinuxContainerSecurityContext{RunAsUser: &cri.Int64Value{Value: 1000}, RunAsGroup: group, SupplementalGroups: []int64{50}},
			[]string{"uid 1000", "gid 3000", "groups [50 2000 3000]"},
		},
		{"strict", &cri.LinuxContainerSecurityContext{
			RunAsUsername: "demo", SupplementalGroups: []int64{50}, SupplementalGroupsPolicy: cri.SupplementalGroupsPolicy_Strict,
		}, []string{"uid 1000", "groups [50 1000]"}},
		{
			"nothing", &cri.LinuxContainerSecurityContext{Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}}, NoNewPrivs: true},
			[]string{"CapEff:	0000000000000000", "CapBnd:	0000000000000000", "NoNewPrivs:	1"},
		},
		{
			"all-but-one", &cri.LinuxContainerSecurityContext{Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}}},
			[]string{"CapEff:	0000000000001000"},
		}, // CAP_NET_ADMIN is number 12
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := k.ContainerConfig(tt.name, "id")
			c.Linux.SecurityContext = tt.sc
			wantLines(t, k.OutputOf(pod, p, c), tt.want...)
		})
	}
	c := k.ContainerConfig("unknown", "id")
	c.Linux.SecurityContext.RunAsUsername = "nobody-knows"
	_, err := k.Runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
	wantCode(t, "an unknown user", err, codes.InvalidArgument)
}

func mounts(t *testing.T, k *Kit) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := k.PodConfig("mounts")
	pod := k.Pod(p)
	c := k.ContainerConfig("main", "sleep")
	c.Mounts = []*cri.Mount{
		{ContainerPath: "/data", HostPath: dir},
		{ContainerPath: "/fixed", HostPath: dir, Readonly: true},
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "file")},
	}
	id, _ := k.ContainerIn(pod, p, c)
	for _, file := range []string{"/data/file", "/fixed/file", "/etc/hosts"} {
		if out, errs, code := k.Exec(id, "read", file); code != 0 || out != "from the host\n" {
			t.Errorf("%s: %q %q %d", file, out, errs, code)
		}
	}
	if _, errs, code := k.Exec(id, "write", "/data/back", "from the container"); code != 0 {
		t.Errorf("writing to a mount: %s", errs)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || string(data) != "from the container\n" {
		t.Errorf("on the host: %q, %v", data, err)
	}
	if _, errs, code := k.Exec(id, "write", "/fixed/back", "x"); code == 0 || !strings.Contains(errs, "read-only") {
		t.Errorf("writing to a read-only mount: %d %q", code, errs)
	}
}

func readOnlyRoot(t *testing.T, k *Kit) {
	p := k.PodConfig("ro")
	pod := k.Pod(p)
	c := k.ContainerConfig("fixed", "write", "/tmp/x", "y")
	c.Linux.SecurityContext.ReadonlyRootfs = true
	id, log := k.ContainerIn(pod, p, c)
	if st := k.Ended(id); st.GetExitCode() != 1 || !strings.Contains(k.Log(log, "stderr"), "read-only file system") {
		t.Errorf("writing to a read-only root: %v %q", st.GetExitCode(), k.Log(log, "stderr"))
	}
	k.OutputOf(pod, p, k.ContainerConfig("writable", "write", "/tmp/x", "y"))
}

func isolation(t *testing.T, k *Kit) {
	id, _ := k.Container("sleep")
	for _, file := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/sys/kernel/uevent_helper"} {
		if _, _, code := k.Exec(id, "write", file, "x"); code == 0 {
			t.Errorf("%s could be written", file)
		}
	}
	if out, _, _ := k.Exec(id, "read", "/proc/kcore"); out != "" {
		t.Error("/proc/kcore could be read")
	}
	dev, _, _ := k.Exec(id, "list", "/dev")
	wantLines(t, dev, "null", "zero", "random", "shm", "pts", "mqueue", "stdout")
	if strings.Contains(dev, "vda") || strings.Contains(dev, "kmsg") {
		t.Errorf("devices of the host are in /dev:\n%s", dev)
	}
	procs, _, _ := k.Exec(id, "list", "/proc")
	for line := range strings.Lines(procs) {
		if line == "2\n" { // the kernel's thread of threads, on a host
			t.Error("processes of the host can be seen")
		}
	}
	status, _, _ := k.Exec(id, "id")
	wantLines(t, status, "CapEff:	00000000a80425fb") // the fourteen default ones
}

func hostDevices(t *testing.T, k *Kit) {
	dir := t.TempDir()
	const null, kmsg = 1<<8 | 3, 1<<8 | 11
	for name, number := range map[string]int{"null": null, "kmsg": kmsg} {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, number); err != nil {
			t.Fatal(err)
		}
	}
	p := k.PodConfig("devices")
	c := k.ContainerConfig("main", "sleep")
	c.Mounts = []*cri.Mount{{HostPath: dir, ContainerPath: "/nodes"}}
	id, _ := k.ContainerIn(k.Pod(p), p, c)
	if _, errs, code := k.Exec(id, "read", "/nodes/null"); code != 0 {
		t.Errorf("a device that any user may use: %d %q", code, errs)
	}
	if _, errs, code := k.Exec(id, "write", "/nodes/kmsg", ""); code == 0 || !strings.Contains(errs, "operation not permitted") {
		t.Errorf("a device of the host: %d %q, want that it is not permitted", code, errs)
	}
}

func resolver(t *testing.T, k *Kit) {
	p := k.PodConfig("names")
	p.DnsConfig = &cri.DNSConfig{Servers: []string{"10.0.0.10"}, Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:5"}}
	pod := k.Pod(p)
	out := k.OutputOf(pod, p, k.ContainerConfig("main", "read", "/etc/resolv.conf", "/etc/hostname"))
	if want := "search a.example b.example\nnameserver 10.0.0.10\noptions ndots:5\nnames\n"; out != want {
		t.Errorf("/etc/resolv.conf and /etc/hostname:\n%swant:\n%s", out, want)
	}
	wantLines(t, k.OutputOf(pod, p, k.ContainerConfig("lookup", "resolve", "localhost")), "127.0.0.1 ::1")
}

func (k *Kit) address(pod string) string {
	k.t.Helper()
	st, err := k.Runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
	if err != nil {
		k.t.Fatal(err)
	}
	return st.GetStatus().GetNetwork().GetIp()
}

// serving runs a web server in a pod and returns when it listens.
func (k *Kit) serving(name string) (pod, address string) {
	k.t.Helper()
	p := k.PodConfig(name)
	pod = k.Pod(p)
	id, _ := k.ContainerIn(pod, p, k.ContainerConfig("web", "serve"))
	k.listening(id)
	return pod, k.address(pod)
}

// listening returns when a container's web server answers.
func (k *Kit) listening(id string) {
	k.t.Helper()
	for {
		if _, _, code := k.Exec(id, "get", "http://127.0.0.1/healthz"); code == 0 {
			return
		}
		if st := k.Status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			k.t.Fatalf("the web server ended: %v", st)
		}
	}
}

func network(t *testing.T, k *Kit) {
	_, address := k.serving("server")
	p := k.PodConfig("client")
	pod := k.Pod(p)
	if got := k.address(pod); got == address {
		t.Fatalf("both pods have the address %s", got)
	}
	out := k.OutputOf(pod, p, k.ContainerConfig("get", "get", "http://"+address+"/"))
	if !strings.HasPrefix(out, "sampan demo v") || !strings.Contains(out, "pod server") {
		t.Errorf("the other pod answers %q", out)
	}
}

func sharedNetwork(t *testing.T, k *Kit) {
	pod, _ := k.serving("shared")
	out := k.OutputOf(pod, k.PodConfig("shared"), k.ContainerConfig("get", "get", "http://127.0.0.1/"))
	if !strings.Contains(out, "pod shared") {
		t.Errorf("localhost answers %q", out)
	}
}
