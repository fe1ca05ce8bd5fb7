// Package channels serves the WebSocket protocols of Kubernetes in which each message belongs to a channel.
//
// The first byte of a message is the number of its channel: for commands 0 is their input, 1 their output, 2 their errors,
// 3 the result and 4 the size of the terminal. In protocols with base64 in their names the rest is text in base64, and the
// number is a digit. In v5.channel.k8s.io (KEP-4006) a message with the bytes 255 and N ends channel N.
package channels

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/upgrade"
)

const (
	// textPiece is how many bytes become a message with text of the same size as one with bytes has at most.
	textPiece = 3 * (upgrade.Frame / 4)

	// probeInterval is how often a client gets a ping while nothing is read from its connection.
	probeInterval = time.Minute

	endSignal = 255 // instead of a channel's number: the byte of the channel that ends follows
	firstName = '0' // of a channel, where messages are text
)

// A Kind is the direction of a channel, as the server sees it. What comes for a channel that is not read is discarded, and what is
// written to a channel that is not written is, too.
type Kind int

// The directions of channels.
const (
	Unused Kind = iota
	Read
	Write
	ReadWrite
)

// Options configure a connection.
type Options struct {
	// Protocols are the names that the server accepts. An empty name is for clients that name none.
	Protocols []string

	Kinds []Kind // of channel 0, 1 and so on

	// Idle must be positive. After so long without a byte that was wanted from the client, or with a message that the client does
	// not take, the connection ends.
	Idle time.Duration
}

// A Server has the memory that its connections share. The zero value can be used. It must not be copied.
type Server struct {
	buffers sync.Pool // for writing
	pieces  sync.Pool // for [Channel.WriteTo]
}

// Serve opens a WebSocket, calls handle, and closes it. It returns when the client has gone, too, if the connection waits for that
// when it is closed. An error is that of a request that was refused, with an answer.
//
// If the client goes, breaks the protocol or ends the connection, nothing comes from the channels any more, but handle has to
// return by itself. It must not wait for a goroutine that reads from a channel: that one may wait for the rest of a message until
// the connection is closed.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, o Options, handle func(*Conn)) error {
	protocol, err := choose(websocket.Subprotocols(r), o.Protocols)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return err
	}
	upgrader := websocket.Upgrader{
		WriteBufferSize: upgrade.FourRecords, WriteBufferPool: &s.buffers,
		CheckOrigin: func(*http.Request) bool { return true }, // clients are known by credentials, not by cookies
	}
	limited := &limitedResponse{ResponseWriter: w}
	socket, err := upgrader.Upgrade(limited, r, http.Header{"Sec-Websocket-Protocol": {protocol}})
	if err != nil {
		return err
	}
	c := &Conn{
		server: s, socket: socket, limited: limited.conn, protocol: protocol, idle: o.Idle,
		text: strings.Contains(protocol, "base64."), ends: strings.HasPrefix(protocol, "v5."),
		closed: make(chan struct{}),
	}
	socket.SetPingHandler(c.pong)
	c.probe = time.AfterFunc(probeInterval, c.sendProbe)
	c.probe.Stop()
	for i, kind := range o.Kinds {
		c.channels = append(c.channels, &Channel{
			conn: c, number: byte(i), kind: kind, messages: make(chan io.Reader), consumed: make(chan error), ended: make(chan struct{}),
		})
	}
	g := run.NewGroup(context.WithoutCancel(r.Context()), 0)
	g.Go(func(context.Context) { c.read() })
	defer g.Wait()
	defer c.close(websocket.CloseNormalClosure, "")
	handle(c)
	return nil
}

// choose returns the first protocol of a client that the server knows.
func choose(asked, known []string) (string, error) {
	if len(asked) == 0 {
		asked = []string{""}
	}
	if i := slices.IndexFunc(asked, func(p string) bool { return slices.Contains(known, p) }); i >= 0 {
		return asked[i], nil
	}
	return "", fmt.Errorf("requested protocol(s) are not supported: %q; supports %q", asked, known)
}

// A Conn is an open WebSocket.
type Conn struct {
	server   *Server
	socket   *websocket.Conn
	limited  *limitedConn
	protocol string
	idle     time.Duration
	text     bool // messages are base64
	ends     bool // the client may end single channels
	channels []*Channel

	writing sync.Mutex

	waiting atomic.Bool // a message waits for its reader
	probe   *time.Timer

	once   sync.Once
	closed chan struct{} // closed first by close
}

// Protocol returns the name of the protocol, "" if the client named none.
func (c *Conn) Protocol() string { return c.protocol }

// Channel returns a channel of the options.
func (c *Conn) Channel(number int) *Channel { return c.channels[number] }

