package resource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sampan-io/sampan/internal/h2"
)

// extensions are those of the files that a directory is read for.
var extensions = []string{".json", ".yaml", ".yml"}

// A source is one stream of documents.
type source struct {
	name string // for messages
	open func(ctx context.Context) (io.ReadCloser, error)
}

// sources yields the sources of the names given with -f, in the order given.
func (r Request) sources() iter.Seq2[source, error] {
	return func(yield func(source, error) bool) {
		stdin := false
		for _, name := range r.Files {
			switch {
			case name == "-" && stdin:
				if !yield(source{}, errors.New("the standard input is named twice with -f")) {
					return
				}
			case name == "-":
				stdin = true
				if !yield(r.standardInput()) {
					return
				}
			case name == "":
				if !yield(source{}, errors.New("a file name given with -f is empty")) {
					return
				}
			case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
				if !yield(r.address(name)) {
					return
				}
			default:
				for s, err := range r.paths(name) {
					if !yield(s, err) {
						return
					}
				}
			}
		}
	}
}

func (r Request) standardInput() (source, error) {
	if r.In == nil {
		return source{}, errors.New("standard input is not available")
	}
	return source{"standard input", func(context.Context) (io.ReadCloser, error) { return io.NopCloser(r.In), nil }}, nil
}

// paths yields the files that a path, or a pattern of paths, stands for.
func (r Request) paths(name string) iter.Seq2[source, error] {
	return func(yield func(source, error) bool) {
		matches := []string{name}
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			// A file whose name looks like a pattern is that file.
			matches, err = filepath.Glob(name)
			switch {
			case err != nil:
				yield(source{}, fmt.Errorf("pattern %q is not valid: %w", name, err))
				return
			case len(matches) == 0:
				yield(source{}, fmt.Errorf("the path %q does not exist", name))
				return
			}
		}
		for _, path := range matches {
			st, err := os.Stat(path)
			if err == nil && st.IsDir() {
				if !r.directory(path, yield) {
					return
				}
				continue
			}
			if !yield(file(path), nil) {
				return
			}
		}
	}
}

// directory yields the files in a directory that have one of the extensions, in the
// order of their names, and reports whether to go on.
func (r Request) directory(dir string, yield func(source, error) bool) bool {
	found, wanted := false, true
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			found = true // its fault is reported instead
			if wanted = yield(source{}, fileError(path, err)); !wanted {
				return filepath.SkipAll
			}
			return nil
		}
		switch {
		case e.IsDir() && path != dir && !r.Recursive:
			return filepath.SkipDir
		case e.IsDir(), !slices.Contains(extensions, filepath.Ext(path)):
			return nil
		}
		found = true
		if wanted = yield(file(path), nil); !wanted {
			return filepath.SkipAll
		}
		return nil
	})
	switch {
	case !wanted:
		return false
	case err != nil:
		return yield(source{}, fileError(dir, err))
	case !found:
		deeper := ""
		if !r.Recursive {
			deeper = "; use -R to read its subdirectories"
		}
		return yield(source{}, fmt.Errorf("error reading [%s]: recognized file extensions are %v%s", dir, extensions, deeper))
	}
	return true
}

func file(path string) source {
	return source{path, func(context.Context) (io.ReadCloser, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, fileError(path, err)
		}
		return f, nil
	}}
}

func fileError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the path %q does not exist", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the file %q cannot be read: permission denied", name)
	}
	return fmt.Errorf("the file %q cannot be read: %w", name, err)
}

// readable takes the path out of an error of reading, where it already stands.
func readable(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			return fmt.Errorf("cannot be read: %w", errno)
		}
	}
	return err
}

// The limits of a download. A manifest is small; the limits are for servers that do not
// answer and for addresses of something else.
const (
	fetchAnswer    = 30 * time.Second // until the headers are there
	fetchAll       = 5 * time.Minute  // until everything is
	fetchTries     = 3
	fetchPause     = 200 * time.Millisecond
	fetchRedirects = 5

	// DefaultFetchLimit is the most that is read from an address.
	DefaultFetchLimit = 256 << 20
)

