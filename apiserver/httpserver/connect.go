package httpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
)

// connect hands a stream to its handler.
func (s *Server) connect(x *exchange, t operation.Target, stream catalog.Stream, verb, rest string) {
	if err := s.objects.Allow(x.r.Context(), &t, verb, nil, t.Name); err != nil {
		x.fail(err)
		return
	}
	if verb != operation.VerbOptions && !slices.Contains(t.Sub.Verbs, verb) {
		x.fail(apierrors.NewMethodNotSupported(t.Kind.GR(), verb))
		return
	}
	if stream.Creates && verb != operation.VerbCreate {
		a := attributesOf(x.r)
		a.User, a.Verb = t.User, operation.VerbCreate
		if d := s.opts.Authorizer.Authorize(x.r.Context(), a); !d.Allowed {
			x.fail(apierrors.NewForbidden(t.Kind.GR(), t.Name, errors.New(d.Reason)))
			return
		}
	}
	scheme, port := "", ""
	if stream.Ported {
		named, ok := t.Name, false
		if scheme, t.Name, port, ok = utilnet.SplitSchemeNamePort(named); !ok {
			x.fail(apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", t.Kind.Singular, named)))
			return
		}
	}
	item, err := s.objects.Lookup(x.r.Context(), &t)
	if err != nil {
		x.fail(err)
		return
	}
	ctx, stop := s.streamContext(x.r.Context())
	defer stop()
	t.Inner = stream.Body == nil // logs are read, which is not for webhooks
	warnings, err := s.objects.AdmitConnect(ctx, &t, item, streamOptions(stream, x.query(), rest))
	x.warn(warnings)
	if err != nil {
		x.fail(err)
		return
	}
	end, err := x.beginLong(fairness.Streams)
	if err != nil {
		x.fail(err)
		return
	}
	defer end()
	defer s.metrics.stream(&x.subject)()
	s.opts.Connect[stream.Handler](x, x.r.WithContext(ctx), ConnectRequest{
		User: t.User, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
		Subresource: t.Sub.Name, Scheme: scheme, Port: port, Path: rest, Object: item.Object(),
	})
}

// streamContext returns a context that ends with the request and, earlier than other
// requests, with the server.
func (s *Server) streamContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.streams, cancel)
	return ctx, func() { unhook(); cancel() }
}
