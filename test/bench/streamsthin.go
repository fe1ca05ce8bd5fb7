package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// A thinClient opens streams of pods and does as little for each byte as the protocols allow: it discards what it
// receives, in one goroutine, without queues. With it the servers are measured, with kubectl also the client.
type thinClient struct {
	api    *url.URL
	tls    *tls.Config
	header http.Header
}

func newThinClient(cfg *rest.Config) (*thinClient, error) {
	config, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	config.NextProtos = []string{"http/1.1"}
	api, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if cfg.BearerToken != "" {
		header.Set("Authorization", "Bearer "+cfg.BearerToken)
	}
	return &thinClient{api, config, header}, nil
}

// thinBuffer is as large as four records of TLS.
const thinBuffer = 64 << 10

// upgrade makes a connection that speaks SPDY/3.1.
func (t *thinClient) upgrade(ctx context.Context, path, protocol string) (*spdyConn, error) {
	raw, err := (&tls.Dialer{Config: t.tls}).DialContext(ctx, "tcp", t.api.Host)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.api.String()+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = t.header.Clone()
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "SPDY/3.1")
	req.Header.Set("X-Stream-Protocol-Version", protocol)
	if err := req.Write(raw); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(raw, thinBuffer)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, err
	}
	return newSPDYConn(raw, in), upgraded(resp)
}

func upgraded(resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	text, err := io.ReadAll(resp.Body)
	return errors.Join(fmt.Errorf("%s: %s", resp.Status, text), err)
}

// socket makes a WebSocket.
func (t *thinClient) socket(ctx context.Context, path, protocol string) (*websocket.Conn, error) {
	dialer := websocket.Dialer{TLSClientConfig: t.tls, Subprotocols: []string{protocol}, ReadBufferSize: thinBuffer, WriteBufferSize: thinBuffer}
	conn, resp, err := dialer.DialContext(ctx, strings.Replace(t.api.String(), "https:", "wss:", 1)+path, t.header)
	if err != nil && resp != nil {
		return nil, errors.Join(err, upgraded(resp))
	}
	return conn, err
}

// tunnelled makes a connection that speaks SPDY/3.1 in the messages of a WebSocket.
func (t *thinClient) tunnelled(ctx context.Context, path, protocol string) (*spdyConn, error) {
	conn, err := t.socket(ctx, path, "SPDY/3.1+"+protocol)
	if err != nil {
		return nil, err
	}
	m := &messages{Conn: conn}
	return newSPDYConn(m, bufio.NewReaderSize(m, thinBuffer)), nil
}

// messages is the content of the messages of a WebSocket.
type messages struct {
	*websocket.Conn
	current io.Reader
}

func (m *messages) Read(p []byte) (int, error) {
	for {
		if m.current == nil {
			var err error
			if _, m.current, err = m.NextReader(); err != nil {
				return 0, err
			}
		}
		n, err := m.current.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		m.current = nil
	}
}

func (m *messages) Write(p []byte) (int, error) {
	return len(p), m.WriteMessage(websocket.BinaryMessage, p)
}

// A spdyConn is a connection that speaks SPDY/3.1.
type spdyConn struct {
	conn io.ReadWriteCloser
	in   *bufio.Reader
	out  []byte // for the frame that is written
}

func newSPDYConn(conn io.ReadWriteCloser, in *bufio.Reader) *spdyConn {
	return &spdyConn{conn: conn, in: in}
}

const (
	spdyHead = 8    // bytes before the content of a frame
	spdyFin  = 0x01 // the flag of the last frame of a stream
)

// next reads the head of a frame. stream is 0 for control frames, of which kind is the type.
func (c *spdyConn) next() (stream uint32, kind uint16, fin bool, size int, err error) {
	var head [spdyHead]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, 0, false, 0, err
	}
	length := binary.BigEndian.Uint32(head[4:])
	fin, size = length>>24&spdyFin != 0, int(length&0xffffff)
	if head[0]&0x80 != 0 {
		return 0, binary.BigEndian.Uint16(head[2:]), fin, size, nil
	}
	return binary.BigEndian.Uint32(head[:]), 0, fin, size, nil
}

// open creates streams with the ids 1, 3, 5 and so on, and waits for the replies.
func (c *spdyConn) open(streams ...http.Header) error {
	framer, err := spdy.NewFramer(c.conn, c.in)
	if err != nil {
		return err
	}
	for i, h := range streams {
		if err := framer.WriteFrame(&spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: h}); err != nil {
			return err
		}
	}
	for replies := 0; replies < len(streams); {
		_, kind, _, size, err := c.next()
		if err != nil {
			return err
		}
		if _, err := c.in.Discard(size); err != nil {
			return err
		}
		if kind == uint16(spdy.TypeSynReply) {
			replies++
		}
	}
	return nil
}

