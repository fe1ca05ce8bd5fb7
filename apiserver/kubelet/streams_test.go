package kubelet_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	gorilla "github.com/gorilla/websocket"
	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	crifwd "k8s.io/cri-streaming/pkg/streaming/portforward"
	criexec "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/apiserver/kubelet"
	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/run"
)

// container is a kubelet with one container, made of upstream's server.
type container struct {
	exec    func(ctx context.Context, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, sizes <-chan criexec.TerminalSize) error
	forward func(port int32, stream io.ReadWriteCloser) error
	refuse  string // the answer to all requests, if it is not empty
}

func (c *container) ExecInContainer(ctx context.Context, _, _, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, sizes <-chan criexec.TerminalSize, _ time.Duration) error {
	return c.exec(ctx, cmd, in, out, errOut, tty, sizes)
}

func (c *container) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, tty bool, sizes <-chan criexec.TerminalSize) error {
	return c.exec(ctx, nil, in, out, errOut, tty, sizes)
}

func (c *container) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return c.forward(port, stream)
}

func (c *container) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const limit = time.Hour
	for name := range r.Header {
		if name == "Authorization" || name == "Cookie" {
			http.Error(w, "the credentials of the user arrived", http.StatusTeapot)
			return
		}
	}
	if c.refuse != "" {
		http.Error(w, c.refuse, http.StatusInternalServerError)
		return
	}
	switch strings.Split(r.URL.Path, "/")[1] {
	case "exec", "attach":
		opts, err := criexec.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/exec") {
			criexec.ServeExec(w, r, c, "", "", "main", r.URL.Query()["command"], opts, limit, limit, criexec.SupportedStreamingProtocols)
		} else {
			criexec.ServeAttach(w, r, c, "", "", "main", opts, limit, limit, criexec.SupportedStreamingProtocols)
		}
	case "portForward":
		opts, err := crifwd.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		crifwd.ServePortForward(w, r, c, "", "", opts, limit, limit, crifwd.SupportedProtocols)
	}
}

// front serves the streams of a pod in front of a kubelet, over TLS.
func front(t testing.TB, back http.Handler, pod *corev1.Pod) *rest.Config {
	t.Helper()
	return frontUntil(t, back, pod, nil, false)
}

// localFront is front with a node in the same process.
func localFront(t testing.TB, back http.Handler, pod *corev1.Pod) *rest.Config {
	t.Helper()
	return frontUntil(t, back, pod, nil, true)
}

// frontUntil is front with a server that ends its streams when stop is closed.
func frontUntil(t testing.TB, back http.Handler, pod *corev1.Pod, stop <-chan struct{}, local bool) *rest.Config {
	t.Helper()
	node := httptest.NewTLSServer(back)
	t.Cleanup(node.Close)
	host, port, err := net.SplitHostPort(node.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	object.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(n)
	if _, ok := back.(*modern); ok {
		object.Status.DeclaredFeatures = []string{"ExtendWebSocketsToKubelet"}
	}
	roots := node.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	opts := kubelet.Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, Objects: nodes{"n1": object}}
	if local {
		l := inprocess.New()
		agent := &httptest.Server{Listener: l, Config: &http.Server{Handler: back}}
		agent.Start()
		t.Cleanup(agent.Close)
		opts.Local = func(*corev1.Node) func(context.Context) (net.Conn, error) { return l.Dial }
	}
	c, err := kubelet.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		g := run.NewGroup(ctx, 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) {
			select {
			case <-stop:
				cancel()
			case <-ctx.Done():
			}
		})
		r = r.WithContext(ctx)
		switch r.URL.Path {
		case "/exec":
			c.ServeExec(w, r, pod)
		case "/attach":
			c.ServeAttach(w, r, pod)
		case "/portforward":
			c.ServePortForward(w, r, pod)
		}
	}))
	t.Cleanup(api.Close)
	return &rest.Config{Host: api.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

var transports = map[string]func(*rest.Config, *url.URL) (remotecommand.Executor, error){
	"WebSocket": func(cfg *rest.Config, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, u.String())
	},
	"SPDY": func(cfg *rest.Config, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(cfg, http.MethodPost, u)
	},
}

