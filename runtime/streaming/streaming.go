package streaming

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/run"
)

// Streams are those of one client. A stream that the client did not ask for is nil.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan remotecommand.TerminalSize
}

// A Handler does what the streams are for. It may be called concurrently. It returns an error of type
// k8s.io/utils/exec.CodeExitError for a command that ended with an exit code other than zero.
type Handler interface {
	ServeExec(ctx context.Context, req *cri.ExecRequest, streams Streams) error
	ServeAttach(ctx context.Context, req *cri.AttachRequest, streams Streams) error

	// ServePortForward connects one stream to a port of a pod. It closes the stream, for writing, when the pod sends
	// nothing any more. halfClose is false for a protocol in which a client cannot learn that: then the end of what the
	// pod sends is the end of the stream.
	ServePortForward(ctx context.Context, pod string, port int32, stream io.ReadWriteCloser, halfClose bool) error
}

// Options configures a [Server].
type Options struct {
	Handler Handler
	Gone    error        // the cause that a handler's context gets if the client disconnects
	Log     *slog.Logger // nil means slog.Default
}

// Limits of requests and connections. The durations are those of the kubelet and of containerd.
const (
	tokenLife      = time.Minute
	maxTokens      = 1000             // that wait for their request
	createTimeout  = 30 * time.Second // for the client to create its streams
	headerTimeout  = 30 * time.Second
	maxHeaderBytes = 64 << 10
)

// A Server serves streams. Make one with [New].
type Server struct {
	opts  Options
	ready chan struct{}

	mu     sync.Mutex
	tokens map[string]ticket // guarded by mu
	base   string            // guarded by mu; of URLs; "" unless it serves
	active sync.WaitGroup    // calls of the handler; added to with mu, while it serves
}

// ticket is a request that waits for its client.
type ticket struct {
	serve   http.HandlerFunc
	expires time.Time
}

// New returns a server that does not listen yet.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &Server{opts: opts, ready: make(chan struct{}), tokens: map[string]ticket{}}
}

// Ready is closed when the server listens.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run listens on a free port of 127.0.0.1 and serves until ctx is cancelled; then it ends all streams, waits for the
// handler and returns nil.
// Without that address, which is so in a network namespace whose loopback interface is down, it waits for ctx, and
// requests are refused.
func (s *Server) Run(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		s.opts.Log.Error("exec, attach and port-forward are not possible: can't listen on 127.0.0.1", "err", err)
		close(s.ready)
		<-ctx.Done()
		return nil
	}
	s.setBase("http://" + listener.Addr().String())
	defer s.active.Wait()
	defer s.setBase("")
	server := &http.Server{
		Handler: http.HandlerFunc(s.route), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:    slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelError),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return c.(*conn).watch(ctx, s.opts.Gone) },
	}
	group := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer group.Stop()
	ended := make(chan error, 1)
	group.Go(func(context.Context) { ended <- server.Serve(&watchingListener{listener}) })
	close(s.ready)
	select {
	case err := <-ended:
		return fmt.Errorf("streams: %w", err)
	case <-ctx.Done():
	}
	_ = server.Close()
	return nil
}

func (s *Server) setBase(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base
}

// Exec returns a URL at which the request is executed.
func (s *Server) Exec(req *cri.ExecRequest) (*cri.ExecResponse, error) {
	if err := checkStreams(req.GetTty(), req.GetStdin(), req.GetStdout(), req.GetStderr()); err != nil {
		return nil, err
	}
	url, err := s.issue("exec", func(w http.ResponseWriter, r *http.Request) {
		o := &remotecommand.Options{Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr(), TTY: req.GetTty()}
		do := command(func(streams Streams) error { return s.opts.Handler.ServeExec(r.Context(), req, streams) })
		remotecommand.ServeExec(w, r, &session{s: s, asked: o, do: do}, "", "", req.GetContainerId(), req.GetCmd(), o,
			lingering.Limit, createTimeout, remotecommand.SupportedStreamingProtocols)
	})
	return &cri.ExecResponse{Url: url}, err
}

// Attach returns a URL at which the client is attached.
func (s *Server) Attach(req *cri.AttachRequest) (*cri.AttachResponse, error) {
	if err := checkStreams(req.GetTty(), req.GetStdin(), req.GetStdout(), req.GetStderr()); err != nil {
		return nil, err
	}
	url, err := s.issue("attach", func(w http.ResponseWriter, r *http.Request) {
		o := &remotecommand.Options{Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr(), TTY: req.GetTty()}
		do := command(func(streams Streams) error { return s.opts.Handler.ServeAttach(r.Context(), req, streams) })
		remotecommand.ServeAttach(w, r, &session{s: s, asked: o, do: do}, "", "", req.GetContainerId(), o,
			lingering.Limit, createTimeout, remotecommand.SupportedStreamingProtocols)
	})
	return &cri.AttachResponse{Url: url}, err
}

