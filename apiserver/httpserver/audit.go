package httpserver

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/audit"
)

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
		x.fail(apierrors.NewInternalError(audit.ErrNotStored))
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