func at(t testing.TB, cfg *rest.Config, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(cfg.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func shell(_ context.Context, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool, sizes <-chan criexec.TerminalSize) error {
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "fail":
		fmt.Fprint(out, "to out")
		fmt.Fprint(errOut, "to err")
		return &utilexec.CodeExitError{Err: errors.New("exit 42"), Code: 42}
	case "size":
		size := <-sizes
		fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
		return nil
	case "words":
		fmt.Fprintf(out, "%q", cmd)
		return nil
	}
	return fmt.Errorf("no command %s", cmd[0])
}

type oneSize struct{ sent bool }

func (o *oneSize) Next() *remotecommand.TerminalSize {
	if o.sent {
		return nil
	}
	o.sent = true
	return &remotecommand.TerminalSize{Width: 120, Height: 40}
}

func TestExec(t *testing.T) {
	t.Run("remote", func(t *testing.T) { testExec(t, front(t, &container{exec: shell}, podOf("n1", "main"))) })
	t.Run("local", func(t *testing.T) { testExec(t, localFront(t, &container{exec: shell}, podOf("n1", "main"))) })
	t.Run("modern", func(t *testing.T) { testExec(t, front(t, newModern(t, &container{exec: shell}), podOf("n1", "main"))) })
	t.Run("modern, local", func(t *testing.T) {
		testExec(t, localFront(t, newModern(t, &container{exec: shell}), podOf("n1", "main")))
	})
}

func testExec(t *testing.T, cfg *rest.Config) {
	t.Helper()
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			call := func(query, in string, tty bool) (string, string, error) {
				e, err := connect(cfg, at(t, cfg, "/exec?"+query))
				if err != nil {
					t.Fatal(err)
				}
				var out, errOut bytes.Buffer
				opts := remotecommand.StreamOptions{Stdout: &out, Tty: tty}
				if in != "" {
					opts.Stdin = strings.NewReader(in)
				}
				if tty {
					opts.TerminalSizeQueue = &oneSize{}
				} else {
					opts.Stderr = &errOut
				}
				err = e.StreamWithContext(t.Context(), opts)
				return out.String(), errOut.String(), err
			}
			if out, _, err := call("command=cat&stdin=true&stdout=true&stderr=true", large, false); err != nil || out != large {
				t.Errorf("cat: %d bytes, %v, want %d", len(out), err, len(large))
			}
			out, errOut, err := call("command=fail&stdout=true&stderr=true", "", false)
			if out != "to out" || errOut != "to err" || err == nil || err.Error() != "command terminated with exit code 42" {
				t.Errorf("fail: %q, %q, %v", out, errOut, err)
			}
			if out, _, err := call("command=size&stdout=true&tty=true", "", true); err != nil || out != "120x40" {
				t.Errorf("size: %q, %v", out, err)
			}
			if out, _, err := call("command=words&command=a+b&command=&stdout=true&stderr=true", "", false); err != nil || out != `["words" "a b" ""]` {
				t.Errorf("words: %s, %v", out, err)
			}
			if _, _, err := call("command=none&stdout=true&stderr=true", "", false); err == nil || !strings.Contains(err.Error(), "no command none") {
				t.Errorf("none: %v", err)
			}
		})
	}
}

// TestOldWebSocketProtocols speaks the protocols that are passed on.
func TestOldWebSocketProtocols(t *testing.T) {
	cfg := front(t, &container{exec: shell}, podOf("n1", "main"))
	for _, tt := range []struct{ protocol, want string }{
		{"v4.channel.k8s.io", "\x01[\"words\"]"},
		{"channel.k8s.io", "\x01[\"words\"]"},
		{"v4.base64.channel.k8s.io", "1WyJ3b3JkcyJd"},
	} {
		ws, err := websocket.NewConfig(strings.Replace(cfg.Host, "https:", "wss:", 1)+"/exec?command=words&stdout=true", cfg.Host)
		if err != nil {
			t.Fatal(err)
		}
		ws.Protocol, ws.TlsConfig = []string{tt.protocol, "base64url.bearer.authorization.k8s.io.c2VjcmV0"}, &tls.Config{InsecureSkipVerify: true}
		conn, err := ws.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for {
			var message string
			if websocket.Message.Receive(conn, &message) != nil {
				break
			}
			all = append(all, message)
		}
		_ = conn.Close()
		if len(all) < 2 || all[1] != tt.want {
			t.Errorf("%s: %q, want %q as the second message", tt.protocol, all, tt.want)
		}
	}
}

