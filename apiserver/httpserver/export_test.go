package httpserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/operation"
)

// SeatsOf returns how many seats a list or watch takes.
func SeatsOf(s *Server, r *http.Request) int {
	p := parsePath(r.URL.Path)
	t := operation.Target{Namespace: p.namespace, Name: p.name, Kind: s.opts.Catalog.Resource(schema.GroupVersionResource{Group: p.group, Version: p.version, Resource: p.resource})}
	return s.seatsOf(&exchange{r: r}, &t, verbOf(r, &p))
}
