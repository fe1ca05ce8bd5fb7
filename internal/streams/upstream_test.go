package streams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/run"
)

// script does what the name of a command says.
func script(command string, s Client) error {
	print := func(to io.Writer, text string) {
		if to != nil {
			_, _ = io.WriteString(to, text)
		}
	}
	switch command {
	case "succeed":
		print(s.Stdout, "to out")
		print(s.Stderr, "to err")
		print(s.Stdout, "")
		return nil
	case "exit":
		print(s.Stdout, "to out")
		return utilexec.CodeExitError{Err: errors.New("exit code 42"), Code: 42}
	case "exit by pointer":
		return &utilexec.CodeExitError{Err: errors.New("exit code 3"), Code: 3}
	case "fail":
		return errors.New("no such <command> & \"others\"")
	case "panic":
		panic("at the disco")
	case "echo": // lines, until there are no more or one is empty
		for in := bufio.NewScanner(s.Stdin); in.Scan() && in.Text() != ""; {
			print(s.Stdout, in.Text())
			print(s.Stderr, strings.ToUpper(in.Text()))
		}
		return nil
	case "sizes":
		for range 3 {
			size := <-s.Resize
			print(s.Stdout, fmt.Sprint(size.Width, "x", size.Height))
		}
		return nil
	case "print much":
		print(s.Stdout, strings.Repeat("0123456789abcdef", 20_000))
		return nil
	}
	return fmt.Errorf("no command %s", command)
}

// A reply is one message of a server.
type reply struct {
	Type    int
	Channel rune
	Data    any // of JSON, in a result of the newer protocols
}

// A session of a client: it sends input and waits for so many messages, in turn.
type turn struct {
	wait int // before it sends
	send []string
}

// A transcript is what a client gets.
type transcript struct {
	Status   int
	Protocol string
	Replies  []reply
	Code     int // with which the connection is closed
}

// talk opens a WebSocket, and returns everything that a server says.
func talk(t *testing.T, url, protocol string, turns []turn) (got transcript) {
	t.Helper()
	dialer := websocket.Dialer{}
	if protocol != "" {
		dialer.Subprotocols = []string{protocol}
	}
	conn, resp, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(url, "http"), nil)
	if resp == nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	got.Status = resp.StatusCode
	if err != nil {
		return got
	}
	defer conn.Close()
	got.Protocol = conn.Subprotocol()
	inText := strings.Contains(protocol, "base64")
	receive := func() bool {
		opcode, message, err := conn.ReadMessage()
		if closed := (&websocket.CloseError{}); errors.As(err, &closed) {
			got.Code = closed.Code
		}
		if err != nil {
			return false
		}
		r := reply{Type: opcode, Channel: rune(message[0])}
		data := message[1:]
		if inText {
			var size int
			r.Channel, size = utf8.DecodeRune(message)
			r.Channel -= '0'
			if data, err = base64.StdEncoding.DecodeString(string(message[size:])); err != nil {
				t.Error(err)
			}
		}
		r.Data = string(data)
		if r.Channel == errorChannel && bytes.HasPrefix(data, []byte("{")) {
			if err := json.Unmarshal(data, &r.Data); err != nil {
				t.Error(err)
			}
		}
		got.Replies = append(got.Replies, r)
		return true
	}
	for _, turn := range turns {
		for range turn.wait {
			if !receive() {
				t.Errorf("the connection ended after %v, with code %d", got.Replies, got.Code)
				return got
			}
		}
		for _, message := range turn.send {
			opcode := websocket.BinaryMessage
			if inText && message != "" {
				opcode = websocket.TextMessage
				message = string(message[0]+'0') + base64.StdEncoding.EncodeToString([]byte(message[1:]))
			}
			if err := conn.WriteMessage(opcode, []byte(message)); err != nil {
				t.Error(err)
			}
		}
	}
	for receive() {
	}
	return got
}

// both returns the addresses of our server and of upstream's.
func both(t *testing.T, ours, upstreams http.HandlerFunc) (our, upstream string) {
	t.Helper()
	for at, serve := range map[*string]http.HandlerFunc{&our: ours, &upstream: upstreams} {
		server := httptest.NewServer(serve)
		t.Cleanup(server.Close)
		*at = server.URL
	}
	return our, upstream
}

// executor runs a command for upstream's library.
type executor struct {
	s *Server
	c Command
}

