package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

// Protocols over SPDY. Since v2 a command can fail with a message, since v3 a terminal can change its size, since v4 the result is a
// Status.
const (
	spdyV1    = "channel.k8s.io"
	spdyV2    = "v2." + spdyV1
	spdyV3    = "v3." + spdyV1
	spdyV4    = "v4." + spdyV1
	spdyPorts = "portforward.k8s.io"
)

// Headers of streams.
const (
	streamType    = "streamType"
	portHeader    = "port"
	requestHeader = "requestID"
)

// Values of the header for the type of a stream.
const (
	typeError  = "error"
	typeStdin  = "stdin"
	typeStdout = "stdout"
	typeStderr = "stderr"
	typeResize = "resize"
	typeData   = "data"
)

// spdyCreateLimit is for the client to create its streams, as in the kubelet and containerd.
const spdyCreateLimit = 30 * time.Second

var (
	errCreateLimit = errors.New("timed out waiting for client to create streams")
	errNoMore      = errors.New("all streams of the command were created before")
)

// A spdyCommand is a command whose streams are served over SPDY.
type spdyCommand struct {
	stdin, stdout, stderr, terminal bool // what the client asked for

	// run does the work, and returns the result for the client. ctx is cancelled when the connection ends. resize has the sizes of the
	// terminal as JSON. A stream that the client has not created is nil.
	run func(ctx context.Context, protocol string, client spdyClient) (result []byte)
}

// A spdyClient has the streams of a client.
type spdyClient struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	resize         io.Reader
}

// upgradeSPDY answers a request with an upgrade to SPDY, or with an error.
func upgradeSPDY(w http.ResponseWriter, r *http.Request, server *spdy.Server, accept func(*spdy.Stream) error) (*spdy.Conn, error) {
	if !headerHas(r, httpstream.HeaderConnection, httpstream.HeaderUpgrade) || !headerHas(r, httpstream.HeaderUpgrade, "SPDY/3.1") {
		err := fmt.Errorf("unable to upgrade: missing upgrade headers in request: %#v", r.Header)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, err
	}
	w.Header().Add(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	w.Header().Add(httpstream.HeaderUpgrade, "SPDY/3.1")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffers, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("unable to upgrade: %w", err)
	}
	return server.New(conn, buffers.Reader, spdy.Options{Accept: accept, Idle: lingering.Limit})
}

func headerHas(r *http.Request, name, value string) bool {
	return strings.Contains(strings.ToLower(r.Header.Get(name)), strings.ToLower(value))
}

// serveCommandSPDY runs a command for a client of SPDY. It returns when the connection has ended.
func serveCommandSPDY(w http.ResponseWriter, r *http.Request, server *spdy.Server, c spdyCommand) error {
	protocol, err := httpstream.Handshake(r, w, []string{spdyV4, spdyV3, spdyV2, spdyV1})
	if err != nil {
		return err
	}
	streams := c.streams(protocol)
	conn, err := upgradeSPDY(w, r, server, streams.accept)
	if err != nil {
		return err
	}
	g := run.NewGroup(context.WithoutCancel(r.Context()), 0) // which is cancelled already if the client has gone
	defer g.Wait()
	defer conn.Close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	g.Go(func(context.Context) {
		defer cancel()
		_ = conn.Run(r.Context())
	})
	if err := streams.wait(conn); err != nil {
		return err
	}
	result := c.run(ctx, protocol, streams.begin(protocol))
	if errs := streams.created[typeError]; errs != nil {
		_, _ = errs.Write(result) // a client that has gone needs none
	}
	streams.end()
	return nil
}

// commandStreams are the streams of one client of a command.
type commandStreams struct {
	resizes bool          // the protocol has a stream for sizes
	all     chan struct{} // closed when all have come

	mu      sync.Mutex
	missing int          // so many have not come
	last    *spdy.Stream // that has come
	created map[string]*spdy.Stream
}

func (c *spdyCommand) streams(protocol string) *commandStreams {
	s := &commandStreams{
		resizes: protocol == spdyV3 || protocol == spdyV4, all: make(chan struct{}),
		missing: 1, created: map[string]*spdy.Stream{},
	}
	for _, asked := range []bool{c.stdin, c.stdout, c.stderr, c.terminal && s.resizes} {
		if asked {
			s.missing++
		}
	}
	return s
}

