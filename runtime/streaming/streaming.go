package streaming

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/streams"
)

// A Handler does what the streams are for. It may be called concurrently. It returns an error of type
// k8s.io/utils/exec.CodeExitError for a command that ended with an exit code other than zero.
type Handler interface {
	ServeExec(ctx context.Context, req *cri.ExecRequest, client streams.Client) error
	ServeAttach(ctx context.Context, req *cri.AttachRequest, since *time.Time, client streams.Client) error

	// DialPort connects to a port of a pod.
	DialPort(ctx context.Context, pod string, port int32) (*net.TCPConn, error)
}

// Options configures a [Server].
type Options struct {
	Handler Handler

	// Avoid returns the TCP ports of 127.0.0.1 at which connections do not reach the server, such as host ports of pods. Run
	// calls it once. Nil means that there are none.
	Avoid func() map[uint16]bool

	Gone error        // the cause that a handler's context gets if the client disconnects
	Log  *slog.Logger // nil means slog.Default
}

// Limits of requests and connections. The durations are those of the kubelet and of containerd.
const (
	tokenLife      = time.Minute
	maxTokens      = 1000 // that wait for their request
	headerTimeout  = 30 * time.Second
	maxHeaderBytes = 64 << 10
)

// A Server serves streams. Make one with [New].
type Server struct {
	opts     Options
	ready    chan struct{}
	streams  streams.Server
	forwards *forwards // connections
	opened   *forwards // pairs of streams for connections, also incomplete ones, and the ones of connections that are being refused

	mu     sync.Mutex
	tokens map[string]ticket // guarded by mu
	base   string            // guarded by mu; of URLs; "" unless it serves
	port   uint16            // guarded by mu; see Port
	active sync.WaitGroup    // streams; added to with mu, while it serves
}

// ticket is a request that waits for its client. One of command and ports is set.
type ticket struct {
	command *streams.Command
	ports   *streams.Ports
	expires time.Time
}

// New returns a server that does not listen yet.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	limit := forwardLimit(descriptorLimit())
	return &Server{
		opts: opts, ready: make(chan struct{}), tokens: map[string]ticket{}, streams: streams.Server{Gone: opts.Gone, Log: opts.Log},
		forwards: newForwards(limit), opened: newForwards(pairsForForward * limit),
	}
}

// Ready is closed when the server listens.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Port returns the TCP port of 127.0.0.1 at which streams are served, or were last; 0 if there was none. It does not change once
// [Server.Ready] is closed.
func (s *Server) Port() uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// Run listens on a free port of 127.0.0.1 that is not to be avoided, and serves until ctx is cancelled; then it ends all streams, waits for the
// handler and returns nil.
// Without that address, which is so in a network namespace whose loopback interface is down, it waits for ctx, and
// requests are refused.
func (s *Server) Run(ctx context.Context) error {
	var avoid map[uint16]bool
	if s.opts.Avoid != nil {
		avoid = s.opts.Avoid()
	}
	listener, err := listen(ctx, avoid)
	if err != nil {
		s.opts.Log.Error("exec, attach and port-forward are not possible: can't listen on 127.0.0.1", "err", err)
		close(s.ready)
		<-ctx.Done()
		return nil
	}
	s.mu.Lock()
	s.port = portOf(listener)
	s.mu.Unlock()
	s.setBase("http://" + listener.Addr().String())
	defer s.active.Wait()
	defer s.setBase("")
	server := &http.Server{
		Handler: http.HandlerFunc(s.route), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:    slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelError),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	group := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer group.Stop()
	ended := make(chan error, 1)
	group.Go(func(context.Context) { ended <- server.Serve(listener) })
	close(s.ready)
	select {
	case err := <-ended:
		return fmt.Errorf("streams: %w", err)
	case <-ctx.Done():
	}
	_ = server.Close()
	return nil
}

// listen listens on a port of 127.0.0.1 that is not to be avoided: one that the kernel chooses, or the first free one if
// it chooses none of these.
func listen(ctx context.Context, avoid map[uint16]bool) (net.Listener, error) {
	const choices, first = 20, 1024
	var config net.ListenConfig
	for range choices {
		l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil || !avoid[portOf(l)] {
			return l, err
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	err := errors.New("pods have all ports of the host")
	for port := first; port <= math.MaxUint16; port++ {
		if avoid[uint16(port)] {
			continue
		}
		var l net.Listener
		if l, err = config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return l, nil
		}
	}
	return nil, err
}

func portOf(l net.Listener) uint16 { return l.Addr().(*net.TCPAddr).AddrPort().Port() }

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
	url, err := s.issue("exec", ticket{command: &streams.Command{
		Asked:  streams.Asked{Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr(), Terminal: req.GetTty()},
		Failed: "error executing command in container",
		Run: func(ctx context.Context, client streams.Client) error {
			return s.opts.Handler.ServeExec(ctx, req, client)
		},
	}})
	return &cri.ExecResponse{Url: url}, err
}

// Attach returns a URL at which the client is attached. Since is for the handler.
func (s *Server) Attach(req *cri.AttachRequest, since *time.Time) (*cri.AttachResponse, error) {
	if err := checkStreams(req.GetTty(), req.GetStdin(), req.GetStdout(), req.GetStderr()); err != nil {
		return nil, err
	}
	url, err := s.issue("attach", ticket{command: &streams.Command{
		Asked:  streams.Asked{Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr(), Terminal: req.GetTty()},
		Failed: "error attaching to container",
		Run: func(ctx context.Context, client streams.Client) error {
			return s.opts.Handler.ServeAttach(ctx, req, since, client)
		},
	}})
	return &cri.AttachResponse{Url: url}, err
}

// PortForward returns a URL at which ports of a pod are forwarded. The ports of the request are those of the WebSocket
// protocol; clients of SPDY name one for each stream.
func (s *Server) PortForward(req *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	url, err := s.issue("portforward", ticket{ports: &streams.Ports{
		Pod: req.GetPodSandboxId(), Named: req.GetPort(),
		Open:  func() (func(), error) { return s.opened.begin(req.GetPodSandboxId()) },
		Begin: func() (func(), error) { return s.forwards.begin(req.GetPodSandboxId()) },
		Dial: func(ctx context.Context, port int32) (*net.TCPConn, error) {
			return s.opts.Handler.DialPort(ctx, req.GetPodSandboxId(), port)
		},
	}})
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
func (s *Server) issue(verb string, t ticket) (string, error) {
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
	t.expires = now.Add(tokenLife)
	s.tokens[path] = t
	return s.base + path, nil
}

// redeem returns the request of a token, once.
func (s *Server) redeem(path string) (ticket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[path]
	delete(s.tokens, path)
	return t, ok && !time.Now().After(t.expires)
}

// route serves the request of a token.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	t, ok := s.redeem(r.URL.Path)
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		http.Error(w, "the method must be GET or POST", http.StatusMethodNotAllowed)
	case !s.serve(func() { s.answer(w, r, t) }):
		http.Error(w, errStopping.Error(), http.StatusServiceUnavailable)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, t ticket) {
	if t.command != nil {
		s.streams.ServeCommand(w, r, *t.command)
	} else {
		s.streams.ServePorts(w, r, *t.ports)
	}
}

var errStopping = errors.New("the runtime stops")

// serve calls f, unless the server does not serve. Run waits for it.
func (s *Server) serve(f func()) bool {
	s.mu.Lock()
	serving := s.base != ""
	if serving {
		s.active.Add(1)
	}
	s.mu.Unlock()
	if !serving {
		return false
	}
	defer s.active.Done()
	f()
	return true
}
