package container

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

func TestCapabilities(t *testing.T) {
	all, err := knownCaps()
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(caps ...string) []string { // what this process lacks can't be given
		caps = slices.DeleteFunc(caps, func(c string) bool { return !slices.Contains(all, c) })
		slices.Sort(caps)
		return caps
	}
	tests := []struct {
		name string
		spec Spec
		want []string
	}{
		{"nothing said", Spec{}, allowed(defaultCaps()...)},
		{"one more", Spec{AddCaps: []string{"net_admin"}}, allowed(append(defaultCaps(), "CAP_NET_ADMIN")...)},
		{"one fewer", Spec{DropCaps: []string{"CAP_KILL"}}, slices.DeleteFunc(allowed(defaultCaps()...), func(c string) bool { return c == "CAP_KILL" })},
		{"all", Spec{AddCaps: []string{"ALL"}}, allowed(slices.Clone(all)...)},
		{"none", Spec{DropCaps: []string{"all"}}, nil},
		{"one only", Spec{DropCaps: []string{"ALL"}, AddCaps: []string{"CHOWN"}}, allowed("CAP_CHOWN")},
		{"all but one", Spec{AddCaps: []string{"ALL"}, DropCaps: []string{"CHOWN"}}, slices.DeleteFunc(allowed(slices.Clone(all)...), func(c string) bool { return c == "CAP_CHOWN" })},
		{"privileged", Spec{Privileged: true}, allowed(slices.Clone(all)...)},
		{"added and dropped", Spec{AddCaps: []string{"NET_ADMIN"}, DropCaps: []string{"NET_ADMIN"}}, allowed(defaultCaps()...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := capabilities(&tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Bounding, tt.want) || !slices.Equal(got.Effective, tt.want) || len(got.Inheritable) != 0 {
				t.Errorf("bounding %v\ninheritable %v\nwant %v and none", got.Bounding, got.Inheritable, tt.want)
			}
		})
	}
	if _, err := capabilities(&Spec{AddCaps: []string{"FLY"}}); err == nil || !strings.Contains(err.Error(), "FLY") {
		t.Errorf("an unknown capability: %v", err)
	}
}

func TestMountsAreInOrderAndReplaceDefaults(t *testing.T) {
	s := Spec{Mounts: []Mount{
		{Source: "/a", Destination: "/data/deep"},
		{Source: "/b", Destination: "/data/"},
		{Source: "/c", Destination: "/dev/mqueue", ReadOnly: true},
		{Source: "/d", Destination: "/x", Propagation: "rslave", RecursiveReadOnly: true},
	}}
	var got []string
	for _, m := range s.mounts() {
		if m.Type == "bind" {
			got = append(got, fmt.Sprint(m.Source, " ", m.Destination, " ", m.Options))
		} else if m.Destination == "/dev/mqueue" {
			t.Error("the default /dev/mqueue is still there")
		}
	}
	want := []string{
		"/b /data [rbind rprivate]", "/d /x [rbind rslave rro]", "/a /data/deep [rbind rprivate]", "/c /dev/mqueue [rbind rprivate ro]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mounts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	shared := Spec{Mounts: []Mount{{Source: "/a", Destination: "/a", Propagation: "rshared"}, {Source: "/b", Destination: "/b", Propagation: "rslave"}}}
	if shared.propagation() != "rshared" {
		t.Errorf("propagation %s with a shared mount", shared.propagation())
	}
	if s.propagation() != "rslave" || (&Spec{}).propagation() != "rprivate" {
		t.Errorf("propagation %s and %s", s.propagation(), (&Spec{}).propagation())
	}
}

// TestMountsHideDefaults has containers with the host's /sys or /dev, such as programs that measure the node or hand out its devices: they
// see the host's cgroups and terminals.
func TestMountsHideDefaults(t *testing.T) {
	for _, tt := range []struct{ mount, hidden string }{
		{"/sys", "/sys/fs/cgroup"},
		{"/sys/fs", "/sys/fs/cgroup"},
		{"/dev", "/dev/pts"},
		{"/dev/", "/dev/mqueue"},
	} {
		s := Spec{Mounts: []Mount{{Source: "/host", Destination: tt.mount}, {Source: "/shm", Destination: "/dev/shm"}}}
		mounts := s.mounts()
		own := slices.IndexFunc(mounts, func(m specs.Mount) bool { return m.Source == "/host" })
		hidden := slices.IndexFunc(mounts, func(m specs.Mount) bool { return m.Destination == tt.hidden })
		if hidden > own {
			t.Errorf("%s is mounted over %s of the container", tt.hidden, tt.mount)
		}
		if shm := slices.IndexFunc(mounts, func(m specs.Mount) bool { return m.Source == "/shm" }); strings.HasPrefix(tt.mount, "/dev") && shm < own {
			t.Errorf("the pod's /dev/shm is hidden by %s", tt.mount)
		}
	}
}

func TestValidateReportsEveryError(t *testing.T) {
	err := (&Spec{Cwd: "here", Mounts: []Mount{{Destination: "there"}, {Destination: "/x", Propagation: "odd"}}, DropCaps: []string{"FLY"}}).Validate()
	for _, want := range []string{"command", "here", "there", "odd", "FLY"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want it to mention %s", err, want)
		}
	}
}

