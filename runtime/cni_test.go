package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plugins is where Debian's package containernetworking-plugins puts its programs.
const plugins = "/usr/lib/cni"

func (n *node) networkReady() (bool, string) {
	n.t.Helper()
	st, err := n.runtime.Status(n.t.Context(), &cri.StatusRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, c := range st.GetStatus().GetConditions() {
		if c.GetType() == cri.NetworkReady {
			return c.GetStatus(), c.GetMessage()
		}
	}
	return false, "no condition"
}

// TestPodsOfPlugins has the plug-ins bridge, host-local and portmap connect pods.
func TestPodsOfPlugins(t *testing.T) {
	if _, err := os.Stat(filepath.Join(plugins, "bridge")); err != nil {
		t.Skip("needs Debian's package containernetworking-plugins")
	}
	n := newNode(t)
	conf, leases := n.path("net.d"), n.path("leases")
	n.flags = append(n.flags, "--cni-conf-dir", conf, "--cni-bin-dir", plugins)
	n.start().withDemo()
	k := n.kit()
	if ready, why := n.networkReady(); ready || !strings.Contains(why, "cni plugin not initialized: no network config found in "+conf) {
		t.Errorf("without a configuration: %t, %s", ready, why)
	}
	if _, err := k.Runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: k.PodConfig("early")}); err == nil || !strings.Contains(err.Error(), "cni plugin not initialized") {
		t.Errorf("a pod without a network: %v", err)
	}

	if err := os.MkdirAll(conf, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "test", "plugins": [
		{"type": "bridge", "bridge": "sptcni", "isGateway": true, "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.97.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		{"type": "tuning", "sysctl": {"net.core.somaxconn": "600"}}]}`, leases)
	if err := os.WriteFile(filepath.Join(conf, "10-test.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if ready, why := n.networkReady(); !ready {
		t.Errorf("with a configuration: %s", why)
	}
	address := func(pod string) string {
		t.Helper()
		st, err := k.Runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
		if err != nil {
			t.Fatal(err)
		}
		return st.GetStatus().GetNetwork().GetIp()
	}
	taken := func() (all []string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(leases, "test", "10.97.*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	config := k.PodConfig("web")
	config.Hostname = "web"
	web := k.Pod(config)
	ip := address(web)
	if !strings.HasPrefix(ip, "10.97.0.") {
		t.Fatalf("the pod has the address %q", ip)
	}
	server, _ := k.ContainerIn(web, config, k.ContainerConfig("web", "serve"))
	other := k.PodConfig("client")
	client := k.Pod(other)
	caller, _ := k.ContainerIn(client, other, k.ContainerConfig("client", "sleep"))
	reach := func() {
		t.Helper()
		var errs string
		for range 200 { // it may not listen yet
			var code int32
			if _, errs, code = k.Exec(caller, "get", "http://"+ip+"/healthz"); code == 0 {
				return
			}
			if st := k.Status(server); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
				t.Fatalf("the web server ended: %v, %s", st, errs)
			}
		}
		t.Fatalf("the web server was not reached: %s", errs)
	}
	reach()
	if hosts, _, _ := k.Exec(server, "read", "/etc/hosts"); !strings.Contains(hosts, ip+"\tweb") {
		t.Errorf("/etc/hosts of the pod is\n%s", hosts)
	}
	if got, _, _ := k.Exec(server, "read", "/proc/sys/net/core/somaxconn"); strings.TrimSpace(got) != "600" {
		t.Errorf("the second plug-in of the list set %q, want 600", got)
	}

	// Pods outlive the runtime, and give their addresses back.
	n.kill()
	n.start()
	k = n.kit()
	reach()
	if got := address(web); got != ip {
		t.Errorf("the address is %s after a restart, want %s", got, ip)
	}
	for _, pod := range []string{web, client} {
		if _, err := k.Runtime.RemovePodSandbox(k.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
			t.Fatal(err)
		}
	}
	if left := taken(); len(left) > 0 {
		t.Errorf("addresses %v are not given back", left)
	}
}
