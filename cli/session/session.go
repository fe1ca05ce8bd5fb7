package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/schema"
	"github.com/sampan-io/sampan/client"
)

// A Session is a connection for one verb: the server, and its resources. It is for
// one goroutine, but for its client, which is for many.
type Session struct {
	Streams
	*client.REST // objects come out unstructured
	Warn         func(text string)
	Mapper       *resource.Mapper
	schemas      *schema.Schemas // nil until the first object is checked
	Namespace    string
	Enforced     bool     // the namespace was chosen with a flag
	where        []string // flags that say which server and user; for hints
}

// warningCode is that of the warnings that are for people (RFC 7234, 5.5.7).
const warningCode = 299

// Connect returns a connection to the server that the kubeconfig and the flags name. It
// makes no request yet.
func (g *Globals) Connect() (*Session, error) {
	cfg, err := g.Config()
	if err != nil {
		return nil, err
	}
	// Each warning of a server is printed once, however many requests it concerns.
	warnings := rest.NewWarningWriter(g.Err, rest.WarningWriterOptions{Deduplicate: true})
	warn := func(text string) { warnings.HandleWarningHeader(warningCode, "-", text) }
	c, err := client.NewREST(cfg, client.RESTOptions{Dynamic: true, Warn: warn})
	if err != nil {
		return nil, err
	}
	s := &Session{Streams: g.Streams, REST: c, Warn: warn, Mapper: resource.NewMapper(c), where: g.given()}
	s.Mapper.Limit = g.contact
	if s.Namespace, s.Enforced, err = g.loader().Namespace(); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if wrong := content.IsPathSegmentName(s.Namespace); len(wrong) > 0 {
		return nil, fmt.Errorf("invalid namespace %q: it %s", s.Namespace, strings.Join(wrong, " and "))
	}
	return s, nil
}

// Within bounds how long a silent server holds up a verb that has a --timeout.
func (g *Globals) Within(timeout time.Duration) {
	if timeout > 0 {
		g.contact = timeout
	}
}

// Offline returns a session without a server or a kubeconfig, for resources that a mapper knows by
// itself. Only its [Session.Infos] and [Session.Request] may be used.
func (g *Globals) Offline(m *resource.Mapper) *Session {
	return &Session{Streams: g.Streams, Mapper: m, Namespace: cmp.Or(g.Namespace, metav1.NamespaceDefault), Enforced: g.Namespace != ""}
}

// Typed returns a client whose built-in objects have their Go types.
func (s *Session) Typed() (*client.REST, error) {
	return client.NewREST(s.Config(), client.RESTOptions{Warn: s.Warn})
}

// Infos collects the objects that were named. Errors of single documents are joined; the
// objects of the others are returned beside them.
func (s *Session) Infos(ctx context.Context, in Input, args []string) ([]resource.Info, error) {
	var (
		infos []resource.Info
		errs  []error
	)
	for info, err := range resource.Stream(ctx, s.Mapper, s.Request(in, args)) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		infos = append(infos, info)
	}
	return infos, errors.Join(errs...)
}

// Request returns what flags and arguments ask for, as package resource wants it.
func (s *Session) Request(in Input, args []string) resource.Request {
	return resource.Request{
		Files: in.files, Recursive: in.recursive, Kustomize: in.kustomize, In: s.In, Args: args,
		Labels: in.Labels, Fields: in.Fields, All: in.All, Lazy: in.Lazy,
		Namespace: s.Namespace, Enforced: s.Enforced, AllNamespaces: in.AllNamespaces,
	}
}

// OneFile is [Session.Request] for the objects of one file.
func (s *Session) OneFile(name string) resource.Request {
	return s.Request(Input{files: []string{name}}, nil)
}
