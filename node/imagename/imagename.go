// Package imagename decides whether the name of an image is valid, by the grammar of references that container runtimes and
// upstream's kubelet have (github.com/distribution/reference): [registry/]path[:tag][@digest].
package imagename

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// A Parser parses names of images. Make one with [New].
type Parser struct{ path, tag, id *regexp.Regexp }

// New returns a parser. It may be used from any goroutine.
func New() *Parser {
	return &Parser{
		path: regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$`), // a component of the path
		tag:  regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`),
		id:   regexp.MustCompile(`^[a-f0-9]{64}$`),
	}
}

var errFormat = errors.New("invalid reference format")

// Parse returns a name in parts. Errors have the words of upstream's kubelet.
func (p *Parser) Parse(image string) (name.Reference, error) {
	if p.id.MatchString(image) {
		return nil, fmt.Errorf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", image)
	}
	path, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(path, '/'); strings.Contains(path[i+1:], ":") {
		path = path[:i+1] + path[i+1:][:strings.IndexByte(path[i+1:], ':')]
	}
	registry, rest, ok := strings.Cut(path, "/")
	switch {
	case ok && (strings.ContainsAny(registry, ".:") || registry == "localhost" || strings.ToLower(registry) != registry):
		path = rest
	case !ok:
		path = "library/" + path // of Docker's registry
	}
	if strings.ToLower(path) != path {
		return nil, fmt.Errorf("%w: repository name (%s) must be lowercase", errFormat, path)
	}
	for component := range strings.SplitSeq(path, "/") {
		if !p.path.MatchString(component) {
			return nil, errFormat
		}
	}
	ref, err := name.ParseReference(image, name.WeakValidation)
	if err != nil {
		return nil, errFormat
	}
	if tag, ok := ref.(name.Tag); ok && !p.tag.MatchString(tag.TagStr()) {
		return nil, errFormat
	}
	return ref, nil
}
