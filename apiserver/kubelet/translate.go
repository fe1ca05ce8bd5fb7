package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	compat "k8s.io/apimachinery/pkg/util/httpstream"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/run"
)

// statusLimit is how long a client may take to read output and the status if the server stops. Otherwise it has the time of an idle
// stream: one that gets no status takes the command for successful.
const statusLimit = 2 * time.Second

// pingPeriod is how often an idle connection to a node is tested, as by upstream.
const pingPeriod = 5 * time.Second

// translate serves the WebSocket protocol v5.channel.k8s.io to the client, and is a client of the node over SPDY. It
// opens the WebSocket before it asks the node, so an error of the node is a Status in the error channel. stream runs
// the command or attaches to the container, until the process or the context ends. Output is read from the node as the
// client reads it.
func (c *Client) translate(w http.ResponseWriter, r *http.Request, s streams, stream func(context.Context, remotecommand.StreamOptions) error) {
	// The library of SPDY logs every connection that breaks; what matters of it is in the Status.
	ctx := klog.NewContext(r.Context(), klog.New(nil))
	sizes := make(sizes, 1)
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer g.Wait() // the end of the connection ends the reading of sizes

	_ = c.sockets.Serve(w, r, channels.Options{ // an error has been answered
		Protocols: []string{constants.StreamProtocolV5Name}, Kinds: s.channels(), Idle: lingering.Limit,
	}, func(socket *channels.Conn) {
		g.Go(func(context.Context) { channels.ReadSizes(socket.Channel(constants.StreamResize), sizes) })
		translate(ctx, socket, s, sizes, stream)
	})
}

// translate is [Client.translate] with an open WebSocket.
func translate(outer context.Context, socket *channels.Conn, s streams, sizes sizes, stream func(context.Context, remotecommand.StreamOptions) error) {
	// An empty message means that the connection is open.
	if _, err := socket.Channel(s.firstOutput()).Write(nil); err != nil {
		return
	}
	context.AfterFunc(outer, func() { socket.LimitWrites(statusLimit) })
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	opts := remotecommand.StreamOptions{Tty: s.tty}
	if s.stdin {
		opts.Stdin = socket.Channel(constants.StreamStdIn)
	}
	if s.stdout {
		opts.Stdout = socket.Channel(constants.StreamStdOut)
	}
	if s.stderr {
		opts.Stderr = socket.Channel(constants.StreamStdErr)
	}
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		select {
		case <-socket.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	if s.tty {
		opts.TerminalSizeQueue = sizes
	}
	status := statusOf(stream(ctx, opts))
	if outer.Err() != nil {
		// Without a status the client would take the end for that of the command.
		status = &apierrors.NewServiceUnavailable("the server is shutting down").ErrStatus
	}
	if body, err := json.Marshal(status); err == nil && (ctx.Err() == nil || outer.Err() != nil) {
		_, _ = socket.Channel(constants.StreamErr).Write(body) // a client that has gone needs no answer
	}
}

// overSPDY returns a function that runs a command or attaches to a container on a node.
func overSPDY(to *url.URL, transport http.RoundTripper) func(context.Context, remotecommand.StreamOptions) error {
	return func(ctx context.Context, opts remotecommand.StreamOptions) error {
		held := &window{}
		if opts.Stdout != nil {
			opts.Stdout = wideChannel{opts.Stdout, held}
		}
		if opts.Stderr != nil {
			opts.Stderr = wideChannel{opts.Stderr, held}
		}
		up := upgrading{transport, held}
		executor, err := remotecommand.NewSPDYExecutorRejectRedirects(up, up, http.MethodPost, to)
		if err != nil {
			return err
		}
		return executor.StreamWithContext(ctx, opts)
	}
}

// channels returns the directions of the channels of a WebSocket.
func (s streams) channels() []channels.Kind {
	kinds := []channels.Kind{constants.StreamErr: channels.Write, constants.StreamResize: channels.Read}
	if s.stdin {
		kinds[constants.StreamStdIn] = channels.Read
	}
	if s.stdout {
		kinds[constants.StreamStdOut] = channels.Write
	}
	if s.stderr {
		kinds[constants.StreamStdErr] = channels.Write
	}
	return kinds
}

// firstOutput returns the lowest channel to which the server writes.
func (s streams) firstOutput() int {
	switch {
	case s.stdout:
		return constants.StreamStdOut
	case s.stderr:
		return constants.StreamStdErr
	}
	return constants.StreamErr
}

// sizes has the newest size of the client's terminal that was not applied yet. The channel has room for one, and is
// closed when there are no more.
type sizes chan channels.Size

// Next implements [remotecommand.TerminalSizeQueue].
func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return (*remotecommand.TerminalSize)(&size)
}

// statusOf returns the Status that ends a stream.
func statusOf(err error) *metav1.Status {
	if err == nil {
		return &metav1.Status{Status: metav1.StatusSuccess}
	}
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		status := s.Status()
		return &status
	}
	if ended := (exec.CodeExitError{}); errors.As(err, &ended) && ended.Exited() {
		return &metav1.Status{
			Status: metav1.StatusFailure, Reason: constants.NonZeroExitCodeReason,
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", ended),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: constants.ExitCodeCauseType, Message: fmt.Sprint(ended.ExitStatus())}}},
		}
	}
	return &apierrors.NewInternalError(err).ErrStatus
}

// upgrading makes requests for SPDY, and connections of the answers. They are read when the window has room.
type upgrading struct {
	transport http.RoundTripper
	held      *window
}

// RoundTrip implements [http.RoundTripper].
func (u upgrading) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, conn, err := openSPDY(r.Context(), r.URL, u.transport, r.Header.Values(httpstream.HeaderProtocolVersion))
	if conn == nil {
		return resp, err
	}
	if conn.ReadWriteCloser, err = u.held.bound(r.Context(), conn.ReadWriteCloser); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	resp.Body = keptBody{conn}
	return resp, nil
}

// A keptBody is a connection that is not closed with the answer that it came with.
type keptBody struct{ conn *nodeConn }

func (keptBody) Read([]byte) (int, error) { return 0, io.EOF }
func (keptBody) Close() error             { return nil }

// NewConnection makes a SPDY connection of an answer. It is [clientspdy.Upgrader].
func (u upgrading) NewConnection(resp *http.Response) (compat.Connection, error) {
	return clientspdy.NewUpgraderForStreaming(connector{}).NewConnection(resp)
}

// A connector implements [httpstream.UpgradeRoundTripper] for answers of [upgrading].
type connector struct{}

// RoundTrip is not used.
func (connector) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported }

// NewConnection returns the connection of an answer, or the node's words as an error.
func (connector) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	kept, ok := resp.Body.(keptBody)
	if ok {
		return spdy.NewClientConnectionWithPings(kept.conn, pingPeriod)
	}
	return nil, refusal(resp)
}

// refusal returns the words of a node that did not upgrade a connection.
func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, longestRefusal))
	if err != nil {
		return errors.New("unable to upgrade connection: unable to read error from server response")
	}
	return fmt.Errorf("unable to upgrade connection: %s", strings.TrimSpace(string(text)))
}
