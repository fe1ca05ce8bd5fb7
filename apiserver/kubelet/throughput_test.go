package kubelet_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	criexec "k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const transferred = 64 << 20 // bytes in one operation

// zeros writes so many zeros as a command does: in pieces of 32 KiB.
func zeros(w io.Writer) error {
	piece := make([]byte, 32<<10)
	for range transferred / len(piece) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkExecOutput copies the output of a command. The baseline is the same over one connection with TLS.
func BenchmarkExecOutput(b *testing.B) {
	back := &container{exec: func(_ context.Context, _ []string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan criexec.TerminalSize) error {
		return zeros(out)
	}}
	b.Run("TLS", func(b *testing.B) { plainTLS(b) })
	for name, connect := range transports {
		benchBoth(b, name, back, func(b *testing.B, cfg *rest.Config) {
			b.SetBytes(transferred)
			for b.Loop() {
				e, err := connect(cfg, at(b, cfg, "/exec?command=x&stdout=true"))
				if err != nil {
					b.Fatal(err)
				}
				var n counter
				if err := e.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdout: &n}); err != nil || n != transferred {
					b.Fatalf("%d bytes, %v", n, err)
				}
			}
		})
	}
}

// BenchmarkPortForward copies what a port of a pod sends.
func BenchmarkPortForward(b *testing.B) {
	back := &container{forward: func(_ int32, stream io.ReadWriteCloser) error {
		defer stream.Close()
		return zeros(stream)
	}}
	b.Run("TLS", func(b *testing.B) { plainTLS(b) })
	for name, dial := range dialers {
		benchBoth(b, name, back, func(b *testing.B, cfg *rest.Config) {
			address := forwarded(b, dial, cfg)
			b.SetBytes(transferred)
			for b.Loop() {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, conn); err != nil || n != transferred {
					b.Fatalf("%d bytes, %v", n, err)
				}
				_ = conn.Close()
			}
		})
	}
}

// benchBoth runs a benchmark with a node that is reached over TLS, and with one in the same process.
func benchBoth(b *testing.B, name string, back http.Handler, f func(*testing.B, *rest.Config)) {
	b.Run(name+"/remote", func(b *testing.B) { f(b, front(b, back, podOf("n1", "main"))) })
	b.Run(name+"/local", func(b *testing.B) { f(b, localFront(b, back, podOf("n1", "main"))) })
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// plainTLS is the baseline.
func plainTLS(b *testing.B) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = zeros(w) }))
	defer server.Close()
	client, err := rest.HTTPClientFor(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: []string{"http/1.1"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(transferred)
	for b.Loop() {
		resp, err := client.Get(server.URL)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || n != transferred {
			b.Fatalf("%d bytes, %v", n, err)
		}
	}
}
