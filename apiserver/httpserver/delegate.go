package httpserver

import (
	"strings"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// delegate authorizes a request for a version that another server serves, and passes it on.
func (s *Server) delegate(x *exchange, to *aggregation.Service, p path) {
	gv := to.GroupVersion()
	if p.resource == "" {
		x.subject = pathSubject(x.r.Method, "/apis")
		verb := strings.ToLower(x.r.Method)
		s.classify(x, priority.Request{Verb: verb, Path: x.r.URL.Path})
		if err := s.objects.Authorize(x.r.Context(), rbac.Attributes{User: x.user, Verb: verb, Path: x.r.URL.Path}); err != nil {
			x.fail(err)
			return
		}
		s.passOn(x, to, false)
		return
	}
	verb := verbOf(x.r, &p)
	x.subject = subject{verb: verbLabels[verb], group: gv.Group, version: gv.Version, scope: "cluster"}
	if s.opts.Aggregator.Remote().Has(gv, p.resource) {
		x.subject.resource = p.resource // other words of clients do not become labels
	}
	switch {
	case p.name != "", verb == operation.VerbCreate:
		x.subject.scope = "resource"
	case p.namespace != "":
		x.subject.scope = "namespace"
	}
	x.writes = writes(verb)
	s.classify(x, priority.Request{Verb: verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.scope()})
	a := attributesOf(x.r)
	a.User = x.user
	if err := s.objects.Authorize(x.r.Context(), a); err != nil {
		x.fail(err)
		return
	}
	s.passOn(x, to, verb == operation.VerbWatch || longRunning(p.subresource))
}

// passOn passes a request on. It waits for a seat as others do, and gives the seat back before the other server works on it.
func (s *Server) passOn(x *exchange, to *aggregation.Service, long bool) {
	long = long || aggregation.IsUpgrade(x.r)
	if !s.begin(x) {
		return
	}
	defer x.finish()
	kind := fairness.Streams
	if long && x.subject.verb == verbLabels[operation.VerbWatch] {
		kind = fairness.Watches
	}
	r := x.r
	if long {
		ctx, stop := s.streamContext(r.Context())
		defer stop()
		r = r.WithContext(ctx)
		defer s.metrics.stream(&x.subject)()
	}
	end, err := x.beginLong(kind)
	if err != nil {
		x.fail(err)
		return
	}
	defer end()
	x.out.long = long
	x.seat.release()
	to.ServeCall(x, r, aggregation.Call{User: x.user, Long: long, Fail: x.fail, Log: s.opts.Log})
}

// describedElsewhere returns the Service whose server has the OpenAPI document at a path, or nil.
func (s *Server) describedElsewhere(p string) *aggregation.Service {
	rest, ok := strings.CutPrefix(p, "/openapi/v3/apis/")
	if !ok {
		return nil
	}
	return s.opts.Aggregator.Route("/apis/" + rest)
}
