package cli

import (
	"net/url"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// pathOf returns the path of a collection, of an object, or of a subresource of
// it.
func pathOf(m resource.Mapping, namespace, name, subresource string) string {
	p := "/api/" + m.Version
	if m.Group != "" {
		p = "/apis/" + m.Group + "/" + m.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + m.Resource
	if name != "" {
		p += "/" + name
	}
	if subresource != "" {
		p += "/" + subresource
	}
	return p
}

// selection returns the query of a list or watch.
func selection(labels, fields string) url.Values {
	q := url.Values{}
	if labels != "" {
		q.Set("labelSelector", labels)
	}
	if fields != "" {
		q.Set("fieldSelector", fields)
	}
	return q
}

// mappingOf returns what is known of a built-in resource without asking.
func mappingOf[T client.Object](r client.Resource[T]) resource.Mapping {
	return resource.Mapping{GroupVersionResource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced}
}
