package runtime_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/api"
)

// failing runs the program and returns its exit code and what it says.
func failing(t *testing.T, cmd *exec.Cmd) (int, string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestBadInputIsRefusedWithASentence(t *testing.T) {
	n := newNode(t)
	before := world(t, n)
	with := func(flag, value string) []string {
		flags := slices.Clone(n.flags)
		flags[slices.Index(flags, flag)+1] = value
		return append([]string{"serve"}, flags...)
	}
	file := n.path("file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no command", nil, 2, "usage:"},
		{"unknown command", []string{"fly"}, 2, `unknown command "fly"`},
		{"unknown flag", []string{"serve", "--wings"}, 2, "wings"},
		{"an argument", []string{"serve", "now"}, 2, `"now"`},
		{"pod network", with("--pod-cidr", "10.99.0.0"), 2, "--pod-cidr"},
		{"small pod network", with("--pod-cidr", "10.99.0.0/30"), 1, "at least eight addresses"},
		{"two pod networks of one family", with("--pod-cidr", "10.99.0.0/24,10.97.0.0/24"), 1, "one of this IP family already"},
		{"a service network without pods", with("--service-cidr", "fd00::/112"), 1, "IP family of a pod network"},
		{"overlapping networks", with("--service-cidr", "10.99.0.128/25"), 1, "overlap"},
		{"long bridge name", with("--bridge", "a-very-long-bridge-name"), 1, "15 characters"},
		{"long socket path", with("--socket", "/tmp/"+strings.Repeat("x", 120)), 1, "107 bytes"},
		{"cgroup is a path", with("--cgroup", "a/b"), 1, "plain name"},
		{"state is a file", with("--state", file), 1, file},
		{"root is a file", with("--root", file), 1, file},
		{"log can't be written", append(with("--table", n.name), "--log", file+"/log"), 1, "--log"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out := failing(t, exec.Command(built.runtime, tt.args...))
			if code != tt.code || !strings.Contains(out, tt.want) {
				t.Errorf("exit code %d, %q; want %d and %q", code, out, tt.code, tt.want)
			}
		})
	}
	if out, err := n.command("clean").CombinedOutput(); err != nil {
		t.Errorf("clean: %v\n%s", err, out)
	}
	same(t, before, world(t, n))
}

func TestARuntimeNeedsRoot(t *testing.T) {
	n := newNode(t)
	// A directory that any user may enter.
	open, err := os.MkdirTemp("/tmp", "sampan-nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	program := open + "/runtime"
	data, err := os.ReadFile(built.runtime)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"serve", "clean"} {
		cmd := exec.Command(program, append([]string{verb}, n.flags...)...)
		cmd.Dir = open
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if code, out := failing(t, cmd); code != 1 || !strings.Contains(out, "root") {
			t.Errorf("%s: exit code %d, %q; want 1 and a word about root", verb, code, out)
		}
	}
}

func TestOnlyOneRuntimeServesAState(t *testing.T) {
	n := newNode(t).start()
	for _, verb := range []string{"serve", "clean"} {
		code, out := failing(t, n.command(verb))
		if code != 1 || !strings.Contains(out, "in use by the runtime with process id") {
			t.Errorf("%s: exit code %d, %q; want 1 and whom the state belongs to", verb, code, out)
		}
	}
	if _, err := n.runtime.Version(n.kit().Context(), &cri.VersionRequest{}); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

func TestTheSocketIsForRootOnly(t *testing.T) {
	n := newNode(t).start()
	st, err := os.Stat(n.path("s"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v; want mode 0600", st.Mode(), err)
	}
}

func TestAForeignForwardDropIsReported(t *testing.T) {
	n := newNode(t)
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"})
	drop := nftables.ChainPolicyDrop
	c.AddChain(&nftables.Chain{
		Name: "FORWARD", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop,
	})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.DelTable(table); _ = c.Flush() })
	n.start()
	const cure = "iptables -I FORWARD -i spt0 -j ACCEPT"
	if !strings.Contains(n.log.String(), cure) || !strings.Contains(strings.Join(n.info().GetLimitations(), "\n"), cure) {
		t.Errorf("no word about the cure in the log or in %v", n.info().GetLimitations())
	}
	tables, err := c.ListTables()
	if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == "filter" }) {
		t.Errorf("the other table: %v, %v", tables, err)
	}
}

func TestANegativeOOMScoreIsClamped(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("important")
	pod := k.Pod(p)
	for i, name := range []string{"first", "second"} {
		c := k.ContainerConfig(name, "read", "/proc/self/oom_score_adj")
		c.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: -998}
		got := strings.TrimSpace(k.OutputOf(pod, p, c))
		told := strings.Count(n.log.String(), "oom_score_adj below")
		if got != "-998" && told != 1 {
			t.Errorf("container %d has %s and the log tells it %d times, want once", i, got, told)
		}
	}
}

