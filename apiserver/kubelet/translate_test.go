package kubelet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/sampan-io/sampan/internal/run"
)

// A pipeResponse is the response to a request that came from a pipe.
type pipeResponse struct {
	http.ResponseWriter
	conn net.Conn
	in   *bufio.Reader
}

func (r pipeResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return r.conn, bufio.NewReadWriter(r.in, bufio.NewWriter(r.conn)), nil
}

// translated serves a command over a pipe, which has no buffer, and returns its client.
func translated(t *testing.T, g *run.Group, stop context.Context, stream func(context.Context, remotecommand.StreamOptions) error) *websocket.Conn {
	t.Helper()
	conn, end := net.Pipe()
	g.Go(func(context.Context) {
		defer end.Close()
		in := bufio.NewReader(end)
		r, err := http.ReadRequest(in)
		if err != nil {
			t.Error(err)
			return
		}
		(&Client{}).translate(pipeResponse{conn: end, in: in}, r.WithContext(stop), streams{stdout: true, tty: true}, stream)
	})
	dialer := websocket.Dialer{
		NetDialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Subprotocols:   []string{constants.StreamProtocolV5Name},
	}
	socket, resp, err := dialer.Dial("ws://x", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return socket
}

// result reads to the end, and returns the output and the status.
func result(t *testing.T, socket *websocket.Conn) (out string, status metav1.Status) {
	t.Helper()
	for {
		_, message, err := socket.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Error(err)
			}
			_ = socket.Close()
			return out, status
		}
		switch message[0] {
		case constants.StreamStdOut:
			out += string(message[1:])
		case constants.StreamErr:
			if err := json.Unmarshal(message[1:], &status); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSlowClientGetsStatus has a client that stops reading for an hour: without the status it would take the command for successful.
func TestSlowClientGetsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context(), 0)
		socket := translated(t, g, t.Context(), func(_ context.Context, opts remotecommand.StreamOptions) error {
			if _, err := io.WriteString(opts.Stdout, "output"); err != nil {
				t.Error(err)
			}
			return exec.CodeExitError{Err: errors.New("failed"), Code: 42}
		})
		for range 2 { // messages, the first of which is empty
			if _, _, err := socket.ReadMessage(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if _, status := result(t, socket); status.Reason != constants.NonZeroExitCodeReason {
			t.Errorf("the client got the status %v", status)
		}
		g.Wait()
	})
}

// TestStopDoesNotWaitForClients stops the server while a client does not read.
func TestStopDoesNotWaitForClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(t.Context(), 0)
		socket := translated(t, g, stop, func(_ context.Context, opts remotecommand.StreamOptions) error {
			_, err := io.WriteString(opts.Stdout, "output")
			return err
		})
		if _, _, err := socket.ReadMessage(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		cancel()
		start := time.Now()
		g.Wait()
		if took := time.Since(start); took != statusLimit {
			t.Errorf("the server waited for %v, want %v", took, statusLimit)
		}
	})
}

// TestEndDoesNotWaitForSizes has a client that sends a part of a size. The end of the command ends the connection.
func TestEndDoesNotWaitForSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context(), 0)
		start := time.Now()
		var size *remotecommand.TerminalSize
		socket := translated(t, g, t.Context(), func(_ context.Context, opts remotecommand.StreamOptions) error {
			size = opts.TerminalSizeQueue.Next()
			synctest.Wait() // the rest of the next size is waited for
			return nil
		})
		const frame = "\x82\x8c\x00\x00\x00\x00\x04{\"Width\":8}" // with a mask that changes nothing
		g.Go(func(context.Context) { _, _ = io.WriteString(socket.NetConn(), frame+frame[:10]) })
		out, status := result(t, socket)
		g.Wait()
		if took := time.Since(start); took != 0 || status.Status != metav1.StatusSuccess || size == nil || size.Width != 8 {
			t.Errorf("after %v the client got %q and %v; size %v", took, out, status, size)
		}
	})
}
