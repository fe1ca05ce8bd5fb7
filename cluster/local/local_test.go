package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func profile(t *testing.T) Profile {
	t.Helper()
	dir := t.TempDir()
	return Profile{Name: "test", DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run")}
}

func TestNamesDoNotCollideAndFitTheKernel(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"", "a", "b", "a-cluster-with-a-long-name-1", "a-cluster-with-a-long-name-2"} {
		p, err := NewProfile(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Bridge()) > 15 {
			t.Errorf("bridge %q has %d bytes, Linux takes 15", p.Bridge(), len(p.Bridge()))
		}
		for _, derived := range []string{p.Context(), "bridge " + p.Bridge(), p.NetworkTable(), p.ServiceTable(), "cgroup " + p.Cgroup(), p.DataDir, p.RunDir} {
			if other, taken := seen[derived]; taken {
				t.Errorf("%q is derived from %q and from %q", derived, other, p.Name)
			}
			seen[derived] = p.Name
		}
	}
	for _, bad := range []string{"UPPER", "a/b", "../up", "a b", strings.Repeat("x", 64)} {
		if _, err := NewProfile(bad, ""); err == nil || !strings.Contains(err.Error(), "--name: must be") {
			t.Errorf("NewProfile(%q) = %v, want an error about the name", bad, err)
		}
	}
}

func TestSettleKeepsWhatWasChosen(t *testing.T) {
	p := profile(t)
	if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := p.Settle(Settings{NodeName: "boat", APIPort: 7000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !first.Pods.IsValid() || !first.Services.IsValid() || first.Pods[0].Overlaps(first.Services[0]) || first.Pods.Family() != IPv4 {
		t.Errorf("networks %v and %v, want two that do not overlap", first.Pods, first.Services)
	}
	if err := p.Keep(first); err != nil {
		t.Fatal(err)
	}
	// The port of the last run is that of no flag, but known.
	if err := p.Keep(Settings{NodeName: "boat", LastPort: 41000, Networks: first.Networks}); err != nil {
		t.Fatal(err)
	}
	if s, err := p.Settle(Settings{}, nil); err != nil || s.APIPort != 0 || s.LastPort != 41000 {
		t.Errorf("Settle = %+v, %v, want the port of the last run", s, err)
	}
	if err := p.Differ(Settings{APIPort: 41000}); err != nil {
		t.Errorf("Differ with the port that it has = %v", err)
	}
	if err := p.Differ(Settings{APIPort: 41001}); err == nil || !strings.Contains(err.Error(), "--api-port=41000, not 41001") {
		t.Errorf("Differ with another port = %v", err)
	}
	if err := p.Keep(first); err != nil {
		t.Fatal(err)
	}
	if again, err := p.Settle(Settings{}, nil); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("Settle again = %+v, %v, want %+v", again, err, first)
	}
	if moved, err := p.Settle(Settings{APIPort: 7001}, nil); err != nil || moved.APIPort != 7001 {
		t.Errorf("Settle with another port = %+v, %v", moved, err)
	}
	for flag, asked := range map[string]Settings{
		"--node-name":       {NodeName: "other"},
		"--pod-network":     {Networks: Networks{Pods: pair("10.77.0.0/16")}},
		"--service-network": {Networks: Networks{Services: pair("10.78.0.0/16")}},
		"--ip-family":       {IPFamily: DualStack},
		"simulated":         {SimulatedNodes: 2},
		"--cluster-domain":  {ClusterDomain: "boat.example"},
	} {
		if _, err := p.Settle(asked, nil); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("Settle(%+v) = %v, want an error that names %s", asked, err, flag)
		}
	}
	if same, err := p.Settle(Settings{ClusterDomain: "cluster.local."}, nil); err != nil || same.ClusterDomain != "" {
		t.Errorf("Settle with the domain that it has = %+v, %v", same, err)
	}
	asked := Settings{DNSListen: "192.0.2.1:5353", DNSUpstream: "192.0.2.53,192.0.2.54"}
	if moved, err := p.Settle(asked, nil); err != nil || moved.DNSListen != asked.DNSListen || moved.DNSUpstream != asked.DNSUpstream {
		t.Errorf("Settle with another name server = %+v, %v", moved, err)
	}
	for flag, asked := range map[string]Settings{"--cluster-dns-listen": {DNSListen: "none"}, "--cluster-dns-upstream": {DNSUpstream: "192.0.2.1"}} {
		if err := p.Differ(asked); err == nil || !strings.Contains(err.Error(), flag+"=its default, not ") {
			t.Errorf("Differ(%+v) of one that runs = %v, want an error that names %s", asked, err, flag)
		}
	}
	both := ImageSettings{CredentialConfig: "/c", CredentialPrograms: "/p"}
	if err := p.Keep(Settings{NodeName: first.NodeName, Networks: first.Networks, Images: both}); err != nil {
		t.Fatal(err)
	}
	for want, images := range map[string]ImageSettings{
		"--registries=none, not /r;":                        {Registries: "/r"},
		"--image-credential-provider-config=/c, not /d;":    {CredentialConfig: "/d"},
		"--image-credential-provider-bin-dir=/p, not /q;":   {CredentialPrograms: "/q"},
		"--image-credential-provider-config=/c, not none; ": {CredentialConfig: NoImageSetting, CredentialPrograms: NoImageSetting},
	} {
		if err := p.Differ(Settings{Images: images}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Differ(%+v) = %v, want an error with %q", images, err, want)
		}
	}
	if err := p.Keep(first); err != nil {
		t.Fatal(err)
	}
	for want, asked := range map[string]Settings{
		`--cluster-domain: cluster domain "No"`:                             {ClusterDomain: "No"},
		`--cluster-dns-listen: "0.0.0.0"`:                                   {DNSListen: "0.0.0.0"},
		`--cluster-dns-upstream: "what" is not a valid name server address`: {DNSUpstream: "192.0.2.1,what"},
		`--cluster-dns-upstream: "" is not a valid name server address`:     {DNSUpstream: "192.0.2.1,"},
		`want one such as 192.0.2.53 or 192.0.2.53:5353, or`:                {DNSListen: "here"},
	} {
		if _, err := p.Settle(asked, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Settle(%+v) = %v, want an error with %s", asked, err, want)
		}
	}
}

