package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

// An exchange is one HTTP request and its answer.
type exchange struct {
	w    http.ResponseWriter
	r    *http.Request
	user *auth.User

	id    [1]string     // of the request's audit events, even if there are none; the value of a header
	audit *audit.Record // nil: the request is not recorded

	code     int // of the answer; 0 until its header is written
	size     int // of the answer so far, in bytes
	subject  subject
	writes   bool     // it may change objects
	warnings []string // of the answer

	conn *connection    // nil without a listener of ours
	flow *fairness.Flow // the user's; nil before it is known
	seat seating
	in   incoming
	out  outgoing
}

// serve serves a request by the user that its credential names.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) { s.serveAs(w, r, nil) }

// serveAs is the life of a request: authenticate, authorize, perform. The user is nil if it is not known yet.
func (s *Server) serveAs(w http.ResponseWriter, r *http.Request, user *auth.User) {
	growStack(0)
	s.flying.enter()
	defer s.flying.leave()
	x := &exchange{w: w, r: r, user: user, subject: subject{verb: "other"}}
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
				x.audit.Complete()
				panic(fault)
			}
			if x.audit != nil {
				x.audit.Panicked(fmt.Sprint(fault))
				x.audit = nil
			}
			s.opts.Log.ErrorContext(r.Context(), "panic while serving a request", "method", r.Method, "path", r.URL.Path, "err", run.Panicked(fault))
			if x.code != 0 {
				panic(http.ErrAbortHandler) // the answer is half written: cut it off
			}
			x.fail(apierrors.NewInternalError(operation.ErrPanic))
		}
		if x.conn != nil && !x.out.long && r.Context().Err() != nil {
			x.conn.givenUp()
		}
		x.audit.Complete()
		took := time.Since(start)
		s.metrics.observe(&x.subject, x.code, x.size, took, x.seat.waited)
		s.logRequest(x, took)
	}()
	x.identify()
	if err := s.turnAway(x); err != nil {
		x.fail(err)
		return
	}
	var err error
	if s.opts.Auth != nil && user == nil {
		if x.user, err = s.opts.Auth.Authenticate(r); err != nil {
			s.metrics.judge(authenticationError, start)
			x.single(true)
			s.refuse(x, err)
			return
		}
		if x.user != nil {
			s.metrics.judge(authenticationSuccess, start)
			s.metrics.identified(x.user.Name)
		} else {
			s.metrics.judge(authenticationFailure, start)
		}
	}
	if x.user == nil {
		x.user = s.anonymous
		x.single(s.opts.Auth != nil)
	}
	if s.opts.Audit != nil && !s.beginAudit(x) {
		return
	}
	if x.flow, err = s.flowOf(x); err != nil {
		x.Header().Set("Connection", "close")
		x.fail(err)
		return
	}
	defer x.leaveBody()
	// The request counts for its sender.
	if err := s.impersonate(x); err != nil {
		x.fail(err)
		return
	}
	if x.flow.Level() != fairness.Exempt && r.ProtoMajor == 1 {
		// Requests may come one after the other without a pause, all on this goroutine: others come first.
		defer runtime.Gosched()
	}
	p := parsePath(r.URL.Path)
	end, err := x.limitTime(&p)
	if err != nil {
		x.fail(err)
		return
	}
	defer end()
	if !s.supports(x.r, &p) {
		s.refuseMethod(x)
		return
	}
	if other := s.opts.Aggregator.Route(r.URL.Path); other != nil {
		s.delegate(x, other, p)
		return
	}
	if p.resource != "" {
		verb := verbOf(x.r, &p)
		s.classify(x, priority.Request{Verb: verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.scope()})
		s.serveResource(x, p, verb)
		return
	}
	x.subject = pathSubject(r.Method, r.URL.Path)
	verb := strings.ToLower(r.Method)
	s.classify(x, priority.Request{Verb: verb, Path: r.URL.Path})
	s.servePath(x, verb)
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
	return nil
}

