package resource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
)

// A Request says where objects come from: files, a kustomization, or arguments.
type Request struct {
	// Files are paths of files and directories, patterns of such, http and https
	// addresses, and "-", which means In. A directory stands for the files in it that
	// end in .json, .yaml or .yml, with Recursive in those below as well.
	Files     []string
	Recursive bool
	In        io.Reader // standard input

	Kustomize string // directory of a kustomization

	Transport  http.RoundTripper // to addresses; nil means one that has timeouts
	FetchLimit int64             // bytes read from an address; 0 means DefaultFetchLimit

	Args []string // TYPE/NAME…, or TYPE[,TYPE] [NAME…]

	Labels, Fields string // selectors; they need a TYPE without names
	All            bool   // everything of a TYPE

	// Namespace is where objects are that do not say where. Enforced means that
	// the user chose it, so that an object may not say otherwise.
	Namespace     string
	Enforced      bool
	AllNamespaces bool

	// Lazy accepts a TYPE without name, selector or All as everything.
	Lazy bool
}

// An Info is one object that the user means, or all that selectors pick.
type Info struct {
	Mapping   Mapping
	Namespace string // empty for cluster-scoped resources and for all namespaces
	Name      string // empty for a selection, and for objects with a generated name

	Object *unstructured.Unstructured // from a file; nil otherwise
	Source string                     // where it comes from, for messages
	origin origin

	Selection      bool
	Labels, Fields string // of a selection
}

// String returns kind/name as kubectl prints objects.
func (i Info) String() string { return i.Mapping.Called(i.Name) }

// A SourceError says where in the input something is wrong.
type SourceError struct {
	Place string // file, document and line
	Err   error
}

