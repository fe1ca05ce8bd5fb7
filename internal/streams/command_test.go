package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	framing "github.com/moby/spdystream/spdy"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go returns its types
	"k8s.io/client-go/rest"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	upstream "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

func TestClientGoExecutes(t *testing.T) {
	do := testCommand(func(_ context.Context, in io.Reader, out, errs io.Writer, _ func() (upstream.TerminalSize, bool)) error {
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
		_, _ = io.WriteString(errs, "errors")
		return utilexec.CodeExitError{Err: errors.New("exit status 42"), Code: 42}
	})
	input := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, handler := range servers(do, upstream.Options{Stdin: true, Stdout: true, Stderr: true}) {
		t.Run(name, func(t *testing.T) {
			_, u := start(t, handler)
			e, err := clientcommand.NewSPDYExecutor(&rest.Config{Host: u.String()}, http.MethodPost, u)
			if err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			err = e.StreamWithContext(t.Context(), clientcommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &out, Stderr: &errs})
			var exit utilexec.ExitError
			if !errors.As(err, &exit) || exit.ExitStatus() != 42 || errs.String() != "errors" || !bytes.Equal(out.Bytes(), input) {
				t.Errorf("%v, %d bytes of output, errors %q", err, out.Len(), errs.String())
			}
		})
	}
}

// sizeQueue has sizes of a terminal for client-go.
type sizeQueue []clientcommand.TerminalSize

func (q *sizeQueue) Next() *clientcommand.TerminalSize {
	if len(*q) == 0 {
		return nil
	}
	size := (*q)[0]
	*q = (*q)[1:]
	return &size
}

func TestClientGoResizesTerminal(t *testing.T) {
	do := func(_ context.Context, _ io.Reader, out, _ io.Writer, size func() (upstream.TerminalSize, bool)) error {
		for range 2 {
			next, ok := size()
			_, _ = fmt.Fprintln(out, next.Width, next.Height, ok)
		}
		return nil
	}
	for name, handler := range servers(do, upstream.Options{Stdin: true, Stdout: true, TTY: true}) {
		t.Run(name, func(t *testing.T) {
			_, u := start(t, handler)
			e, err := clientcommand.NewSPDYExecutor(&rest.Config{Host: u.String()}, http.MethodPost, u)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = e.StreamWithContext(t.Context(), clientcommand.StreamOptions{
				Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: &sizeQueue{{Width: 80, Height: 24}, {Width: 100, Height: 50}},
			})
			if want := "80 24 true\n100 50 true\n"; err != nil || out.String() != want {
				t.Errorf("%v, sizes %q, want %q", err, out.String(), want)
			}
		})
	}
}

// got is what a client has got.
type got struct {
	Protocol, Out, Errs string
	Result              any // the text, or the Status of the last protocol
}

