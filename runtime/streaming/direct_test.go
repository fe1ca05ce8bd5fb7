package streaming

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/run"
)

// A source prints random bytes to both outputs, from pipes, and serves them on a port.
type source struct {
	t       *testing.T
	content []byte
	address string
	direct  chan bool // whether the kernel could move the bytes
}

func (s *source) ServeExec(ctx context.Context, _ *cri.ExecRequest, streams Streams) error {
	g := run.NewGroup(ctx, 0)
	for _, to := range []io.Writer{streams.Stdout, streams.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		g.Go(func(context.Context) {
			defer w.Close()
			if _, err := w.Write(s.content); err != nil {
				s.t.Error(err)
			}
		})
		g.Go(func(context.Context) {
			defer r.Close()
			s.copy(to, r)
		})
	}
	g.Wait()
	return nil
}

// copy copies as the runtime does.
func (s *source) copy(to io.Writer, from io.Reader) {
	direct, ok := to.(io.ReaderFrom)
	s.direct <- ok
	var err error
	if ok {
		_, err = direct.ReadFrom(from)
	} else {
		_, err = io.Copy(to, from)
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *source) ServeAttach(context.Context, *cri.AttachRequest, Streams) error {
	return errors.ErrUnsupported
}

func (s *source) ServePortForward(_ context.Context, _ string, _ int32, stream io.ReadWriteCloser, _ bool) error {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	s.copy(stream, conn)
	return stream.Close()
}

// TestOutputsArriveWhole reads more than all buffers hold, over each protocol.
func TestOutputsArriveWhole(t *testing.T) {
	content := make([]byte, 3<<20+12345)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back := &source{t: t, content: content, address: l.Addr().String(), direct: make(chan bool, 2)}
	s := New(Options{Handler: back, Gone: errors.New("gone")})
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(ctx, 0)
	defer g.Wait()
	defer cancel()
	defer l.Close()
	g.Go(func(context.Context) {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(content)
			_ = conn.Close()
		}
	})
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	<-s.Ready()
	exec := func() *url.URL {
		res, err := s.Exec(&cri.ExecRequest{ContainerId: "c", Cmd: []string{"x"}, Stdout: true, Stderr: true})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(res.GetUrl())
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	same := func(t *testing.T, direct bool, outputs ...hash.Hash) {
		t.Helper()
		want := sha256.Sum256(content)
		for i, o := range outputs {
			if !bytes.Equal(o.Sum(nil), want[:]) {
				t.Errorf("other bytes came from output %d", i)
			}
			if did := <-back.direct; did != direct {
				t.Errorf("moved by the kernel: %t, want %t", did, direct)
			}
		}
	}
	t.Run("exec over SPDY", func(t *testing.T) {
		u := exec()
		e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, http.MethodPost, u)
		if err != nil {
			t.Fatal(err)
		}
		out, errs := sha256.New(), sha256.New()
		if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: out, Stderr: errs}); err != nil {
			t.Fatal(err)
		}
		same(t, true, out, errs)
	})
	for protocol, direct := range map[string]bool{"v4.channel.k8s.io": true, "channel.k8s.io": false} {
		t.Run("exec over "+protocol, func(t *testing.T) {
			u := exec()
			c, err := websocket.NewConfig(strings.Replace(u.String(), "http:", "ws:", 1), "http://localhost")
			if err != nil {
				t.Fatal(err)
			}
			c.Protocol = []string{protocol}
			conn, err := websocket.DialConfig(c)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			outputs := map[byte]hash.Hash{channelOfStdout: sha256.New(), channelOfStderr: sha256.New()}
			for {
				var message []byte
				if err := websocket.Message.Receive(conn, &message); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if o := outputs[message[0]]; o != nil {
					_, _ = o.Write(message[1:])
				}
			}
			same(t, direct, outputs[channelOfStdout], outputs[channelOfStderr])
		})
	}
	t.Run("port-forward", func(t *testing.T) {
		res, err := s.PortForward(&cri.PortForwardRequest{PodSandboxId: "p"})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(res.GetUrl())
		if err != nil {
			t.Fatal(err)
		}
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: u.Host})
		if err != nil {
			t.Fatal(err)
		}
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u),
			[]string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		defer g.Wait()
		defer close(stop)
		g.Go(func(context.Context) {
			if err := f.ForwardPorts(); err != nil {
				t.Error(err)
			}
		})
		<-ready
		ports, err := f.GetPorts()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(ports[0].Local)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, conn); err != nil {
			t.Fatal(err)
		}
		same(t, true, sum)
	})
}
