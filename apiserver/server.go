package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/managed"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/catalog"
)

// A Server serves the Kubernetes API over HTTP, and in this process to the clients of [Server.As]. It is safe for
// concurrent use.
type Server struct {
	*httpserver.Server // serves HTTP

	opts    Options
	objects *operation.Operations
}

// Options configures a [Server]: how it serves HTTP, and what operations need beyond that.
type Options struct {
	httpserver.Options

	Admission []admission.Plugin // in the order in which they are asked

	// Issue has the handlers of subresources, and of creations of kinds, whose body is
	// answered and not stored.
	Issue map[catalog.Handler]operation.IssueHandler

	// Past reads earlier states of objects. Nil means that requests for them are refused.
	Past *past.History

	// Compute has the handlers of kinds whose objects are computed.
	Compute map[catalog.Handler]operation.ComputeHandler
}

// New returns a server that has not started; call Run.
func New(opts Options) (*Server, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	objects, err := operation.New(operation.Options{
		Store: opts.Store, Catalog: opts.Catalog, Authorizer: opts.Authorizer, Admission: opts.Admission,
		Managers: managed.New(openapi.NewTypes(opts.Catalog)), Issue: opts.Issue, Compute: opts.Compute, Past: opts.Past, Audited: opts.Audit != nil,
	})
	if err != nil {
		return nil, err
	}
	serving, err := httpserver.New(objects, opts.Options)
	if err != nil {
		return nil, err
	}
	return &Server{serving, opts, objects}, nil
}

func (o *Options) check() error {
	switch {
	case o.Store == nil:
		return errors.New("apiserver: Options.Store is nil")
	case o.Catalog == nil:
		return errors.New("apiserver: Options.Catalog is nil")
	case o.Authorizer == nil:
		return errors.New("apiserver: Options.Authorizer is nil")
	}
	for _, k := range o.Catalog.Kinds() {
		if k.Computed != nil && o.Compute[k.Computed.Handler] == nil {
			return fmt.Errorf("apiserver: Options.Compute has no handler %s", k.Computed.Handler)
		}
		if k.Answer != "" && o.Issue[k.Answer] == nil {
			return fmt.Errorf("apiserver: Options.Issue has no handler %s", k.Answer)
		}
		for _, sub := range k.Subresources {
			if issue, ok := sub.Shape.(catalog.Issue); ok && o.Issue[issue.Handler] == nil {
				return fmt.Errorf("apiserver: Options.Issue has no handler %s", issue.Handler)
			}
		}
	}
	return nil
}

// Instances returns the objects in the server's store.
func (s *Server) Instances() operation.Instances { return s.objects.Instances() }

// itself returns the client of the server's own writes.
func (s *Server) itself() *Local {
	return s.As(auth.User{Name: "system:apiserver", Groups: []string{auth.GroupMasters}})
}

// CheckAdmissionPolicies checks the expressions of ValidatingAdmissionPolicies against the types of the kinds that they
// match, and writes the result to status.typeChecking, until ctx is over.
func (s *Server) CheckAdmissionPolicies(ctx context.Context) error {
	follow.AdmissionPolicyTypes(ctx, s.opts.Catalog, s.opts.Store, s.itself(), s.opts.OpenAPI, s.opts.Log)
	return nil
}

// FollowFlowControl makes the server use the stored FlowSchemas and PriorityLevelConfigurations, and keeps the
// condition Dangling of the schemas, until ctx is over. As long as the mandatory levels are not stored, the server
// uses the objects that every cluster starts with.
func (s *Server) FollowFlowControl(ctx context.Context) error {
	follow.FlowControl(ctx, s.opts.Catalog, s.opts.Store, s.itself(), s.Configure, s.opts.Log)
	return nil
}