// TestMessagesOfAnySize sends input as a message of 1 MiB, and as one in several frames.
func TestMessagesOfAnySize(t *testing.T) {
	cfg := front(t, &container{exec: shell}, podOf("n1", "main"))
	dialer := gorilla.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: []string{"v5.channel.k8s.io"}, WriteBufferSize: 1000}
	conn, resp, err := dialer.DialContext(t.Context(), strings.Replace(cfg.Host, "https:", "wss:", 1)+"/exec?command=cat&stdin=true&stdout=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer conn.Close()
	const stdin, stdout, closeStream = "\x00", 1, "\xff"
	large := strings.Repeat("0123456789abcdef", 1<<16)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) {
		// A message that is written whole is one frame.
		if prepared, err := gorilla.NewPreparedMessage(gorilla.BinaryMessage, []byte(stdin+large)); err != nil || conn.WritePreparedMessage(prepared) != nil {
			t.Error("a message could not be written")
		}
		w, err := conn.NextWriter(gorilla.BinaryMessage)
		if err != nil {
			t.Error(err)
			return
		}
		for _, part := range []string{stdin, large[:1], large[1:5000], large[5000:]} {
			if _, err := io.WriteString(w, part); err != nil {
				t.Error(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := conn.WriteMessage(gorilla.BinaryMessage, []byte(closeStream+stdin)); err != nil {
			t.Error(err)
		}
	})
	var out strings.Builder
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		if message[0] == stdout {
			out.Write(message[1:])
		}
	}
	g.Stop()
	if out.String() != large+large {
		t.Errorf("%d bytes came back, want twice %d", out.Len(), len(large))
	}
}

func TestStreamRefusals(t *testing.T) {
	two := podOf("n1", "init:i", "a", "b")
	tests := []struct {
		name, path string
		pod        *corev1.Pod
		want       string
		code       int
	}{
		{"which container", "/exec?command=x&stdout=true", two, "a container name must be specified for pod p, choose one of: [i a b]", 400},
		{"no such container", "/attach?container=x&stdout=true", two, "container x is not valid for pod p", 400},
		{"on no node", "/portforward", podOf("", "a"), "pod p does not have a host assigned", 400},
		{"on a node that has gone", "/exec?command=x&stdout=true", podOf("n9", "a"), `nodes "n9" not found`, 404},
		{"a bad port", "/portforward?ports=x", podOf("n1", "a"), `strconv.ParseInt: parsing "x": invalid syntax`, 400},
		{"no upgrade", "/exec?command=x&stdout=true", podOf("n1", "a"), "Upgrade request required", 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := front(t, &container{exec: shell}, tt.pod)
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Post(cfg.Host+tt.path, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got := message(t, string(body)); got != tt.want || resp.StatusCode != tt.code {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, got, tt.code, tt.want)
			}
		})
	}
}

// TestNodeRefusal checks that the words of a node arrive.
func TestNodeRefusal(t *testing.T) {
	cfg := front(t, &container{refuse: `container not found ("main")`}, podOf("n1", "main"))
	for name, want := range map[string]string{
		"SPDY":      `unable to upgrade connection: container not found ("main")`,
		"WebSocket": `Internal error occurred: unable to upgrade connection: container not found ("main")`,
	} {
		e, err := transports[name](cfg, at(t, cfg, "/exec?command=x&stdout=true"))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestExecEndsWithItsClient has a command that ends when its connection does.
func TestExecEndsWithItsClient(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			begun, ended := make(chan struct{}), make(chan struct{})
			cfg := front(t, &container{exec: func(_ context.Context, _ []string, in io.Reader, _, _ io.WriteCloser, _ bool, _ <-chan criexec.TerminalSize) error {
				close(begun)
				defer close(ended)
				_, err := io.Copy(io.Discard, in)
				return err
			}}, podOf("n1", "main"))
			e, err := connect(cfg, at(t, cfg, "/exec?command=x&stdin=true&stdout=true"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			in, _ := io.Pipe()
			g := run.NewGroup(t.Context(), 0)
			g.Go(func(context.Context) {
				_ = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard})
			})
			<-begun
			cancel()
			<-ended
			g.Stop()
		})
	}
}

// TestExecEndsWithItsServer checks that a client does not take the end of the server for that of the command.
func TestExecEndsWithItsServer(t *testing.T) {
	begun, stop := make(chan struct{}), make(chan struct{})
	node := &container{exec: func(ctx context.Context, _ []string, in io.Reader, _, _ io.WriteCloser, _ bool, _ <-chan criexec.TerminalSize) error {
		close(begun)
		_, err := io.Copy(io.Discard, in)
		return err
	}}
	cfg := frontUntil(t, node, podOf("n1", "main"), stop, false)
	e, err := transports["WebSocket"](cfg, at(t, cfg, "/exec?command=x&stdin=true&stdout=true"))
	if err != nil {
		t.Fatal(err)
	}
	in, _ := io.Pipe()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) {
		<-begun
		close(stop)
	})
	err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard})
	if err == nil || err.Error() != "the server is shutting down" {
		t.Errorf("the command ended with %v", err)
	}
	g.Stop()
}

