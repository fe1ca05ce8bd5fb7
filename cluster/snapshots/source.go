package snapshots

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

// Path is the path of the API server that serves a snapshot of the cluster, for administrators.
const Path = "/sampan/v1/snapshot"

// MediaType is the type of a snapshot.
const MediaType = "application/vnd.sampan.snapshot"

// secretsParameter is the query parameter with the form of Secrets: [snapshot.Encrypted], the default, or
// [snapshot.Plain].
const secretsParameter = "secrets"

// A Source makes snapshots of a running cluster.
type Source struct {
	// Freeze returns the state of the store at the newest revision.
	Freeze func() *store.Frozen

	// Info describes the cluster. Revision, time and secrets are set for each snapshot.
	Info func() snapshot.Info

	// Seal encrypts the saved form of a record, as it is on disk.
	Seal func(key string, data []byte) ([]byte, error)

	// Put serves PUT requests: see [Reset]. Nil means that they are not supported.
	Put http.Handler
}

// Write writes a snapshot of now. Plain says that Secrets are not encrypted in it. No write to the store waits for out.
func (s Source) Write(ctx context.Context, out io.Writer, plain bool) (snapshot.Summary, error) {
	state, info := s.Freeze(), s.Info()
	info.Revision, info.Time, info.Secrets = state.Revision, time.Now().UTC().Truncate(time.Second), snapshot.Encrypted
	if plain {
		info.Secrets = snapshot.Plain
	}
	w, err := snapshot.NewWriter(out, info)
	if err != nil {
		return snapshot.Summary{}, err
	}
	unreadable, saver := 0, codec.Saver{}
	for rec, expires := range state.All() {
		if ctx.Err() != nil {
			return snapshot.Summary{}, context.Cause(ctx)
		}
		data, ok := saver.Saved(rec.Value)
		if !ok {
			unreadable++
			continue
		}
		if !plain {
			if data, err = s.Seal(rec.Key, data); err != nil {
				return snapshot.Summary{}, err
			}
		}
		if err := w.Add(store.Entry{Key: rec.Key, Data: data, Created: rec.Created, Revision: rec.Revision, Expires: expires}); err != nil {
			return snapshot.Summary{}, err
		}
	}
	return w.Close(unreadable)
}

// ServeHTTP implements [http.Handler]. A snapshot that cannot be finished ends without its end, which every reader
// notices.
func (s Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && s.Put != nil {
		s.Put.ServeHTTP(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		httpserver.WriteError(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: Path}, r.Method))
		return
	}
	plain := false
	switch form := r.URL.Query().Get(secretsParameter); form {
	case "", snapshot.Encrypted:
	case snapshot.Plain:
		plain = true
	default:
		httpserver.WriteError(w, r, apierrors.NewBadRequest(fmt.Sprintf("%s: must be %s or %s, got %q", secretsParameter, snapshot.Encrypted, snapshot.Plain, form)))
		return
	}
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	out := &counted{w: w}
	_, err := s.Write(r.Context(), out, plain)
	switch {
	case err == nil:
	case out.n == 0 && r.Context().Err() == nil:
		httpserver.WriteError(w, r, apierrors.NewInternalError(err))
	default:
		panic(http.ErrAbortHandler) // the client must not take the end of the body for the end of the snapshot
	}
}

// counted counts bytes.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return n, err
}
