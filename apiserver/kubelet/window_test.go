package kubelet

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
)

// TestWindowBoundsWhatIsRead has a node that sends without end, and a client that takes nothing, then one frame, then
// leaves.
func TestWindowBoundsWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frame = 32 << 10
		node, conn := net.Pipe()
		held := &window{}
		ctx, cancel := context.WithCancel(t.Context())
		bound, err := held.bound(ctx, conn)
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		sent := make(chan error, 1)
		g.Go(func(context.Context) {
			framer, err := spdy.NewFramer(node, nil)
			for err == nil {
				err = framer.WriteFrame(&spdy.DataFrame{StreamId: 5, Data: make([]byte, frame)})
			}
			sent <- err
		})
		var read int
		ended := make(chan error, 1)
		g.Go(func(context.Context) {
			framer, err := spdy.NewFramer(io.Discard, bound)
			for err == nil {
				if _, err = framer.ReadFrame(); err == nil {
					read += frame
				}
			}
			ended <- err
		})
		synctest.Wait()
		if read != mostHeld {
			t.Errorf("read %d bytes that nobody takes, want %d", read, mostHeld)
		}
		held.release(frame)
		synctest.Wait()
		if read != mostHeld+frame {
			t.Errorf("read %d bytes, want %d", read, mostHeld+frame)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("reading ended with %v, want %v", err, context.Canceled)
		}
		_ = bound.Close()
		if err := <-sent; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the node ended with %v", err)
		}
		g.Stop()
	})
}