var dialers = map[string]func(*rest.Config, *url.URL) (httpstream.Dialer, error){
	"WebSocket": func(cfg *rest.Config, u *url.URL) (httpstream.Dialer, error) {
		return portforward.NewSPDYOverWebsocketDialerForStreaming(u, cfg)
	},
	"SPDY": func(cfg *rest.Config, u *url.URL) (httpstream.Dialer, error) {
		transport, upgrader, err := spdy.RoundTripperFor(cfg)
		if err != nil {
			return nil, err
		}
		return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), nil
	},
}

// forwarded returns the local address of a port.
func forwarded(t testing.TB, dial func(*rest.Config, *url.URL) (httpstream.Dialer, error), cfg *rest.Config) string {
	t.Helper()
	d, err := dial(cfg, at(t, cfg, "/portforward"))
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, d, []string{"127.0.0.1"}, []string{":80"}, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(ctx, 0)
	t.Cleanup(func() { cancel(); g.Stop() })
	g.Go(func(context.Context) {
		if err := f.ForwardPorts(); err != nil && ctx.Err() == nil {
			t.Errorf("port-forward: %v", err)
		}
	})
	<-ready
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}

func TestPortForward(t *testing.T) {
	// The server answers when the client has sent everything.
	back := &container{forward: func(port int32, stream io.ReadWriteCloser) error {
		defer stream.Close()
		all, err := io.ReadAll(stream)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stream, "%d:%s", port, all)
		return err
	}}
	t.Run("remote", func(t *testing.T) { testPortForward(t, front(t, back, podOf("n1", "main"))) })
	t.Run("local", func(t *testing.T) { testPortForward(t, localFront(t, back, podOf("n1", "main"))) })
	t.Run("modern", func(t *testing.T) { testPortForward(t, front(t, newModern(t, back), podOf("n1", "main"))) })
}

func testPortForward(t *testing.T, cfg *rest.Config) {
	t.Helper()
	for name, dial := range dialers {
		t.Run(name, func(t *testing.T) {
			address := forwarded(t, dial, cfg)
			g := run.NewGroup(t.Context(), 0)
			for i := range 20 {
				g.Go(func(context.Context) {
					conn, err := net.Dial("tcp", address)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					fmt.Fprintf(conn, "request %d", i)
					if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
						t.Error(err)
					}
					got, err := io.ReadAll(conn)
					if want := fmt.Sprintf("80:request %d", i); err != nil || string(got) != want {
						t.Errorf("read %q, %v, want %q", got, err, want)
					}
				})
			}
			g.Wait()
		})
	}
}

// TestPortForwardKeepsBytes sends more than fits into any buffer, in both directions at the same time.
func TestPortForwardKeepsBytes(t *testing.T) {
	back := &container{forward: func(_ int32, stream io.ReadWriteCloser) error {
		defer stream.Close()
		_, err := io.Copy(stream, stream)
		return err
	}}
	sent := make([]byte, 5<<20+123)
	rand.NewChaCha8([32]byte{}).Read(sent)
	for side, front := range map[string]func(testing.TB, http.Handler, *corev1.Pod) *rest.Config{
		"remote": front, "local": localFront, "modern": func(t testing.TB, back http.Handler, pod *corev1.Pod) *rest.Config {
			return localFront(t, newModern(t, back.(*container)), pod)
		},
	} {
		for name, dial := range dialers {
			t.Run(side+"/"+name, func(t *testing.T) {
				conn, err := net.Dial("tcp", forwarded(t, dial, front(t, back, podOf("n1", "main"))))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				g := run.NewGroup(t.Context(), 0)
				g.Go(func(context.Context) {
					_, err := conn.Write(sent)
					if err := errors.Join(err, conn.(*net.TCPConn).CloseWrite()); err != nil {
						t.Error(err)
					}
				})
				got, err := io.ReadAll(conn)
				if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%d bytes came back, %v, want the %d that were sent", len(got), err, len(sent))
				}
				g.Wait()
			})
		}
	}
}