// Done returns a channel that is closed when the client has ended the connection, or it has ended otherwise.
func (c *Conn) Done() <-chan struct{} { return c.closed }

// LimitWrites ends all writing after a time, also that which has begun.
func (c *Conn) LimitWrites(limit time.Duration) { c.limited.limit(time.Now().Add(limit)) }

// close ends the channels and the connection, once, with a code and a reason for the client.
func (c *Conn) close(code int, reason string) {
	c.once.Do(func() {
		close(c.closed)
		c.endChannels()
		// A client that is gone needs no message.
		_ = c.socket.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(c.idle))
		_ = c.socket.Close()
	})
}

func (c *Conn) endChannels() {
	for _, channel := range c.channels {
		_ = channel.Close()
	}
}

// pong answers a ping. It waits for writing: a time limit of its own would break a connection that is slow. If it can't be written,
// what the client has sent is read nevertheless.
func (c *Conn) pong(text string) error {
	_ = c.socket.WriteControl(websocket.PongMessage, []byte(text), time.Now().Add(c.idle))
	return nil
}

var errEnd = errors.New("the signal for the end of a channel must have exactly one byte, the number of a channel")

// read passes messages on to their channels until the connection ends, and closes it.
func (c *Conn) read() { c.close(closeCode(c.readMessages())) }

// closeCode returns what a client gets after an error of reading. The library has answered frames that are wrong.
func closeCode(err error) (code int, reason string) {
	var corrupt base64.CorruptInputError
	switch {
	case errors.Is(err, errEnd):
		return websocket.CloseProtocolError, err.Error()
	case errors.Is(err, websocket.ErrReadLimit): // none is set
		return websocket.CloseProtocolError, "the length of a message has more than 63 bits"
	case errors.As(err, &corrupt), errors.Is(err, io.ErrUnexpectedEOF):
		return websocket.CloseInvalidFramePayloadData, "invalid base64 after the number of the channel"
	}
	return websocket.CloseNormalClosure, ""
}

func (c *Conn) readMessages() error {
	for {
		_ = c.socket.SetReadDeadline(time.Now().Add(c.idle)) // reading fails if it is closed
		_, message, err := c.socket.NextReader()
		if err != nil {
			return err
		}
		var first [1]byte
		switch _, err := io.ReadFull(message, first[:]); {
		case errors.Is(err, io.EOF):
			continue
		case err != nil:
			return err
		}
		number := first[0]
		if c.ends && number == endSignal {
			if err := c.endChannel(message); err != nil {
				return err
			}
			continue
		}
		if c.text {
			number -= firstName
			message = base64.NewDecoder(base64.StdEncoding, message)
		}
		if int(number) >= len(c.channels) || !c.channels[number].kind.reads() {
			continue
		}
		if err := c.channels[number].pass(message); err != nil {
			return err
		}
	}
}

// endChannel ends the channel that the rest of a message names.
func (c *Conn) endChannel(message io.Reader) error {
	rest, err := io.ReadAll(io.LimitReader(message, 2))
	if err != nil {
		return err
	}
	if len(rest) != 1 || int(rest[0]) >= len(c.channels) {
		return errEnd
	}
	return c.channels[rest[0]].Close()
}

