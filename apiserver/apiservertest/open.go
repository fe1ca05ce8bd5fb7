package apiservertest

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
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

// Open returns an API server. Its store runs and is ready; the server is not run, and serves in
// process and by its Handler. The roles are the program's, connections to nodes are not found,
// tokens are issued as they are asked for, and the log goes to the test's. Change, which may be
// nil, changes the options before the server is made; the catalog and the store are set by then.
func Open(t testing.TB, change func(*apiserver.Options)) *apiserver.Server {
	t.Helper()
	c := Kinds(t)
	st, err := store.Open(t.Context(), nil, store.Options{Decode: apiserver.NewLoader(c).Decode, Terms: apiserver.Terms(c)})
	if err != nil {
		t.Fatal(err)
	}
	nowhere := func(w http.ResponseWriter, r *http.Request, _ apiserver.ConnectRequest) { http.NotFound(w, r) }
	authorizer := rbac.New(rbac.Options{Objects: apiserver.NewReader(c, st)})
	o := apiserver.Options{
		Store: st, Catalog: c, Authorizer: authorizer,
		Connect: map[catalog.Handler]apiserver.ConnectHandler{catalog.PodLog: nowhere, catalog.NodeProxy: nowhere},
		Issue: map[catalog.Handler]apiserver.IssueHandler{
			catalog.ServiceAccountToken: func(_ context.Context, _ catalog.Object, body runtime.Object) (runtime.Object, error) {
				return body, nil
			},
			catalog.OwnAccess:   apiserver.Answer(authorizer.MayI),
			catalog.OwnRules:    apiserver.Answer(authorizer.MyRules),
			catalog.OwnIdentity: apiserver.Answer(auth.WhoAmI),
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
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
