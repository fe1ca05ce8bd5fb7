package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/operation"
)

var errAudit = errors.New("failed to store audit event") // of a sink in the mode blocking-strict

// identify gives the request the ID of its audit events, which is the one that the client has chosen if there is one, and sends it
// with the answer.
func (x *exchange) identify() {
	if x.id[0] = x.r.Header.Get(audit.HeaderID); x.id[0] == "" {
		x.id[0] = audit.NewID()
	}
	x.Header()[audit.HeaderID] = x.id[:]
}

// recordOf returns the record of a request whose user is known, or is nil.
func (s *Server) recordOf(x *exchange) *audit.Record {
	at := audit.Attributes{User: x.user}
	if p := parsePath(x.r.URL.Path); p.resource != "" {
		at.Verb, at.Group, at.Version = verbOf(x.r, &p), p.group, p.version
		at.Resource, at.Subresource, at.Namespace, at.Name = p.resource, p.subresource, p.namespace, p.name
	} else {
		at.Verb, at.Path = strings.ToLower(x.r.Method), x.r.URL.Path
	}
	r := s.opts.Audit.Begin(&at)
	r.Over(x.r, x.id[0])
	return r
}

// beginAudit begins the record of a request. It reports false if it has refused the request.
func (s *Server) beginAudit(x *exchange) bool {
	r := s.recordOf(x)
	if !r.Received() {
		x.fail(apierrors.NewInternalError(errAudit))
		return false
	}
	if r != nil {
		x.audit = r
		x.r = x.r.WithContext(audit.With(x.r.Context(), r))
	}
	return true
}

// refuse answers a request without a good credential.
func (s *Server) refuse(x *exchange, err error) {
	if s.opts.Audit == nil {
		x.fail(err)
		return
	}
	r := s.recordOf(x)
	r.Status(asStatus(err))
	r.Answered(asStatus(err))
	x.fail(err)
	r.Refused(x.code)
}

// audited begins the record of a request in this process.
func (l *Local) audited(ctx context.Context, t *operation.Target, verb string, sent runtime.Object) (context.Context, *audit.Record, error) {
	a := l.server.opts.Audit
	if a == nil {
		return ctx, nil, nil
	}
	r := a.Begin(&audit.Attributes{
		User: l.user, Verb: verb, Group: t.Kind.Group, Version: t.Kind.Version, Resource: t.Kind.Resource,
		Subresource: t.SubName(), Namespace: t.Namespace, Name: t.Name,
	})
	if r == nil {
		return ctx, nil, nil
	}
	r.Inside(uriOf(t), l.agent)
	if !r.Received() {
		return ctx, nil, apierrors.NewInternalError(errAudit)
	}
	if sent != nil {
		r.Sent(sent)
	}
	return audit.With(ctx, r), r, nil
}

// uriOf returns the path of what t names.
func uriOf(t *operation.Target) string {
	p := "/apis/" + t.Kind.Group
	if t.Kind.Group == "" {
		p = "/api"
	}
	p += "/" + t.Kind.Version
	if t.Namespace != "" {
		p += "/namespaces/" + t.Namespace
	}
	p += "/" + t.Kind.Resource
	if t.Name != "" {
		p += "/" + t.Name
	}
	if sub := t.SubName(); sub != "" {
		p += "/" + sub
	}
	return p
}

// endAudit ends the record of a request in this process, with its answer or its error.
func endAudit(r *audit.Record, answer operation.Result, err error) {
	if r == nil {
		return
	}
	code := http.StatusOK
	switch {
	case err != nil:
		status := operation.StatusOf(err)
		r.Status(status)
		r.Answered(status)
		code = int(status.Code)
	case answer.Item != nil || answer.Made != nil:
		answer.Record(r)
		if answer.Created {
			code = http.StatusCreated
		}
	}
	r.Started(code)
	r.Complete()
}
