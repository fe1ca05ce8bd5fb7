package cli

import (
	"context"
	"io"
	"sync"

	"github.com/sampan-io/sampan/internal/run"
)

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// untilOver returns a reader of r whose Read fails once ctx is cancelled, even while it
// waits for r, such as for a terminal. r is not read before the first Read, and may be
// read ahead.
func untilOver(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	begin := sync.OnceFunc(func() {
		context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
		// The goroutine is not waited for: if r never returns, it ends with the process.
		run.NewGroup(ctx, 0).Go(func(context.Context) {
			_, err := io.Copy(in, r)
			_ = in.CloseWithError(err) // nil stands for the end
		})
	})
	return readerFunc(func(p []byte) (int, error) {
		begin()
		return out.Read(p)
	})
}