// ExecInContainer implements [remotecommand.Executor].
func (e executor) ExecInContainer(ctx context.Context, _, _, _ string, _ []string,
	in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	sizes := make(chan channels.Size)
	g.Go(func(ctx context.Context) {
		defer close(sizes)
		for {
			select {
			case size, ok := <-resize:
				if !ok {
					return
				}
				select {
				case sizes <- channels.Size(size):
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return e.s.run(ctx, e.c, Client{Stdin: in, Stdout: out, Stderr: errs, Resize: sizes})
}

// AttachContainer implements [remotecommand.Attacher].
func (e executor) AttachContainer(ctx context.Context, _, _, _ string,
	in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	return e.ExecInContainer(ctx, "", "", "", nil, in, out, errs, tty, resize, 0)
}

var olderProtocols = []string{unnamed, v1Binary, v1Base64, v4Binary, v4Base64}

// TestCommandsAreUpstreams compares every message of a command with what upstream's library sends.
func TestCommandsAreUpstreams(t *testing.T) {
	const in, size = "\x00", "\x04"
	for name, tt := range map[string]struct {
		command                    string
		stdin, stdout, stderr, tty bool
		turns                      []turn
		joined                     bool // output may come in other parts
	}{
		"success":                {command: "succeed", stdout: true, stderr: true},
		"success, errors only":   {command: "succeed", stderr: true},
		"success, input only":    {command: "succeed", stdin: true},
		"success of a terminal":  {command: "succeed", stdin: true, stdout: true, tty: true},
		"exit code":              {command: "exit", stdout: true},
		"exit code by a pointer": {command: "exit by pointer", stdout: true},
		"error":                  {command: "fail", stdout: true, stderr: true},
		"error, input only":      {command: "fail", stdin: true},
		"panic":                  {command: "panic", stdout: true},
		"unknown command":        {command: "?", stdout: true},
		"much output":            {command: "print much", stdout: true, joined: true},
		"echo": {
			command: "echo", stdin: true, stdout: true, stderr: true,
			turns: []turn{{1, []string{in + "one\n"}}, {2, []string{in + "tw", in + "o\nthree\n"}}, {4, []string{in + "\n"}}},
		},
		"messages without meaning": {
			command: "echo", stdin: true, stdout: true,
			turns: []turn{{1, []string{"", in, "\x01output\n", "\x02errors\n", "\x03result\n", "\x09unknown\n", in + "one\n", "", in}}, {1, []string{in + "\n"}}},
		},
		"input that is not wanted": {command: "sizes", stdout: true, turns: []turn{
			{1, []string{in + "one\n", size + `{"Width":1,"Height":2}`}}, {1, []string{size + `{"Width":3,"Height":4}`}}, {1, []string{size + `{"Width":5,"Height":6}`}},
		}},
		"sizes": {command: "sizes", stdin: true, stdout: true, tty: true, turns: []turn{
			{1, []string{size + `{"Width":80,"Height":24}`}}, {1, []string{size + `{"Width":81,`, size + `"Height":25}`}}, {1, []string{size + `{"Width":65535}`}},
		}},
		"no more sizes": {command: "sizes", stdout: true, tty: true, turns: []turn{{1, []string{size + `{"Width":80,"Height":24}`}}, {1, []string{size + `{"Width":-1}`}}}},
		"a size that is not taken": {
			command: "echo", stdin: true, stdout: true,
			turns: []turn{{1, []string{size + `{"Width":80,"Height":24}`, in + "one\n"}}, {1, []string{in + "\n"}}},
		},
		"a size that is wrong": {
			command: "echo", stdin: true, stdout: true, tty: true,
			turns: []turn{{1, []string{size + `{"Width":-1}`, in + "one\n"}}, {1, []string{in + "\n"}}},
		},
	} {
		for _, verb := range []string{"exec", "attach"} {
			if verb == "attach" && strings.HasPrefix(tt.command, "exit") {
				continue // it has no exit code
			}
			t.Run(verb+" "+name, func(t *testing.T) {
				server := &Server{Log: slog.New(slog.DiscardHandler)}
				c := Command{
					Asked: Asked{tt.stdin, tt.stdout, tt.stderr, tt.tty}, Failed: "error executing command in container",
					Run: func(_ context.Context, client Client) error { return script(tt.command, client) },
				}
				if verb == "attach" {
					c.Failed = "error attaching to container"
				}
				our, upstream := both(t, func(w http.ResponseWriter, r *http.Request) { server.ServeCommand(w, r, c) }, func(w http.ResponseWriter, r *http.Request) {
					o := &remotecommand.Options{Stdin: tt.stdin, Stdout: tt.stdout, Stderr: tt.stderr, TTY: tt.tty}
					if verb == "exec" {
						remotecommand.ServeExec(w, r, executor{server, c}, "", "", "", nil, o, lingering.Limit, time.Minute, nil)
					} else {
						remotecommand.ServeAttach(w, r, executor{server, c}, "", "", "", o, lingering.Limit, time.Minute, nil)
					}
				})
				for _, protocol := range append(olderProtocols, v5Binary, "v9."+v1Binary) {
					as := protocol
					if protocol == v5Binary {
						as = v4Binary // upstream's library does not have v5, which differs in what a client may send
					}
					got, want := talk(t, our, protocol, tt.turns), talk(t, upstream, as, tt.turns)
					for _, reply := range want.Replies {
						addCauses(reply.Data)
					}
					if protocol != as && got.Protocol == protocol {
						got.Protocol = as
						translateToV5(want.Replies)
					}
					if tt.joined {
						got.Replies, want.Replies = join(got.Replies), join(want.Replies)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("protocol %q, upstream's messages and ours:\n%s", protocol, diff)
					}
				}
			})
		}
	}
}

// addCauses adds to a result the causes that runtimes of today send with an internal error, as apimachinery's NewInternalError
// has them, and upstream's library for runtimes does not since v1.37: clients such as Python's read them without a look
// whether they are there.
func addCauses(result any) {
	if status, ok := result.(map[string]any); ok && status["reason"] == "InternalError" && status["details"] == nil {
		message, _ := status["message"].(string)
		cause := map[string]any{"message": strings.TrimPrefix(message, "Internal error occurred: ")}
		status["details"] = map[string]any{"causes": []any{cause}}
	}
}

// translateToV5 makes of the Status of a runtime what upstream's kubelet sends: it decodes and encodes that as one of the API.
func translateToV5(replies []reply) {
	for _, r := range replies {
		status, ok := r.Data.(map[string]any)
		if !ok {
			continue
		}
		status["metadata"] = map[string]any{}
		if status["reason"] == "NonZeroExitCode" {
			cause := status["details"].(map[string]any)["causes"].([]any)[0].(map[string]any)
			status["message"] = fmt.Sprintf("command terminated with non-zero exit code: command terminated with exit code %s", cause["message"])
		}
	}
}

// join joins adjacent messages of a channel.
func join(replies []reply) (joined []reply) {
	for _, r := range replies {
		if n := len(joined); n > 0 && joined[n-1].Channel == r.Channel {
			joined[n-1].Data = joined[n-1].Data.(string) + r.Data.(string)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// dialer returns a function that connects to a server, whatever port is asked for. On large ones nothing listens.
func dialer(server *net.TCPAddr) func(context.Context, int32) (*net.TCPConn, error) {
	return func(_ context.Context, port int32) (*net.TCPConn, error) {
		if port >= 8000 {
			return nil, fmt.Errorf("nothing listens on %d", port)
		}
		return net.DialTCP("tcp", nil, server)
	}
}

// answerLines serves connections that send a line and get it in upper case.
func answerLines(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, strings.ToUpper(line))
		_ = lingering.Close(context.Background(), conn)
	}
}

// podDialer forwards ports for upstream's library, to clients that do not learn that the pod sends nothing any more.
type podDialer struct {
	s *Server
	r *http.Request
	p Ports
}

// PortForward implements [portforward.PortForwarder].
func (f podDialer) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return f.s.forwarder(f.p).forward(f.r.Context(), run.NewGroup(f.r.Context(), 0), port, stream, false)
}

// TestPortsAreUpstreams compares every message of a port-forward with what upstream's library sends.
func TestPortsAreUpstreams(t *testing.T) {
	lines, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	defer g.Wait()
	defer lines.Close()
	g.Go(func(context.Context) { answerLines(lines) })
	many := make([]int32, 45) // the last ones have channels whose numbers are no ASCII characters in base64 protocols
	for i := range many {
		many[i] = int32(8000 + i)
	}
	for name, tt := range map[string]struct {
		ports []int32
		turns []turn
	}{
		"one":         {[]int32{80}, []turn{{2, []string{"\x00hello\n"}}}},
		"in parts":    {[]int32{80}, []turn{{2, []string{"\x00he", "\x00", "", "\x01no input\n", "\x07nothing\n", "\x00llo\nmore"}}}},
		"two":         {[]int32{80, 81}, []turn{{4, []string{"\x02second\n", "\x00first\n"}}}},
		"same twice":  {[]int32{80, 80}, []turn{{4, []string{"\x00first\n", "\x02second\n"}}}},
		"error":       {[]int32{8000}, nil},
		"with errors": {[]int32{80, 8000, 81}, []turn{{6, []string{"\x00first\n", "\x04third\n"}}}},
		"many":        {many, nil},
		"none":        {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server, p := &Server{Log: slog.New(slog.DiscardHandler)}, Ports{Pod: "pod", Named: tt.ports, Dial: dialer(lines.Addr().(*net.TCPAddr))}
			our, upstream := both(t, func(w http.ResponseWriter, r *http.Request) { server.ServePorts(w, r, p) }, func(w http.ResponseWriter, r *http.Request) {
				o := &portforward.V4Options{Ports: tt.ports}
				portforward.ServePortForward(w, r, podDialer{server, r, p}, "pod", "", o, lingering.Limit, time.Minute, nil)
			})
			for _, protocol := range append(olderProtocols, v5Binary) { // some are of commands only
				got, want := talk(t, our, protocol, tt.turns), talk(t, upstream, protocol, tt.turns)
				for _, at := range []*transcript{&got, &want} {
					at.Replies = byChannel(at.Replies, 2*len(tt.ports))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("protocol %q, upstream's messages and ours:\n%s", protocol, diff)
				}
			}
		})
	}
}

// byChannel sorts messages by their channels, without the first ones: ports are served at the same time.
func byChannel(replies []reply, first int) []reply {
	if len(replies) < first {
		return replies
	}
	sorted := replies[:first:first]
	for channel := range rune(first) {
		for _, r := range replies[first:] {
			if r.Channel == channel {
				sorted = append(sorted, r)
			}
		}
	}
	return sorted
}
