package apiserver

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

// An exchange is one HTTP request and its answer.
type exchange struct {
	w    http.ResponseWriter
	r    *http.Request
	user *auth.User

	code    int // of the answer; 0 until its header is written
	subject subject

	conn     *connection    // nil without a listener of ours
	flow     *fairness.Flow // the user's; nil before it is known
	seated   atomic.Bool    // it holds a seat, see package fairness
	slow     bool           // it is counted among the slow answers instead; written before seated is false
	buf      *bytes.Buffer  // the body; nil if there is none
	held     int            // bytes that the body counts for
	received bool           // nothing more of the body is read
	sent     int            // bytes of an answer that has no pace yet
	out      *pace          // of the answer; nil while it is small
	long     bool           // it is a watch, a stream or a blocking read
}

// Header implements [http.ResponseWriter].
func (x *exchange) Header() http.Header { return x.w.Header() }

// WriteHeader implements [http.ResponseWriter].
func (x *exchange) WriteHeader(code int) {
	if x.code == 0 || x.code < 200 {
		x.code = code
	}
	x.w.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (x *exchange) Write(b []byte) (int, error) {
	if x.code == 0 {
		x.code = http.StatusOK
	}
	if x.out == nil {
		// What is complete has given back its seat, and if it is small answerTimeout is enough.
		if x.sent += len(b); x.sent <= smallAnswer && !x.seated.Load() {
			return x.w.Write(b)
		}
		x.paceAnswer()
	}
	written := 0
	for {
		x.out.beginStep()
		n, err := x.w.Write(b[written:min(written+pieceOfAnswer, len(b))])
		x.out.endStep(n)
		runtime.Gosched() // the client may read as fast as we write: other requests come first
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

const (
	smallAnswer   = 64 << 10 // the size up to which a complete answer has no pace
	pieceOfAnswer = 64 << 10 // what is written at once, so that progress shows
)

// paceAnswer replaces the deadline that every answer has by a pace, for one that is large.
func (x *exchange) paceAnswer() {
	x.out = &pace{cut: x.cutWrite, patience: stallTimeout}
	if x.seated.Load() {
		x.out.slow = x.giveUpSeat
	}
	// Where the connection has no deadlines, in tests, no client is slow either.
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{})
	x.out.begin()
}

// giveUpSeat turns an answer whose client is slow into one that holds no seat. It reports false if the user
// has too many of these.
func (x *exchange) giveUpSeat() bool {
	if x.flow.Take(fairness.Answers, 1) != nil {
		return false
	}
	x.slow = true
	x.stand()
	return true
}

// beginLong begins an answer that goes on for as long as the client wants: it has no deadline, but its client must read.
func (x *exchange) beginLong(kind fairness.Resource) (end func(), err error) {
	if err := x.flow.Take(kind, 1); err != nil {
		return nil, err
	}
	x.long = true
	x.out = &pace{cut: x.cutWrite, patience: stallTimeout, stalls: true}
	if x.seated.Load() { // it is about to send the first state of a watch
		x.out.slow = func() bool { x.stand(); return true }
	}
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{})
	return func() {
		x.endPace()
		x.flow.Return(kind, 1)
	}, nil
}

// endPace ends the pace of the answer. What is still buffered has a deadline again.
func (x *exchange) endPace() {
	if x.out != nil {
		x.out.stop()
		x.out = nil
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(stallTimeout))
	}
}

// Unwrap lets an [http.ResponseController] reach the wrapped writer.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

// Flush sends the written bytes.
func (x *exchange) Flush() {
	if x.code == 0 {
		x.code = http.StatusOK
	}
	if x.out != nil {
		x.out.beginStep()
		defer x.out.endStep(0)
	}
	// Both protocols can flush; an error is that of a lost connection, which the
	// next write finds, too.
	_ = http.NewResponseController(x.w).Flush()
}

