package nft

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// TestWatchReportsARemovedTable removes the table in the ways of other programs, and changes it in
// our own, which must not be reported.
func TestWatchReportsARemovedTable(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		k, err := New(Options{Table: "ours"})
		if err != nil {
			t.Fatal(err)
		}
		lost := make(chan struct{}, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		g := run.NewGroup(ctx, 0)
		ended := make(chan error, 1)
		g.Go(func(ctx context.Context) {
			ended <- k.Watch(ctx, func() { lost <- struct{}{} })
		})
		for k.watch.Load() == nil {
			time.Sleep(time.Millisecond) // there is no event for Watch having started
		}
		rule := func(n byte) proxy.Rule {
			return proxy.Rule{
				Frontend: proxy.Frontend{Address: netip.AddrFrom4([4]byte{10, 2, 0, n}), Protocol: corev1.ProtocolTCP, Port: 80},
				Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.0.1:8080")},
			}
		}
		ours := func() {
			t.Helper()
			if err := k.Replace(t.Context(), []proxy.Rule{rule(1)}); err != nil {
				t.Fatal(err)
			}
			if err := k.Update(t.Context(), []proxy.Change{{Is: rule(2)}, {Was: rule(1)}}); err != nil {
				t.Fatal(err)
			}
		}
		theirs := func(do func(c *nftables.Conn)) {
			t.Helper()
			c, err := nftables.New()
			if err != nil {
				t.Fatal(err)
			}
			do(c)
			if err := c.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		other := &nftables.Table{Name: "theirs", Family: nftables.TableFamilyINet}
		namesake := &nftables.Table{Name: "ours", Family: nftables.TableFamilyIPv4}
		for _, do := range []func(c *nftables.Conn){
			func(c *nftables.Conn) { c.FlushRuleset() },
			func(c *nftables.Conn) { c.DelTable(&nftables.Table{Name: "ours", Family: nftables.TableFamilyINet}) },
		} {
			ours()
			// Changes of other tables, and one that only looks like a loss.
			theirs(func(c *nftables.Conn) { c.AddTable(other); c.AddTable(namesake) })
			theirs(func(c *nftables.Conn) { c.DelTable(other); c.DelTable(namesake) })
			if err := send(k.replacement(nil, false, must(plan(nothing(), nil, k.opts)), k.opts)); err != nil {
				t.Fatal(err)
			}
			if len(lost) > 0 {
				t.Error("the table is said to be lost, and was made anew")
			}
			theirs(do)
			<-lost
		}
		for len(lost) > 0 { // the event of its replacement may come after it was removed again
			<-lost
		}
		// While the watch has left the group: the change finds the table, which is removed right
		// after.
		ours()
		w := k.watch.Load()
		if err := w.conn.LeaveGroup(unix.NFNLGRP_NFTABLES); err != nil {
			t.Fatal(err)
		}
		if err := Remove("ours"); err != nil {
			t.Fatal(err)
		}
		b := newBatch("another") // a change that goes well
		b.addTable()
		if err := k.send(b); err != nil {
			t.Fatal(err)
		}
		<-lost
		ours()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch = %v", err)
		}
		g.Stop()
		if n := len(lost); n > 1 { // twice if the event was received, too
			t.Errorf("the table is said to be lost %d times more", n)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