// PortForward returns a URL at which ports of a pod are forwarded. The ports of the request are those of the WebSocket
// protocol; clients of SPDY name one for each stream.
func (s *Server) PortForward(req *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	o, err := portforward.BuildV4Options(req.GetPort())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	url, err := s.issue("portforward", func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, &forwarder{s: s, request: r}, req.GetPodSandboxId(), "", o,
			lingering.Limit, createTimeout, portforward.SupportedProtocols)
	})
	return &cri.PortForwardResponse{Url: url}, err
}

// checkStreams refuses what cannot be served, with the words of other runtimes.
func checkStreams(tty, in, out, errs bool) error {
	if tty && errs {
		return status.Error(codes.InvalidArgument, "tty and stderr cannot both be true")
	}
	if !in && !out && !errs {
		return status.Error(codes.InvalidArgument, "one of stdin, stdout, or stderr must be set")
	}
	return nil
}

// issue makes a URL that is good for one request (S1).
func (s *Server) issue(verb string, serve http.HandlerFunc) (string, error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == "" {
		return "", status.Error(codes.Unavailable, "streams are not served: the runtime can't listen on 127.0.0.1, or it stops")
	}
	if len(s.tokens) >= maxTokens {
		for token, t := range s.tokens {
			if now.After(t.expires) {
				delete(s.tokens, token)
			}
		}
	}
	if len(s.tokens) >= maxTokens {
		return "", status.Error(codes.ResourceExhausted, "maximum number of in-flight requests exceeded")
	}
	path := "/" + verb + "/" + rand.Text()
	s.tokens[path] = ticket{serve: serve, expires: now.Add(tokenLife)}
	return s.base + path, nil
}

// route serves the request of a token.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	t, ok := s.tokens[r.URL.Path]
	delete(s.tokens, r.URL.Path)
	s.mu.Unlock()
	switch {
	case !ok || time.Now().After(t.expires):
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		http.Error(w, "the method must be GET or POST", http.StatusMethodNotAllowed)
	default:
		out := taking(w, r)
		defer out.close()
		t.serve(out, r)
	}
}

// command is what a session runs.
type command func(Streams) error

// session passes the streams of one request on to the handler. It implements the interfaces of package remotecommand.
type session struct {
	s     *Server
	asked *remotecommand.Options
	do    command
}

func (e *session) ExecInContainer(_ context.Context, _, _, _ string, _ []string,
	in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	return e.run(in, out, errs, resize)
}

func (e *session) AttachContainer(_ context.Context, _, _, _ string,
	in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize,
) error {
	return e.run(in, out, errs, resize)
}

// run leaves out the streams that were not asked for: a client may create others.
func (e *session) run(in io.Reader, out, errs io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
	var streams Streams
	if e.asked.Stdin && in != nil {
		streams.Stdin = in
	}
	if e.asked.Stdout && out != nil {
		streams.Stdout = out
	}
	if e.asked.Stderr && errs != nil {
		streams.Stderr = errs
	}
	streams.Resize = resize
	return e.s.handle(func() error { return e.do(streams) })
}

var errStopping = errors.New("the runtime stops")

// handle calls the handler (S3).
func (s *Server) handle(f func() error) error {
	s.mu.Lock()
	serving := s.base != ""
	if serving {
		s.active.Add(1)
	}
	s.mu.Unlock()
	if !serving {
		return errStopping
	}
	defer s.active.Done()
	err := run.Catch(f)
	var fault *run.PanicError
	switch {
	case errors.As(err, &fault):
		s.opts.Log.Error("a stream panicked: this is a bug", "err", fault)
	case err != nil:
		s.opts.Log.Debug("a stream ended with an error, which its client got", "err", err)
	}
	return err
}

// forwarder passes the streams of one port-forward request on to the handler.
type forwarder struct {
	s       *Server
	request *http.Request
}

func (f *forwarder) PortForward(_ context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	_, spdy := stream.(interface{ Reset() error }) // a stream of SPDY can be closed in one direction
	return f.s.handle(func() error { return f.s.opts.Handler.ServePortForward(f.request.Context(), pod, port, stream, spdy) })
}
