package hosts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Server returns its name and the address of the client, over TCP and UDP at one port.
//
//	who     its name and the address of the client, as one line
//	get N   N bytes
//
// Over UDP every datagram means who.
type Server struct {
	Host *Host
	Port uint16

	// Connections of TCP that were made to it, whatever came over them.
	Connections atomic.Int64

	// Reset makes it break each connection as soon as it is made.
	Reset atomic.Bool

	slow time.Duration
	tcp  *net.TCPListener
	udp  *net.UDPConn

	mu     sync.Mutex
	open   map[net.Conn]bool // guarded by mu
	closed bool              // guarded by mu
	done   sync.WaitGroup
}

// Serve starts a server at all addresses of the host.
func (h *Host) Serve(port uint16) (*Server, error) {
	s := &Server{Host: h, Port: port, open: map[net.Conn]bool{}}
	var err error
	if s.tcp, err = h.Listen(netip.AddrPortFrom(netip.Addr{}, port)); err != nil {
		return nil, fmt.Errorf("%s: %w", h.Name, err)
	}
	if s.udp, err = h.ListenUDP(netip.AddrPortFrom(netip.Addr{}, port)); err != nil {
		return nil, fmt.Errorf("%s: %w", h.Name, errors.Join(err, s.tcp.Close()))
	}
	s.done.Go(s.accept)
	s.done.Go(s.datagrams)
	return s, nil
}

// ServeAt starts a server of TCP alone, at one address. It is slow to accept: connections
// stand in its queue for so long.
func (h *Host) ServeAt(at netip.AddrPort, slow time.Duration) (*Server, error) {
	s := &Server{Host: h, Port: at.Port(), slow: slow, open: map[net.Conn]bool{}}
	var err error
	if s.tcp, err = h.Listen(at); err != nil {
		return nil, fmt.Errorf("%s: %w", h.Name, err)
	}
	s.done.Go(s.accept)
	return s, nil
}

// Refuse ends listening: connections that there are go on, new ones are refused.
func (s *Server) Refuse() {
	_ = s.tcp.Close()
	if s.udp != nil {
		_ = s.udp.Close()
	}
}

// Drain ends listening, and returns when all connections have been ended by their
// clients.
func (s *Server) Drain() {
	s.Refuse()
	s.done.Wait()
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.Refuse()
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *Server) accept() {
	for {
		if s.slow > 0 {
			<-time.After(s.slow)
		}
		c, err := s.tcp.AcceptTCP()
		if err != nil {
			return
		}
		s.Connections.Add(1)
		if s.Reset.Load() {
			_ = c.SetLinger(0)
			_ = c.Close()
			continue
		}
		s.mu.Lock()
		s.open[c] = true
		if s.closed {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.done.Go(func() {
			s.answer(c)
			_ = c.Close()
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
		})
	}
}

func (s *Server) answer(c *net.TCPConn) {
	who := s.who(c.RemoteAddr())
	var zeros [64 << 10]byte
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "get "); ok {
			n, _ := strconv.ParseInt(text, 10, 64)
			for n > 0 {
				m, err := c.Write(zeros[:min(n, int64(len(zeros)))])
				if n -= int64(m); err != nil {
					return
				}
			}
			continue
		}
		if _, err := io.WriteString(c, who); err != nil {
			return
		}
	}
}

func (s *Server) who(client net.Addr) string {
	return fmt.Sprintf("%s %s\n", s.Host.Name, netip.MustParseAddrPort(client.String()).Addr().Unmap().WithZone(""))
}

func (s *Server) datagrams() {
	var b [2048]byte
	for {
		_, from, err := s.udp.ReadFromUDP(b[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // others are about what was sent before
			_, _ = s.udp.WriteToUDP([]byte(s.who(from)), from)
		}
	}
}

// An Answer is the response of a Server.
type Answer struct {
	Server string
	Client netip.Addr // as the server sees it
}

// What can become of a connection, other than that it is answered.
var (
	ErrRefused     = errors.New("refused")     // a reset, or ICMP says that the port can't be reached
	ErrUnreachable = errors.New("unreachable") // ICMP says that the host or network can't be, or there is no route
	ErrSilent      = errors.New("silent")      // nothing came back
)

// outcome makes of an error one of the above, if it means that.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w (%w)", ErrRefused, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("%w (%w)", ErrUnreachable, err)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Errorf("%w (%w)", ErrSilent, err)
	}
	return err
}

// Dial connects to an address, with "tcp" or "udp", and waits at most that long.
func (h *Host) Dial(network string, to netip.AddrPort, patience time.Duration) (c net.Conn, err error) {
	err = h.Do(func() error {
		d := net.Dialer{Timeout: patience}
		if network != "udp" {
			c, err = d.Dial(network, to.String())
			return err
		}
		for range udpPorts {
			d.LocalAddr = &net.UDPAddr{Port: h.nextPort()}
			if c, err = d.Dial(network, to.String()); !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
		}
		return err
	})
	return c, outcome(err)
}

// The ports that UDP clients use, one after the other. The kernel would choose at random, and a flow of a port that was
// used within half a minute is to conntrack a part of the earlier one.
const (
	firstUDPPort = 33000
	udpPorts     = 27000
)

func (h *Host) nextPort() int { return firstUDPPort + int(h.udpFlows.Add(1)%udpPorts) }

// Ask asks the server behind an address who it is, on a connection or flow of its own.
func (h *Host) Ask(network string, to netip.AddrPort, patience time.Duration) (Answer, error) {
	deadline := time.Now().Add(patience)
	c, err := h.Dial(network, to, patience)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(deadline); err != nil {
		return Answer{}, err
	}
	return Who(c)
}

// Who asks on a connection that there is.
func Who(c net.Conn) (Answer, error) {
	var b [256]byte
	// That a datagram of one's own is not let out is said at once, and then whether it
	// is refused.
	if _, err := io.WriteString(c, "who\n"); err != nil && !errors.Is(err, syscall.EPERM) {
		return Answer{}, outcome(err)
	}
	n, err := c.Read(b[:])
	if errors.Is(err, io.EOF) {
		err = syscall.ECONNRESET // it has been closed in our face
	}
	if err != nil {
		return Answer{}, outcome(err)
	}
	name, client, _ := strings.Cut(strings.TrimSuffix(string(b[:n]), "\n"), " ")
	a, err := netip.ParseAddr(client)
	if err != nil {
		return Answer{}, fmt.Errorf("%q is no answer: %w", b[:n], err)
	}
	return Answer{name, a}, nil
}
