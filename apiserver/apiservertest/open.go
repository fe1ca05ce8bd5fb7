package apiservertest

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/discovery"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// Kinds returns the catalog that the program serves.
func Kinds(t testing.TB) *catalog.Catalog {
	t.Helper()
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Versions returns the versions of groups that the catalog serves, sorted as text: "apps/v1", "v1".
func Versions(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, k := range Kinds(t).Kinds() {
		all = append(all, k.GroupVersion().String())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lazy makes the handler of the documents, which are much work, when it is asked for one.
func lazy(open func() http.Handler) http.Handler {
	made := sync.OnceValue(open)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { made().ServeHTTP(w, r) })
}

// Open returns an API server. Its store runs and is ready; the server is not run, and serves in
// process and by its Handler. The roles are the program's, connections to nodes are not found,
// tokens are issued as they are asked for, and the log goes to the test's. Discovery and the OpenAPI
// documents are the program's. Change, which may be nil, changes the options before the server is
// made; the catalog and the store are set by then.
func Open(t testing.TB, change func(*apiserver.Options)) *apiserver.Server {
	t.Helper()
	return open(t, Kinds(t), 0, change)
}

// nothing computes no objects: there are no nodes to ask.
func nothing(context.Context, []catalog.Object) ([]catalog.Object, error) { return nil, nil }

// open opens a server of the kinds in c. Progress is that of the store.
func open(t testing.TB, c *catalog.Catalog, progress time.Duration, change func(*apiserver.Options)) *apiserver.Server {
	t.Helper()
	st, err := store.Open(t.Context(), nil, store.Options{Decode: apiserver.NewLoader(c).Decode, Terms: apiserver.Terms(c), Claims: apiserver.Claims(c), Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	nowhere := func(w http.ResponseWriter, r *http.Request, _ httpserver.ConnectRequest) { http.NotFound(w, r) }
	policy := rbac.NewPolicy(bootstrappolicy.All())
	authorizer := rbac.New(rbac.Options{Policy: policy, Objects: operation.NewReader(c, st)})
	o := apiserver.Options{
		Options: httpserver.Options{
			Store: st, Catalog: c, Authorizer: authorizer,
			Connect: map[catalog.Handler]httpserver.ConnectHandler{
				catalog.PodLog: nowhere, catalog.PodExec: nowhere, catalog.PodAttach: nowhere, catalog.PodPortForward: nowhere,
				catalog.NodeProxy: nowhere, catalog.PodProxy: nowhere, catalog.ServiceProxy: nowhere,
			},
			Discovery: lazy(func() http.Handler {
				return discovery.New(c, version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0"})
			}),
			OpenAPI: lazy(func() http.Handler { return openapi.New(c, "v1.37.0") }),
			Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		},
		Issue: map[catalog.Handler]operation.IssueHandler{
			catalog.ServiceAccountToken: func(_ context.Context, _ catalog.Object, body runtime.Object) (runtime.Object, error) {
				return body, nil
			},
			catalog.OwnAccess:     operation.Answer(authorizer.MayI),
			catalog.OwnRules:      operation.Answer(authorizer.MyRules),
			catalog.OwnIdentity:   operation.Answer(auth.WhoAmI),
			catalog.Access:        operation.Answer(authorizer.May),
			catalog.LocalAccess:   operation.Answer(authorizer.MayLocally),
			catalog.TokenIdentity: operation.Answer(auth.New(auth.Options{}).ReviewToken),
		},
		Compute: map[catalog.Handler]operation.ComputeHandler{catalog.PodUsage: nothing, catalog.NodeUsage: nothing, catalog.ComponentHealth: nothing},
	}
	if change != nil {
		change(&o)
	}
	s, err := apiserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	// It ends after all that the test itself started, whose cleanups come first.
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) {
		if err := st.Run(ctx); err != nil {
			t.Errorf("the store ended with %v", err)
		}
	})
	t.Cleanup(g.Stop)
	<-st.Ready()
	return s
}
