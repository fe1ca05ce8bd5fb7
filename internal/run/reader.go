package run

import (
	"context"
	"io"
)

// Reader returns a reader of r whose reads fail with the cause of ctx after ctx is cancelled. It does not interrupt a read
// that has begun.
func Reader(ctx context.Context, r io.Reader) io.Reader { return &reader{ctx, r} }

type reader struct {
	ctx context.Context //nolint:containedctx // lives as long as one copy
	r   io.Reader
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