// endingEnv makes the test binary a process that is ending: its first thread is gone,
// and another holds what it held until standard input ends.
const endingEnv = "SAMPAN_TEST_ENDING"

func init() { // the only place that is surely on the first thread
	if os.Getenv(endingEnv) != "" {
		runtime.LockOSThread()
	}
}

// The addresses of load balancers may change at each start, and be taken back.
func TestSettleTheAddressesOfLoadBalancers(t *testing.T) {
	p := profile(t)
	if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	networks := Networks{Pods: pair("10.77.0.0/16"), Services: pair("10.78.0.0/16")}
	with := func(addresses string) Settings {
		return Settings{NodeName: "boat", LoadBalancerAddresses: addresses, Networks: networks}
	}
	for _, step := range []struct{ asked, want string }{
		{"none", ""},
		{"192.0.2.10-192.0.2.20,2001:db8::/120", "192.0.2.10-192.0.2.20,2001:db8::/120"},
		{"", "192.0.2.10-192.0.2.20,2001:db8::/120"},
		{"198.51.100.0/28", "198.51.100.0/28"},
		{"none", ""},
		{"", ""},
		{"192.0.2.1", "192.0.2.1"},
	} {
		s, err := p.Settle(with(step.asked), nil)
		if err != nil || s.LoadBalancerAddresses != step.want {
			t.Fatalf("Settle(%q) = %q, %v, want %q", step.asked, s.LoadBalancerAddresses, err, step.want)
		}
		if err := p.Keep(s); err != nil {
			t.Fatal(err)
		}
		pool, err := s.Pool()
		if err != nil || pool.String() == "" != (step.want == "") {
			t.Errorf("the pool is %q, %v", pool, err)
		}
	}
	if err := p.Differ(with("none")); err == nil || !strings.Contains(err.Error(), "--load-balancer-addresses=192.0.2.1, not none") {
		t.Errorf("Differ = %v", err)
	}
	for asked, want := range map[string]string{
		"192.0.2.1-here":        `--load-balancer-addresses: "192.0.2.1-here": want an address, a range such as`,
		"10.77.3.0/24":          "--load-balancer-addresses 10.77.3.0/24: overlaps the pod network 10.77.0.0/16",
		"10.0.0.0-10.255.0.0":   "overlaps the",
		"10.78.0.9,192.0.2.7":   "overlaps the service network 10.78.0.0/16",
		"127.0.0.1,192.0.2.256": `"192.0.2.256": want an address`,
	} {
		if _, err := p.Settle(with(asked), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Settle(%q) = %v, want an error with %s", asked, err, want)
		}
	}
}