// write sends a frame of a stream. It makes no garbage, which would cost a client with a small heap more than the encryption.
func (c *spdyConn) write(stream uint32, data []byte, fin bool) error {
	head := uint32(len(data))
	if fin {
		head |= spdyFin << 24
	}
	c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(c.out[:0], stream), head)
	c.out = append(c.out, data...)
	_, err := c.conn.Write(c.out)
	return err
}

// A thinStream is a stream of SPDY as a [halfCloser] that is the only one that is read.
type thinStream struct {
	*spdyConn
	id    uint32
	left  int // of the frame that is being read
	ended bool
}

func (s *thinStream) Read(p []byte) (int, error) {
	for s.left == 0 {
		if s.ended {
			return 0, io.EOF
		}
		stream, _, fin, size, err := s.next()
		if err != nil {
			return 0, err
		}
		if stream != s.id {
			if _, err := s.in.Discard(size); err != nil {
				return 0, err
			}
			continue
		}
		s.left, s.ended = size, fin
	}
	n, err := s.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

func (s *thinStream) Write(p []byte) (int, error) { return len(p), s.write(s.id, p, false) }
func (s *thinStream) CloseWrite() error           { return s.write(s.id, nil, true) }
func (s *thinStream) Close() error                { return s.conn.Close() }

const podPath = "/api/v1/namespaces/default/pods/"

// forward opens a connection to a port of a pod.
func (t *thinClient) forward(ctx context.Context, pod string, port int, inMessages bool) (halfCloser, error) {
	connect := t.upgrade
	if inMessages {
		connect = t.tunnelled
	}
	conn, err := connect(ctx, podPath+pod+"/portforward", "portforward.k8s.io")
	if err != nil {
		return nil, err
	}
	header := func(kind string) http.Header {
		return http.Header{corev1.StreamType: {kind}, corev1.PortHeader: {fmt.Sprint(port)}, corev1.PortForwardRequestIDHeader: {"0"}}
	}
	if err := conn.open(header(corev1.StreamTypeError), header(corev1.StreamTypeData)); err != nil {
		return nil, err
	}
	return &thinStream{spdyConn: conn, id: 3}, nil
}

// output runs a command in a pod and returns how many bytes it prints, and how long that takes from the first one on.
func (t *thinClient) output(ctx context.Context, pod string, inMessages bool, command ...string) (int64, time.Duration, error) {
	query := url.Values{"command": command, "stdout": {"true"}}
	path := podPath + pod + "/exec?" + query.Encode()
	var from io.ReadCloser
	if inMessages {
		conn, err := t.socket(ctx, path, "v5.channel.k8s.io")
		if err != nil {
			return 0, 0, err
		}
		from = &channel{messages: messages{Conn: conn}, number: 1}
	} else {
		conn, err := t.upgrade(ctx, path, "v4.channel.k8s.io")
		if err != nil {
			return 0, 0, err
		}
		if err := conn.open(http.Header{corev1.StreamType: {corev1.StreamTypeError}}, http.Header{corev1.StreamType: {corev1.StreamTypeStdout}}); err != nil {
			return 0, 0, err
		}
		from = &thinStream{spdyConn: conn, id: 3}
	}
	defer func() { _ = from.Close() }()
	return drained(from)
}

// drained reads to the end, and returns how long that took from the first byte on.
func drained(from io.Reader) (n int64, took time.Duration, err error) {
	buf := make([]byte, thinBuffer)
	var began time.Time
	for {
		got, err := from.Read(buf)
		if n += int64(got); began.IsZero() && n > 0 {
			began = time.Now()
		}
		if errors.Is(err, io.EOF) {
			return n, time.Since(began), nil
		}
		if err != nil {
			return n, 0, err
		}
	}
}

// A channel is one of those in a WebSocket: the first byte of each message is the number of its channel.
type channel struct {
	messages
	number byte
}

func (c *channel) Read(p []byte) (int, error) {
	for {
		if c.current == nil {
			_, r, err := c.NextReader()
			if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				return 0, io.EOF
			}
			if err != nil {
				return 0, err
			}
			var number [1]byte
			if _, err := io.ReadFull(r, number[:]); err != nil || number[0] != c.number {
				continue
			}
			c.current = r
		}
		n, err := c.current.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		c.current = nil
	}
}