// serve is the life of a request: who asks, may it, what does it want.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	growStack(0)
	s.flying.enter()
	defer s.flying.leave()
	x := &exchange{w: w, r: r}
	x.conn, _ = r.Context().Value(connectionKey{}).(*connection)
	if x.conn != nil {
		if r.Context().Err() != nil {
			x.conn.givenUp()
			return
		}
		x.conn.earned.Add(1)
	}
	start := time.Now()
	defer func() {
		if fault := recover(); fault != nil {
			if fault == http.ErrAbortHandler { //nolint:errorlint // a recovered value, compared as net/http does
				panic(fault)
			}
			s.opts.Log.ErrorContext(r.Context(), "panic while serving a request", "method", r.Method, "path", r.URL.Path, "err", run.Panicked(fault))
			if x.code != 0 {
				panic(http.ErrAbortHandler) // the answer is half written: cut it off
			}
			x.fail(apierrors.NewInternalError(errPanic))
		}
		if x.conn != nil && !x.long && r.Context().Err() != nil {
			x.conn.givenUp()
		}
		s.metrics.observe(x.subject, x.code, time.Since(start))
	}()
	if err := s.turnAway(x); err != nil {
		x.fail(err)
		return
	}
	var err error
	if s.opts.Auth != nil {
		if x.user, err = s.opts.Auth.Authenticate(r); err != nil {
			x.single(true)
			x.fail(err)
			return
		}
	}
	if x.user == nil {
		x.user = s.anonymous
		x.single(s.opts.Auth != nil)
	}
	if x.flow, err = s.flowOf(x); err != nil {
		x.Header().Set("Connection", "close")
		x.fail(err)
		return
	}
	defer x.leaveBody()
	if x.flow.Level() != fairness.Exempt && r.ProtoMajor == 1 {
		// Requests may come one after the other without a pause, all on this goroutine: others come first.
		defer runtime.Gosched()
	}
	if p := parsePath(r.URL.Path); p.resource != "" {
		s.serveResource(x, p)
		return
	}
	s.servePath(x)
}

// single closes an HTTP/2 connection after this request, as upstream does for clients without a
// good credential: only authenticated clients may use HTTP/2 streams.
func (x *exchange) single(unless bool) {
	if unless && x.r.ProtoMajor == 2 {
		x.Header().Set("Connection", "close")
	}
}

// turnAway returns the reason why a request is refused before its user is known, or nil.
func (s *Server) turnAway(x *exchange) error {
	if s.stopping.Load() {
		x.Header().Set("Connection", "close")
		return apierrors.NewServiceUnavailable("the server is shutting down")
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: x.r.URL.Path}, x.r.Method)
	}
	for name := range x.r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			// To go on as the user who asks would be more than was asked for.
			return apierrors.NewBadRequest("impersonation is not supported by this server: leave out --as, --as-uid and --as-group")
		}
	}
	return nil
}

// servePath serves the paths that are not resources.
func (s *Server) servePath(x *exchange) {
	p := x.r.URL.Path
	x.subject.verb = strings.ToLower(x.r.Method)
	if err := s.authorize(x.r.Context(), rbac.Attributes{User: x.user, Verb: x.subject.verb, Path: p}); err != nil {
		x.fail(err)
		return
	}
	var h http.Handler
	switch {
	case p == "/livez", p == "/readyz", p == "/healthz", strings.HasPrefix(p, "/livez/"), strings.HasPrefix(p, "/readyz/"), strings.HasPrefix(p, "/healthz/"):
		s.serveHealth(x)
		return
	case p == "/metrics":
		h = s.metrics.handler
	case p == "/version", p == "/version/", p == "/api", p == "/apis", strings.HasPrefix(p, "/api/"), strings.HasPrefix(p, "/apis/"):
		h = s.opts.Discovery
	case p == "/openapi", strings.HasPrefix(p, "/openapi/"):
		h = s.opts.OpenAPI
	}
	if h == nil {
		x.notFoundPage()
		return
	}
	if !s.begin(x) {
		return
	}
	defer x.finish()
	h.ServeHTTP(x, x.r)
}

// refusalPause is how long the refusal of a request takes, so that clients that repeat it at once, against Retry-After,
// don't keep the processors busy with refusals.
const refusalPause = 50 * time.Millisecond

// begin takes a seat for the request, or refuses it.
func (s *Server) begin(x *exchange) bool {
	if err := x.flow.Sit(x.r.Context()); err != nil {
		run.Pause(x.r.Context(), refusalPause)
		x.fail(err)
		return false
	}
	x.seated.Store(true)
	return true
}

