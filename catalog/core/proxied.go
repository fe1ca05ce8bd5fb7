package core

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
)

// proxied is the subresource through which requests reach the server behind an object.
func proxied(handler catalog.Handler, options string, make func() runtime.Object) catalog.Subresource {
	return catalog.Subresource{
		Name:  "proxy",
		Verbs: []string{"create", "delete", "get", "patch", "update"},
		Shape: catalog.Stream{Body: &catalog.Body{Kind: gvk(options), New: make}, Handler: handler, Ported: true},
	}
}

// streamed is a subresource that is a connection to the containers of a pod: by GET over WebSocket, by POST over SPDY.
func streamed(name string, handler catalog.Handler, options string, make func() runtime.Object) catalog.Subresource {
	return catalog.Subresource{
		Name:  name,
		Verbs: []string{"create", "get"},
		Shape: catalog.Stream{Body: &catalog.Body{Kind: gvk(options), New: make}, Handler: handler, Creates: true},
	}
}
