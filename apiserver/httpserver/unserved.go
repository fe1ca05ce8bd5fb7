package httpserver

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
)

// supports reports whether requests with that method are served.
func (s *Server) supports(r *http.Request, p *path) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	case http.MethodOptions: // for servers behind a proxy alone
		return p.subresource == "proxy" || s.opts.Aggregator.Route(r.URL.Path) != nil
	}
	return false
}

// refuseMethod answers a request with a method that is not served. As upstream it is authorized before, with a verb that only
// a star allows if it is about a resource.
func (s *Server) refuseMethod(x *exchange) {
	a := attributesOf(x.r)
	a.User = x.user
	if err := s.objects.Authorize(x.r.Context(), a); err != nil {
		x.fail(err)
		return
	}
	x.fail(apierrors.NewMethodNotSupported(schema.GroupResource{Resource: x.r.URL.Path}, x.r.Method))
}

// serveMissing answers a request for a resource or subresource that this server does not serve. A resource that another
// server has begun to serve is served as soon as this one does.
func (s *Server) serveMissing(x *exchange, p path, verb string, noKind bool) {
	// Authorize first: a user who may not use the resource does not learn whether it exists.
	x.subject = subject{verb: verbLabels[verb]}
	a := rbac.Attributes{
		User: x.user, Verb: verb, Group: p.group, Version: p.version, Resource: p.resource,
		Subresource: p.subresource, Namespace: p.namespace, Name: p.name,
	}
	if err := s.objects.Authorize(x.r.Context(), a); err != nil {
		x.fail(err)
		return
	}
	if !noKind {
		s.unknown(x, &p)
		return
	}
	switch kind, err := s.objects.Appearing(x.r.Context(), p.gvr()); {
	case err != nil:
		x.fail(err)
	case kind != nil:
		s.serveResource(x, p, verb)
	default:
		s.unknown(x, &p)
	}
}

// unknown answers a request for a resource, a subresource or a path below one that does not exist: with a Status if the
// group is served, and otherwise with a page, as upstream.
func (s *Server) unknown(x *exchange, p *path) {
	if !slices.ContainsFunc(s.opts.Catalog.Kinds(), func(k *catalog.Kind) bool { return k.Group == p.group }) {
		x.notFoundPage()
		return
	}
	x.fail(apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false))
}

// notFoundPage is Kubernetes' answer where there is nothing at all.
func (x *exchange) notFoundPage() {
	h := x.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	x.WriteHeader(http.StatusNotFound)
	x.writeText("404 page not found\n")
}
