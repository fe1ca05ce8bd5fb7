// Package logindtest is a stand-in for systemd-logind on a private D-Bus socket, for tests.
package logindtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// A Logind serves one client after the other, each on a connection of its own without a bus in between. It is safe for
// concurrent use. Create it with [Serve].
type Logind struct {
	l *net.UnixListener

	mu       sync.Mutex
	cond     *sync.Cond
	conns    map[*conn]bool    // guarded by mu
	pipes    map[*os.File]bool // guarded by mu; our ends of the locks
	delay    time.Duration     // guarded by mu
	reloaded time.Duration     // guarded by mu
	hang     bool              // guarded by mu
	locks    int               // guarded by mu; that are held now
	taken    int               // guarded by mu; ever
	reloads  int               // guarded by mu
	closed   bool              // guarded by mu
	done     sync.WaitGroup
}

type conn struct {
	*net.UnixConn
	mu     sync.Mutex
	serial uint32
}

// Serve listens on a socket until [Logind.Close]. Its InhibitDelayMaxSec is delay, and reloaded after a request to read the
// configuration again.
func Serve(socket string, delay, reloaded time.Duration) (*Logind, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	d := &Logind{l: l, conns: map[*conn]bool{}, pipes: map[*os.File]bool{}, delay: delay, reloaded: reloaded}
	d.cond = sync.NewCond(&d.mu)
	d.spawn(d.accept)
	return d, nil
}

// spawn runs f until Close has ended everything.
func (d *Logind) spawn(f func()) { d.done.Go(f) }

// Hang makes the stand-in read all further calls and answer none.
func (d *Logind) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang = true
}

// Shutdown announces that a shutdown begins, or that it was cancelled.
func (d *Logind) Shutdown(begins bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/login1")),
			dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.login1.Manager"),
			dbus.FieldMember:    dbus.MakeVariant("PrepareForShutdown"),
		}, Body: []any{begins}})
	}
}

// Await waits until so many locks are held, and so many were taken at least.
func (d *Logind) Await(held, taken int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.locks != held || d.taken < taken {
		d.cond.Wait()
	}
}

// Reloads returns how often the configuration was read again.
func (d *Logind) Reloads() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reloads
}

// Drop closes the connections of all clients, as a restart of the bus does.
func (d *Logind) Drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Close()
	}
}

// Close ends the service.
func (d *Logind) Close() {
	_ = d.l.Close()
	d.Drop()
	d.mu.Lock()
	d.closed = true
	for p := range d.pipes {
		_ = p.Close()
	}
	d.mu.Unlock()
	d.done.Wait()
}

func (d *Logind) accept() {
	for {
		u, err := d.l.AcceptUnix()
		if err != nil {
			return
		}
		c := &conn{UnixConn: u}
		d.mu.Lock()
		d.conns[c] = true
		d.mu.Unlock()
		d.spawn(func() {
			_ = d.serve(c)
			_ = c.Close()
			d.mu.Lock()
			delete(d.conns, c)
			d.mu.Unlock()
		})
	}
}

// serve answers one client.
func (d *Logind) serve(c *conn) error {
	in := bufio.NewReader(c)
	if err := authenticate(c, in); err != nil {
		return err
	}
	for {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return err
		}
		d.mu.Lock()
		hang := d.hang
		d.mu.Unlock()
		if hang {
			continue
		}
		if err := d.answer(c, m); err != nil {
			return err
		}
	}
}

// authenticate is the server's part of the beginning of a connection: every client is let in.
func authenticate(c *conn, in *bufio.Reader) error {
	if zero, err := in.ReadByte(); err != nil || zero != 0 {
		return errors.Join(err, errors.New("no D-Bus client"))
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ERROR\r\n"
		switch words := strings.Fields(line); {
		case len(words) == 0:
		case words[0] == "BEGIN":
			return nil
		case words[0] == "AUTH" && len(words) == 1:
			answer = "REJECTED EXTERNAL\r\n"
		case words[0] == "AUTH":
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		case words[0] == "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD\r\n"
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return err
		}
	}
}

// answer answers one call.
func (d *Logind) answer(c *conn, m *dbus.Message) error {
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(m.Serial())}}
	switch member, _ := m.Headers[dbus.FieldMember].Value().(string); member {
	case "Hello":
		reply.Body = []any{":1.1"}
	case "AddMatch":
	case "Get":
		d.mu.Lock()
		reply.Body = []any{dbus.MakeVariant(uint64(d.delay.Microseconds()))}
		d.mu.Unlock()
	case "KillUnit":
		d.mu.Lock()
		d.delay, d.reloads = d.reloaded, d.reloads+1
		d.mu.Unlock()
	case "Inhibit":
		return d.inhibit(c, reply)
	default:
		reply.Type = dbus.TypeError
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownMethod")
	}
	return c.send(reply)
}

// inhibit gives a lock: the other end of a pipe, which is closed when the client gives it back.
func (d *Logind) inhibit(c *conn, reply *dbus.Message) error {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	reply.Body = []any{dbus.UnixFD(theirs.Fd())}
	err = c.send(reply)
	_ = theirs.Close()
	if err != nil {
		return errors.Join(err, ours.Close())
	}
	d.mu.Lock()
	if d.closed {
		_ = ours.Close()
	}
	d.pipes[ours] = true
	d.locks, d.taken = d.locks+1, d.taken+1
	d.cond.Broadcast()
	d.mu.Unlock()
	d.spawn(func() {
		_, _ = ours.Read(make([]byte, 1))
		_ = ours.Close()
		d.mu.Lock()
		delete(d.pipes, ours)
		d.locks--
		d.cond.Broadcast()
		d.mu.Unlock()
	})
	return nil
}

// send writes a message, with its descriptors beside it.
func (c *conn) send(m *dbus.Message) error {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	n, err := m.CountFds()
	if err != nil {
		return err
	}
	if n > 0 {
		m.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(n))
	}
	var out bytes.Buffer
	fds, err := m.EncodeToWithFDs(&out, binary.LittleEndian)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	data := out.Bytes()
	binary.LittleEndian.PutUint32(data[8:], c.serial)
	var beside []byte
	if len(fds) > 0 {
		beside = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(data, beside, nil)
	return err
}
