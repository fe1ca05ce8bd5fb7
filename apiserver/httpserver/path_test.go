package httpserver

import (
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/hangtest"
)

func TestParsePath(t *testing.T) {
	tests := map[string]path{
		"/api/v1/pods":                               {version: "v1", resource: "pods"},
		"/api/v1/nodes/n":                            {version: "v1", resource: "nodes", name: "n"},
		"/api/v1/nodes/n/proxy":                      {version: "v1", resource: "nodes", name: "n", subresource: "proxy"},
		"/api/v1/nodes/n/proxy/":                     {version: "v1", resource: "nodes", name: "n", subresource: "proxy", rest: "/"},
		"/api/v1/nodes/n/proxy/a//b":                 {version: "v1", resource: "nodes", name: "n", subresource: "proxy", rest: "/a//b"},
		"/api/v1/namespaces":                         {version: "v1", resource: "namespaces"},
		"/api/v1/namespaces/":                        {version: "v1", resource: "namespaces"},
		"/api/v1/namespaces/ns":                      {version: "v1", resource: "namespaces", name: "ns"},
		"/api/v1/namespaces/ns/status":               {version: "v1", resource: "namespaces", name: "ns", subresource: "status"},
		"/api/v1/namespaces/ns/finalize":             {version: "v1", resource: "namespaces", name: "ns", subresource: "finalize"},
		"/api/v1/namespaces/ns/pods":                 {version: "v1", namespace: "ns", resource: "pods"},
		"/api/v1/namespaces/ns/pods/p":               {version: "v1", namespace: "ns", resource: "pods", name: "p"},
		"/api/v1/namespaces/ns/pods/p/log":           {version: "v1", namespace: "ns", resource: "pods", name: "p", subresource: "log"},
		"/apis/batch/v1/namespaces/ns/jobs/j/status": {group: "batch", version: "v1", namespace: "ns", resource: "jobs", name: "j", subresource: "status"},
		"/apis/coordination.k8s.io/v1/leases":        {group: "coordination.k8s.io", version: "v1", resource: "leases"},
		"/api/v1/watch/pods":                         {version: "v1", resource: "pods", watch: true},
		"/api/v1/watch/namespaces/ns":                {version: "v1", resource: "namespaces", name: "ns", watch: true},
		"/apis/batch/v1/watch/namespaces/ns/jobs/j":  {group: "batch", version: "v1", namespace: "ns", resource: "jobs", name: "j", watch: true},
		"/api/v1/watch":                              {},
		"/api/v1/watch/":                             {},
		"/apis":                                      {},
		"/apis/batch":                                {},
		"/apis/batch/v1":                             {},
		"/apis/batch/v1/":                            {},
		"/api/v1":                                    {},
		"/api/v1/namespaces/ns/pods//log":            {},
		"/api/v1/nodes/n//x":                         {},
		"/apis//v1/pods":                             {},
		"/version":                                   {},
		"":                                           {},
	}
	for p, want := range tests {
		if got := parsePath(p); got != want {
			t.Errorf("%s: %+v, want %+v", p, got, want)
		}
	}
	if got := testing.AllocsPerRun(100, func() { parsePath("/apis/batch/v1/namespaces/ns/jobs/j/status") }); got > 0 {
		t.Errorf("parsePath allocates %v times", got)
	}
}

// FuzzParsePath checks that the parts of a path, put together again, are the path: nothing
// is dropped that authorization would then not see.
func FuzzParsePath(f *testing.F) {
	f.Add("/api/v1/namespaces/ns/pods/p/log")
	f.Add("/apis/batch/v1/namespaces/ns/status/x")
	f.Add("/api/v1/namespaces//pods")
	f.Add("/api/0/0//")
	f.Add("/api/v1/watch/namespaces/ns/pods/p")
	f.Fuzz(func(t *testing.T, p string) {
		defer hangtest.Guard(t)()
		got := parsePath(p)
		if got.resource == "" {
			return
		}
		var b strings.Builder
		if b.WriteString("/api/"); got.group != "" {
			b.Reset()
			b.WriteString("/apis/" + got.group + "/")
		}
		b.WriteString(got.version)
		if got.watch {
			b.WriteString("/watch")
		}
		if got.namespace != "" {
			b.WriteString("/namespaces/" + got.namespace)
		}
		b.WriteString("/" + got.resource)
		for _, part := range []string{got.name, got.subresource} {
			if part != "" {
				b.WriteString("/" + part)
			}
		}
		b.WriteString(got.rest)
		if whole := b.String(); whole != p && whole+"/" != p {
			t.Errorf("%q → %+v → %q", p, got, whole)
		}
	})
}
