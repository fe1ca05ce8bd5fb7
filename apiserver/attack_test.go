package apiserver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// An attacked server listens on a port of loopback.
type attacked struct {
	address string
	client  *tls.Config
}

func serveAttacked(t *testing.T) attacked {
	t.Helper()
	l, config, client := listen(t)
	st := memory(t, store.Options{})
	opts := options(t, st)
	opts.Listeners, opts.TLS, opts.MaxConnections = []net.Listener{l}, config, 8000
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	t.Cleanup(g.Stop)
	g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
	g.Go(func(ctx context.Context) {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-st.Ready()
	<-s.Ready()
	for i := range 4 { // a list that does not fit into the buffers of a connection
		cm := configMap(fmt.Sprint("big", i))
		cm.Data["k"] = strings.Repeat("x", 900_000)
		if _, err := s.As(boss).Create(t.Context(), cmGVR, "default", "", cm, metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	return attacked{l.Addr().String(), client.Transport.(*http.Transport).TLSClientConfig}
}

// get asks for an object as a user of a group, over a connection of its own, and returns the code of the answer.
func (a attacked) get(ctx context.Context, group string) (int, error) {
	transport := &http.Transport{TLSClientConfig: a.client.Clone(), ForceAttemptHTTP2: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+a.address+configMaps+"/big0", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-User", "boss")
	req.Header.Set("X-Group", group)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// Whatever a user holds, administrators, nodes and other users are answered.
func TestAttacksDoNotKeepOthersOut(t *testing.T) {
	for _, attack := range apiservertest.Attacks() {
		t.Run(attack.Name, func(t *testing.T) {
			a := serveAttacked(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g := run.NewGroup(ctx, 0)
			defer g.Stop()
			held := make(chan struct{})
			// A quarter of the connections is more than the seats and the places in the queue that one user has.
			target := apiservertest.Target{
				Address: a.address, TLS: a.client, Create: configMaps, List: configMaps,
				Header: http.Header{"X-User": {"boss"}, "X-Group": {"system:serviceaccounts"}},
			}
			g.Go(func(ctx context.Context) { attack.Run(ctx, target, attack.Connections/4, func() { close(held) }) })
			<-held
			for range 2 {
				for _, group := range []string{"system:masters", "system:nodes", "users"} {
					if code, err := a.get(t.Context(), group); err != nil || code != http.StatusOK {
						t.Errorf("a user of %s got %d, %v", group, code, err)
					}
				}
			}
		})
	}
}