// impersonate makes the request one of the user that its headers name, if its sender may do that in one of the ways that
// there are. The error is that of the first way.
func (s *Server) impersonate(x *exchange) error {
	ways, err := auth.ImpersonationsOf(x.r.Header, x.user)
	if err != nil {
		return err
	}
	var first error
	for i := range ways {
		err := s.impersonateBy(x, &ways[i])
		if err == nil {
			x.user = ways[i].User
			x.audit.Impersonates(x.user)
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// mayImpersonate checks one right. The decision is not that of the request, which audit records.
func (s *Server) mayImpersonate(ctx context.Context, a rbac.Attributes) error {
	if d := s.opts.Authorizer.Authorize(ctx, a); !d.Allowed {
		return rbac.Forbidden(a, d)
	}
	return nil
}

// impersonateBy returns nil if the sender of a request may impersonate in this way.
func (s *Server) impersonateBy(x *exchange, m *auth.Impersonation) error {
	ctx := x.r.Context()
	if m.On != "" {
		a := attributesOf(x.r)
		a.User, a.Verb = m.Requestor, m.On+a.Verb
		if err := s.mayImpersonate(ctx, a); err != nil {
			return err
		}
	}
	attributes := func(c *auth.Claim) rbac.Attributes {
		return rbac.Attributes{
			User: m.Requestor, Verb: m.Verb, Group: c.Group, Version: c.Version, Resource: c.Resource,
			Subresource: c.Subresource, Namespace: c.Namespace, Name: c.Name,
		}
	}
	var tried, allowed *auth.Claim
	for i := range m.Claims {
		c := &m.Claims[i]
		if c.Refused != "" {
			return rbac.Forbidden(attributes(c), rbac.Decision{Reason: c.Refused})
		}
		if c.All != nil && c.All != tried {
			if tried = c.All; s.mayImpersonate(ctx, attributes(c.All)) == nil {
				allowed = c.All
			}
		}
		if c.All != nil && c.All == allowed {
			continue
		}
		if err := s.mayImpersonate(ctx, attributes(c)); err != nil {
			return err
		}
	}
	return nil
}

// attributesOf returns what authorization needs to know about a request, without its user.
func attributesOf(r *http.Request) rbac.Attributes {
	p := parsePath(r.URL.Path)
	if p.resource == "" {
		return rbac.Attributes{Verb: strings.ToLower(r.Method), Path: r.URL.Path}
	}
	a := rbac.Attributes{
		Verb: verbOf(r, &p), Group: p.group, Version: p.version, Resource: p.resource, Subresource: p.subresource,
		Namespace: p.namespace, Name: p.name,
	}
	if where, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector")); err == nil && p.name == "" && !p.watch {
		a.Fields = where
		if name, ok := where.RequiresExactMatch("metadata.name"); ok {
			a.Name = name
		}
	}
	return a
}

// servePath serves the paths that are not resources.
func (s *Server) servePath(x *exchange, verb string) {
	p := x.r.URL.Path
	if h := s.opts.Reviewed[p]; h != nil {
		if !s.begin(x) {
			return
		}
		defer x.finish()
		h.ServeHTTP(x, x.r.WithContext(auth.WithUser(x.r.Context(), x.user)))
		return
	}
	if err := s.objects.Authorize(x.r.Context(), rbac.Attributes{User: x.user, Verb: verb, Path: p}); err != nil {
		x.fail(err)
		return
	}
	var h http.Handler
	switch {
	case p == "/livez", p == "/readyz", p == "/healthz", strings.HasPrefix(p, "/livez/"), strings.HasPrefix(p, "/readyz/"), strings.HasPrefix(p, "/healthz/"):
		s.serveHealth(x)
		return
	case strings.HasPrefix(p, debugPriority):
		s.serveDump(x, p[len(debugPriority):])
		return
	case p == "/":
		h = http.HandlerFunc(s.servePaths)
	case p == "/version", p == "/version/", p == "/api", p == "/apis", strings.HasPrefix(p, "/api/"), strings.HasPrefix(p, "/apis/"):
		h = s.opts.Discovery
	case p == auth.DiscoveryPath, p == auth.KeysPath:
		h = s.opts.Issuer
	case s.describedElsewhere(p) != nil:
		s.passOn(x, s.describedElsewhere(p), false)
		return
	case p == "/openapi", strings.HasPrefix(p, "/openapi/"):
		h = s.opts.OpenAPI
	default:
		if h = s.opts.Paths[p]; h == nil {
			h = s.debugPath(p)
		}
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

// servePaths lists the paths that are served, as upstream does at the root.
func (s *Server) servePaths(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(metav1.RootPaths{Paths: s.paths()}, "", "  ")
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	w.Header()["Content-Type"] = contentTypes[codec.JSON]
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// paths returns the paths that are served and have no parameters.
func (s *Server) paths() []string {
	paths := []string{"/api", "/apis", "/configz", "/flagz", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/statusz", "/version"}
	if s.opts.Issuer != nil {
		paths = append(paths, auth.DiscoveryPath, auth.KeysPath)
	}
	paths = slices.AppendSeq(paths, maps.Keys(s.opts.Paths))
	paths = slices.AppendSeq(paths, maps.Keys(s.opts.Reviewed))
	for _, v := range s.opts.Aggregator.Remote().Versions() {
		paths = append(paths, "/apis/"+v.Group, "/apis/"+v.Group+"/"+v.Version)
	}
	for _, k := range s.opts.Catalog.Kinds() {
		root := "/apis/" + k.Group
		if k.Group == "" {
			root = "/api"
		}
		paths = append(paths, root, root+"/"+k.Version)
	}
	for _, endpoint := range []string{"healthz", "livez", "readyz"} {
		paths = append(paths, "/"+endpoint)
		for _, c := range s.checks(context.Background(), endpoint) {
			paths = append(paths, "/"+endpoint+"/"+c.name)
		}
	}
	if s.opts.Profiling {
		paths = append(paths, "/debug/pprof", "/debug/pprof/profile", "/debug/pprof/symbol", "/debug/pprof/trace")
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// refusalPause is how long the refusal of a request takes, so that clients that repeat it at once, against Retry-After,
// don't keep the processors busy with refusals.
const refusalPause = 250 * time.Millisecond

// begin takes seats for the request, or refuses it.
func (s *Server) begin(x *exchange) bool {
	var err error
	if x.seat.ticket, err = s.priority.Enter(x.r.Context(), x.seat.class, max(x.seat.count, 1)); err != nil {
		x.refuse(err)
		return false
	}
	x.seat.waited = x.seat.ticket.Waited()
	x.seat.inFlight = &s.metrics.inFlight[0]
	if x.writes {
		x.seat.inFlight = &s.metrics.inFlight[1]
	}
	x.seat.inFlight.Add(1)
	x.seat.taken.Store(true)
	return true
}

// refuse answers a request for which there is no seat or no memory, after a pause in which it holds neither: a body that
// counted would make others be refused before theirs is read, which ends their connections, and a handshake costs far more
// than a refusal.
func (x *exchange) refuse(err error) {
	x.dropBody()
	run.Pause(x.r.Context(), refusalPause)
	x.fail(err)
}

// beginWrite reads the body and takes a seat for the request, or refuses it.
func (s *Server) beginWrite(x *exchange) bool {
	if err := x.receiveBody(); err != nil {
		if refused := (*fairness.RefusedError)(nil); errors.As(err, &refused) {
			x.refuse(err)
			return false
		}
		x.dropBody()
		x.fail(err)
		return false
	}
	return s.begin(x)
}

// finish gives back what begin and beginWrite took.
func (x *exchange) finish() {
	x.endPace()
	x.seat.end(x.flow)
	x.dropBody()
}

// serveResource finds the kind and subresource that a path names and hands over to the
// verb.
func (s *Server) serveResource(x *exchange, p path, verb string) {
	t := operation.Target{User: x.user, Namespace: p.namespace, Name: p.name}
	t.Kind = s.opts.Catalog.Resource(p.gvr())
	if t.Kind == nil && p.resource == "bindings" && p.name == "" && !p.watch {
		s.serveBindings(x, t, p)
		return
	}
	if t.Kind != nil && p.subresource != "" {
		t.Sub = t.Kind.Subresource(p.subresource)
	}
	if t.Kind == nil || p.subresource != "" && t.Sub == nil || !fits(&t, &p) {
		s.serveMissing(x, p, verb, t.Kind == nil)
		return
	}
	x.subject, x.writes = subjectOf(x.r, &t, &p, verb), writes(verb)
	if d := t.Kind.Deprecation(); d != "" {
		x.warn([]string{d})
	}
	if stream, ok := t.Shape().(catalog.Stream); ok {
		s.connect(x, t, stream, verb, p.rest)
		return
	}
	if p.rest != "" {
		s.unknown(x, &p)
		return
	}
	if !t.Serves(verb) || p.watch && x.r.Method != http.MethodGet {
		if err := s.objects.Allow(x.r.Context(), &t, verb, nil, t.Name); err != nil {
			x.fail(err)
			return
		}
		x.fail(apierrors.NewMethodNotSupported(t.Kind.GR(), verb))
		return
	}
	if !writes(verb) && x.blocks() {
		s.serveBlocking(x, t, verb)
		return
	}
	if verb == operation.VerbWatch || verb == operation.VerbList {
		x.seat.count = s.seatsOf(x, &t, verb)
	}
	if p.watch { // a selector of fields does not widen its user's rights, as upstream
		if err := s.objects.Allow(x.r.Context(), &t, verb, nil, t.Name); err != nil {
			x.fail(err)
			return
		}
		t.Allowed = true
	}
	if verb == operation.VerbWatch {
		s.serveWatch(x, t)
		return
	}
	if writes(verb) {
		// Authorize before reading the body.
		if err := s.objects.Allow(x.r.Context(), &t, verb, nil, t.Name); err != nil {
			x.fail(err)
			return
		}
		if strings.Contains(x.r.URL.RawQuery, past.Parameter+"=") { // to parse it takes a while
			if err := notAt(x.query()); err != nil {
				x.fail(err)
				return
			}
		}
		t.Allowed, t.Agent = true, x.r.UserAgent()
		if !s.beginWrite(x) {
			return
		}
	} else if !s.begin(x) {
		return
	}
	defer x.finish()
	switch verb {
	case operation.VerbGet:
		s.serveGet(x, t)
	case operation.VerbList:
		s.serveList(x, t)
	case operation.VerbCreate:
		s.serveCreate(x, t)
	case operation.VerbUpdate:
		s.serveUpdate(x, t)
	case operation.VerbPatch:
		s.servePatch(x, t)
	case operation.VerbDelete:
		s.serveDelete(x, t)
	case operation.VerbDeleteCollection:
		s.serveDeleteCollection(x, t)
	}
}

// writes reports whether a request of that verb has a body with a change.
func writes(verb string) bool {
	return verb != operation.VerbGet && verb != operation.VerbList && verb != operation.VerbWatch
}

// fits reports whether the path has a namespace where the kind has one. All
// namespaces together can be listed and watched, and nothing else. Subresources have no path for watches.
func fits(t *operation.Target, p *path) bool {
	if p.watch && p.subresource != "" {
		return false
	}
	if t.Kind.Namespaced {
		return p.namespace != "" || p.name == ""
	}
	return p.namespace == ""
}

// verbOf returns the verb, as authorization knows it, of a request.
func verbOf(r *http.Request, p *path) string {
	if p.watch {
		return operation.VerbWatch // whatever the method is, as upstream
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case p.subresource != "" || p.name != "":
			return operation.VerbGet // whatever the parameter watch is, as upstream: one object is watched by a field selector
		case r.URL.RawQuery != "" && isTrue(r.URL.Query(), "watch"):
			return operation.VerbWatch
		}
		return operation.VerbList
	case http.MethodPost:
		return operation.VerbCreate
	case http.MethodPut:
		return operation.VerbUpdate
	case http.MethodPatch:
		return operation.VerbPatch
	case http.MethodDelete:
		if p.name == "" {
			return operation.VerbDeleteCollection
		}
		return operation.VerbDelete
	}
	return operation.VerbOptions // and of all others, as upstream
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
// size again and again. The call alone does it, as the function needs that much: nothing writes to the space if i is 0.
//
//go:noinline
func growStack(i int) byte {
	if i == 0 {
		return 0
	}
	var space [12 << 10]byte
	return space[i]
}