// write sends messages for a channel, at least one.
func (c *Conn) write(number byte, p []byte) (n int, err error) {
	size := upgrade.Frame
	if c.text {
		size = textPiece
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	for {
		part := p[n:min(n+size, len(p))]
		if err := c.writeMessage(number, part); err != nil {
			return n, err
		}
		if n += len(part); n == len(p) {
			return n, nil
		}
	}
}

func (c *Conn) writeMessage(number byte, part []byte) error {
	until := time.Now().Add(c.idle)
	_ = c.socket.SetReadDeadline(until)
	_ = c.socket.SetWriteDeadline(until)
	kind, head := websocket.BinaryMessage, []byte{number}
	if c.text {
		kind, head = websocket.TextMessage, utf8.AppendRune(nil, rune(number+firstName))
		part = base64.StdEncoding.AppendEncode(nil, part)
	}
	to, err := c.socket.NextWriter(kind)
	if err != nil {
		return err
	}
	if _, err := to.Write(head); err != nil {
		return err
	}
	if _, err := to.Write(part); err != nil {
		return err
	}
	return to.Close()
}

// A Channel is one of a connection. One goroutine may read from it, and any number may write to it.
type Channel struct {
	conn   *Conn
	number byte
	kind   Kind

	messages chan io.Reader
	consumed chan error // a message was read to its end, or to this error
	mu       sync.Mutex // held while the message is read
	message  io.Reader  // guarded by mu; nil if there is none

	once  sync.Once
	ended chan struct{}
}

func (k Kind) reads() bool  { return k == Read || k == ReadWrite }
func (k Kind) writes() bool { return k == Write || k == ReadWrite }

// pass has a message read by the channel's reader. It returns when that has been done or the channel is closed. An error is that of
// the message, or says that the connection is closed.
func (ch *Channel) pass(message io.Reader) error {
	ch.conn.waiting.Store(true)
	ch.conn.probe.Reset(probeInterval)
	defer func() {
		ch.conn.waiting.Store(false)
		ch.conn.probe.Stop()
	}()
	select {
	case ch.messages <- message:
	case <-ch.ended:
		return ch.conn.closedError()
	}
	select {
	case err := <-ch.consumed:
		return err
	case <-ch.ended:
		if err := ch.conn.closedError(); err != nil {
			return err
		}
		ch.mu.Lock() // the connection reads the rest
		defer ch.mu.Unlock()
		ch.message = nil
		return nil
	}
}

// sendProbe sends a ping if a message waits for its reader: nothing is read meanwhile, so the end of the client would not be noticed.
// To write to a client that has gone fails, at the second time at the latest. It waits for the output of a client that reads slowly.
func (c *Conn) sendProbe() {
	if !c.waiting.Load() || c.closedError() != nil {
		return
	}
	if c.socket.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.idle)) != nil {
		c.close(websocket.CloseNormalClosure, "")
		return
	}
	c.probe.Reset(probeInterval)
}

// closedError returns an error if the connection is closed.
func (c *Conn) closedError() error {
	select {
	case <-c.closed:
		return net.ErrClosed
	default:
		return nil
	}
}

// Read implements [io.Reader]. It reads from the connection itself. It returns [io.EOF] when the channel or the connection has
// ended.
func (ch *Channel) Read(p []byte) (int, error) {
	if !ch.kind.reads() {
		return 0, io.EOF
	}
	for {
		if n, got := ch.readMessage(p); got {
			return n, nil
		}
		if !ch.waitForMessage() {
			return 0, io.EOF
		}
	}
}

// piece is how much WriteTo reads at once, as [io.Copy] does.
type piece [32 << 10]byte

// WriteTo implements [io.WriterTo]. There is a buffer only while a message is read. The next message of the connection, for whichever
// channel, is not read before all of this one is written.
func (ch *Channel) WriteTo(w io.Writer) (n int64, err error) {
	for ch.kind.reads() {
		m, err := ch.writeMessage(w)
		if n += m; err != nil {
			return n, err
		}
		if !ch.waitForMessage() {
			break
		}
	}
	return n, nil
}

// writeMessage writes the rest of the present message, if there is one.
func (ch *Channel) writeMessage(w io.Writer) (n int64, err error) {
	p, ok := ch.conn.server.pieces.Get().(*piece)
	if !ok {
		p = &piece{}
	}
	defer ch.conn.server.pieces.Put(p)
	for {
		m, got := ch.readMessage(p[:])
		if !got {
			return n, nil
		}
		wrote, err := w.Write(p[:m])
		if n += int64(wrote); err != nil {
			return n, err
		}
	}
}

// waitForMessage waits for the next message. It returns false when the channel or the connection has ended.
func (ch *Channel) waitForMessage() bool {
	select {
	case message := <-ch.messages:
		ch.mu.Lock()
		ch.message = message
		ch.mu.Unlock()
		return true
	case <-ch.ended:
		return false
	}
}

// readMessage reads from the present message. It has got nothing if there is none, or no more of it.
func (ch *Channel) readMessage(p []byte) (n int, got bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.message == nil || ch.isEnded() {
		return 0, false
	}
	_ = ch.conn.socket.SetReadDeadline(time.Now().Add(ch.conn.idle))
	n, err := ch.message.Read(p)
	if err == nil {
		return n, true
	}
	ch.message = nil
	if errors.Is(err, io.EOF) {
		err = nil
	}
	select {
	case ch.consumed <- err:
	case <-ch.ended:
	}
	return n, n > 0
}

func (ch *Channel) isEnded() bool {
	select {
	case <-ch.ended:
		return true
	default:
		return false
	}
}

// Write implements [io.Writer]. An empty p is a message, too.
func (ch *Channel) Write(p []byte) (int, error) {
	if !ch.kind.writes() {
		return len(p), nil
	}
	return ch.conn.write(ch.number, p)
}

// Close ends reading: what the client still sends is discarded. The other side is not notified.
func (ch *Channel) Close() error {
	ch.once.Do(func() { close(ch.ended) })
	return nil
}
