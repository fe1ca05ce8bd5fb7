package streaming

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/streams"
)

const (
	smallBuffer = 32 << 10 // bytes, of a client's socket
	outputSize  = 8 * smallBuffer
)

// A printer prints outputSize bytes.
type printer struct {
	Handler
	done chan struct{} // closed after that
}

func (p *printer) ServeExec(_ context.Context, _ *cri.ExecRequest, client streams.Client) error {
	defer close(p.done)
	_, err := client.Stdout.Write(make([]byte, outputSize))
	return err
}

// TestClientThatPingsGetsEverything has clients that send pings and do not read until the command has ended.
func TestClientThatPingsGetsEverything(t *testing.T) {
	for name, connect := range map[string]func(*testing.T, net.Conn, *url.URL) (ping func() error, read func() (int, error)){
		"SPDY": spdyClient, "WebSocket": webSocketClient,
	} {
		t.Run(name, func(t *testing.T) {
			p := &printer{done: make(chan struct{})}
			conn, u := serving(t, p, errors.New("gone"))
			if err := conn.(*net.TCPConn).SetReadBuffer(smallBuffer); err != nil {
				t.Fatal(err)
			}
			ping, read := connect(t, conn, u)
			<-p.done
			for range 200 { // by then the server has closed its end
				if err := ping(); err != nil {
					t.Fatal(err)
				}
			}
			got, err := read()
			if got != outputSize || !errors.Is(err, io.EOF) {
				t.Errorf("%d bytes came, want %d: %v", got, outputSize, err)
			}
		})
	}
}

// upgradeSPDY upgrades a connection.
func upgradeSPDY(t *testing.T, conn net.Conn, u *url.URL) *bufio.Reader {
	t.Helper()
	req := &http.Request{Method: http.MethodPost, URL: u, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"},
	}}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, req)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	return in
}

func spdyClient(t *testing.T, conn net.Conn, u *url.URL) (ping func() error, read func() (int, error)) {
	t.Helper()
	framer, err := spdy.NewFramer(conn, upgradeSPDY(t, conn, u))
	if err != nil {
		t.Fatal(err)
	}
	const stdout = 3
	for i, kind := range []string{"error", "stdout"} {
		stream := &spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: http.Header{"Streamtype": {kind}}}
		if err := framer.WriteFrame(stream); err != nil {
			t.Fatal(err)
		}
	}
	ping = func() error { return framer.WriteFrame(&spdy.PingFrame{Id: 1}) }
	return ping, func() (n int, err error) {
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return n, err
			}
			if data, ok := frame.(*spdy.DataFrame); ok && data.StreamId == stdout {
				n += len(data.Data)
			}
		}
	}
}

func webSocketClient(t *testing.T, conn net.Conn, u *url.URL) (ping func() error, read func() (int, error)) {
	t.Helper()
	to := *u
	to.Scheme = "ws"
	socket, _, err := websocket.NewClient(conn, &to, http.Header{"Sec-Websocket-Protocol": {"v4.channel.k8s.io"}}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	ping = func() error { return socket.WriteMessage(websocket.PingMessage, nil) }
	return ping, func() (n int, err error) {
		for {
			_, message, err := socket.ReadMessage()
			if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				err = io.EOF
			}
			if err != nil {
				return n, err
			}
			if message[0] == 1 { // the channel of the output
				n += len(message) - 1
			}
		}
	}
}