// execute runs a command by a client of upstream's library, which sends stdin and a size if these are asked for.
func execute(t *testing.T, handler http.Handler, protocol string, asked upstream.Options, stdin string) (result got) {
	t.Helper()
	dialer, _ := start(t, handler)
	conn, chosen, err := dialer.Dial(protocol)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := func(kind string) httpstream.Stream {
		s, err := conn.CreateStream(http.Header{streamType: {kind}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	read := func(s httpstream.Stream, to *string) func(context.Context) {
		return func(context.Context) {
			all, _ := io.ReadAll(s)
			*to = string(all)
		}
	}
	g := run.NewGroup(t.Context(), 0)
	var text string
	g.Go(read(open(typeError), &text))
	var in httpstream.Stream
	if asked.Stdin {
		in = open(typeStdin)
	}
	if asked.Stdout {
		g.Go(read(open(typeStdout), &result.Out))
	}
	if asked.Stderr {
		g.Go(read(open(typeStderr), &result.Errs))
	}
	if asked.TTY && protocol != spdyV1 && protocol != spdyV2 {
		sizes := open(typeResize)
		_, _ = io.WriteString(sizes, `{"Width":80,"Height":24}`+"\n")
		_ = sizes.Close()
	}
	if in != nil {
		_, _ = io.WriteString(in, stdin)
		_ = in.Close()
	}
	g.Wait()
	result.Protocol, result.Result = chosen, text
	if protocol == spdyV4 {
		var status map[string]any
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			t.Errorf("the result is %q: %v", text, err)
		}
		result.Result = status
	}
	return result
}

// TestClientsGetWhatUpstreamSends compares all that clients get from this server and from upstream's.
func TestClientsGetWhatUpstreamSends(t *testing.T) {
	for name, test := range map[string]struct {
		asked upstream.Options
		do    testCommand
	}{
		"success": {upstream.Options{Stdout: true}, func(_ context.Context, _ io.Reader, out, _ io.Writer, _ func() (upstream.TerminalSize, bool)) error {
			_, err := io.WriteString(out, "output")
			return err
		}},
		"exit code": {upstream.Options{Stdout: true, Stderr: true}, func(_ context.Context, _ io.Reader, out, errs io.Writer, _ func() (upstream.TerminalSize, bool)) error {
			_, _ = io.WriteString(out, "output")
			_, _ = io.WriteString(errs, "errors")
			return utilexec.CodeExitError{Err: errors.New("exit status 3"), Code: 3}
		}},
		"failure": {upstream.Options{Stderr: true}, func(context.Context, io.Reader, io.Writer, io.Writer, func() (upstream.TerminalSize, bool)) error {
			return errors.New("no such container")
		}},
		"echo": {upstream.Options{Stdin: true, Stdout: true}, func(_ context.Context, in io.Reader, out, _ io.Writer, _ func() (upstream.TerminalSize, bool)) error {
			_, err := io.Copy(out, in)
			return err
		}},
		"input that is not read": {upstream.Options{Stdin: true, Stdout: true}, func(_ context.Context, _ io.Reader, out, _ io.Writer, _ func() (upstream.TerminalSize, bool)) error {
			_, err := io.WriteString(out, "output")
			return err
		}},
		"terminal": {upstream.Options{Stdin: true, Stdout: true, TTY: true}, func(_ context.Context, in io.Reader, out, _ io.Writer, size func() (upstream.TerminalSize, bool)) error {
			next, ok := size()
			_, _ = fmt.Fprintln(out, next.Width, next.Height, ok)
			_, err := io.Copy(out, in)
			return err
		}},
	} {
		for _, protocol := range []string{spdyV4, spdyV3, spdyV2, spdyV1} {
			if test.asked.TTY && (protocol == spdyV1 || protocol == spdyV2) {
				continue // no sizes: upstream's server waits for them without end
			}
			t.Run(name+"/"+protocol, func(t *testing.T) {
				both := servers(test.do, test.asked)
				ours := execute(t, both["ours"], protocol, test.asked, "input")
				theirs := execute(t, both["upstream"], protocol, test.asked, "input")
				addCauses(theirs.Result)
				if !reflect.DeepEqual(ours, theirs) {
					t.Errorf("the client got %+v, from upstream's server %+v", ours, theirs)
				}
			})
		}
	}
}

// TestCommandWaitsForReplies checks that a command does not begin before the client can know that its last stream is open: if it ended at
// once, the stream would be refused.
func TestCommandWaitsForReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, end := net.Pipe()
		streams := (&spdyCommand{}).streams(spdyV3)
		var waited atomic.Bool
		conn, err := new(spdy.Server).New(end, end, spdy.Options{Idle: time.Hour, Accept: func(s *spdy.Stream) error {
			err := streams.accept(s)
			synctest.Wait()
			if waited.Load() {
				t.Error("the command begins before the reply")
			}
			return err
		}})
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		defer g.Wait()
		g.Go(func(ctx context.Context) { _ = conn.Run(ctx) })
		g.Go(func(context.Context) {
			if err := streams.wait(conn); err != nil {
				t.Error(err)
			}
			waited.Store(true)
		})
		framer, err := framing.NewFramer(client, client)
		if err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteFrame(&framing.SynStreamFrame{StreamId: 1, Headers: http.Header{streamType: {typeError}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := framer.ReadFrame(); err != nil {
			t.Error(err)
		}
		_ = client.Close()
	})
}

// TestStreamsHaveToComeInTime has clients that upgrade the connection and create too few streams.
func TestStreamsHaveToComeInTime(t *testing.T) {
	var server spdy.Server
	for name, handler := range map[string]http.HandlerFunc{
		spdyV4: func(w http.ResponseWriter, r *http.Request) {
			if err := serveCommandSPDY(w, r, &server, spdyCommand{stdout: true}); !errors.Is(err, errCreateLimit) {
				t.Errorf("the command ended with %v", err)
			}
		},
		spdyPorts: func(w http.ResponseWriter, r *http.Request) {
			_ = servePortsSPDY(w, r, &server, portService{"pod", anyNumber(nil), nil})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, end := net.Pipe()
				listener := &oneConn{conn: end, closed: make(chan struct{})}
				s := &http.Server{Handler: handler}
				g := run.NewGroup(t.Context(), 0)
				defer g.Wait()
				g.Go(func(context.Context) { _ = s.Serve(listener) })
				defer s.Close()
				begun := time.Now()
				upgradeRequest(t, client, &url.URL{Scheme: "http", Host: "x", Path: "/"}, name)
				defer client.Close()
				framer, err := framing.NewFramer(client, client)
				if err != nil {
					t.Fatal(err)
				}
				header := http.Header{streamType: {typeError}, portHeader: {"80"}, requestHeader: {"7"}}
				if err := framer.WriteFrame(&framing.SynStreamFrame{StreamId: 1, Headers: header}); err != nil {
					t.Fatal(err)
				}
				var text string
				for reset := false; !reset; {
					frame, err := framer.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					switch f := frame.(type) {
					case *framing.DataFrame:
						text += string(f.Data)
					case *framing.RstStreamFrame:
						reset = true
					}
				}
				if waited := time.Since(begun); waited != spdyCreateLimit {
					t.Errorf("the stream was reset after %v", waited)
				}
				if name == spdyPorts && text != "(request=7) timed out waiting for streams" {
					t.Errorf("the client got %q", text)
				}
				if name == spdyV4 {
					if _, err := io.Copy(io.Discard, client); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// A oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
}

func (o *oneConn) Accept() (net.Conn, error) {
	if c := o.conn; c != nil {
		o.conn = nil
		return c, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

func (o *oneConn) Close() error {
	o.once.Do(func() { close(o.closed) })
	return nil
}

func (o *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestClientThatGoesEndsCommand has a client that disconnects while a command runs.
func TestClientThatGoesEndsCommand(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	do := testCommand(func(ctx context.Context, _ io.Reader, _, _ io.Writer, _ func() (upstream.TerminalSize, bool)) error {
		close(started)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	dialer, _ := start(t, servers(do, upstream.Options{Stdout: true})["ours"])
	conn, _, err := dialer.Dial(spdyV4)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{typeError, typeStdout} {
		if _, err := conn.CreateStream(http.Header{streamType: {kind}}); err != nil {
			t.Fatal(err)
		}
	}
	<-started
	_ = conn.Close()
	<-ended
}