func (e *SourceError) Error() string { return e.Place + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// Stream yields the request's objects. An error stands for one document, file
// or argument; the stream goes on after it unless the server could not be asked. Documents
// that are null, empty or nothing but comments are skipped, so a file may yield nothing. The
// Info beside an error has the Object if there is one: a [*NoKindError] may be about
// a kind that does not exist yet.
func Stream(ctx context.Context, m *Mapper, r Request) iter.Seq2[Info, error] {
	return func(give func(Info, error) bool) {
		if err := r.check(); err != nil {
			give(Info{}, err)
			return
		}
		yield := func(i Info, err error) bool {
			_, unreachable := errors.AsType[*client.UnreachableError](err)
			return give(i, err) && !unreachable // the next one would fare no better
		}
		switch {
		case r.Kustomize != "":
			r.kustomization(ctx, m, yield)
		case len(r.Files) > 0:
			for s, err := range r.sources() {
				if err != nil && !yield(Info{}, err) || err == nil && !r.source(ctx, m, s, yield) {
					return
				}
			}
		default:
			r.arguments(ctx, m, yield)
		}
	}
}

// check refuses what cannot be meant.
func (r Request) check() error {
	files := len(r.Files) > 0 || r.Kustomize != ""
	switch {
	case len(r.Files) > 0 && r.Kustomize != "":
		return errors.New("only one of -f or -k can be specified")
	case r.Kustomize != "" && r.Recursive:
		return errors.New("the -k flag can't be used with -f or -R")
	case files && len(r.Args) > 0:
		return errors.New("resource types and names cannot be used with -f or -k")
	case files && (r.Labels != "" || r.Fields != "" || r.All):
		return errors.New("selectors cannot be used with -f or -k")
	case !files && len(r.Args) == 0:
		return errors.New("you must provide one or more resources by argument or filename: TYPE/NAME, TYPE NAME, or -f FILE")
	case r.All && (r.Labels != "" || r.Fields != ""):
		return errors.New("--all and selectors are mutually exclusive")
	}
	if _, err := labels.Parse(r.Labels); err != nil {
		return fmt.Errorf("the label selector %q is not valid: %w", r.Labels, err)
	}
	if _, err := fields.ParseSelector(r.Fields); err != nil {
		return fmt.Errorf("the field selector %q is not valid: %w", r.Fields, err)
	}
	return nil
}

// source yields the objects of one source and reports whether to go on.
func (r Request) source(ctx context.Context, m *Mapper, s source, yield func(Info, error) bool) bool {
	in, err := s.open(ctx)
	if err != nil {
		return yield(Info{}, err)
	}
	defer in.Close()
	for doc, err := range documents(in) {
		if ctx.Err() != nil {
			yield(Info{}, context.Cause(ctx))
			return false
		}
		place := doc.place(s.name)
		if doc.item > 0 {
			place += fmt.Sprintf(", item %d", doc.item)
		}
		var obj *unstructured.Unstructured
		if err == nil {
			obj, err = doc.object()
		}
		if err != nil {
			if !yield(Info{Source: place}, &SourceError{place, readable(err)}) {
				return false
			}
			continue
		}
		if obj == nil {
			continue
		}
		from := origin{text: doc.text}
		from.line, from.column = doc.start()
		if !r.objects(ctx, m, place, obj, from, yield) {
			return false
		}
	}
	return true
}

// object reads a document, or an item of a List, as an object. It returns nil for a document
// that is null, which is skipped as kubectl does.
func (d document) object() (*unstructured.Unstructured, error) {
	fields, err := d.fields()
	if fields == nil || err != nil {
		return nil, err
	}
	if d.item > 0 {
		if err := inherit(fields, d.list); err != nil {
			return nil, err
		}
	}
	if err := check(fields); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

// objects yields an object, or the items of a List, and reports whether to go on.
func (r Request) objects(ctx context.Context, m *Mapper, place string, obj *unstructured.Unstructured, from origin, yield func(Info, error) bool) bool {
	for o, err := range flatten(obj) {
		at, in := place, from
		if o.item > 0 {
			at += fmt.Sprintf(", item %d", o.item)
			in.path = o.path
		}
		var info Info
		if err == nil {
			info, err = r.info(ctx, m, o.Unstructured)
		}
		info.Source, info.origin = at, in
		if err != nil {
			err = &SourceError{at, err}
		}
		if !yield(info, err) {
			return false
		}
	}
	return true
}

// An item is an object, and its number and path if it stood in a List.
type item struct {
	*unstructured.Unstructured
	item int
	path string
}

// flatten yields an object, or the items of a List however deep.
func flatten(obj *unstructured.Unstructured) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		items, found := obj.Object["items"]
		if !found || !strings.HasSuffix(obj.GetKind(), "List") {
			yield(item{Unstructured: obj}, nil)
			return
		}
		list, ok := items.([]any)
		if !ok && items != nil {
			yield(item{}, fmt.Errorf("items: must be a list, got %s", describeValue(items)))
			return
		}
		for n, e := range list {
			this := item{item: n + 1, path: fmt.Sprintf("items[%d]", n)}
			m, ok := e.(map[string]any)
			if !ok {
				if !yield(this, fmt.Errorf("must be an object, got %s", describeValue(e))) {
					return
				}
				continue
			}
			err := inherit(m, header{obj.GetAPIVersion(), obj.GetKind()})
			if err == nil {
				err = check(m)
			}
			if err != nil {
				if !yield(this, err) {
					return
				}
				continue
			}
			for inner, err := range flatten(&unstructured.Unstructured{Object: m}) {
				inner.item = n + 1
				if inner.path != "" {
					inner.path = "." + inner.path
				}
				inner.path = this.path + inner.path
				if !yield(inner, err) {
					return
				}
			}
		}
	}
}

// inherit gives an item of a List the kind that it need not say: a PodList's items
// are Pods.
func inherit(fields map[string]any, list header) error {
	if kind := strings.TrimSuffix(list.kind, "List"); fields["kind"] == nil && kind != "" {
		fields["kind"], fields["apiVersion"] = kind, list.apiVersion
	}
	for _, name := range []string{"kind", "apiVersion"} {
		if v := fields[name]; v == nil || v == "" {
			return errors.New("apiVersion or kind is not set")
		}
	}
	return nil
}

// info returns the Info of an object from a file.
func (r Request) info(ctx context.Context, m *Mapper, obj *unstructured.Unstructured) (Info, error) {
	info := Info{Object: obj, Name: obj.GetName()}
	return r.Resolve(ctx, m, info)
}

