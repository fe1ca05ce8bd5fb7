package streams

import (
	"context"
	"log/slog"
	"testing"
)

func TestCommandMayPanic(t *testing.T) {
	s := &Server{Log: slog.New(slog.DiscardHandler)}
	err := s.run(t.Context(), Command{Run: func(context.Context, Client) error { panic("boom") }}, Client{})
	if err == nil || err.Error() != "panic: boom" {
		t.Errorf("a panic: %v", err)
	}
}