func (r Request) address(text string) (source, error) {
	u, err := url.Parse(text)
	if err == nil && u.Host == "" {
		err = errors.New("the URL has no host")
	}
	if err != nil {
		return source{}, fmt.Errorf("the URL passed to filename %q is not valid: %w", text, err)
	}
	return source{u.Redacted(), func(ctx context.Context) (io.ReadCloser, error) { return r.fetch(ctx, u) }}, nil
}

// fetch asks an address, again if the server is busy or does not answer.
func (r Request) fetch(ctx context.Context, u *url.URL) (io.ReadCloser, error) {
	c := http.Client{Timeout: fetchAll, CheckRedirect: checkRedirect, Transport: r.Transport}
	if r.Transport == nil {
		c.Transport = h2.Client(&http.Transport{
			Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: fetchAnswer,
			TLSHandshakeTimeout: fetchAnswer, DisableKeepAlives: true,
		})
	}
	for try := 1; ; try++ {
		body, again, err := r.ask(ctx, c, u)
		if err == nil || !again || try == fetchTries || ctx.Err() != nil {
			return body, err
		}
		pause := time.NewTimer(fetchPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

func checkRedirect(next *http.Request, via []*http.Request) error {
	switch {
	case len(via) > fetchRedirects:
		return fmt.Errorf("stopped after %d redirects", fetchRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return fmt.Errorf("redirect to %s: must be an http or https URL", next.URL.Redacted())
	case next.URL.Scheme == "http" && via[0].URL.Scheme == "https":
		return fmt.Errorf("redirect from https to %s, which is not encrypted", next.URL.Redacted())
	}
	return nil
}

// ask makes one request. Again means that another may do better.
func (r Request) ask(ctx context.Context, c http.Client, u *url.URL) (body io.ReadCloser, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, false, fmt.Errorf("unable to read URL %q: %w", u.Redacted(), err)
	}
	resp, err := c.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		var cause *url.Error
		timeout := errors.As(err, &cause) && cause.Timeout()
		if cause != nil {
			err = cause.Err
		}
		if timeout {
			err = errors.New("the server did not answer in time")
		}
		return nil, !timeout && resp == nil, fmt.Errorf("unable to read URL %q: %w", u.Redacted(), err)
	}
	limit := r.FetchLimit
	if limit == 0 {
		limit = DefaultFetchLimit
	}
	tooLarge := fmt.Errorf("the response is larger than the limit of %d MB", limit>>20)
	switch {
	case resp.StatusCode != http.StatusOK:
		_ = resp.Body.Close()
		return nil, resp.StatusCode >= http.StatusInternalServerError,
			fmt.Errorf("unable to read URL %q, server reported %s, status code=%d", u.Redacted(), resp.Status, resp.StatusCode)
	case resp.ContentLength > limit:
		_ = resp.Body.Close()
		return nil, false, fmt.Errorf("unable to read URL %q: %w", u.Redacted(), tooLarge)
	}
	return &limited{resp.Body, limit, tooLarge}, false, nil
}

// A limited body fails where it gets too long, instead of ending there.
type limited struct {
	io.ReadCloser
	left     int64
	tooLarge error
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, l.tooLarge
	}
	return n, err
}

// kustomization yields the objects of a kustomization directory. All of it is made
// before the first object is yielded.
func (r Request) kustomization(ctx context.Context, m *Mapper, yield func(Info, error) bool) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), r.Kustomize)
	if err != nil {
		yield(Info{}, fmt.Errorf("kustomize %s: %w", r.Kustomize, err))
		return
	}
	for n, res := range made.Resources() {
		if ctx.Err() != nil {
			yield(Info{}, context.Cause(ctx))
			return
		}
		place := fmt.Sprintf("kustomize %s, object %d (%s)", r.Kustomize, n+1, strings.TrimSpace(res.GetKind()+" "+res.GetName()))
		text, err := res.MarshalJSON()
		var fields map[string]any
		if err == nil {
			fields, err = document{text: text}.fields()
		}
		if err == nil {
			err = check(fields)
		}
		if err != nil {
			if !yield(Info{Source: place}, &SourceError{place, err}) {
				return
			}
			continue
		}
		// Generated objects are in no file, so there are no line numbers.
		if !r.objects(ctx, m, place, &unstructured.Unstructured{Object: fields}, origin{}, yield) {
			return
		}
	}
}
