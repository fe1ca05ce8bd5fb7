package streams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	framing "github.com/moby/spdystream/spdy"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go returns its types
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	upstreamforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	upstream "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A testCommand is what the servers of a test run.
type testCommand func(ctx context.Context, in io.Reader, out, errs io.Writer, size func() (upstream.TerminalSize, bool)) error

// ExecInContainer implements the interface of upstream's server.
func (do testCommand) ExecInContainer(ctx context.Context, _, _, _ string, _ []string,
	in io.Reader, out, errs io.WriteCloser, _ bool, sizes <-chan upstream.TerminalSize, _ time.Duration,
) error {
	return do(ctx, in, out, errs, func() (upstream.TerminalSize, bool) { size, ok := <-sizes; return size, ok })
}

// run calls do as the function of a spdyCommand, and returns results as upstream's server does.
func (do testCommand) run(ctx context.Context, protocol string, client spdyClient) []byte {
	var sizes *json.Decoder
	if client.resize != nil {
		sizes = json.NewDecoder(client.resize)
	}
	err := do(ctx, client.stdin, client.stdout, client.stderr, func() (size upstream.TerminalSize, ok bool) {
		return size, sizes != nil && sizes.Decode(&size) == nil
	})
	status := map[string]any{"status": "Success"}
	text := ""
	var exit utilexec.ExitError
	switch {
	case errors.As(err, &exit):
		text = fmt.Sprintf("command terminated with non-zero exit code: %v", exit)
		cause := map[string]any{"reason": "ExitCode", "message": fmt.Sprint(exit.ExitStatus())}
		status = map[string]any{"status": "Failure", "reason": "NonZeroExitCode", "message": text, "details": map[string]any{"causes": []any{cause}}}
	case err != nil:
		cause := "error executing command in container: " + err.Error()
		text = "Internal error occurred: " + cause
		status = map[string]any{"status": "Failure", "reason": "InternalError", "message": text, "code": 500, "details": map[string]any{"causes": []any{map[string]any{"message": cause}}}}
	}
	if protocol != spdyV4 {
		return []byte(text)
	}
	result, _ := json.Marshal(status)
	return result
}

// servers serve a command by this package and by upstream's.
func servers(do testCommand, asked upstream.Options) map[string]http.HandlerFunc {
	var server spdy.Server
	return map[string]http.HandlerFunc{
		"ours": func(w http.ResponseWriter, r *http.Request) {
			_ = serveCommandSPDY(w, r, &server, spdyCommand{
				stdin: asked.Stdin, stdout: asked.Stdout, stderr: asked.Stderr, terminal: asked.TTY, run: do.run,
			})
		},
		"upstream": func(w http.ResponseWriter, r *http.Request) {
			upstream.ServeExec(w, r, do, "", "", "", nil, &asked, time.Hour, spdyCreateLimit, upstream.SupportedStreamingProtocols)
		},
	}
}

// start starts a server, and returns a dialer for it.
func start(t *testing.T, handler http.Handler) (httpstream.Dialer, *url.URL) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := clientspdy.RoundTripperFor(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return clientspdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), u
}

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

// TestRefusalsAreUpstreams compares answers to requests that cannot be upgraded.
func TestRefusalsAreUpstreams(t *testing.T) {
	for name, header := range map[string]http.Header{
		"no protocol":       {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}},
		"empty protocol":    {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {" , "}},
		"unknown protocols": {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v9.channel.k8s.io", "x, y"}},
		"no upgrade":        {"X-Stream-Protocol-Version": {spdyV4}},
		"another upgrade":   {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/2"}, "X-Stream-Protocol-Version": {spdyV4}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]*httptest.ResponseRecorder{}
			for server, handler := range servers(nil, upstream.Options{Stdout: true}) {
				answers[server] = httptest.NewRecorder()
				req := httptest.NewRequest(http.MethodPost, "/", nil)
				req.Header = header
				handler(answers[server], req)
			}
			ours, theirs := answers["ours"], answers["upstream"]
			if ours.Code != theirs.Code || ours.Body.String() != theirs.Body.String() || !reflect.DeepEqual(ours.Header(), theirs.Header()) {
				t.Errorf("%d %v %s, upstream answers %d %v %s", ours.Code, ours.Header(), ours.Body, theirs.Code, theirs.Header(), theirs.Body)
			}
		})
	}
}

// TestUpgradeIsUpstreams compares the head of the answer to a client that is served.
func TestUpgradeIsUpstreams(t *testing.T) {
	heads := map[string]http.Header{}
	handlers := servers(nil, upstream.Options{Stdout: true})
	handlers["upstream"] = func(w http.ResponseWriter, r *http.Request) { // without waiting for streams
		upstream.ServeExec(w, r, nil, "", "", "", nil, &upstream.Options{}, time.Hour, time.Nanosecond, upstream.SupportedStreamingProtocols)
	}
	for server, handler := range handlers {
		_, u := start(t, handler)
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		heads[server] = upgradeRequest(t, conn, u, spdyV4).Header
		heads[server].Del("Date")
		_ = conn.Close()
	}
	if !reflect.DeepEqual(heads["ours"], heads["upstream"]) {
		t.Errorf("%v, upstream answers %v", heads["ours"], heads["upstream"])
	}
}