// accept implements the function of [spdy.Options]. As upstream's server, it counts the streams of known types, even if the client
// did not ask for these, and opens others, too.
func (s *commandStreams) accept(stream *spdy.Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing == 0 {
		return errNoMore
	}
	kind := stream.Header().Get(streamType)
	switch kind {
	case typeStdin:
	case typeError, typeStdout, typeStderr:
		stream.CloseRead() // content that is not read would stop the connection
	case typeResize:
		if !s.resizes {
			stream.CloseRead()
			return nil
		}
	default:
		stream.CloseRead()
		return nil
	}
	s.created[kind], s.last = stream, stream
	if s.missing--; s.missing == 0 {
		close(s.all)
	}
	return nil
}

// wait waits until the client has created all streams.
func (s *commandStreams) wait(conn *spdy.Conn) error {
	limit := time.NewTimer(spdyCreateLimit)
	defer limit.Stop()
	select {
	case <-s.all:
		return s.last.WaitOpen()
	case <-limit.C:
		return errCreateLimit
	case <-conn.Done():
		return io.ErrUnexpectedEOF
	}
}

// begin returns the streams for a command. Clients of the first protocol expect that nothing comes from the server in two of them.
func (s *commandStreams) begin(protocol string) (client spdyClient) {
	in, errs := s.created[typeStdin], s.created[typeError]
	if protocol == spdyV1 {
		if in != nil {
			_ = in.Close()
		}
		if errs != nil {
			_ = errs.Reset()
		}
	}
	if in != nil {
		client.stdin = in
	}
	if out := s.created[typeStdout]; out != nil {
		client.stdout = out
	}
	if out := s.created[typeStderr]; out != nil {
		client.stderr = out
	}
	if sizes := s.created[typeResize]; sizes != nil {
		client.resize = sizes
	}
	return client
}

// end ends the streams for output. A reset, which the end of the connection would be, can overtake what a client has not read.
func (s *commandStreams) end() {
	for _, kind := range []string{typeStdout, typeStderr, typeError} {
		if stream := s.created[kind]; stream != nil {
			_ = stream.Close() // v1 has reset the one for errors
		}
	}
}

// forwardFunc connects a stream to a port of a pod, until both have ended or ctx is cancelled.
// Goroutines of its own are in the group.
type forwardFunc func(ctx context.Context, g *run.Group, port int32, stream io.ReadWriteCloser) error

// A portService is what a client of SPDY is served with.
type portService struct {
	pod     string
	open    func() (end func(), err error) // as in [Ports]
	forward forwardFunc
}

// servePortsSPDY forwards ports of a pod for a client of SPDY. Each connection of the client's side has two streams. It returns when the
// connection to the client has ended.
func servePortsSPDY(w http.ResponseWriter, r *http.Request, server *spdy.Server, service portService) error {
	if _, err := httpstream.Handshake(r, w, []string{spdyPorts}); err != nil {
		return err
	}
	return servePairs(r.Context(), service, func(accept func(*spdy.Stream) error) (*spdy.Conn, error) {
		return upgradeSPDY(w, r, server, accept)
	})
}

// servePairs serves a connection to a client.
func servePairs(ctx context.Context, service portService, connect func(accept func(*spdy.Stream) error) (*spdy.Conn, error)) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	p := &portPairs{portService: service, group: g, waiting: map[string]*portPair{}}
	conn, err := connect(p.accept)
	if err != nil {
		return err
	}
	return conn.Run(ctx)
}

// portPairs are the pairs of streams of a client.
type portPairs struct {
	portService
	group *run.Group

	mu      sync.Mutex
	waiting map[string]*portPair // incomplete ones by the number of their request
}

// A portPair has the streams of one forwarded connection.
type portPair struct {
	request    string
	complete   chan struct{} // closed when both streams have come
	data, errs *spdy.Stream  // nil before they have come
	port       int32         // of data
	wrong      bool          // a third stream has come
}

