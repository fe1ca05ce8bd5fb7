package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A Host is a network namespace.
type Host struct {
	Name string
	IP   [2]netip.Addr // its address of IPv4, and of IPv6; unset if it has none

	ns    netns.NsHandle
	first chan func() // run by the thread that made the namespace
	jobs  chan func() // run by any of its others
	done  sync.WaitGroup

	udpFlows atomic.Uint32 // that its clients have had: see nextPort
}

// NewHost returns a host with nothing but loopback.
func NewHost(name string) (*Host, error) {
	h := &Host{Name: name, first: make(chan func()), jobs: make(chan func())}
	made := make(chan error)
	h.done.Go(func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends with the goroutine
		var err error
		if h.ns, err = netns.New(); err != nil {
			made <- fmt.Errorf("making the network namespace of %s: %w", name, err)
			return
		}
		made <- h.prepare()
		for f := range h.first {
			f()
		}
	})
	if err := <-made; err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Host) prepare() error {
	// Skip duplicate address detection: addresses are usable at once and known to be unique.
	err := errors.Join(sysctl("net/ipv6/conf/all/accept_dad", "0"), sysctl("net/ipv6/conf/default/accept_dad", "0"))
	return errors.Join(err, up("lo"))
}

// Close lets the namespace go, when nothing of the host runs any more but programs:
// they are killed.
func (h *Host) Close() {
	close(h.first)
	close(h.jobs)
	h.done.Wait()
	_ = h.ns.Close() // only a handle
}

// Do runs f on a thread that is in the namespace; what f starts on other threads is not.
func (h *Host) Do(f func() error) error {
	err := make(chan error, 1)
	h.Go(func() { err <- f() })
	return <-err
}

// Go is as Do, but does not wait.
func (h *Host) Go(f func()) {
	select {
	case h.jobs <- f:
		return
	default: // all threads are at work
	}
	h.done.Go(func() {
		runtime.LockOSThread() // as in NewHost
		if err := netns.Set(h.ns); err != nil {
			panic(fmt.Sprintf("%s: entering a namespace that we made: %v", h.Name, err))
		}
		f()
		for f := range h.jobs {
			f()
		}
	})
}

// Start starts a program in the namespace. It is killed when this process ends, or
// when the host is closed.
func (h *Host) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// The signal comes when the thread ends that started the program.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	err := make(chan error)
	h.first <- func() { err <- cmd.Start() }
	return <-err
}

// Output runs a program in the namespace and returns all that it printed.
func (h *Host) Output(program string, args ...string) (out string, err error) {
	err = h.Do(func() error {
		b, err := exec.Command(program, args...).CombinedOutput()
		out = string(b)
		return err
	})
	return out, err
}

// Sysctl sets a parameter of the namespace.
func (h *Host) Sysctl(name, value string) error {
	return h.Do(func() error { return sysctl(name, value) })
}

func sysctl(name, value string) error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }

// Listen listens for TCP at an address of the host; unset stands for all.
func (h *Host) Listen(at netip.AddrPort) (l *net.TCPListener, err error) {
	err = h.Do(func() error {
		l, err = net.ListenTCP("tcp", tcp(at))
		return err
	})
	return l, err
}

func tcp(at netip.AddrPort) *net.TCPAddr {
	if !at.Addr().IsValid() {
		return &net.TCPAddr{Port: int(at.Port())}
	}
	return net.TCPAddrFromAddrPort(at)
}

// ListenUDP is as Listen.
func (h *Host) ListenUDP(at netip.AddrPort) (c *net.UDPConn, err error) {
	err = h.Do(func() error {
		to := &net.UDPAddr{Port: int(at.Port())}
		if at.Addr().IsValid() {
			to = net.UDPAddrFromAddrPort(at)
		}
		c, err = net.ListenUDP("udp", to)
		return err
	})
	return c, err
}

// Bridge makes a bridge.
func (h *Host) Bridge(name string) error {
	return h.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			return fmt.Errorf("%s: making bridge %s: %w", h.Name, name, err)
		}
		return up(name)
	})
}

// Address gives a link an address.
func (h *Host) Address(link string, p netip.Prefix) error {
	return h.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(p.String())
		if err != nil {
			return err
		}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return fmt.Errorf("%s: address %s of %s: %w", h.Name, p, link, err)
		}
		return nil
	})
}

// Route sends packets to a network by a neighbour; to 0.0.0.0/0 and ::/0 all.
func (h *Host) Route(to netip.Prefix, via netip.Addr) error {
	return h.Do(func() error {
		_, dst, err := net.ParseCIDR(to.String())
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: via.AsSlice()}); err != nil {
			return fmt.Errorf("%s: route to %s by %s: %w", h.Name, to, via, err)
		}
		return nil
	})
}

// Cable connects a bridge of a host with a new link of another one.
func (h *Host) Cable(bridge, port string, to *Host, link string) error {
	err := h.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: link, PeerNamespace: netlink.NsFd(int(to.ns))}); err != nil {
			return err
		}
		l, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		br, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		// A pod may reach itself through its node.
		return errors.Join(netlink.LinkSetMaster(l, br), netlink.LinkSetHairpin(l, true), up(port))
	})
	if err == nil {
		err = to.Do(func() error { return up(link) })
	}
	if err != nil {
		return fmt.Errorf("a cable from %s of %s to %s: %w", bridge, h.Name, to.Name, err)
	}
	return nil
}

func up(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}