// beginWrite reads the body and takes a seat for the request, or refuses it.
func (s *Server) beginWrite(x *exchange) bool {
	if err := x.receive(); err != nil {
		x.drop()
		x.fail(err)
		return false
	}
	if !s.begin(x) {
		x.drop()
		return false
	}
	return true
}

// stand gives back the seat.
func (x *exchange) stand() {
	if x.seated.CompareAndSwap(true, false) {
		x.flow.Leave()
	}
}

// finish gives back what begin and beginWrite took.
func (x *exchange) finish() {
	x.endPace()
	x.stand()
	if x.slow {
		x.slow = false
		x.flow.Return(fairness.Answers, 1)
	}
	x.drop()
}

// serveResource finds the kind and subresource that a path names and hands over to the
// verb.
func (s *Server) serveResource(x *exchange, p path) {
	t := target{user: x.user, namespace: p.namespace, name: p.name}
	t.kind = s.opts.Catalog.Resource(schema.GroupVersionResource{Group: p.group, Version: p.version, Resource: p.resource})
	if t.kind == nil && p.resource == "bindings" && p.name == "" {
		s.serveBindings(x, t, p)
		return
	}
	if t.kind != nil && p.subresource != "" {
		t.sub = t.kind.Subresource(p.subresource)
	}
	verb := verbOf(x.r, &p)
	x.subject = subject{verb: verb, group: p.group, resource: p.resource, subresource: p.subresource}
	if t.kind == nil || p.subresource != "" && t.sub == nil || !fits(&t, &p) {
		// Authorize first: a user who may not use the resource does not learn whether it exists.
		x.subject = subject{verb: verb}
		a := rbac.Attributes{
			User: x.user, Verb: verb, Group: p.group, Version: p.version, Resource: p.resource,
			Subresource: p.subresource, Namespace: p.namespace, Name: p.name,
		}
		if err := s.authorize(x.r.Context(), a); err != nil {
			x.fail(err)
			return
		}
		x.notFoundPage()
		return
	}
	if stream, ok := t.shape().(catalog.Stream); ok {
		s.connect(x, t, stream, verb, p.rest)
		return
	}
	if p.rest != "" {
		x.notFoundPage()
		return
	}
	if !serves(&t, verb) {
		if err := s.allow(x.r.Context(), &t, verb, nil, t.name); err != nil {
			x.fail(err)
			return
		}
		x.fail(apierrors.NewMethodNotSupported(t.kind.GR(), verb))
		return
	}
	if !writes(verb) && x.blocks() {
		s.serveBlocking(x, t, verb)
		return
	}
	if verb == verbWatch {
		s.serveWatch(x, t)
		return
	}
	if writes(verb) {
		// Authorize before reading the body.
		if err := s.allow(x.r.Context(), &t, verb, nil, t.name); err != nil {
			x.fail(err)
			return
		}
		t.allowed, t.agent = true, x.r.UserAgent()
		if !s.beginWrite(x) {
			return
		}
	} else if !s.begin(x) {
		return
	}
	defer x.finish()
	switch verb {
	case verbGet:
		s.serveGet(x, t)
	case verbList:
		s.serveList(x, t)
	case verbCreate:
		s.serveCreate(x, t)
	case verbUpdate:
		s.serveUpdate(x, t)
	case verbPatch:
		s.servePatch(x, t)
	case verbDelete:
		s.serveDelete(x, t)
	case verbDeleteCollection:
		s.serveDeleteCollection(x, t)
	}
}

// writes reports whether a request of that verb has a body that says what to do.
func writes(verb string) bool { return verb != verbGet && verb != verbList && verb != verbWatch }

// fits reports whether the path has a namespace where the kind has one. All
// namespaces together can be listed and watched, and nothing else.
func fits(t *target, p *path) bool {
	if t.kind.Namespaced {
		return p.namespace != "" || p.name == ""
	}
	return p.namespace == ""
}