func TestProfile(t *testing.T) {
	p, err := parseProfile(defaultProfile)
	if err != nil {
		t.Fatal(err)
	}
	allows := func(f *specs.LinuxSeccomp, name string) bool {
		return slices.ContainsFunc(f.Syscalls, func(s specs.LinuxSyscall) bool {
			return slices.Contains(s.Names, name) && s.Action == specs.ActAllow && len(s.Args) == 0
		})
	}
	plain, admin := p.seccomp(defaultCaps(), false), p.seccomp([]string{"CAP_SYS_ADMIN"}, true)
	for name, want := range map[string][2]bool{ // for a plain container, and with CAP_SYS_ADMIN alone
		"read": {true, true}, "openat": {true, true}, "mount": {false, true}, "clone3": {false, true}, "chroot": {true, false},
		"reboot": {false, false}, "kexec_load": {false, false}, "keyctl": {false, false}, "add_key": {false, false}, "io_uring_setup": {false, false},
		"bpf": {false, true}, "userfaultfd": {false, false}, "init_module": {false, false},
	} {
		if got := [2]bool{allows(plain, name), allows(admin, name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if len(plain.Architectures) >= len(admin.Architectures) && len(admin.Architectures) > 0 {
		t.Errorf("architectures %v, and with 32-bit programs %v", plain.Architectures, admin.Architectures)
	}
	seen := map[string]bool{}
	for _, s := range p.sections[0].syscalls {
		for _, name := range s.Names {
			if len(s.Args) == 0 && seen[name] {
				t.Errorf("%s is listed twice", name)
			}
			seen[name] = true
		}
	}
	for _, bad := range []string{"read", "[always", "[always]\nread errno x", "[always]\nread if 0", "[always]\nread if 9 in 1", "[always]\nread if 0 ~ 1", "[always]\nread if 0 & 1"} {
		if _, err := parseProfile(bad); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

// pumped writes output to a stream and returns the log.
func pumped(t *testing.T, name string, writes ...string) string {
	t.Helper()
	dir := t.TempDir()
	log := &logFile{path: filepath.Join(dir, "log"), log: slog.Default()}
	if err := log.reopen(); err != nil {
		t.Fatal(err)
	}
	s, err := openStream(name, filepath.Join(dir, "fifo"), log, newPool())
	if err != nil {
		t.Fatal(err)
	}
	defer s.fifo.Close()
	ended := make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); s.carry(context.Background(), ended) }()
	for _, w := range writes {
		if _, err := s.fifo.WriteString(w); err != nil {
			t.Fatal(err)
		}
	}
	close(ended)
	s.wake()
	<-done
	log.close()
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestOutputBecomesLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	tests := []struct {
		name   string
		writes []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"a line", []string{"hello\n"}, []string{"F hello"}},
		{"an empty line", []string{"\n"}, []string{"F "}},
		{"two at once", []string{"a\nb\n"}, []string{"F a", "F b"}},
		{"one in pieces", []string{"a", "b", "c\n"}, []string{"F abc"}},
		{"no end", []string{"a\nb"}, []string{"F a", "P b"}},
		{"exactly full", []string{long + "\n"}, []string{"F " + long}},
		{"too long", []string{long + "yz\n"}, []string{"P " + long, "F yz"}},
		{"too long and no end", []string{long + long}, []string{"P " + long, "P " + long}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for line := range strings.Lines(pumped(t, Stderr, tt.writes...)) {
				_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " stderr ")
				if !ok {
					t.Fatalf("%.80q is not of standard error", line)
				}
				got = append(got, rest)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%.300q, want %.300q", got, tt.want)
			}
		})
	}
}

