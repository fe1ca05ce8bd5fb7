package apiserver

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/operation"
)

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
		return ctx, nil, apierrors.NewInternalError(audit.ErrNotStored)
	}
	if sent != nil {
		r.Sent(sent)
	}
	return audit.With(ctx, r), r, nil
}

// uriOf returns the path of t.
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