// upgradeRequest upgrades a connection.
func upgradeRequest(t *testing.T, conn net.Conn, u *url.URL, protocol string) *http.Response {
	t.Helper()
	req := &http.Request{Method: http.MethodPost, URL: u, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {protocol},
	}}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	return res
}

// A testForward connects streams to ports for the servers of a test.
type testForward func(port int32, stream io.ReadWriteCloser) error

// PortForward implements the interface of upstream's server.
func (do testForward) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return do(port, stream)
}

// portServers forward ports by this package and by upstream's.
func portServers(do testForward) map[string]http.HandlerFunc {
	var server spdy.Server
	return map[string]http.HandlerFunc{
		"ours": func(w http.ResponseWriter, r *http.Request) {
			_ = servePortsSPDY(w, r, &server, portService{"pod", anyNumber(nil), func(_ context.Context, _ *run.Group, port int32, s io.ReadWriteCloser) error {
				return do(port, s)
			}})
		},
		"upstream": func(w http.ResponseWriter, r *http.Request) {
			upstreamforward.ServePortForward(w, r, do, "pod", "", &upstreamforward.V4Options{}, time.Hour, spdyCreateLimit, upstreamforward.SupportedProtocols)
		},
	}
}

// dialTo connects streams to an address, as the runtime does.
func dialTo(address string) testForward {
	return func(_ int32, stream io.ReadWriteCloser) error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		up := make(chan error, 1)
		time.AfterFunc(0, func() {
			_, err := io.Copy(struct{ io.Writer }{conn}, stream)
			if err == nil {
				err = conn.(*net.TCPConn).CloseWrite()
			}
			up <- err
		})
		if _, err := io.Copy(stream, struct{ io.Reader }{conn}); err != nil {
			return err
		}
		if err := stream.Close(); err != nil {
			return err
		}
		return <-up
	}
}

// withRelay adds the whole of this package, which copies the bytes itself.
func withRelay(handlers map[string]http.HandlerFunc, address string) map[string]http.HandlerFunc {
	server := &Server{Log: slog.New(slog.DiscardHandler)}
	handlers["with relay"] = func(w http.ResponseWriter, r *http.Request) {
		server.ServePorts(w, r, Ports{Pod: "pod", Dial: dialAddress(address)})
	}
	return handlers
}

// dialAddress returns a function that connects to an address, whatever port is asked for.
func dialAddress(address string) func(context.Context, int32) (*net.TCPConn, error) {
	return func(ctx context.Context, _ int32) (*net.TCPConn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return conn.(*net.TCPConn), nil
	}
}

// listen serves connections until the end of the test, as a pod does.
func listen(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	t.Cleanup(func() { _ = l.Close(); g.Wait() })
	g.Go(func(context.Context) {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			g.Go(func(context.Context) {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	return l.Addr().String()
}

// forwarded runs client-go's port forwarder, and returns the address at which it listens.
func forwarded(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	dialer, _ := start(t, handler)
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var errs bytes.Buffer
	f, err := portforward.New(dialer, []string{"0:80"}, stop, ready, io.Discard, &errs)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(context.Context) { done <- f.ForwardPorts() })
	t.Cleanup(func() {
		close(stop)
		if err := <-done; err != nil || errs.Len() > 0 {
			t.Errorf("the client ended with %v, errors %q", err, errs.String())
		}
		g.Wait()
	})
	<-ready
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}

func connect(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// TestClientGoForwardsPorts has many connections at once, each with its own bytes, half of them in each direction first.
func TestClientGoForwardsPorts(t *testing.T) {
	echo := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) })
	for name, handler := range withRelay(portServers(dialTo(echo)), echo) {
		t.Run(name, func(t *testing.T) {
			address := forwarded(t, handler)
			g := run.NewGroup(t.Context(), 0)
			defer g.Wait()
			for i := range 20 {
				want := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, 50_000)
				conn := connect(t, address)
				g.Go(func(context.Context) {
					_, _ = conn.Write(want)
					_ = conn.CloseWrite()
				})
				g.Go(func(context.Context) {
					defer conn.Close()
					if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes came back, want %d: %v", len(got), len(want), err)
					}
				})
			}
		})
	}
}