// TestPoolHasNoAddressOfTheNode has addresses of load balancers with and without that of the node.
func TestPoolHasNoAddressOfTheNode(t *testing.T) {
	s := Settings{LoadBalancerAddresses: "192.0.2.0/28,2001:db8::/120"}
	for addresses, refused := range map[string]bool{"": false, "none": false, "192.0.2.77": false, "192.0.2.7": true, "192.0.2.77,2001:db8::1": true} {
		s.AdvertiseAddress = addresses
		if err := s.checkPool(); (err != nil) != refused || refused && !strings.Contains(err.Error(), "--load-balancer-addresses 192.0.2.0/28,2001:db8::/120: contains the address of this node, ") {
			t.Errorf("%q: %v", addresses, err)
		}
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(endingEnv) == "" {
		os.Exit(m.Run())
	}
	gone := make(chan struct{})
	go func() {
		<-gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	close(gone)
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // this thread alone; Syscall lets others have its processor
}

// The main goroutine of the process that is ending keeps the first thread.
func init() {
	if os.Getenv(endingEnv) != "" {
		runtime.LockOSThread()
	}
}

func TestAProcessThatIsEndingDoesNotRunButIsWaitedFor(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), endingEnv+"=yes")
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var process Process
	for ended := false; !ended; { // until its first thread is gone
		if process, ended, err = look(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	p := profile(t)
	if err := p.Save(Instance{Name: "test", Process: process}); err != nil {
		t.Fatal(err)
	}
	if _, running, err := p.Instance(); running || err != nil {
		t.Errorf("running %v, %v, want that it is over", running, err)
	}
	brief, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	if err := process.Wait(brief); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Wait = %v, want that it still holds what it has", err)
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAProcessThatWasKilledEnds(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nSigQ:\t0/1\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n": true,
		"Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n":             true,
		"Name:\tx\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n":             false,
		"": false,
	} {
		if got := killed(status); got != want {
			t.Errorf("killed(%q) = %v", status, got)
		}
	}
}

func TestBadSettingsAreNamedAllAtOnce(t *testing.T) {
	_, err := profile(t).Settle(Settings{
		APIPort: 70000, SimulatedNodes: -1, NodeName: "Not_A_Name",
		Networks: Networks{Pods: pair("10.1.0.0/28"), Services: pair("fd00::/64")}, IPFamily: "both",
	}, nil)
	if err == nil {
		t.Fatal("Settle succeeded")
	}
	for _, flag := range []string{"--api-port", "--simulated-nodes", "--node-name", "--pod-network", "--service-network", "--ip-family"} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("error does not name %s:\n%v", flag, err)
		}
	}
}