// FuzzOutput checks that the log, read as CRI says, is what was written.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), 1)
	f.Add(bytes.Repeat([]byte("x"), 3*maxLine), 1000)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if len(data) > 60<<10 { // what a FIFO takes without a reader
			return
		}
		cut = min(max(cut, 0), len(data))
		var back []byte
		for line := range bytes.Lines([]byte(pumped(t, Stdout, string(data[:cut]), string(data[cut:])))) {
			_, rest, ok := bytes.Cut(line, []byte(" stdout "))
			if !ok || len(rest) < 3 {
				t.Fatalf("%.80q is not a line of a log", line)
			}
			text := bytes.TrimSuffix(rest[2:], []byte("\n"))
			if len(text) > maxLine {
				t.Errorf("a line has %d bytes", len(text))
			}
			back = append(back, text...)
			if rest[0] == 'F' {
				back = append(back, '\n')
			}
		}
		if !bytes.Equal(back, data) {
			t.Errorf("%d bytes came back as %d", len(data), len(back))
		}
	})
}

func TestExitCodesOfChildren(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143} {
		cmd := exec.Command("/bin/sh", "-c", script)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		start, err := processStart(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		p, err := holdProcess(cmd.Process.Pid, start)
		if err != nil {
			t.Fatal(err)
		}
		code, known, err := p.wait(context.Background())
		if code != want || !known || err != nil {
			t.Errorf("%s: %d %v %v, want %d", script, code, known, err, want)
		}
		if err := p.signal(unix.SIGTERM); err != nil {
			t.Errorf("a signal to the dead: %v", err)
		}
		if _, err := holdProcess(cmd.Process.Pid, start); err == nil {
			t.Error("a process that was waited for could be held")
		}
	}
}

