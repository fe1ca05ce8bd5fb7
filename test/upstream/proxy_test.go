package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sampan-io/sampan/cluster/pki"
)

// inside is the variable that marks a process in a network namespace of its own.
const inside = "UPSTREAM_TEST_INSIDE"

// TestOurProxyOnUpstreamsServer has `sampan proxy` as the service proxy of a cluster of upstream's servers, as the user
// that upstream gives to kube-proxy, in both modes.
func TestOurProxyOnUpstreamsServer(t *testing.T) {
	sampan, programs, kubectl := program(t, "SAMPAN"), program(t, "UPSTREAM"), program(t, "KUBECTL")
	if os.Getenv(inside) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", "--net", self, "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=yes")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("in a network namespace of its own: %v\n%s", err, out)
		}
		return
	}
	do := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	do("ip", "link", "set", "lo", "up")
	do("ip", "link", "add", "pods", "type", "bridge")
	do("ip", "addr", "add", "192.0.2.1/24", "dev", "pods")
	do("ip", "link", "set", "pods", "up")
	do("ip", "route", "add", "10.0.0.0/24", "dev", "pods")
	serve := func(name string) int {
		l, err := net.Listen("tcp4", "192.0.2.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		}()
		return l.Addr().(*net.TCPAddr).Port
	}
	p := Start(t, Options{Programs: programs, Nodes: 1})
	file := filepath.Join(t.TempDir(), "all.yaml")
	apply := func(port int, annotations string) {
		t.Helper()
		text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web, annotations: {%s}}
spec: {type: NodePort, clusterIP: 10.0.0.77, ports: [{name: http, port: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [192.0.2.1], conditions: {ready: true}}]
`, annotations, port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		do(kubectl, "--kubeconfig="+p.Kubeconfig, "apply", "-f", file)
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	// hears asks until the answer is the one given.
	hears := func(want string) {
		t.Helper()
		for _, at := range []string{"10.0.0.77", "192.0.2.1:30080", "127.0.0.1:30080"} {
			var heard string
			for end := time.Now().Add(time.Minute); heard != want; {
				if time.Now().After(end) {
					t.Fatalf("%s answers %q, want %q", at, heard, want)
				}
				r, err := client.Get("http://" + at + "/")
				if err != nil {
					heard = err.Error()
					time.Sleep(20 * time.Millisecond) // the proxy, another program, needs the time
					continue
				}
				body, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				heard = string(body)
			}
		}
	}
	apply(serve("first"), "")
	p.run("proxy", sampan, "proxy", "--kubeconfig="+p.kubeconfig("proxy", pki.Subject{CommonName: "system:kube-proxy"}), "--hostname-override=node-0")
	hears("first")

	// What is in a network of cluster IPs and no Service is refused, as the ServiceCIDRs of the cluster say now.
	refused := func(at string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // as above
			c, err := net.DialTimeout("tcp", at, time.Second)
			if errors.Is(err, syscall.ECONNREFUSED) {
				return
			}
			if err == nil {
				_ = c.Close()
			}
			if time.Now().After(end) {
				t.Fatalf("connecting to %s: %v, want that it is refused", at, err)
			}
		}
	}
	refused("10.0.0.77:81")
	do("ip", "route", "add", "10.99.0.0/24", "dev", "pods")
	more := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(more, []byte("apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: more}\nspec: {cidrs: [10.99.0.0/24]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(kubectl, "--kubeconfig="+p.Kubeconfig, "apply", "-f", more)
	refused("10.99.0.9:80")
	hears("first")

	apply(serve("second"), "")
	hears("second")
	apply(serve("third"), "sampan.dev/proxy-mode: userspace")
	hears("third")

	// A trace knows the plan, and says that it knows no more.
	traced := do(sampan, "--kubeconfig="+p.Kubeconfig, "service", "trace", "web:http")
	for _, want := range []string{
		"default/web leads from 10.0.0.77:80/TCP to 1 endpoint; what answers is not known\n",
		"note: what the node has and what answers is not known: ",
		"in userspace mode", "192.0.2.1:", "not tried",
	} {
		if !strings.Contains(traced, want) {
			t.Errorf("the trace lacks %q:\n%s", want, traced)
		}
	}
}
