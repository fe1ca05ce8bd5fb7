package nft_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

func TestSettleWaitsForTheQueue(t *testing.T) {
	w := newWorld(t)
	pod, n := w.nodes[0].pods[0], w.nodes[0]
	both(func(v6 bool) {
		r := proxy.Rule{
			Door:     proxy.Door{Address: clusterIP(v6, 1), Protocol: corev1.ProtocolTCP, Port: port},
			Backends: backends(v6, pod), Masquerade: proxy.MasqueradeForeign,
		}
		w.start(r)
		var l net.Listener
		pod.do(func() {
			var err error
			l, err = net.Listen("tcp", r.Backends[0].String())
			w.must(err)
		})
		defer l.Close()
		from := w.nodes[0].pods[1]
		settle := func(limit time.Duration) bool { // whether it settled by itself
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			n.do(func() { n.kernel.Settle(ctx) })
			return ctx.Err() == nil
		}
		answer := func() {
			c, err := l.Accept()
			w.must(err)
			_, err = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
			w.must(err)
			t.Cleanup(func() { c.Close() })
		}
		// One that was answered long ago is none to wait for.
		old, err := from.dial(corev1.ProtocolTCP, netip.AddrPortFrom(r.Address, port))
		w.must(err)
		defer old.Close()
		answer()
		_, err = old.Read(make([]byte, 100))
		w.must(err)
		if !settle(time.Minute) {
			t.Error("nothing was taken out, and it did not settle")
		}

		queued, err := from.dial(corev1.ProtocolTCP, netip.AddrPortFrom(r.Address, port))
		w.must(err)
		defer queued.Close()
		_, err = queued.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		w.must(err)
		start := time.Now()
		w.update(proxy.Change{Was: r, Is: proxy.Rule{Door: r.Door}})
		if settle(patience/5) && time.Since(start) < time.Second {
			t.Error("it settled while a connection stood in the queue")
		}
		answer()
		if !settle(time.Minute) {
			t.Error("it did not settle after the answer")
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
		// Nobody answers this one, so a second has to do.
		w.update(proxy.Change{Was: proxy.Rule{Door: r.Door}, Is: r})
		silent, err := from.dial(corev1.ProtocolTCP, netip.AddrPortFrom(r.Address, port))
		w.must(err)
		defer silent.Close()
		start = time.Now()
		w.update(proxy.Change{Was: r})
		if !settle(time.Minute) || time.Since(start) < time.Second {
			t.Errorf("it settled after %s, want a second", time.Since(start))
		}
	})
}

// TestSettleHearsOfConnections takes a server out again and again. After the first times Settle does not read all
// connections any more, and waits for the same ones all the same.
func TestSettleHearsOfConnections(t *testing.T) {
	w := newWorld(t)
	pod, from, n := w.nodes[0].pods[0], w.nodes[0].pods[1], w.nodes[0]
	both(func(v6 bool) {
		r := proxy.Rule{
			Door:     proxy.Door{Address: clusterIP(v6, 1), Protocol: corev1.ProtocolTCP, Port: port},
			Backends: backends(v6, pod), Masquerade: proxy.MasqueradeForeign,
		}
		w.start(r)
		var l net.Listener
		pod.do(func() {
			var err error
			l, err = net.Listen("tcp", r.Backends[0].String())
			w.must(err)
		})
		defer l.Close()
		settle := func(limit time.Duration) bool { // whether it settled by itself
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			n.do(func() { n.kernel.Settle(ctx) })
			return ctx.Err() == nil
		}
		connect := func() net.Conn {
			c, err := from.dial(corev1.ProtocolTCP, netip.AddrPortFrom(r.Address, port))
			w.must(err)
			return c
		}
		takeOut := func() { w.update(proxy.Change{Was: r, Is: proxy.Rule{Door: r.Door}}) }
		putBack := func() { w.update(proxy.Change{Was: proxy.Rule{Door: r.Door}, Is: r}) }
		accept := func() net.Conn {
			c, err := l.Accept()
			w.must(err)
			return c
		}

		heard := false
		for try := 0; try < 20 && !heard; try++ {
			// Nobody answers this one, so this takes a second, after which all that is young began
			// while it listened, if it did.
			listened := n.kernel.Listening()
			silent := connect()
			takeOut()
			if !settle(time.Minute) {
				t.Fatal("it did not settle by itself")
			}
			accept().Close()
			silent.Close()
			putBack()

			answered, queued := connect(), connect()
			first, second := accept(), net.Conn(nil)
			_, err := first.Write([]byte("hello"))
			w.must(err)
			_, err = answered.Read(make([]byte, 5))
			w.must(err)
			before, start := n.kernel.ReadAll(), time.Now()
			takeOut()
			if settle(patience/5) && time.Since(start) < time.Second {
				t.Error("it settled while a connection stood in the queue")
			}
			second = accept()
			_, err = second.Write([]byte("hello"))
			w.must(err)
			if !settle(time.Minute) {
				t.Error("it did not settle after the answer")
			}
			// On a slow machine it may have ceased to listen.
			heard = listened && n.kernel.Listening() && before.Equal(n.kernel.ReadAll())
			for _, c := range []net.Conn{answered, queued, first, second} {
				c.Close()
			}
			putBack()
		}
		if !heard {
			t.Error("it read all connections each time")
		}
		n.do(func() { w.must(n.kernel.Close()) })
		if n.kernel.Listening() {
			t.Error("it listens after its end")
		}
	})
}