// TestExitCodesOfOthers waits for a process with another parent.
func TestExitCodesOfOthers(t *testing.T) {
	// The shell prints its child's number, waits for it, and goes on until its
	// input ends.
	parent := exec.Command("/bin/sh", "-c", "exec 3<&0; (read x <&3; exit 7) & echo $!; wait; read y")
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	start, err := processStart(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdProcess(pid, start+1); err == nil {
		t.Error("another process of this number was held")
	}
	p, err := holdProcess(pid, start)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := p.wait(ctx); err == nil {
		t.Error("wait went on after its context")
	}
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	// Kernels before 6.15 don't report it; K2 forbids to guess.
	if code, known, err := p.wait(context.Background()); err != nil || known && code != 7 {
		t.Errorf("%d %v %v, want 7 or unknown", code, known, err)
	}
	in.Close()
	_ = parent.Wait()
}

func TestUsers(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/:\nweb:x:33:34::/:\n", "group": "root:x:0:\nwww:x:34:\nextra:x:50:web\nother:x:51:someone,web\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	group := uint32(7)
	tests := []struct {
		whom UserSpec
		want string
	}{
		{UserSpec{}, "0:0 [0]"},
		{UserSpec{User: "web"}, "33:34 [34 50 51]"},
		{UserSpec{User: "33"}, "33:34 [34 50 51]"},
		{UserSpec{User: "33:50"}, "33:50 [50]"},
		{UserSpec{User: "web:extra"}, "33:50 [50]"},
		{UserSpec{User: "4711"}, "4711:0 [0]"},
		{UserSpec{User: "web", Group: &group, Groups: []uint32{60, 50}}, "33:7 [7 50 51 60]"},
		{UserSpec{User: "web", Groups: []uint32{60}, OnlyGroups: true}, "33:34 [34 60]"},
		{UserSpec{User: "nobody"}, "error"},
	}
	for _, tt := range tests {
		u, err := ResolveUser(root, tt.whom)
		got := fmt.Sprintf("%d:%d %v", u.UID, u.GID, u.Groups)
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%+v: %s (%v), want %s", tt.whom, got, err, tt.want)
		}
	}
	// A link in the image doesn't lead to the host's users.
	if err := os.Remove(filepath.Join(root, "etc", "passwd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/../../../../../../etc/passwd", filepath.Join(root, "etc", "passwd")); err != nil {
		t.Fatal(err)
	}
	if u, err := ResolveUser(root, UserSpec{User: "daemon"}); err == nil {
		t.Errorf("a user of the host was found: %v", u)
	}
}

func TestSysctlsOfTheHostAreRefused(t *testing.T) {
	for name, fine := range map[string]bool{
		"net.core.somaxconn": true, "net/ipv4/ip_forward": true, "kernel.shmmax": true, "kernel.sem": true, "fs.mqueue.msg_max": true,
		"kernel.panic": false, "vm.swappiness": false, "net.../../kernel/panic": false, "": false,
	} {
		err := (&PinSpec{Net: true, IPC: true, Sysctls: map[string]string{name: "1"}}).Check()
		if (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := (&PinSpec{IPC: true, Sysctls: map[string]string{"net.core.somaxconn": "1"}}).Check(); err == nil {
		t.Error("a sysctl of the host's network was accepted")
	}
}

func TestTheRootCgroupIsNeverTouched(t *testing.T) {
	for _, path := range []string{"", "/", "//", "/.", "/..", "/a/..", "relative"} {
		if err := notRoot(path); err == nil {
			t.Errorf("%q counts as one below the root", path)
		}
	}
	if err := notRoot("/sampan/x"); err != nil {
		t.Error(err)
	}
	for _, touch := range []func(string) error{KillCgroup, RemoveCgroup} {
		if err := touch(""); err == nil {
			t.Error("a cgroup without a name was touched")
		}
	}
}

func TestCgroupsOfTheProcessAreNeverTouched(t *testing.T) {
	own := map[string]string{"memory": "/user/session", "": "/init"}
	for path, want := range map[string]bool{"/user": false, "/user/session": false, "/init/": false, "/user/session/sampan": true, "/us": true, "/other": true} {
		if err := notOurs(path, own); (err == nil) != want {
			t.Errorf("notOurs(%q) = %v, want harmless: %v", path, err, want)
		}
	}
}

func TestStopSignals(t *testing.T) {
	for name, want := range map[string]unix.Signal{
		"": unix.SIGTERM, "SIGQUIT": unix.SIGQUIT, "QUIT": unix.SIGQUIT, "3": unix.SIGQUIT, "SIGRTMIN+3": 37, "SIGRTMAX-1": 63, "SIGRTMIN": 34,
		"nonsense": unix.SIGTERM, "0": unix.SIGTERM, "99": unix.SIGTERM, "SIGRTMIN+99": unix.SIGTERM,
	} {
		if got := stopSignal(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

func TestLimitsWithinControllers(t *testing.T) {
	all := Resources{
		CPUShares: 512, CPUQuota: 1000, CPUPeriod: 100_000, Cpuset: "0", CpusetMems: "0", MemoryLimit: 1 << 20, SwapLimit: 1 << 20, PidsLimit: 7,
		OOMScoreAdj: 5, Hugepages: map[string]uint64{"2MB": 0}, Unified: map[string]string{"memory.high": "1", "cgroup.freeze": "0", "io.weight": "9"},
	}
	tests := []struct {
		name    string
		asked   Resources
		has     []string
		want    Resources
		missing string
	}{
		{"everything is there", all, []string{"cpu", "cpuset", "memory", "swap", "pids", "hugetlb", "io"}, all, ""},
		{
			"nothing is there", all, nil,
			Resources{OOMScoreAdj: 5, Unified: map[string]string{"cgroup.freeze": "0"}},
			"cpu cpuset hugetlb io memory pids",
		},
		{"nothing is asked for", Resources{OOMScoreAdj: 1}, nil, Resources{OOMScoreAdj: 1}, ""},
		{"a word that means no limit", Resources{MemoryLimit: -1, CPUQuota: -1, PidsLimit: -1}, nil, Resources{}, ""},
		{"no accounting of swap", Resources{MemoryLimit: 1, SwapLimit: 2, Unified: map[string]string{"memory.swap.max": "0"}}, []string{"memory"}, Resources{MemoryLimit: 1}, ""},
		{"swap", Resources{Unified: map[string]string{"memory.swap.max": "0"}}, []string{"memory", "swap"}, Resources{Unified: map[string]string{"memory.swap.max": "0"}}, ""},
		{"no memory", Resources{MemoryLimit: 1, CPUShares: 2}, []string{"cpu"}, Resources{CPUShares: 2}, "memory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			has := Controllers{}
			for _, c := range tt.has {
				has[c] = true
			}
			got, missing := tt.asked.Within(has)
			if !reflect.DeepEqual(got, tt.want) || strings.Join(missing, " ") != tt.missing {
				t.Errorf("Within = %+v, %v; want %+v, %s", got, missing, tt.want, tt.missing)
			}
		})
	}
}

func TestLogOnFullDiskHasWholeLines(t *testing.T) { nstest.Run(t, logOnAFullDisk) }

func logOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("disk", dir, "tmpfs", 0, "size=8k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	log := &logFile{path: filepath.Join(dir, "log"), log: slog.New(slog.NewTextHandler(&logged, nil))}
	if err := log.reopen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.close)
	line := func(c string, length int) []byte { return []byte(strings.Repeat(c, length-1) + "\n") }
	log.write(line("a", 3000))
	log.write(slices.Concat(line("b", 1000), line("c", 1000))) // 96 bytes of the last one would fit
	log.write(line("d", 1000))
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	log.write(line("e", 1000))
	data, err := os.ReadFile(log.path)
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Concat(line("a", 3000), line("b", 1000), line("e", 1000)); !bytes.Equal(data, want) {
		t.Errorf("of the log %d bytes are there, want the %d of the lines that found room", len(data), len(want))
	}
	if n := strings.Count(logged.String(), "output is being lost"); n != 1 {
		t.Errorf("that output was lost is logged %d times, want once", n)
	}
}
