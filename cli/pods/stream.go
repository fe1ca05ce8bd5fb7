package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/terminal"
)

// A streaming connects the user's streams to those of a container.
type streaming struct {
	session.Streams
	stdin, tty, quiet bool
	keys              session.DetachKeys // end attachments to terminals
	detached          bool               // the user has ended the last call with them
}

// raw reports whether the user's terminal becomes that of the container. If a terminal was wanted and the input is none, it
// says so and goes on without.
func (k *streaming) raw() bool {
	if !k.tty || !k.stdin {
		return false
	}
	if k.Terminal == nil {
		if !k.quiet {
			_, _ = fmt.Fprintln(k.Err, "Unable to use a TTY - input is not a terminal or the right kind of file")
		}
		return false
	}
	return true
}

// A call is a request for the streams of a container.
type call struct {
	subresource string // "exec" or "attach"
	pod         *corev1.Pod
	container   string
	command     []string
	tty         bool   // the container's side has a terminal
	raw         bool   // so has the user's
	redraw      bool   // change the size of the terminal once, so that the screen is drawn again
	detach      []byte // with raw: the keys that end the call; empty means none
}

// connect makes a call, and returns when it has ended: an [exec.CodeExitError] if the command has failed. When the user detaches
// it closes the connection, and leaves the rest to the node: not every runtime ends an attachment whose input has ended.
func (k *streaming) connect(ctx context.Context, c *client.REST, to call) error {
	query := url.Values{"container": {to.container}, "command": to.command, "stdout": {"true"}}
	opts := remotecommand.StreamOptions{Stdout: terminal.Raw(k.Out), Tty: to.tty}
	if k.stdin {
		query.Set("stdin", "true")
		opts.Stdin = k.In
	}
	if to.tty {
		query.Set("tty", "true")
	} else {
		query.Set("stderr", "true")
		opts.Stderr = terminal.Raw(k.Err)
	}
	e, err := newExecutor(c, podPath(to.pod, to.subresource), query)
	if err != nil {
		return err
	}
	inner, detach := context.WithCancelCause(ctx)
	defer detach(nil)
	if to.raw {
		fd := int(k.Terminal.Fd())
		before, err := term.MakeRaw(fd)
		if err != nil {
			return fmt.Errorf("the terminal cannot be used: %w", err)
		}
		defer func() { _ = term.Restore(fd, before) }()
		sizes := newTerminalSizes(inner, k.Terminal, to.redraw)
		defer sizes.stop()
		opts.TerminalSizeQueue = sizes
	}
	if to.raw && len(to.detach) > 0 {
		opts.Stdin = &detachReader{in: k.In, keys: to.detach, detach: func() { detach(errDetached) }}
	}
	// The library logs errors that it returns as well, and the end of a connection that was interrupted.
	err = e.StreamWithContext(klog.NewContext(inner, klog.New(nil)), opts)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if k.detached = errors.Is(context.Cause(inner), errDetached); k.detached {
		return nil
	}
	return err
}

// ended returns the result of a command whose call ended with err.
func (k *streaming) ended(err error) error {
	var failed exec.CodeExitError
	if !errors.As(err, &failed) {
		return err
	}
	if !k.quiet {
		_, _ = fmt.Fprintf(k.Err, "command terminated with exit code %d\n", failed.Code)
	}
	return exit.With(failed.Code, nil)
}

func podPath(pod *corev1.Pod, subresource string) string {
	return strings.Join([]string{"/api/v1/namespaces", pod.Namespace, "pods", pod.Name, subresource}, "/")
}

// newExecutor returns a caller over WebSocket, and over SPDY if the server or a proxy before it has no WebSocket.
func newExecutor(c *client.REST, path string, query url.Values) (remotecommand.Executor, error) {
	cfg, at := streamConfig(c), c.URL(path, query)
	socket, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, at.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(cfg, http.MethodPost, at)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, noWebSocket)
}

// streamConfig returns the client's configuration without a limit of time.
func streamConfig(c *client.REST) *rest.Config {
	cfg := rest.CopyConfig(c.Config())
	cfg.Timeout = 0
	return cfg
}

// noWebSocket reports whether an error says that there is no WebSocket.
func noWebSocket(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// terminalSizes reports the size of a terminal, first and when it changes.
type terminalSizes struct {
	ctx      context.Context //nolint:containedctx // Next has none
	terminal *os.File
	next     []remotecommand.TerminalSize
	changed  chan os.Signal
}

func newTerminalSizes(ctx context.Context, tty *os.File, redraw bool) *terminalSizes {
	t := &terminalSizes{ctx: ctx, terminal: tty, changed: make(chan os.Signal, 1)}
	terminal.NotifyResized(t.changed)
	if size := t.size(); size != nil {
		if redraw {
			t.next = append(t.next, remotecommand.TerminalSize{Width: size.Width + 1, Height: size.Height + 1})
		}
		t.next = append(t.next, *size)
	}
	return t
}

func (t *terminalSizes) size() *remotecommand.TerminalSize {
	width, height, err := term.GetSize(int(t.terminal.Fd()))
	if err != nil {
		return nil
	}
	const most = 1<<16 - 1
	return &remotecommand.TerminalSize{Width: uint16(min(width, most)), Height: uint16(min(height, most))} // bounded
}

func (t *terminalSizes) stop() { signal.Stop(t.changed) }

// Next implements [remotecommand.TerminalSizeQueue].
func (t *terminalSizes) Next() *remotecommand.TerminalSize {
	if len(t.next) > 0 {
		size := t.next[0]
		t.next = t.next[1:]
		return &size
	}
	for {
		select {
		case <-t.ctx.Done():
			return nil
		case <-t.changed:
			if size := t.size(); size != nil {
				return size
			}
		}
	}
}

// captured returns streams for a command of ours, such as tar. What a container writes to them instead is escaped where a
// [terminal.Writer] is behind them: it is not the output that a user asked for.
func captured(in io.Reader, out, errOut io.Writer) session.Streams {
	return session.Streams{In: in, Out: writer{out}, Err: writer{errOut}}
}

// A writer is an io.Writer that [terminal.Raw] returns as it is.
type writer struct{ io.Writer }