// TestForwardingSurvivesEndsOfConnections has connections that either side ends while the other one still could send. The client
// resets streams then, and must not find an error for that, which would end all of its connections.
func TestForwardingSurvivesEndsOfConnections(t *testing.T) {
	pod := listen(t, func(c *net.TCPConn) {
		first := make([]byte, 1)
		if _, err := c.Read(first); err == nil && first[0] == 'e' {
			return // the end of the pod's side
		}
		for piece := make([]byte, 64<<10); ; {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
	})
	for name, handler := range withRelay(portServers(dialTo(pod)), pod) {
		t.Run(name, func(t *testing.T) {
			address := forwarded(t, handler)
			for range 5 {
				ended := connect(t, address)
				_, _ = io.WriteString(ended, "e")
				if n, err := io.Copy(io.Discard, ended); n > 0 || err != nil {
					t.Errorf("%d bytes: %v", n, err)
				}
				_ = ended.Close()
				flooded := connect(t, address)
				_, _ = io.WriteString(flooded, "f")
				if _, err := io.ReadFull(flooded, make([]byte, 1<<20)); err != nil {
					t.Error(err)
				}
				_ = flooded.Close()
			}
		})
	}
}

// portStreams opens streams and reads what comes: of each its text, or the error by which it was refused.
func portStreams(t *testing.T, handler http.Handler, headers ...http.Header) (texts []string) {
	t.Helper()
	dialer, _ := start(t, handler)
	conn, _, err := dialer.Dial(spdyPorts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	texts = make([]string, len(headers))
	g := run.NewGroup(t.Context(), 0)
	defer g.Wait()
	for i, header := range headers {
		canonical := http.Header{}
		for name, values := range header {
			canonical.Set(name, values[0])
		}
		s, err := conn.CreateStream(canonical)
		if err != nil {
			texts[i] = "refused: " + err.Error()
			continue
		}
		_ = s.Close()
		g.Go(func(context.Context) {
			all, err := io.ReadAll(s)
			texts[i] = fmt.Sprint(string(all), err)
		})
	}
	return texts
}

// portPrinter prints the port to the stream, and fails for port 1.
func portPrinter(port int32, s io.ReadWriteCloser) error {
	if port == 1 {
		return errors.New("connection refused")
	}
	_, err := fmt.Fprint(s, "port ", port)
	return err
}

// pairHeaders returns the headers of the streams of a connection. Old clients have no numbers of requests.
func pairHeaders(port, request string) []http.Header {
	of := func(kind string) http.Header {
		h := http.Header{streamType: {kind}, portHeader: {port}}
		if request != "" {
			h[requestHeader] = []string{request}
		}
		return h
	}
	return []http.Header{of(typeError), of(typeData)}
}

// TestRequestNumberIsUsedAgain is about this server only: upstream's needs time until it forgets a number.
func TestRequestNumberIsUsedAgain(t *testing.T) {
	got := portStreams(t, portServers(portPrinter)["ours"], slices.Concat(pairHeaders("80", "0"), pairHeaders("81", "0"))...)
	if want := []string{"<nil>", "port 80<nil>", "<nil>", "port 81<nil>"}; !slices.Equal(got, want) {
		t.Errorf("the client got %q, want %q", got, want)
	}
}

// TestStreamOfRequestComesOnce has a second stream for errors.
func TestStreamOfRequestComesOnce(t *testing.T) {
	headers := pairHeaders("80", "0")
	got := portStreams(t, portServers(portPrinter)["ours"], headers[0], headers[0], headers[1])
	if !strings.HasPrefix(got[1], "refused") || got[2] != "port 80<nil>" {
		t.Errorf("the client got %q", got)
	}
}

// TestPortStreamsAreUpstreams compares what clients get for streams with and without faults.
func TestPortStreamsAreUpstreams(t *testing.T) {
	for name, headers := range map[string][]http.Header{
		"good":             pairHeaders("80", "0"),
		"several":          slices.Concat(pairHeaders("80", "0"), pairHeaders("81", "1"), pairHeaders("65535", "2")),
		"old client":       slices.Concat(pairHeaders("80", ""), pairHeaders("81", "")),
		"failure":          pairHeaders("1", "0"),
		"no port":          {{streamType: {typeData}}},
		"wrong port":       {{streamType: {typeData}, portHeader: {"x"}}},
		"port 0":           {{streamType: {typeData}, portHeader: {"0"}}},
		"port 65536":       {{streamType: {typeData}, portHeader: {"65536"}}},
		"no type":          {{portHeader: {"80"}}},
		"wrong type":       {{streamType: {"x"}, portHeader: {"80"}}},
		"good after wrong": append([]http.Header{{streamType: {"x"}, portHeader: {"80"}}}, pairHeaders("80", "0")...),
	} {
		t.Run(name, func(t *testing.T) {
			both := portServers(portPrinter)
			ours, theirs := portStreams(t, both["ours"], headers...), portStreams(t, both["upstream"], headers...)
			if !slices.Equal(ours, theirs) {
				t.Errorf("the client got %q, from upstream's server %q", ours, theirs)
			}
		})
	}
}

// TestForwardedConnectionIsNotReadAfterItsEnd has a client that sends more than the server reads, and then opens other streams.
func TestForwardedConnectionIsNotReadAfterItsEnd(t *testing.T) {
	dialer, _ := start(t, portServers(func(_ int32, s io.ReadWriteCloser) error { return s.Close() })["ours"])
	conn, _, err := dialer.Dial(spdyPorts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for request := range 3 {
		header := http.Header{}
		header.Set(portHeader, "80")
		header.Set(requestHeader, fmt.Sprint(request))
		for _, kind := range []string{typeError, typeData} {
			header.Set(streamType, kind)
			s, err := conn.CreateStream(header)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
		}
	}
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
