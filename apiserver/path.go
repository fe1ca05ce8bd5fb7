package apiserver

import "strings"

// A path is a URL's path taken apart. The zero path is no resource.
type path struct {
	group, version string // of the API
	namespace      string
	resource       string // plural; empty if the path names no resource
	name           string
	subresource    string
	rest           string // what follows the subresource, with its slash
}

// parsePath takes apart
//
//	/api/VERSION/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE[/...]]]
//	/apis/GROUP/VERSION/...
//
// without allocating. A namespace is an object itself, too: its subresources are told
// from resources by their names. Whatever does not look like that is no resource.
func parsePath(p string) path {
	var out path
	rest, ok := strings.CutPrefix(p, "/api/")
	if !ok {
		if rest, ok = strings.CutPrefix(p, "/apis/"); !ok {
			return path{}
		}
		out.group, rest = segment(rest)
		if out.group == "" {
			return path{}
		}
	}
	out.version, rest = segment(rest)
	if out.version == "" || rest == "" {
		return path{}
	}
	out.resource, rest = segment(rest)
	if out.resource == "namespaces" {
		name, behind := segment(rest)
		next, behindNext := segment(behind)
		if name != "" && next != "" && next != "status" && next != "finalize" {
			out.namespace, out.resource, rest = name, next, behindNext
		}
	}
	out.name, rest = segment(rest)
	if out.name == "" && rest != "" {
		return path{} // "/api/v1/pods//x"
	}
	sub, behind := segment(rest)
	if sub == "" && behind != "" {
		return path{}
	}
	out.subresource = sub
	if len(rest) > len(sub) {
		out.rest = rest[len(sub):]
	}
	return out
}

// segment splits off what is before the first slash.
func segment(p string) (first, rest string) {
	first, rest, _ = strings.Cut(p, "/")
	return first, rest
}
