package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
)

// Annotations of audit events, as upstream's.
const (
	auditDecision = "authorization.k8s.io/decision"
	auditReason   = "authorization.k8s.io/reason"
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

// annotateDecision adds the decision of the authorizer to the record of a request.
func annotateDecision(ctx context.Context, d rbac.Decision) {
	r := audit.From(ctx)
	if r == nil {
		return
	}
	decision := "forbid"
	if d.Allowed {
		decision = "allow"
	}
	r.Annotate(auditDecision, decision)
	r.Annotate(auditReason, d.Reason)
}

// recordAnswer adds the answer to the record of a request.
func recordAnswer(r *audit.Record, answer result) {
	if s, ok := answer.obj.(*metav1.Status); ok && answer.item == nil {
		r.Status(s)
	}
	if !r.WantsAnswer() {
		return
	}
	if answer.item != nil && !r.OmitsManagedFields() {
		if body, err := answer.item.JSON(); err == nil {
			r.AnsweredJSON(body)
			return
		}
	}
	r.Answered(answer.object())
}

// recordList adds a list to the record of a request.
func recordList(r *audit.Record, kind *catalog.Kind, l listing) {
	if !r.WantsAnswer() {
		return
	}
	var body bytes.Buffer
	w := bufio.NewWriter(&body)
	if err := errors.Join(codec.WriteList(w, codec.Media{Encoding: codec.JSON}, kind, l.meta, l.items), w.Flush()); err != nil {
		return // an item that cannot be encoded is not sent either
	}
	if !r.OmitsManagedFields() {
		r.AnsweredJSON(body.Bytes())
		return
	}
	var list map[string]any
	if json.Unmarshal(body.Bytes(), &list) != nil {
		return
	}
	items, _ := list["items"].([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			if meta, ok := object["metadata"].(map[string]any); ok {
				delete(meta, "managedFields")
			}
		}
	}
	if short, err := json.Marshal(list); err == nil {
		r.AnsweredJSON(short)
	}
}

// recordPatch adds a patch to the record of a request.
func recordPatch(r *audit.Record, kind types.PatchType, body []byte) {
	if r == nil {
		return
	}
	if kind == types.ApplyYAMLPatchType {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return
		}
	}
	r.SentJSON(body)
}

// audited begins the record of a request in this process.
func (l *Local) audited(ctx context.Context, t *target, verb string, sent runtime.Object) (context.Context, *audit.Record, error) {
	a := l.server.opts.Audit
	if a == nil {
		return ctx, nil, nil
	}
	r := a.Begin(&audit.Attributes{
		User: l.user, Verb: verb, Group: t.kind.Group, Version: t.kind.Version, Resource: t.kind.Resource,
		Subresource: t.subName(), Namespace: t.namespace, Name: t.name,
	})
	if r == nil {
		return ctx, nil, nil
	}
	r.Inside(t.uri(), l.agent)
	if !r.Received() {
		return ctx, nil, apierrors.NewInternalError(errAudit)
	}
	if sent != nil {
		r.Sent(sent)
	}
	return audit.With(ctx, r), r, nil
}

// uri returns the path of what t names.
func (t *target) uri() string {
	p := "/apis/" + t.kind.Group
	if t.kind.Group == "" {
		p = "/api"
	}
	p += "/" + t.kind.Version
	if t.namespace != "" {
		p += "/namespaces/" + t.namespace
	}
	p += "/" + t.kind.Resource
	if t.name != "" {
		p += "/" + t.name
	}
	if sub := t.subName(); sub != "" {
		p += "/" + sub
	}
	return p
}

// endAudit ends the record of a request in this process, with its answer or its error.
func endAudit(r *audit.Record, answer result, err error) {
	if r == nil {
		return
	}
	code := http.StatusOK
	switch {
	case err != nil:
		status := asStatus(err)
		r.Status(status)
		r.Answered(status)
		code = int(status.Code)
	case answer.item != nil || answer.obj != nil:
		recordAnswer(r, answer)
		if answer.created {
			code = http.StatusCreated
		}
	}
	r.Started(code)
	r.Complete()
}
