package kubelet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/sampan-io/sampan/internal/spdyframes"
	"github.com/sampan-io/sampan/internal/upgrade"
)

// mostHeld is how many bytes of a command's output are held for a client. The SPDY library would hold 50 frames, and as
// many again for each stream.
const mostHeld = 4 * upgrade.FourRecords

// A window counts the bytes that have come from a node and not gone to the client.
type window struct {
	mu    sync.Mutex
	bytes int           // in the window
	errs  int           // bytes of the error stream so far
	more  chan struct{} // closed when bytes has become less; nil if admit does not wait
}

// The library creates the error stream first, and holds all of it until its end: nothing of it leaves the window before.
const (
	errorStream = 1
	mostErrors  = 1 << 20 // bytes; the Status in it has an error message
)

var errErrors = errors.New("the error stream of the node is too long")

// admitTo admits bytes of a stream.
func (w *window) admitTo(ctx context.Context, stream uint32, bytes int) error {
	if stream != errorStream {
		return w.admit(ctx, bytes)
	}
	if w.errs += bytes; w.errs > mostErrors {
		return errErrors
	}
	return nil
}

// admit waits until bytes fit in the window, or ctx is cancelled. A number that is larger than the window is admitted
// when the window is empty.
func (w *window) admit(ctx context.Context, bytes int) error {
	for {
		w.mu.Lock()
		if w.bytes == 0 || w.bytes+bytes <= mostHeld {
			w.bytes += bytes
			w.mu.Unlock()
			return nil
		}
		if w.more == nil {
			w.more = make(chan struct{})
		}
		more := w.more
		w.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bound returns a connection of SPDY that reads as much as has room in the window, until a context ends.
func (w *window) bound(ctx context.Context, conn io.ReadWriteCloser) (io.ReadWriteCloser, error) {
	frames, err := spdyframes.NewReader(bufio.NewReaderSize(conn, upgrade.FourRecords), upgrade.FourRecords)
	if err != nil {
		return nil, err
	}
	frames.Admit = func(stream uint32, bytes int) error { return w.admitTo(ctx, stream, bytes) }
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{bufio.NewReaderSize(frames, headBuffer), spdyframes.NewWriter(conn), conn}, nil
}

// release takes bytes out of the window.
func (w *window) release(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes -= bytes
	if w.more != nil {
		close(w.more)
		w.more = nil
	}
}
