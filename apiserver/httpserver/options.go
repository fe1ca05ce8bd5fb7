package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// A Store keeps the objects, and reports why it takes no writes. Package store has each method's contract; its values are those
// of package codec.
type Store interface {
	operation.Store
	Full() error
	Refused() error
	OverQuota() *store.QuotaError
}

// An Authenticator finds the user of a request: nil and no error if the request carries no
// credential, an API status error if the credential is bad.
type Authenticator interface {
	Authenticate(r *http.Request) (*auth.User, error)
}

// A ConnectRequest is a request for a stream behind an object: a pod's log, a
// node's proxy. It was authorized and the object exists.
type ConnectRequest struct {
	User        *auth.User
	Kind        *catalog.Kind
	Namespace   string
	Name        string
	Subresource string
	Scheme      string         // of a subresource with ports: "http", "https" or ""
	Port        string         // of a subresource with ports: a number, a name or ""
	Path        string         // what follows the subresource in the URL: "" or "/metrics"
	Object      catalog.Object // shared, not to be changed
}

// A ConnectHandler serves a stream. It writes the whole answer, errors with
// [WriteError].
type ConnectHandler func(w http.ResponseWriter, r *http.Request, c ConnectRequest)

// A Check is a health check of a part of the cluster.
type Check struct {
	Name string
	Run  func(ctx context.Context) error // must end soon
}

// Options configures a [Server]. Store, Catalog and Authorizer are required.
type Options struct {
	Store   Store
	Catalog *catalog.Catalog

	// Listeners are served, and closed at the end, by Run. None means that only those clients are served that use
	// [Server.Handler].
	Listeners []net.Listener

	// TLS holds the server's certificate (GetCertificate) and whether client
	// certificates are asked for. Protocols and the lowest version are set by
	// the server. Required with Listeners.
	TLS *tls.Config

	Auth       Authenticator // nil means that every user is anonymous
	Authorizer operation.Authorizer

	// Aggregator has the versions of groups that other servers serve. Nil means that there are none.
	Aggregator *aggregation.Aggregator

	Discovery http.Handler // /api, /apis, the paths directly below and /version; nil means 404
	OpenAPI   http.Handler // /openapi/...; nil means 404

	// Issuer serves the documents about the issuer of service-account tokens: [auth.DiscoveryPath] and [auth.KeysPath]. Nil
	// means 404.
	Issuer http.Handler

	// Paths has the handlers of further paths that name no resource. Each is authorized as such, by its path and the
	// method, so that only administrators may use it unless a role has it. An answer may be a long stream: it has no
	// time limit as long as its client reads. The handlers report errors with [WriteError].
	Paths map[string]http.Handler

	// Reviewed has the handlers of further paths, whose requests are about objects that only their handlers know. They
	// authorize each request themselves, by its user, which [auth.UserFrom] has. Otherwise they are like those of Paths.
	Reviewed map[string]http.Handler

	// Connect has the handlers of subresources that are streams.
	Connect map[catalog.Handler]ConnectHandler

	// Audit records requests. Nil means that none are.
	Audit *audit.Auditor

	// Checks are health checks beside the server's own, of /readyz and /healthz.
	Checks []Check

	// MaxInFlight bounds the requests that are executed at the same time, watches and streams aside. Each priority
	// level has a share of it, see package priority; requests of administrators (system:masters) are not
	// counted. 0 means 50 for each processor, but at most 600, which is upstream's default.
	MaxInFlight int

	// MaxWaiting bounds the blocking reads (GET …?until=…) of one user that wait at
	// the same time; twice as many may wait of all users together. Administrators' are not counted. 0 means 10,000.
	MaxWaiting int

	// MaxConnections bounds the connections at the same time, divided by package fairness, beside those of
	// administrators. A quarter as many more may be without a request yet. 0 means 10,000, or half of the file
	// descriptors that the process may have if that is less.
	MaxConnections int

	// Grace is how long Run waits at the end for requests in flight. 0 means
	// five seconds.
	Grace time.Duration

	Version    string            // of the served API, such as v1.37.0; for /statusz
	Flags      map[string]string // of the command line, with their values; for /flagz
	Profiling  bool              // serve /debug/pprof to users who may see it
	RequestLog RequestLog        // which requests have a line in Log

	Log *slog.Logger // nil means slog.Default
}

func (o Options) check() (Options, error) {
	if len(o.Listeners) > 0 && o.TLS == nil {
		return o, errors.New("apiserver: Options.Listeners need Options.TLS")
	}
	for _, k := range o.Catalog.Kinds() {
		for _, sub := range k.Subresources {
			if stream, ok := sub.Shape.(catalog.Stream); ok && o.Connect[stream.Handler] == nil {
				return o, fmt.Errorf("apiserver: Options.Connect has no handler %s", stream.Handler)
			}
		}
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = defaultInFlight()
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultConnections()
	}
	if o.Grace == 0 {
		o.Grace = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, nil
}
