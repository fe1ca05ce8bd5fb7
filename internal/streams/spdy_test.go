package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go returns its types
	"k8s.io/client-go/rest"
	clientspdy "k8s.io/client-go/transport/spdy"
	upstream "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/leaktest"
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
