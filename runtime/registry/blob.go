package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

const (
	// connections is how many connections one blob may take from one host, whatever progress it makes.
	connections = 100
	chunk       = 256 << 10
)

// localError is one of the writer that a blob is written to: no other host can help.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// Blob writes the blob with a digest, which has size bytes, to a writer. After a broken connection it continues where it
// was. An error of the writer ends it.
func (r *Repository) Blob(ctx context.Context, digest string, size int64, to io.Writer) error {
	d := &download{r: r, digest: digest, size: size, to: to, buf: make([]byte, chunk)}
	return r.each(ctx, func(h *host) bool { return h.pull }, func(e *endpoint) error { return d.from(ctx, e) })
}

// A download is the state of a blob that is being read.
type download struct {
	r      *Repository
	digest string
	size   int64
	to     io.Writer
	done   int64 // bytes that are written
	buf    []byte
}

// from reads the rest from a host.
func (d *download) from(ctx context.Context, e *endpoint) error {
	for n, idle := 1, 1; ; n++ {
		before := d.done
		err := d.part(ctx, e)
		if err == nil {
			return nil
		}
		idle++
		if d.done > before {
			idle = 1
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var local *localError
		if errors.As(err, &local) || !broken(err) && (d.done == 0 || !unreachable(err)) || idle > tries || n >= connections {
			return err
		}
		d.r.client.opts.Log.Debug("connection to a registry broke, resuming", "host", e.host.address, "at", d.done, "of", d.size, "err", err)
		if !run.Pause(ctx, run.Backoff{First: 100 * time.Millisecond, Max: longestPause}.Pause(idle)) {
			return context.Cause(ctx)
		}
	}
}

// part reads over one connection.
func (d *download) part(ctx context.Context, e *endpoint) error {
	header := http.Header{}
	if d.done > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.done))
	}
	res, err := d.r.get(ctx, e, "blobs", d.digest, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	skip, want := int64(0), d.size-d.done
	if res.StatusCode == http.StatusPartialContent {
		var from int64
		if n, _ := fmt.Sscanf(res.Header.Get("Content-Range"), "bytes %d-", &from); n != 1 || from != d.done {
			return fmt.Errorf("%s: the registry sent another part of blob %s than requested (bytes from %d on)", e.host.address, d.digest, d.done)
		}
	} else {
		skip, want = d.done, d.size // the host does not know Range
	}
	if n := res.ContentLength; n >= 0 && n != want {
		return fmt.Errorf("%s: the registry announces %d bytes of blob %s, the manifest says %d", e.host.address, n, d.digest, want)
	}
	for {
		n, err := res.Body.Read(d.buf)
		data := d.buf[:n]
		drop := min(skip, int64(n))
		skip -= drop
		data = data[drop:]
		if d.done+int64(len(data)) > d.size {
			return fmt.Errorf("%s: blob %s has more than the %d bytes that the manifest says", e.host.address, d.digest, d.size)
		}
		if len(data) > 0 {
			if _, err := d.to.Write(data); err != nil {
				return &localError{err}
			}
			d.done += int64(len(data))
		}
		switch {
		case errors.Is(err, io.EOF) && d.done == d.size, err == nil && d.done == d.size && res.ContentLength >= 0:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%s: blob %s ends after %d of %d bytes: %w", e.host.address, d.digest, d.done, d.size, io.ErrUnexpectedEOF)
		case err != nil:
			return fmt.Errorf("%s: reading blob %s: %w: %v", e.host.address, d.digest, io.ErrUnexpectedEOF, err) //nolint:errorlint // whatever it is, the connection is over
		}
	}
}
