package container

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// An output is what a client gets. It may be read at any time.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// newStream returns a stream of a container with a log, and a function by which the container writes to it.
func newStream(t *testing.T) (s *stream, put func(text string)) {
	t.Helper()
	s = &stream{name: Stdout, to: &logFile{path: filepath.Join(t.TempDir(), "0.log")}, pool: newPool()}
	if err := s.to.reopen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.to.close)
	return s, func(text string) {
		buf := s.pool.Get().(*portion)
		n := copy(buf.in[:], text)
		s.taps.send(t.Context(), s.record(buf, n), buf.in[:n])
	}
}

// A command that has printed everything before its client comes must not look like one that printed nothing.
func TestAttachGetsEarlierOutput(t *testing.T) {
	s, put := newStream(t)
	put("one\ntwo")
	put(" three\n" + strings.Repeat("x", 3*maxLine) + "\nprompt> ")
	want := "one\ntwo three\n" + strings.Repeat("x", 3*maxLine) + "\nprompt> "
	client, done := &output{}, make(chan error, 1)
	go func() { done <- s.follow(t.Context(), client, new(time.Time)) }()
	for len(s.taps.clients()) == 0 {
	}
	put("later\n")
	s.flush()
	s.taps.end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := client.String(); got != want+"later\n" {
		t.Errorf("got %d bytes, want %d", len(got), len(want)+len("later\n"))
	}

	// The process has ended, though its container is not known to have.
	late := &output{}
	if err := s.follow(t.Context(), late, new(time.Time)); err != nil || late.String() != want+"later\n" {
		t.Errorf("after the end: got %d bytes, %v", len(late.String()), err)
	}
	if err := s.follow(t.Context(), late, nil); !errors.Is(err, ErrState) {
		t.Errorf("after the end, without earlier output: %v, want ErrState", err)
	}
}

func TestAttachGetsOutputSinceATime(t *testing.T) {
	s, put := newStream(t)
	put("read before\n")
	read := time.Now()
	for !time.Now().After(read) {
	}
	put("new\n")
	(&stream{name: Stderr, to: s.to, pool: s.pool}).record(&portion{in: [64 << 10]byte{'e', '\n'}}, 2)
	s.taps.end()
	client := &output{}
	if err := s.follow(t.Context(), client, &read); err != nil || client.String() != "new\n" {
		t.Errorf("got %q, %v", client.String(), err)
	}
}

// A client that goes while it gets earlier output is forgotten.
func TestAttachForgetsClientsThatGo(t *testing.T) {
	s, put := newStream(t)
	put("text\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.follow(ctx, &output{}, new(time.Time)); !errors.Is(err, context.Canceled) || len(s.taps.clients()) != 0 {
		t.Errorf("%v, %d clients are left", err, len(s.taps.clients()))
	}
}
