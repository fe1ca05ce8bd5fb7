package resource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Request says where objects come from: files, or arguments.
type Request struct {
	Files []string  // paths; "-" means In
	In    io.Reader // standard input

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

// Stream yields what the request names. An error stands for one document, file
// or argument; the stream goes on after it unless the server could not be asked.
func Stream(ctx context.Context, m *Mapper, r Request) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		switch {
		case len(r.Files) > 0 && len(r.Args) > 0:
			yield(Info{}, errors.New("when files are given with -f, no types and names may be given as well"))
		case len(r.Files) > 0 && (r.Labels != "" || r.Fields != "" || r.All):
			yield(Info{}, errors.New("when files are given with -f, no selectors may be given as well"))
		case len(r.Files) > 0:
			for _, f := range r.Files {
				if !r.file(ctx, m, f, yield) {
					return
				}
			}
		case len(r.Args) == 0:
			yield(Info{}, errors.New("you must provide one or more resources by argument or filename: TYPE/NAME, TYPE NAME, or -f FILE"))
		default:
			r.arguments(ctx, m, yield)
		}
	}
}

// file yields the objects of one file and reports whether to go on.
func (r Request) file(ctx context.Context, m *Mapper, name string, yield func(Info, error) bool) bool {
	in, closeIn, err := r.open(name)
	if err != nil {
		return yield(Info{}, err)
	}
	defer closeIn()
	if name == "-" {
		name = "standard input"
	}
	empty := true
	for doc, err := range documents(in) {
		empty = false
		if ctx.Err() != nil {
			yield(Info{}, context.Cause(ctx))
			return false
		}
		place := doc.place(name)
		var obj *unstructured.Unstructured
		if err == nil {
			obj, err = doc.object()
		}
		if err != nil {
			if !yield(Info{}, &SourceError{place, readable(name, err)}) {
				return false
			}
			continue
		}
		for o, err := range flatten(obj) {
			at := place
			if o.item > 0 {
				at += fmt.Sprintf(", item %d", o.item)
			}
			var info Info
			if err == nil {
				info, err = r.info(ctx, m, o.Unstructured)
			}
			info.Source = at
			if err != nil {
				err = &SourceError{at, err}
			}
			if !yield(info, err) {
				return false
			}
		}
	}
	if empty {
		return yield(Info{}, &SourceError{name, errors.New("there is no object in it")})
	}
	return true
}

func (r Request) open(name string) (io.Reader, func(), error) {
	switch {
	case name == "-":
		if r.In == nil {
			return nil, nil, errors.New("there is no standard input")
		}
		return r.In, func() {}, nil
	case name == "":
		return nil, nil, errors.New("a file name given with -f is empty")
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		return nil, nil, fmt.Errorf("%s: addresses are not read; fetch it and pass it with -f -", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, fileError(name, err)
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		_ = f.Close()
		return nil, nil, fmt.Errorf("%s is a directory; name the files in it, each with -f", name)
	}
	return f, func() { _ = f.Close() }, nil
}

func fileError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the path %q does not exist", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the file %q may not be read: permission denied", name)
	}
	return fmt.Errorf("the file %q cannot be read: %w", name, err)
}

// readable takes the path out of an error of reading, where it already stands.
func readable(name string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			return fmt.Errorf("cannot be read: %w", errno)
		}
	}
	return err
}

// An item is an object, and its number if it stood in a List.
type item struct {
	*unstructured.Unstructured
	item int
}

// flatten yields an object, or the items of a List however deep.
func flatten(obj *unstructured.Unstructured) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		items, found := obj.Object["items"]
		if !found || !strings.HasSuffix(obj.GetKind(), "List") {
			yield(item{obj, 0}, nil)
			return
		}
		list, ok := items.([]any)
		if !ok && items != nil {
			yield(item{}, fmt.Errorf("items is %s, want a list", describeValue(items)))
			return
		}
		for n, e := range list {
			m, ok := e.(map[string]any)
			if !ok {
				if !yield(item{nil, n + 1}, fmt.Errorf("it is %s, want an object", describeValue(e))) {
					return
				}
				continue
			}
			u := &unstructured.Unstructured{Object: m}
			if kind := strings.TrimSuffix(obj.GetKind(), "List"); u.GetKind() == "" && kind != "" {
				u.SetKind(kind) // a PodList's items need not say that they are Pods
				u.SetAPIVersion(obj.GetAPIVersion())
			}
			if u.GetKind() == "" || u.GetAPIVersion() == "" {
				if !yield(item{nil, n + 1}, errors.New("apiVersion or kind is not set")) {
					return
				}
				continue
			}
			for inner, err := range flatten(u) {
				inner.item = n + 1
				if !yield(inner, err) {
					return
				}
			}
		}
	}
}

// info says what an object from a file is.
func (r Request) info(ctx context.Context, m *Mapper, obj *unstructured.Unstructured) (Info, error) {
	mapping, err := m.ByKind(ctx, obj.GroupVersionKind())
	if err != nil {
		return Info{}, err
	}
	info := Info{Mapping: mapping, Name: obj.GetName(), Object: obj}
	if !mapping.Namespaced {
		return info, nil
	}
	info.Namespace = obj.GetNamespace()
	switch {
	case info.Namespace == "":
		info.Namespace = r.Namespace
		obj.SetNamespace(r.Namespace)
	case r.Enforced && info.Namespace != r.Namespace:
		return Info{}, fmt.Errorf("the namespace from the provided object %q does not match the namespace %q. You must pass '--namespace=%s' to perform this operation",
			info.Namespace, r.Namespace, info.Namespace)
	}
	return info, nil
}

// arguments yields what the arguments name.
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
		if word == "all" {
			of, err := m.ByCategory(ctx, word)
			if err != nil {
				yield(Info{}, err)
				return
			}
			mappings = append(mappings, of...)
			continue
		}
		mapping, err := m.ByName(ctx, word)
		if err != nil {
			yield(Info{}, err)
			return
		}
		mappings = append(mappings, mapping)
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
	info := Info{Mapping: mapping, Namespace: r.Namespace, Name: name, Source: mapping.Called(name)}
	if !mapping.Namespaced {
		info.Namespace = ""
	}
	return info, nil
}
