package hostaddresses_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/hostaddresses"
	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/internal/run"
)

func addBridge(t *testing.T, name string) netlink.Link {
	t.Helper()
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

func addAddress(t *testing.T, link netlink.Link, text string) {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	if err == nil {
		err = netlink.AddrAdd(link, a)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestFollow(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		own, other := addBridge(t, "own"), addBridge(t, "other")
		addAddress(t, own, "198.51.100.1/24")
		addAddress(t, other, "192.0.2.10/24")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan []netip.Addr)
		g := run.NewGroup(ctx, 0)
		g.Go(func(ctx context.Context) {
			err := hostaddresses.Follow(ctx, "own", func(all []netip.Addr) {
				select {
				case got <- all:
				case <-ctx.Done():
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
		await := func(want string) {
			t.Helper()
			for {
				select {
				case all := <-got:
					if fmt.Sprint(all) == want {
						return
					}
				case <-t.Context().Done():
					t.Fatalf("addresses did not become %s", want)
				}
			}
		}
		await("[192.0.2.10]")
		addAddress(t, own, "198.51.100.2/24")
		addAddress(t, other, "2001:db8::1/64")
		await("[192.0.2.10 2001:db8::1]")
		if err := netlink.LinkDel(other); err != nil {
			t.Fatal(err)
		}
		await("[]")
		cancel()
		g.Wait()
	})
}

func TestFollowGateways(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		link := addBridge(t, "own")
		addAddress(t, link, "192.0.2.10/24")
		addAddress(t, link, "2001:db8::1/64")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan []netip.Addr)
		g := run.NewGroup(ctx, 0)
		g.Go(func(ctx context.Context) {
			err := hostaddresses.FollowGateways(ctx, func(all []netip.Addr) {
				select {
				case got <- all:
				case <-ctx.Done():
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
		await := func(want string) {
			t.Helper()
			for {
				select {
				case all := <-got:
					if fmt.Sprint(all) == want {
						return
					}
				case <-t.Context().Done():
					t.Fatalf("gateways did not become %s", want)
				}
			}
		}
		route := func(to, via string, table int) netlink.Route {
			r := netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(via), Table: table}
			if to != "" {
				_, r.Dst, _ = net.ParseCIDR(to)
			}
			if err := netlink.RouteAdd(&r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		await("[]")
		route("198.51.100.0/24", "192.0.2.7", 0) // no default route
		v4 := route("", "192.0.2.1", 0)
		await("[192.0.2.1]")
		route("::/0", "2001:db8::2", 0)
		await("[192.0.2.1 2001:db8::2]")
		route("", "192.0.2.3", 100)
		await("[192.0.2.1 192.0.2.3 2001:db8::2]")
		if err := netlink.RouteDel(&v4); err != nil {
			t.Fatal(err)
		}
		await("[192.0.2.3 2001:db8::2]")
		cancel()
		g.Wait()
	})
}