// accept implements the function of [spdy.Options].
func (p *portPairs) accept(s *spdy.Stream) error {
	port, err := portOf(s)
	if err != nil {
		return err
	}
	kind := s.Header().Get(streamType)
	switch kind {
	case typeData:
	case typeError:
		s.CloseRead() // content that is not read would stop the connection
	case "":
		return fmt.Errorf("%q header is required", streamType)
	default:
		return fmt.Errorf("invalid stream type %q", kind)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	request := requestOf(s)
	pair := p.waiting[request]
	if pair == nil {
		if pair, err = p.begin(request); err != nil {
			return err
		}
	}
	if err := pair.add(kind, s, port); err != nil {
		if errs := pair.errs; !pair.wrong { // once: the client may not read
			pair.wrong = true
			p.group.Go(func(context.Context) { report(errs, "error processing stream for request %s: %v", request, err) })
		}
		return err
	}
	if pair.data != nil && pair.errs != nil {
		delete(p.waiting, request)
		close(pair.complete)
	}
	return nil
}

// begin begins to serve a pair, of which no stream has come. It is called with the lock.
func (p *portPairs) begin(request string) (*portPair, error) {
	end, err := p.open()
	if err != nil {
		return nil, err
	}
	pair := &portPair{request: request, complete: make(chan struct{})}
	if !p.group.Go(func(ctx context.Context) { defer end(); p.serve(ctx, pair) }) {
		end()
		return nil, context.Canceled
	}
	p.waiting[request] = pair
	return pair, nil
}

// portOf returns the port that a stream is for.
func portOf(s *spdy.Stream) (int32, error) {
	text := s.Header().Get(portHeader)
	if text == "" {
		return 0, fmt.Errorf("%q header is required", portHeader)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("unable to parse %q as a port: %w", text, err)
	}
	if port < 1 {
		return 0, fmt.Errorf("port %q must be > 0", text)
	}
	return int32(port), nil
}

// requestOf returns the number of the request that a stream belongs to. Old clients send none. They create the stream for data directly
// after the one for errors.
func requestOf(s *spdy.Stream) string {
	if request := s.Header().Get(requestHeader); request != "" {
		return request
	}
	if s.Header().Get(streamType) == typeError {
		return strconv.FormatInt(int64(s.ID()), 10)
	}
	return strconv.FormatInt(int64(s.ID())-2, 10)
}

// add adds a stream for a port, unless there is one of its type.
func (p *portPair) add(kind string, s *spdy.Stream, port int32) error {
	to := &p.data
	if kind == typeError {
		to = &p.errs
	}
	if *to != nil {
		return fmt.Errorf("%s stream already assigned", kind)
	}
	*to = s
	if kind == typeData {
		p.port = port
	}
	return nil
}

// serve waits for both streams of a pair, and serves it.
func (p *portPairs) serve(ctx context.Context, pair *portPair) {
	if p.wait(ctx, pair) {
		p.forwardPair(ctx, pair)
	}
}

// wait reports whether both streams of a pair have come. A stream that has come alone is reset after a while.
func (p *portPairs) wait(ctx context.Context, pair *portPair) bool {
	limit := time.NewTimer(spdyCreateLimit)
	defer limit.Stop()
	select {
	case <-pair.complete:
		return true
	case <-limit.C:
		p.giveUp(pair)
	case <-ctx.Done():
	}
	return false
}

// giveUp resets the stream that has come without the other one.
func (p *portPairs) giveUp(pair *portPair) {
	p.mu.Lock()
	data, errs := pair.data, pair.errs
	if p.waiting[pair.request] == pair {
		delete(p.waiting, pair.request)
	}
	p.mu.Unlock()
	report(errs, "(request=%s) timed out waiting for streams", pair.request)
	reset(data, errs)
}

// forwardPair has a complete pair served. An error resets both streams, by which a client knows that its connection has failed. A
// client that does not want any more of a connection resets the stream for data itself.
func (p *portPairs) forwardPair(ctx context.Context, pair *portPair) {
	if pair.data.WaitOpen() != nil || pair.errs.WaitOpen() != nil {
		return // the client has gone
	}
	err := p.forward(ctx, p.group, pair.port, pair.data)
	if err != nil && !errors.Is(err, spdy.ErrReset) {
		report(pair.errs, "error forwarding port %d to pod %s, uid : %v", pair.port, p.pod, err)
		reset(pair.data, pair.errs)
		return
	}
	_ = pair.data.Close() // forward may have done that
	pair.data.CloseRead()
	_ = pair.errs.Close()
}

// report sends a text to a client, if it has created a stream for errors.
func report(errs *spdy.Stream, format string, args ...any) {
	if errs != nil {
		_, _ = fmt.Fprintf(errs, format, args...) // a client that has gone needs none
	}
}

func reset(streams ...*spdy.Stream) {
	for _, s := range streams {
		if s != nil {
			_ = s.Reset()
		}
	}
}
