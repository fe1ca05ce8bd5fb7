package runtime_test

import (
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/runtimetest"
)

// mapped is the configuration of a pod with a port of the host.
func mapped(k *runtimetest.Kit, name string, mappings ...*cri.PortMapping) *cri.PodSandboxConfig {
	p := k.PodConfig(name)
	p.PortMappings = mappings
	return p
}

// led reports whether a connection to a port of the host gets as far as a pod: one without a server refuses it
// as the host does, so the pod has one.
func led(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Host ports as an unmodified kubelet asks for them, over the death of the runtime.
func TestHostPorts(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	const loopback = "127.0.0.1:18080"
	at := &cri.PortMapping{HostIp: "127.0.0.1", HostPort: 18080, ContainerPort: 80}
	config := mapped(k, "web", at, &cri.PortMapping{ContainerPort: 81}) // the second is only information
	web := k.Pod(config)
	server, _ := k.ContainerIn(web, config, k.ContainerConfig("web", "serve"))
	for {
		if _, _, code := k.Exec(server, "get", "http://localhost/healthz"); code == 0 {
			break
		}
		if st := k.Status(server); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("the web server ended: %v", st)
		}
	}
	if !led(loopback) {
		t.Error("the host port does not answer")
	}

	// The request of a second pod is refused and names the owner, and leaves nothing behind.
	refused := func() {
		t.Helper()
		_, err := k.Runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: mapped(k, "thief", at)})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "host port 127.0.0.1:18080/TCP is already used by pod test/web (sandbox "+web) {
			t.Errorf("a second pod with the port: %v", err)
		}
		if list, err := k.Runtime.ListPodSandbox(k.Context(), &cri.ListPodSandboxRequest{}); err != nil || len(list.GetItems()) != 1 {
			t.Errorf("there are the pods %v, %v; want one", list.GetItems(), err)
		}
	}
	refused()
	other := mapped(k, "other", &cri.PortMapping{HostIp: "127.0.0.2", HostPort: 18080, ContainerPort: 80}, &cri.PortMapping{HostPort: 18080, ContainerPort: 80, Protocol: cri.Protocol_UDP})
	otherPod := k.Pod(other)
	if _, err := k.Runtime.RemovePodSandbox(k.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: otherPod}); err != nil {
		t.Fatal(err)
	}
	// In the host's network there is nothing to map.
	host := mapped(k, "host", at)
	host.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	hostPod := k.Pod(host)
	if _, err := k.Runtime.RemovePodSandbox(k.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: hostPod}); err != nil {
		t.Fatal(err)
	}

	n.kill()
	if !led(loopback) {
		t.Error("without the runtime the host port does not answer")
	}
	n.start()
	k = n.kit()
	if !led(loopback) {
		t.Error("after the death of the runtime the host port does not answer")
	}
	refused()
	for range 2 {
		if _, err := k.Runtime.StopPodSandbox(k.Context(), &cri.StopPodSandboxRequest{PodSandboxId: web}); err != nil {
			t.Fatal(err)
		}
	}
	if led(loopback) {
		t.Error("the host port of a stopped pod answers")
	}
	// It is the next one's, although the stopped pod is still there.
	k.Pod(mapped(k, "next", at))
}

func TestHostPortsAreChecked(t *testing.T) {
	n := newNode(t).start()
	k := n.kit()
	_, err := k.Runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: mapped(k, "wrong",
		&cri.PortMapping{HostPort: 70000, ContainerPort: 80},
		&cri.PortMapping{HostPort: 80, HostIp: "somewhere", Protocol: 7},
	)})
	for _, want := range []string{
		"port_mappings[0].host_port: want a port from 1 to 65535, got 70000", "port_mappings[1].container_port: want a port from 1 to 65535, got 0",
		`port_mappings[1].host_ip: want an IP address, got "somewhere"`, "port_mappings[1].protocol: want TCP, UDP or SCTP, got 7",
	} {
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want it to say %s", err, want)
		}
	}
}

// TestPortOfStreamsIsNoHostPort asks for the port at which the runtime serves exec, before and after a new start of it, and has a new start
// find the port of a pod in use.
func TestPortOfStreamsIsNoHostPort(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	config := mapped(k, "web", &cri.PortMapping{HostPort: 18081, ContainerPort: 80})
	server, _ := k.ContainerIn(k.Pod(config), config, k.ContainerConfig("web", "serve"))
	refused := func() {
		t.Helper()
		res, err := k.Runtime.Exec(k.Context(), &cri.ExecRequest{ContainerId: server, Cmd: []string{"version"}, Stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(res.GetUrl())
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.ParseInt(u.Port(), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		for _, ip := range []string{"", "127.0.0.1", "10.1.2.3", "::"} {
			_, err := k.Runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: mapped(k, "thief",
				&cri.PortMapping{HostIp: ip, HostPort: int32(port), ContainerPort: 80})})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), u.Port()+"/TCP is a port of the container runtime itself") {
				t.Errorf("a pod with port %d at %q: %v", port, ip, err)
			}
		}
		if list, err := k.Runtime.ListPodSandbox(k.Context(), &cri.ListPodSandboxRequest{}); err != nil || len(list.GetItems()) != 1 {
			t.Errorf("there are the pods %v, %v; want one", list.GetItems(), err)
		}
	}
	refused()
	n.kill()
	// The kernel chooses no other port for the next one than that of the pod.
	const choice = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(choice)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(choice, before, 0) })
	if err := os.WriteFile(choice, []byte("18081 18081"), 0); err != nil {
		t.Fatal(err)
	}
	n.start()
	k = n.kit()
	if out, _, code := k.Exec(server, "get", "http://localhost/healthz"); code != 0 {
		t.Errorf("exec after the new start: exit code %d, %s", code, out)
	}
	refused()
}
