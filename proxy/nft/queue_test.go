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

// A queue is a server on a pod of the first node that accepts connections only when accept is
// called, and a frontend that leads to it.
type queue struct {
	*world
	rule     proxy.Rule
	listener net.Listener
}

// queue starts a server behind the rules of all nodes. Who calls it closes the listener.
func (w *world) queue(v6 bool) *queue {
	w.t.Helper()
	pod := w.nodes[0].pods[0]
	q := &queue{world: w, rule: proxy.Rule{
		Frontend: proxy.Frontend{Address: clusterIP(v6, 1), Protocol: corev1.ProtocolTCP, Port: port},
		Backends: backends(v6, pod), Masquerade: proxy.MasqueradeForeign,
	}}
	w.start(q.rule)
	pod.do(func() {
		var err error
		q.listener, err = net.Listen("tcp", q.rule.Backends[0].String())
		w.must(err)
	})
	return q
}

// connect makes a connection from the other pod of the node.
func (q *queue) connect() net.Conn {
	q.t.Helper()
	c, err := q.nodes[0].pods[1].dial(corev1.ProtocolTCP, netip.AddrPortFrom(q.rule.Address, port))
	q.must(err)
	return c
}

func (q *queue) accept() net.Conn {
	q.t.Helper()
	c, err := q.listener.Accept()
	q.must(err)
	return c
}

// takeOut takes the server out of the frontend, which stays.
func (q *queue) takeOut() {
	q.update(proxy.Change{Was: q.rule, Is: proxy.Rule{Frontend: q.rule.Frontend}})
}

func (q *queue) putBack() {
	q.update(proxy.Change{Was: proxy.Rule{Frontend: q.rule.Frontend}, Is: q.rule})
}

// settle reports whether the kernel of the node settles by itself within limit.
func (q *queue) settle(limit time.Duration) bool {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(q.t.Context(), limit)
	defer cancel()
	n := q.nodes[0]
	n.do(func() { n.kernel.Settle(ctx) })
	return ctx.Err() == nil
}

func TestSettleWaitsForTheQueue(t *testing.T) {
	w := newWorld(t)
	both(func(v6 bool) {
		q := w.queue(v6)
		defer q.listener.Close()
		answer := func() {
			c := q.accept()
			_, err := c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
			w.must(err)
			t.Cleanup(func() { c.Close() })
		}
		// One that was answered long ago is none to wait for.
		old := q.connect()
		defer old.Close()
		answer()
		_, err := old.Read(make([]byte, 100))
		w.must(err)
		if !q.settle(time.Minute) {
			t.Error("nothing was taken out, and it did not settle")
		}

		queued := q.connect()
		defer queued.Close()
		_, err = queued.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		w.must(err)
		start := time.Now()
		q.takeOut()
		if q.settle(patience/5) && time.Since(start) < time.Second {
			t.Error("it settled while a connection stood in the queue")
		}
		answer()
		if !q.settle(time.Minute) {
			t.Error("it did not settle after the answer")
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
		// The server never accepts this one, so Settle waits for a second.
		q.putBack()
		silent := q.connect()
		defer silent.Close()
		start = time.Now()
		w.update(proxy.Change{Was: q.rule})
		if !q.settle(time.Minute) || time.Since(start) < time.Second {
			t.Errorf("it settled after %s, want a second", time.Since(start))
		}
	})
}

// TestSettleDoesNotTrustAnotherProcess has another process take over whose rules have no servers: which ones
// were there it does not know.
func TestSettleDoesNotTrustAnotherProcess(t *testing.T) {
	w := newWorld(t)
	q := w.queue(false)
	defer q.listener.Close()
	queued := q.connect()
	defer queued.Close()
	start := time.Now()
	w.start(proxy.Rule{Frontend: q.rule.Frontend})
	if q.settle(patience/5) && time.Since(start) < time.Second {
		t.Error("it settled while a connection stood in the queue")
	}
	if !q.settle(time.Minute) || time.Since(start) < time.Second {
		t.Errorf("it settled after %s, want a second", time.Since(start))
	}
}