func TestFreeNetworksAvoidTheHosts(t *testing.T) {
	taken := prefixes("10.244.3.0/24", "10.0.0.0/12", "10.96.0.0/16")
	n, err := FreeNetworks([]bool{false}, taken, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range taken {
		if n.Pods[0].Overlaps(x) || n.Services[0].Overlaps(x) {
			t.Errorf("%+v overlaps %v", n, x)
		}
	}
	if _, err := FreeNetworks([]bool{false}, prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"), nil, nil); err == nil || !strings.Contains(err.Error(), "--pod-network") {
		t.Errorf("FreeNetworks = %v, want an error that says what to do", err)
	}
}

func TestAnInstanceIsAliveAsLongAsItsProcess(t *testing.T) {
	p := profile(t)
	if i, running, err := p.Instance(); running || err != nil || i.Name != "" {
		t.Errorf("Instance before any start = %+v, %v, %v", i, running, err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	process, err := ProcessOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Save(Instance{Name: "test", Process: process, Runtime: Runtime{Process: process}}); err != nil {
		t.Fatal(err)
	}
	if _, running, err := p.Instance(); !running || err != nil {
		t.Errorf("running %v, %v, want true", running, err)
	}
	if is, err := p.Clusters(); err != nil || len(is) != 1 || !is[0].Running {
		t.Errorf("Clusters = %v, %v, want one that runs", is, err)
	}
	other := process
	other.Start++ // another process has the pid now
	if err := End(t.Context(), other, time.Minute); err != nil || !process.Alive() {
		t.Errorf("End of another process with the same pid = %v; ours is alive: %v", err, process.Alive())
	}
	if err := End(t.Context(), process, time.Minute); err != nil {
		t.Errorf("End = %v", err)
	}
	// It has ended when its parent has not asked about it yet, and afterwards, and
	// while that happens.
	gone := func(when string) {
		t.Helper()
		if _, running, err := p.Instance(); running || err != nil {
			t.Errorf("%s: running %v, %v, want that it is over", when, running, err)
		}
		if err := errors.Join(End(t.Context(), process, time.Minute), process.Wait(t.Context())); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	gone("nobody has asked")
	reaped := make(chan struct{})
	time.AfterFunc(0, func() { _ = cmd.Wait(); close(reaped) })
	for asked := false; !asked; {
		gone("somebody asks")
		select {
		case <-reaped:
			asked = true
		default:
		}
	}
	gone("somebody has asked")
}

func TestStartTellsWhyItFailed(t *testing.T) {
	for _, tt := range []struct{ script, want string }{
		{`echo '{"error":"port 6443 is in use"}' >&3; exit 1`, "port 6443 is in use"},
		{`exit 1`, "exited before it was ready"},
		{`echo nonsense >&3`, "nonsense"},
	} {
		_, err := Start(t.Context(), profile(t), "/bin/sh", []string{"-c", tt.script}, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Start(%s) = %v, want an error with %q", tt.script, err, tt.want)
		}
	}
}

func TestStartReturnsWhenReady(t *testing.T) {
	var steps []string
	i, err := Start(t.Context(), profile(t), "/bin/sh", []string{
		"-c",
		`echo '{"step":"making keys"}' >&3; echo '{"ready":{"name":"test","server":"https://x"}}' >&3; exec 3>&-; exec sleep 0`,
	}, func(s string) { steps = append(steps, s) })
	if err != nil || i.Name != "test" || i.Server != "https://x" {
		t.Errorf("Start = %+v, %v", i, err)
	}
	if strings.Join(steps, "|") != "making keys" {
		t.Errorf("steps %q", steps)
	}
}

// A cluster that has not written its state file yet is found by its starting process.
func TestAStartIsSeenFromItsFirstMoment(t *testing.T) {
	p := profile(t)
	if s, err := p.Starters(); err != nil || len(s) > 0 {
		t.Errorf("before: %v, %v", s, err)
	}
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	// One that was killed is none.
	if err := p.write(p.starterFile(1<<30), Process{PID: 1 << 30, Start: 1}); err != nil {
		t.Fatal(err)
	}
	var during []Process
	_, err = Start(t.Context(), p, "/bin/sh", []string{"-c", `echo '{"step":"x"}' >&3; echo '{"error":"no"}' >&3`}, func(string) {
		if during, err = p.Starters(); err != nil {
			t.Error(err)
		}
	})
	if err == nil || len(during) != 1 || during[0] != self {
		t.Errorf("during a start that ended with %v: %v, want %v", err, during, self)
	}
	if s, err := p.Starters(); err != nil || len(s) > 0 {
		t.Errorf("after: %v, %v", s, err)
	}
}

func TestTheKubeconfigOfTheUserIsKept(t *testing.T) {
	p := profile(t)
	if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.WriteToFile(*p.KubeconfigOf(Credentials{Server: "https://127.0.0.1:1", CA: []byte("ca"), Cert: []byte("c"), Key: []byte("k")}), p.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config")
	theirs := clientcmdapi.NewConfig()
	theirs.Contexts["work"] = &clientcmdapi.Context{Cluster: "work", Namespace: "x"}
	theirs.CurrentContext = "work"
	if err := clientcmd.WriteToFile(*theirs, file); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if where, err := p.Merge(t.Context(), file); err != nil || where != file {
			t.Fatalf("Merge = %q, %v", where, err)
		}
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.CurrentContext != "sampan-test" || cfg.Contexts["work"] == nil || cfg.Clusters["sampan-test"].Server != "https://127.0.0.1:1" {
		t.Errorf("after Merge: %+v", cfg)
	}
	if err := p.Forget(t.Context(), file, p.FormerContexts()); err != nil {
		t.Fatal(err)
	}
	cfg, err = clientcmd.LoadFromFile(file)
	if err != nil || len(cfg.Contexts) != 1 || cfg.Contexts["work"] == nil || cfg.CurrentContext != "work" {
		t.Errorf("after Forget: %+v, %v", cfg, err)
	}
	if err := os.WriteFile(file, []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Merge(t.Context(), file); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("Merge into half a file = %v", err)
	}
}

// TestForgetRestoresTheFormerContext has kubeconfigs with the context "work", which becomes the current one again only if it was and still
// exists, and only in its file.
func TestForgetRestoresTheFormerContext(t *testing.T) {
	for name, tt := range map[string]struct {
		before string
		change func(cfg *clientcmdapi.Config)
		want   string
	}{
		"it was current": {before: "work", want: "work"},
		"none was":       {want: ""},
		"it is gone": {before: "work", change: func(cfg *clientcmdapi.Config) {
			delete(cfg.Contexts, "work")
			cfg.Contexts["play"] = &clientcmdapi.Context{Cluster: "play"}
		}},
		"the user has chosen another": {before: "work", want: "play", change: func(cfg *clientcmdapi.Config) {
			cfg.Contexts["play"], cfg.CurrentContext = &clientcmdapi.Context{Cluster: "play"}, "play"
		}},
	} {
		p := profile(t)
		if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := clientcmd.WriteToFile(*p.KubeconfigOf(Credentials{Server: "https://127.0.0.1:1"}), p.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
		file, other := filepath.Join(t.TempDir(), "config"), filepath.Join(t.TempDir(), "config")
		theirs := clientcmdapi.NewConfig()
		theirs.Contexts["work"], theirs.CurrentContext = &clientcmdapi.Context{Cluster: "work"}, tt.before
		if err := clientcmd.WriteToFile(*theirs, file); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{file, file, other} {
			if _, err := p.Merge(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		if tt.change != nil {
			cfg, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tt.change(cfg)
			if err := clientcmd.WriteToFile(*cfg, file); err != nil {
				t.Fatal(err)
			}
		}
		former := p.FormerContexts()
		for f, want := range map[string]string{file: tt.want, other: ""} {
			if err := p.Forget(t.Context(), f, former); err != nil {
				t.Fatal(err)
			}
			if cfg, err := clientcmd.LoadFromFile(f); err != nil || cfg.CurrentContext != want {
				t.Errorf("%s: the current context is %q, %v, want %q", name, cfg.CurrentContext, err, want)
			}
		}
	}
}

// Clusters are started and purged in any order: a context that was current before all of them is current at the end.
func TestForgetSkipsContextsOfPurgedClusters(t *testing.T) {
	for _, steps := range []string{"+a +b -a -b", "+a +b -b -a", "+a +b +a -a -b", "+a +b +c -b -a -c", "+a +b +a +c -a -c -b"} {
		home := placed(t)
		file := filepath.Join(t.TempDir(), "config")
		theirs := clientcmdapi.NewConfig()
		theirs.Contexts["work"], theirs.CurrentContext = &clientcmdapi.Context{Cluster: "work"}, "work"
		if err := clientcmd.WriteToFile(*theirs, file); err != nil {
			t.Fatal(err)
		}
		for step := range strings.FieldsSeq(steps) {
			p := home.called(step[1:])
			var err error
			if step[0] == '+' {
				keep(t, p)
				if err = p.SaveKubeconfig(Credentials{Server: "https://127.0.0.1:1"}); err == nil {
					_, err = p.Merge(t.Context(), file)
				}
			} else {
				former := p.FormerContexts()
				if _, err = p.Remove(t.Context()); err == nil {
					err = p.Forget(t.Context(), file, former)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if cfg, err := clientcmd.LoadFromFile(file); err != nil || cfg.CurrentContext != "work" || len(cfg.Contexts) != 1 {
			t.Errorf("%s: the current context is %q of %d, %v, want work", steps, cfg.CurrentContext, len(cfg.Contexts), err)
		}
	}
}

func TestKubeconfigsOfClustersThatStartTogetherAreAllWritten(t *testing.T) {
	const clusters = 8
	file := filepath.Join(t.TempDir(), "config")
	// Another program has the lock, and gives it back in a moment.
	lock := file + ".lock"
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range clusters {
		p := Profile{Name: fmt.Sprintf("test-%d", i), DataDir: t.TempDir()}
		if err := clientcmd.WriteToFile(*p.KubeconfigOf(Credentials{Server: "https://127.0.0.1:1"}), p.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if _, err := p.Merge(t.Context(), file); err != nil {
				t.Error(err)
			}
		})
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil || len(cfg.Contexts) != clusters || len(cfg.Clusters) != clusters {
		t.Errorf("%d contexts and %d clusters (%v), want %d of each", len(cfg.Contexts), len(cfg.Clusters), err, clusters)
	}
}

func TestALockOfTheKubeconfigThatStaysIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	p := profile(t)
	if err := clientcmd.WriteToFile(*p.KubeconfigOf(Credentials{Server: "https://127.0.0.1:1"}), file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if err := p.Forget(t.Context(), file, nil); err == nil || !strings.Contains(err.Error(), file+".lock") || !errors.Is(err, fs.ErrExist) {
			t.Errorf("Forget = %v, want what names the lock", err)
		}
	})
}

func TestNothingToForgetIsNothingToWrite(t *testing.T) {
	p := profile(t)
	if err := p.Forget(t.Context(), "/proc/none/config", nil); err != nil { // nothing can be made there
		t.Errorf("Forget = %v, want nil", err)
	}
}

func TestPurgeKeepsOffAStart(t *testing.T) {
	p := profile(t)
	started, err := p.starting()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Log(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if had, err := p.Remove(t.Context()); had || err == nil || !strings.Contains(err.Error(), "is being started") {
			t.Errorf("Remove during a start = %v, %v", had, err)
		}
		if _, err := os.Stat(p.Log()); err != nil {
			t.Errorf("after Remove during a start: %v", err)
		}
		time.AfterFunc(time.Second, started) // as a start does whose cluster was stopped
		if had, err := p.Remove(t.Context()); !had || err != nil {
			t.Errorf("Remove when the start ends = %v, %v, want true", had, err)
		}
	})
}

// A restore that was killed leaves a directory beside that of the cluster, which goes with it, even if it has none.
func TestPurgeRemovesIncompleteData(t *testing.T) {
	for _, complete := range []bool{false, true} {
		p := profile(t)
		if complete {
			keep(t, p)
		}
		killed, release, err := p.Stage()
		if err != nil {
			t.Fatal(err)
		}
		release()
		if err := os.MkdirAll(filepath.Join(killed, "store"), 0o700); err != nil { // as if it was not removed
			t.Fatal(err)
		}
		running, release, err := p.Stage()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if err := os.MkdirAll(filepath.Join(killed, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(filepath.Dir(p.DataDir), "data-restoring-1")
		if err := os.Mkdir(other, 0o700); err != nil {
			t.Fatal(err)
		}
		if had, err := p.Remove(t.Context()); !had || err != nil {
			t.Errorf("Remove = %v, %v, want true", had, err)
		}
		if _, err := os.Stat(killed); err == nil {
			t.Errorf("%s is there", killed)
		}
		for _, dir := range []string{running, other} {
			if _, err := os.Stat(dir); err != nil {
				t.Error(err)
			}
		}
		if had, err := p.Remove(t.Context()); had || err != nil {
			t.Errorf("the second Remove = %v, %v, want false", had, err)
		}
	}
}

func TestKeepStoppedSaysWhoRestores(t *testing.T) {
	p := profile(t)
	keep(t, p)
	release, err := p.KeepStopped(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("cluster test is being restored by process %d, in %s; nothing was changed", os.Getpid(), p.DataDir)
	if err := p.Unrecorded(); err == nil || err.Error() != want {
		t.Errorf("Unrecorded during a restore: %v, want %s", err, want)
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := p.KeepStopped(t.Context()); err == nil || err.Error() != want {
			t.Errorf("a second restore: %v, want %s", err, want)
		}
		if _, err := p.Remove(t.Context()); err == nil || err.Error() != want {
			t.Errorf("Remove during a restore: %v, want %s", err, want)
		}
	})
	release()
	if release, err = p.KeepStopped(t.Context()); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := os.Stat(p.restoreFile()); err == nil {
		t.Error("the lock file is there after the restore")
	}
}

func TestPurgeRefusesWhatIsNoCluster(t *testing.T) {
	p := profile(t)
	if holds, err := p.Holds(); holds || err != nil {
		t.Errorf("Holds without a directory = %v, %v", holds, err)
	}
	if err := os.MkdirAll(filepath.Join(p.DataDir, "photos"), 0o700); err != nil {
		t.Fatal(err)
	}
	if holds, err := p.Holds(); holds || err == nil {
		t.Errorf("Holds of a directory with photos = %v, %v, want an error", holds, err)
	}
	if _, err := p.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing was removed") {
		t.Errorf("Remove of a directory with photos = %v", err)
	}
	if err := p.Keep(Settings{}); err != nil {
		t.Fatal(err)
	}
	if holds, err := p.Holds(); !holds || err != nil {
		t.Errorf("Holds = %v, %v, want true", holds, err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := self.Wait(ctx); !errors.Is(err, gone) {
		t.Errorf("Wait = %v, want the cause", err)
	}
	if err := (Process{PID: self.PID, Start: self.Start + 1}).Wait(t.Context()); err != nil {
		t.Errorf("Wait for a process that is gone = %v", err)
	}
}

func TestClustersThatStartTogetherChooseDifferentNetworks(t *testing.T) {
	var one, other Claims
	defer one.Release()
	defer other.Release()
	first, err := FreeNetworks([]bool{false}, nil, nil, &one)
	if err != nil {
		t.Fatal(err)
	}
	second, err := FreeNetworks([]bool{false}, nil, nil, &other)
	if err != nil {
		t.Fatal(err)
	}
	if first.Pods == second.Pods || first.Services == second.Services {
		t.Errorf("both chose from %v and %v", first, second)
	}
	one.Release()
	if again, err := FreeNetworks([]bool{false}, nil, nil, &one); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("after the release: %v, %v, want %v", again, err, first)
	}
}

func TestContainerRuntimeIsKeptAndTakenBack(t *testing.T) {
	p := Profile{Name: "x", DataDir: t.TempDir(), RunDir: t.TempDir()}
	const endpoint = "unix:///run/containerd/containerd.sock"
	settle := func(asked Settings) Settings {
		t.Helper()
		asked.Pods, asked.Services = pair("10.1.0.0/16"), pair("10.2.0.0/16")
		s, err := p.Settle(asked, nil)
		if err == nil {
			err = p.Keep(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, step := range []struct{ asked, want string }{{endpoint, endpoint}, {"", endpoint}, {NoRuntimeEndpoint, ""}, {"", ""}} {
		static := strings.TrimPrefix(step.asked, "unix://")
		if s := settle(Settings{StaticPodPath: static}); s.StaticPodPath != strings.TrimPrefix(step.want, "unix://") {
			t.Errorf("asked for static pods in %q: %q", static, s.StaticPodPath)
		}
		if s := settle(Settings{RuntimeEndpoint: step.asked, KubeletConfig: step.asked}); s.RuntimeEndpoint != step.want || s.KubeletConfig != step.want {
			t.Errorf("asked for %q: %q and %q, want %q", step.asked, s.RuntimeEndpoint, s.KubeletConfig, step.want)
		}
	}
	for _, bad := range []Settings{{RuntimeEndpoint: "containerd"}, {RuntimeEndpoint: endpoint, SimulatedNodes: 1}} {
		if _, err := p.Settle(bad, nil); err == nil || !strings.Contains(err.Error(), "--container-runtime-endpoint: must") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if !(Runtime{Endpoint: endpoint}).Alive() || (Runtime{}).Alive() {
		t.Error("pods in a runtime of others may be running, those of no runtime may not")
	}
}
