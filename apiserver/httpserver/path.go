package httpserver

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A path is a URL's path taken apart. The zero path does not name a resource.
type path struct {
	group, version string // of the API
	namespace      string
	resource       string // plural; empty if the path names no resource
	name           string
	subresource    string
	rest           string // what follows the subresource, with its slash
	watch          bool   // the deprecated form of a watch, with /watch behind the version
}

// gvr returns the resource of the path.
func (p *path) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: p.group, Version: p.version, Resource: p.resource}
}

// parsePath takes apart
//
//	/api/VERSION/[watch/][namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE[/...]]]
//	/apis/GROUP/VERSION/...
//
// without allocating. A namespace is an object as well: its subresources are distinguished from
// resources by their names. Any other path does not name a resource.
func parsePath(p string) path {
	var out path
	rest, ok := strings.CutPrefix(p, "/api/")
	if !ok {
		if rest, ok = strings.CutPrefix(p, "/apis/"); !ok {
			return path{}
		}
		if out.group, rest, ok = segment(rest); !ok || out.group == "" {
			return path{}
		}
	}
	if out.version, rest, ok = segment(rest); !ok {
		return path{}
	}
	if out.resource, rest, ok = segment(rest); !ok || out.resource == "" {
		return path{}
	}
	if out.resource == "watch" {
		out.watch = true
		if out.resource, rest, ok = segment(rest); !ok || out.resource == "" {
			return path{}
		}
	}
	if out.resource == "namespaces" {
		if name, behind, ok := segment(rest); ok && name != "" {
			if next, behind, ok := segment(behind); ok && next != "" && next != "status" && next != "finalize" {
				out.namespace, out.resource, rest = name, next, behind
			}
		}
	}
	if out.name, rest, ok = segment(rest); !ok {
		return path{}
	}
	if out.subresource, _, ok = segment(rest); !ok {
		return path{}
	}
	out.rest = rest[len(out.subresource):]
	return out
}

// scope returns the namespace that a request is in: that of a namespace itself is the namespace, as in Kubernetes.
func (p *path) scope() string {
	if p.resource == "namespaces" && p.group == "" {
		return p.name
	}
	return p.namespace
}

// segment splits off the part before the first slash. It is empty at the end of the
// path; an empty segment before that ("a//b") is not ok.
func segment(p string) (first, rest string, ok bool) {
	first, rest, _ = strings.Cut(p, "/")
	return first, rest, first != "" || p == ""
}
