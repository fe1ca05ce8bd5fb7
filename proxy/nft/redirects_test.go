package nft_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/nft"
)

const bridgeAddress = "10.1.0.1"

// oneHost makes what a node has: a bridge with an address, and a route for the
// service network through it.
func oneHost(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
	must(netlink.LinkAdd(br))
	addr, err := netlink.ParseAddr(bridgeAddress + "/24")
	must(err)
	must(netlink.AddrAdd(br, addr))
	must(netlink.LinkSetUp(br))
	_, services, err := net.ParseCIDR("10.2.0.0/16")
	must(err)
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: br.Attrs().Index, Dst: services, Scope: netlink.SCOPE_LINK}))
}

// listen serves a name on the bridge, as the forwarder does.
func listen(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", bridgeAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(context.Context) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); g.Wait() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// fetch returns what an address answers, or the error of the connection.
func fetch(addr string) (string, error) {
	c, err := net.DialTimeout("tcp4", addr, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	return string(b), err
}

func tables(t *testing.T) []string {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	ts, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range ts {
		names = append(names, x.Name)
	}
	return names
}

func TestRedirectsLeadToTheSocket(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		oneHost(t)
		r, err := nft.NewRedirects(nft.RedirectOptions{Table: "sampan-test", ServiceCIDR: netip.MustParsePrefix("10.2.0.0/16")})
		if err != nil {
			t.Fatal(err)
		}
		to := func(addr string, port uint16, at netip.AddrPort) proxy.Redirect {
			d := proxy.Redirect{Protocol: corev1.ProtocolTCP, Port: port, To: at}
			if addr != "" {
				d.Address = netip.MustParseAddr(addr)
			}
			return d
		}
		a, b := to("10.2.0.1", 80, listen(t, "a")), to("10.2.0.1", 81, listen(t, "b"))
		node := to("", 30080, a.To)
		expect := func(addr, want string) {
			t.Helper()
			if got, err := fetch(addr); got != want || err != nil {
				t.Errorf("%s answers %q, %v, want %q", addr, got, err, want)
			}
		}
		refused := func(addr string) {
			t.Helper()
			if got, err := fetch(addr); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s answers %q, %v, want connection refused", addr, got, err)
			}
		}

		for range 2 { // the second one finds what an earlier process left
			if err := r.Replace([]proxy.Redirect{a, node}); err != nil {
				t.Fatal(err)
			}
		}
		expect("10.2.0.1:80", "a")
		expect(bridgeAddress+":30080", "a")
		refused("10.2.0.1:81")
		refused("10.2.7.7:80")

		if err := r.Update([]proxy.Redirect{a}, []proxy.Redirect{b}); err != nil {
			t.Fatal(err)
		}
		expect("10.2.0.1:81", "b")
		refused("10.2.0.1:80")

		// A change and its opposite in one step: the socket behind an address moves.
		moved := b
		moved.To = a.To
		if err := r.Update([]proxy.Redirect{b}, []proxy.Redirect{moved}); err != nil {
			t.Fatal(err)
		}
		expect("10.2.0.1:81", "a")

		if err := r.Update([]proxy.Redirect{b, to("10.2.3.3", 1, a.To)}, nil); err == nil {
			t.Error("removing what is not there succeeded; the proxy would not know that it is out of step")
		}
		expect("10.2.0.1:81", "a") // and it changed nothing

		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if left := tables(t); len(left) != 0 {
			t.Errorf("tables %q are left", left)
		}
		if err := nft.Remove("sampan-test"); err != nil {
			t.Errorf("removing a table that is gone: %v", err)
		}
	})
}

func TestManyRedirectsGoInOneStep(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		oneHost(t)
		r, err := nft.NewRedirects(nft.RedirectOptions{Table: "sampan-test"})
		if err != nil {
			t.Fatal(err)
		}
		at := listen(t, "x")
		var all []proxy.Redirect
		for i := range 20_000 {
			a := netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
			all = append(all, proxy.Redirect{Address: a, Protocol: corev1.ProtocolTCP, Port: 80, To: at})
		}
		if err := r.Replace(all); err != nil {
			t.Fatal(err)
		}
		for _, d := range []proxy.Redirect{all[0], all[len(all)-1]} {
			if got, err := fetch(fmt.Sprintf("%s:80", d.Address)); got != "x" || err != nil {
				t.Errorf("%s answers %q, %v", d.Address, got, err)
			}
		}
	})
}

func TestOtherTablesAreLeftAlone(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		c, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		c.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyIPv4})
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		r, err := nft.NewRedirects(nft.RedirectOptions{Table: "sampan-test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Replace(nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if left := strings.Join(tables(t), " "); left != "foreign" {
			t.Errorf("tables %q are left, want foreign alone", left)
		}
	})
}

func TestWithoutRootTheErrorSaysSo(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		// A process of another user has no capabilities here.
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestReplaceAsNobody$", "-test.count=1", "-test.v")
		cmd.Env = []string{asNobody + "=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "this needs root (CAP_NET_ADMIN)") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

const asNobody = "SAMPAN_NFT_AS_NOBODY"

// TestReplaceAsNobody is the process that TestWithoutRootTheErrorSaysSo starts;
// on its own, as root, it has a table to make and no fault to show.
func TestReplaceAsNobody(t *testing.T) {
	r, err := nft.NewRedirects(nft.RedirectOptions{Table: "sampan-test"})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(asNobody) == "" {
		nstest.Run(t, func(t *testing.T) {
			if err := r.Replace(nil); err != nil {
				t.Error(err)
			}
		})
		return
	}
	if err := r.Replace(nil); err == nil {
		t.Error("nobody may change nftables")
	} else {
		t.Log(err)
	}
}