// verbOf returns the verb, as authorization knows it, of a request.
func verbOf(r *http.Request, p *path) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case p.subresource != "":
			return verbGet
		case r.URL.RawQuery != "" && isTrue(r.URL.Query(), "watch"):
			return verbWatch
		case p.name == "":
			return verbList
		}
		return verbGet
	case http.MethodPost:
		return verbCreate
	case http.MethodPut:
		return verbUpdate
	case http.MethodPatch:
		return verbPatch
	}
	if p.name == "" {
		return verbDeleteCollection
	}
	return verbDelete
}

// serves reports whether the kind or subresource has that verb on such a path.
func serves(t *target, verb string) bool {
	if t.sub != nil {
		return slices.Contains(t.sub.Verbs, verb)
	}
	verbs := t.kind.Verbs
	if verbs == nil {
		verbs = catalog.StandardVerbs
	}
	if !slices.Contains(verbs, verb) {
		return false
	}
	switch verb {
	case verbCreate:
		return t.name == "" && (t.namespace != "" || !t.kind.Namespaced)
	case verbList:
		return t.name == ""
	case verbDeleteCollection:
		return t.name == "" && (t.namespace != "" || !t.kind.Namespaced)
	case verbUpdate, verbPatch, verbDelete, verbGet:
		return t.name != ""
	}
	return true
}

// connect hands a stream to its handler.
func (s *Server) connect(x *exchange, t target, stream catalog.Stream, verb, rest string) {
	if err := s.allow(x.r.Context(), &t, verb, nil, t.name); err != nil {
		x.fail(err)
		return
	}
	if !slices.Contains(t.sub.Verbs, verb) {
		x.fail(apierrors.NewMethodNotSupported(t.kind.GR(), verb))
		return
	}
	item, err := s.lookup(&t)
	if err != nil {
		x.fail(err)
		return
	}
	ctx, stop := s.streamContext(x.r.Context())
	defer stop()
	if err := s.admitConnect(ctx, &t, item); err != nil {
		x.fail(err)
		return
	}
	end, err := x.beginLong(fairness.Streams)
	if err != nil {
		x.fail(err)
		return
	}
	defer end()
	defer s.metrics.stream(x.subject)()
	s.opts.Connect[stream.Handler](x, x.r.WithContext(ctx), ConnectRequest{
		User: t.user, Kind: t.kind, Namespace: t.namespace, Name: t.name,
		Subresource: t.sub.Name, Path: rest, Object: item.Object(),
	})
}

// streamContext returns a context that ends with the request and, earlier than other
// requests, with the server.
func (s *Server) streamContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.streams, cancel)
	return ctx, func() { unhook(); cancel() }
}

// WriteError answers r with the status of err in the encoding that r accepts. It is for
// handlers of streams, before they write anything.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	x, ok := w.(*exchange)
	if !ok {
		x = &exchange{w: w, r: r}
	}
	x.fail(err)
}

// notFoundPage is what Kubernetes answers where there is nothing at all.
func (x *exchange) notFoundPage() {
	h := x.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	x.WriteHeader(http.StatusNotFound)
	x.writeText("404 page not found\n")
}

// media negotiates the encoding of the answer; it writes the refusal itself.
func (x *exchange) media(o codec.Offer) (codec.Media, bool) {
	m, err := codec.Negotiate(x.r.Header.Get("Accept"), o)
	if err != nil {
		x.fail(err)
		return m, false
	}
	if m.Encoding == codec.JSON && !m.Pretty {
		m.Pretty = x.wantsPretty()
	}
	return m, true
}

// wantsPretty reports whether a person reads the answer: it was asked for, or the
// client is one that people use by hand, as Kubernetes sees it.
func (x *exchange) wantsPretty() bool {
	if x.r.URL.RawQuery != "" && strings.Contains(x.r.URL.RawQuery, "pretty=") {
		return isTrue(x.r.URL.Query(), "pretty")
	}
	agent := x.r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// growStack makes the stack of a goroutine as large as a request needs it, at once. HTTP/2 serves each
// on a new goroutine, whose small stack would otherwise be copied into one of twice the
// size again and again.
//
//go:noinline
func growStack(i int) byte {
	var space [12 << 10]byte
	return space[i]
}
