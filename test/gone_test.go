package test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/clustertest"
)

// holding makes [TestHoldACluster] hold one: "real" or "simulated".
const holding = "SAMPAN_TEST_HOLDING"

// TestHoldACluster is the test that is killed below. By itself it does nothing.
func TestHoldACluster(t *testing.T) {
	kind := os.Getenv(holding)
	if kind == "" {
		return
	}
	c := clustertest.New(t, clustertest.Options{Program: sampanProgram, Real: kind == "real"})
	fmt.Printf("holding %s %d %s\n", c.Name, c.PID(), filepath.Dir(c.Kubeconfig))
	<-t.Context().Done()
}

func TestAClusterIsGoneWhenItsTestIsKilled(t *testing.T) {
	kinds := []string{"simulated"}
	if os.Getuid() == 0 {
		kinds = append(kinds, "real")
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestHoldACluster$")
			cmd.Env = append(os.Environ(), holding+"="+kind, "TMPDIR="+t.TempDir())
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var name, data string
			var pid int
			line, err := bufio.NewReader(out).ReadString('\n')
			if _, scanErr := fmt.Sscanf(line, "holding %s %d %s", &name, &pid, &data); err != nil || scanErr != nil {
				t.Fatalf("the test said %q: %v", line, errors.Join(err, scanErr))
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(fd) }()
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			if err := awaitEnd(fd); err != nil {
				t.Fatal(err)
			}
			left, err := leftOf(name)
			if err != nil || len(left) > 0 {
				t.Errorf("this is left of the cluster (%v):\n%s", err, strings.Join(left, "\n"))
			}
			if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its data are still in %s (%v)", data, err)
			}
		})
	}
}

// TestDownLeavesTheHostAsItWas compares everything that a cluster with pods and
// services has touched.
func TestDownLeavesTheHostAsItWas(t *testing.T) {
	if os.Getuid() != 0 {
		return // there are no real nodes
	}
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	for forwarding, family := range map[string]string{"0": "dual", "1": "ipv4"} {
		t.Run("ip_forward "+forwarding+" "+family, func(t *testing.T) {
			for _, file := range []string{ipForward, ip6Forward} {
				if err := os.WriteFile(file, []byte(forwarding), 0); err != nil {
					t.Fatal(err)
				}
			}
			sampan := func(args ...string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), sampanProgram, append(args, "--name=host", "--kubeconfig="+filepath.Join(t.TempDir(), "config"))...)
				if args[0] != "up" && args[0] != "down" {
					cmd.Args = append(cmd.Args, "--kubeconfig=/var/lib/sampan/host/admin.kubeconfig")
				}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("sampan %s: %v\n%s", strings.Join(args, " "), err, out)
				}
			}
			before := host(t)
			sampan("up", "--ip-family="+family)
			sampan("create", "-f", filepath.Join(examples, "web.yaml"))
			sampan("create", "-f", filepath.Join(examples, "build-job.yaml"))
			sampan("wait", "rc/web", "--for=ready", "--timeout=60s")
			sampan("wait", "job/build", "--for=running", "--timeout=60s")
			during := host(t)
			sampan("down", "--purge")
			after := host(t)
			if slices.Equal(before, during) {
				t.Error("a running cluster shows nowhere: this test looks at the wrong things")
			}
			if !slices.Equal(before, after) {
				t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}

// TestForwardingStaysWhileAClusterNeedsIt has two clusters with real nodes on one host.
// The first that goes leaves the other one's pods their way out.
func TestForwardingStaysWhileAClusterNeedsIt(t *testing.T) {
	if os.Getuid() != 0 {
		return // there are no real nodes
	}
	if err := os.WriteFile(ipForward, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	forwarding := func(step, want string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), sampanProgram, append(args, "--kubeconfig="+config)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step, err, out)
		}
		if got, err := os.ReadFile(ipForward); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: ip_forward is %s (%v), want %s", step, got, err, want)
		}
	}
	for _, first := range []string{"one", "two"} {
		second := map[string]string{"one": "two", "two": "one"}[first]
		forwarding("one starts", "1", "up", "--name=one")
		forwarding("two starts", "1", "up", "--name=two")
		forwarding(first+" goes first", "1", "down", "--purge", "--name="+first)
		forwarding(second+" goes", "0", "down", "--purge", "--name="+second)
	}
}

const (
	ipForward  = "/proc/sys/net/ipv4/ip_forward"
	ip6Forward = "/proc/sys/net/ipv6/conf/all/forwarding"
)

// host describes what a node changes: every process of these namespaces, every mount,
// link, address, route and table, the cgroups of clusters, and forwarding.
func host(t *testing.T) []string {
	t.Helper()
	var all []string
	add := func(found []string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	// An empty name is part of every name.
	add(processesOf(""))
	add(mountsOf(""))
	add(linksOf(""))
	add(tablesOf(""))
	add(cgroupsOf("sampan-host"))
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	for _, r := range routes {
		all = append(all, "route "+r.String())
	}
	add(nil, err)
	for _, file := range []string{"/var/lib/sampan", "/run/sampan"} {
		found, err := filepath.Glob(file + "/*")
		add(found, err)
	}
	for _, file := range []string{ipForward, ip6Forward} {
		forwarding, err := os.ReadFile(file)
		add([]string{file + " " + string(forwarding)}, err)
	}
	return all
}
