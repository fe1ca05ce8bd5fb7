package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

const (
	maxConnections = 128              // at the same time
	maxPipelined   = 32               // questions of one connection that wait for upstream servers
	idle           = 10 * time.Second // until a silent connection is closed (RFC 7766, 6.2.3)
)

// conversations are the open connections. A new one above the limit closes the most idle connection
// of the client that has most, so that no client can keep the others out.
type conversations struct {
	mu   sync.Mutex
	open map[*conversation]bool // guarded by mu
}

// A conversation is a connection, with a sequence of questions.
type conversation struct {
	net.Conn
	from    netip.Addr
	asked   time.Time  // guarded by the mu of the conversations; time of the last question
	writing sync.Mutex // held while an answer is written
}

// begin adds a connection. If there are too many it closes another one, and reports that.
func (all *conversations) begin(c net.Conn) (_ *conversation, closed bool) {
	t := &conversation{Conn: c, asked: time.Now()}
	if at, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		t.from = at.AddrPort().Addr().Unmap()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if closed = len(all.open) >= maxConnections; closed {
		all.closeOne()
	}
	all.open[t] = true
	return t, closed
}

// closeOne closes a connection. mu is held.
func (all *conversations) closeOne() {
	count := map[netip.Addr]int{}
	for t := range all.open {
		count[t.from]++
	}
	var victim *conversation
	for t := range all.open {
		if victim == nil || count[t.from] > count[victim.from] || count[t.from] == count[victim.from] && t.asked.Before(victim.asked) {
			victim = t
		}
	}
	delete(all.open, victim)
	_ = victim.Close()
}

// note records that a question came.
func (all *conversations) note(t *conversation) {
	all.mu.Lock()
	t.asked = time.Now()
	all.mu.Unlock()
}

func (all *conversations) end(t *conversation) {
	all.mu.Lock()
	delete(all.open, t)
	all.mu.Unlock()
	_ = t.Close()
}

// accept serves the connections of a socket until that is closed.
func (s *Server) accept(ctx context.Context, l *net.TCPListener) error {
	// One more: a connection that was closed for a new one may take a moment to end.
	group := run.NewGroup(ctx, maxConnections+1)
	defer group.Stop()
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			// Too many files are open, or the client disconnected.
			s.opts.Log.WarnContext(ctx, "accepting a connection", "err", err)
			if !run.Pause(ctx, 100*time.Millisecond) {
				return nil
			}
			continue
		}
		t, closed := s.talks.begin(c)
		if closed {
			s.count.closed.Inc()
		}
		if !group.Go(func(ctx context.Context) { s.converse(ctx, t) }) {
			s.talks.end(t)
		}
	}
}

// converse answers the questions of a connection: known names at once, others when an upstream
// server has answered, in whatever order (RFC 7766, 6.2.1.1).
func (s *Server) converse(ctx context.Context, t *conversation) {
	defer s.talks.end(t)
	stop := context.AfterFunc(ctx, func() { _ = t.Close() })
	defer stop()
	later := run.NewGroup(ctx, maxPipelined)
	defer later.Stop()
	family := familyOf(t.LocalAddr().(*net.TCPAddr).AddrPort())
	w := newWorker(s, overTCP)
	w.family = family
	var length [2]byte
	for {
		_ = t.SetReadDeadline(time.Now().Add(idle)) // on a closed connection, reading fails
		if _, err := io.ReadFull(t, length[:]); err != nil {
			if errors.Is(err, io.EOF) {
				later.Wait() // the client may have stopped sending, and still listen
			}
			return
		}
		in := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(t, in); err != nil {
			return
		}
		s.talks.note(t)
		out, more := w.answer(in)
		switch {
		case more:
			if !later.Go(func(ctx context.Context) {
				defer s.upstream.Release()
				w := newWorker(s, overTCP)
				w.family = family
				if out := w.ask(ctx, in); out != nil {
					t.say(out)
				}
			}) {
				s.upstream.Release()
				return
			}
		case out == nil || !t.say(out):
			return
		}
	}
}

// say writes an answer, and reports whether it succeeded.
func (t *conversation) say(out []byte) bool {
	t.writing.Lock()
	defer t.writing.Unlock()
	_ = t.SetWriteDeadline(time.Now().Add(idle))
	_, err := t.Write(append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(out)), uint16(len(out))), out...))
	return err == nil
}
