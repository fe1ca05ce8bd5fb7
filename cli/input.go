package cli

import (
	"context"
	"io"
	"sync"

	"github.com/sampan-io/sampan/internal/run"
)

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// untilOver returns a reader of r that fails when ctx is over, even while it waits
// for r, as for a terminal where nobody types. r is not read before the first
// Read, and may be read ahead.
func untilOver(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	begin := sync.OnceFunc(func() {
		context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
		// Nobody waits for it: where r gives nothing it ends with the program.
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
