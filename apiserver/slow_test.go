package apiserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// pipes is a listener whose connections hold nothing: who does not read makes the
// other side wait.
type pipes struct {
	conns chan net.Conn
	ended context.Context //nolint:containedctx // the life of the listener, ended by Close
	end   context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended.Done():
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.end(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial() net.Conn {
	mine, theirs := net.Pipe()
	p.conns <- theirs
	return mine
}

// Clients that ask and do not read hold up others for a while, and not for ever.
func TestSlowReadersGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory(t, store.Options{})
		opts := options(t, st)
		opts.MaxInFlight = 2
		s, err := apiserver.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
		listener := &pipes{conns: make(chan net.Conn)}
		listener.ended, listener.end = context.WithCancel(t.Context())
		srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Minute}
		g.Go(func(context.Context) {
			if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		defer func() {
			_ = srv.Close()
			g.Stop()
		}()
		local := s.As(boss)
		cm := configMap("big")
		cm.Data["k"] = strings.Repeat("x", 200_000)
		for _, name := range []string{"big", "bigger"} {
			cm.Name = name
			if _, err := local.Create(t.Context(), cmGVR, "default", "", cm, metav1.CreateOptions{}, ""); err != nil {
				t.Fatal(err)
			}
		}
		ask := func(path string) net.Conn {
			mine := listener.dial()
			if _, err := io.WriteString(mine, "GET "+path+" HTTP/1.1\r\nHost: x\r\nX-User: boss\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			return mine
		}
		code := func(c net.Conn) string {
			line, err := bufio.NewReader(c).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return strings.Fields(line)[1]
		}
		for _, path := range []string{configMaps, configMaps + "/big"} {
			defer ask(path).Close()
		}
		synctest.Wait()
		if c := code(ask(configMaps)); c != "429" {
			t.Errorf("with both slots taken: %s, want 429", c)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		last := ask(configMaps + "/big")
		if c := code(last); c != "200" {
			t.Errorf("a minute later: %s, want 200", c)
		}

		// Who reads on in time is given more time, and a watch on the same connection all
		// the time that it wants.
		patient := listener.dial()
		fmt.Fprintf(patient, "GET %s HTTP/1.1\r\nHost: x\r\nX-User: boss\r\n\r\n", configMaps)
		from := bufio.NewReaderSize(patient, 64)
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		piece := make([]byte, 1<<16)
		total := 0
		for {
			time.Sleep(10 * time.Second)
			n, err := io.ReadFull(resp.Body, piece)
			if total += n; err != nil {
				break
			}
		}
		if total < 400_000 {
			t.Errorf("a client that reads slowly got %d bytes: %s", total, piece[:min(total, 300)])
		}
		fmt.Fprintf(patient, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\nX-User: boss\r\n\r\n", pods)
		if resp, err = http.ReadResponse(from, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := local.Create(t.Context(), pdGVR, "default", "", pod("a"), metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
			t.Errorf("ten minutes into the watch: %q, %v", line, err)
		}
		_ = patient.Close()
		_ = last.Close()
	})
}