// Resolve finds out which resource the object of info is of and in which namespace.
// [Stream] has done it already, unless it yielded a [*NoKindError].
func (r Request) Resolve(ctx context.Context, m *Mapper, info Info) (Info, error) {
	kind := info.Object.GroupVersionKind()
	if kind.Group == "kustomize.config.k8s.io" {
		return info, fmt.Errorf("a %s is a kustomize file, not an API object: pass its directory with -k", kind.Kind)
	}
	mapping, err := m.ByKind(ctx, kind)
	if err != nil {
		return info, err
	}
	info.Mapping = mapping
	if !mapping.Namespaced {
		return info, nil
	}
	info.Namespace = info.Object.GetNamespace()
	switch {
	case info.Namespace == "":
		info.Namespace = r.Namespace
		info.Object.SetNamespace(r.Namespace)
	case r.Enforced && info.Namespace != r.Namespace:
		return info, fmt.Errorf("the namespace from the provided object %q does not match the namespace %q. You must pass '--namespace=%s' to perform this operation.", //nolint:revive,staticcheck // kubectl's words
			info.Namespace, r.Namespace, info.Namespace)
	}
	return info, nil
}

// arguments yields the objects that the arguments name.
func (r Request) arguments(ctx context.Context, m *Mapper, yield func(Info, error) bool) {
	if strings.Contains(r.Args[0], "/") {
		for _, arg := range r.Args {
			if !yield(r.pair(ctx, m, arg)) {
				return
			}
		}
		return
	}
	names := r.Args[1:]
	if i := slices.IndexFunc(names, func(s string) bool { return strings.Contains(s, "/") }); i >= 0 {
		yield(Info{}, fmt.Errorf("there is no need to give a type as a separate argument when passing TYPE/NAME: write %q instead of %q", names[i], r.Args[0]+" "+names[i]))
		return
	}
	var mappings []Mapping
	for word := range strings.SplitSeq(r.Args[0], ",") {
		of, err := m.meant(ctx, word)
		if err != nil {
			yield(Info{}, err)
			return
		}
		mappings = append(mappings, of...)
	}
	selects := r.Labels != "" || r.Fields != "" || r.All
	switch {
	case len(names) > 0 && selects:
		yield(Info{}, errors.New("name cannot be provided when a selector is specified"))
		return
	case len(names) > 0 && r.AllNamespaces:
		yield(Info{}, errors.New("a resource cannot be retrieved by name across all namespaces"))
		return
	case len(names) == 0 && !selects && !r.Lazy:
		yield(Info{}, errors.New("resource(s) were provided, but no name was specified: add a name, -l SELECTOR or --all"))
		return
	}
	for _, mapping := range mappings {
		if len(names) == 0 {
			info := Info{
				Mapping: mapping, Namespace: r.Namespace, Selection: true, Labels: r.Labels, Fields: r.Fields,
				Source: mapping.Resource,
			}
			if !mapping.Namespaced || r.AllNamespaces {
				info.Namespace = ""
			}
			if !yield(info, nil) {
				return
			}
		}
		for _, name := range names {
			if !yield(r.named(mapping, name)) {
				return
			}
		}
	}
}

// pair reads TYPE/NAME.
func (r Request) pair(ctx context.Context, m *Mapper, arg string) (Info, error) {
	parts := strings.Split(arg, "/")
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return Info{}, fmt.Errorf("arguments in TYPE/NAME form must have a single type and a single name, found %q", arg)
	}
	if r.Labels != "" || r.Fields != "" || r.All {
		return Info{}, errors.New("name cannot be provided when a selector is specified")
	}
	if r.AllNamespaces {
		return Info{}, errors.New("a resource cannot be retrieved by name across all namespaces")
	}
	mapping, err := m.ByName(ctx, parts[0])
	if err != nil {
		return Info{}, err
	}
	return r.named(mapping, parts[1])
}

func (r Request) named(mapping Mapping, name string) (Info, error) {
	if name == "" {
		return Info{}, errors.New("a name is empty")
	}
	if wrong := content.IsPathSegmentName(name); len(wrong) > 0 {
		return Info{}, fmt.Errorf("invalid resource name %q: it %s", name, strings.Join(wrong, " and "))
	}
	info := Info{Mapping: mapping, Namespace: r.Namespace, Name: name, Source: mapping.Called(name)}
	if !mapping.Namespaced {
		info.Namespace = ""
	}
	return info, nil
}
