package run_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
)

func TestReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r := run.Reader(ctx, strings.NewReader("ab"))
	if b, err := io.ReadAll(io.LimitReader(r, 1)); err != nil || string(b) != "a" {
		t.Errorf("read %q, %v", b, err)
	}
	cause := errors.New("enough")
	cancel(cause)
	if b, err := io.ReadAll(r); !errors.Is(err, cause) || len(b) > 0 {
		t.Errorf("after the end of the context: read %q, %v", b, err)
	}
}