func TestImportOverTheSocket(t *testing.T) {
	n := newNode(t).start().withDemo()
	_, err := n.importArchive(strings.NewReader("not a tar file at all, "+strings.Repeat("x", 2000)), "")
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "not a tar") {
		t.Errorf("importing something else: %v", err)
	}
	stream, err := n.node.Export(n.kit().Context(), &api.ExportRequest{Image: n.kit().Image})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	for {
		m, err := stream.Recv()
		if err != nil {
			break
		}
		archive.Write(m.GetData())
	}
	before, err := n.images.ImageStatus(n.kit().Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: n.kit().Image}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.images.RemoveImage(n.kit().Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: before.GetImage().GetId()}}); err != nil {
		t.Fatal(err)
	}
	res, err := n.importArchive(&archive, "")
	if err != nil || len(res.GetImages()) != 1 || res.GetImages()[0].GetId() != before.GetImage().GetId() {
		t.Errorf("importing what was exported: %v, %v; want %s", res, err, before.GetImage().GetId())
	}
}

func TestAFullDiskFailsOneContainerOnly(t *testing.T) {
	n := newNode(t)
	if err := os.Mkdir(n.path("root"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("disk", n.path("root"), "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(n.path("root"), unix.MNT_DETACH) })
	n.start().withDemo()
	k := n.kit()
	id, _ := k.Container("sleep")
	fill := n.path("root/fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	f.Close()
	p := k.PodConfig("second")
	pod := k.Pod(p)
	_, err = n.runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, SandboxConfig: p, Config: k.ContainerConfig("main", "sleep")})
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("CreateContainer on a full disk: %v, want an error that says so", err)
	}
	if out, _, code := k.Exec(id, "echo", "alive"); code != 0 || out != "alive\n" {
		t.Errorf("the container that was there: %q %d", out, code)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	k.OutputOf(pod, p, k.ContainerConfig("main", "echo", "fine"))
}

func TestHostNamespaces(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("host")
	p.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{
		Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_NODE, Ipc: cri.NamespaceMode_NODE,
	}
	pod := k.Pod(p)
	st, err := n.runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
	if err != nil || st.GetStatus().GetNetwork().GetIp() != "" || st.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() != cri.NamespaceMode_NODE {
		t.Errorf("status: %v, %v", st, err)
	}
	if out := k.OutputOf(pod, p, k.ContainerConfig("links", "list", "/proc/self/net/dev_snmp6", "/sys/class/net")); !strings.Contains(out, "spt0") {
		t.Errorf("the host's bridge isn't among\n%s", out)
	}
	// What it leaves behind in the host's process namespace goes with it, too.
	id, log := k.ContainerIn(pod, p, k.ContainerConfig("orphans", "spawn"))
	if got := k.Ended(id); got.GetExitCode() != 0 {
		t.Fatalf("%v: %s", got, k.Log(log, "stderr"))
	}
	sleeper, _ := k.ContainerIn(pod, p, k.ContainerConfig("sleeper", "sleep"))
	pid := n.pidOf(sleeper)
	if _, err := n.runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: sleeper, Timeout: 20}); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Errorf("process %d goes on", pid)
	}
	user := k.PodConfig("users")
	user.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD}
	_, err = n.runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: user})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "user namespaces") {
		t.Errorf("a user namespace: %v", err)
	}
	_, err = n.runtime.CheckpointContainer(k.Context(), &cri.CheckpointContainerRequest{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "doesn't offer") {
		t.Errorf("CheckpointContainer: %v", err)
	}
}

func TestThePodNetworkCanBeFull(t *testing.T) {
	n := newNode(t)
	n.flag("--pod-cidr", "10.99.0.0/29") // eight addresses: network, bridge, five pods, broadcast
	n.start()
	k := n.kit()
	seen := map[string]bool{}
	for i := range 5 {
		pod := k.Pod(k.PodConfig(string(rune('a' + i))))
		st, err := n.runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
		if err != nil {
			t.Fatal(err)
		}
		seen[st.GetStatus().GetNetwork().GetIp()] = true
	}
	if len(seen) != 5 || seen["10.99.0.0"] || seen["10.99.0.1"] || seen["10.99.0.7"] {
		t.Errorf("addresses: %v", seen)
	}
	_, err := n.runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: k.PodConfig("one-too-many")})
	if err == nil || !strings.Contains(err.Error(), "10.99.0.0/29 is full") {
		t.Errorf("a sixth pod: %v", err)
	}
}
