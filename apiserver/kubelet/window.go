package kubelet

import (
	"bufio"
	"context"
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
	more  chan struct{} // closed when bytes has become less; nil if admit does not wait
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
	frames.Admit = func(bytes int) error { return w.admit(ctx, bytes) }
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
