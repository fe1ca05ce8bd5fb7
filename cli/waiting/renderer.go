package waiting

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/internal/terminal"
)

// A renderer prints a wait: a picture on a terminal (treeRenderer), events for programs (eventRenderer), or one line per
// change (lineRenderer). It is safe for concurrent use.
type renderer interface {
	// update prints a change, with the words of its degree.
	update(p await.Progress, words progress.Words, request await.Request)
	// logLine prints a line of a container's log.
	logLine(src logSource, line []byte)
	// note prints a problem that does not affect the wait.
	note(text string)
	// hush stops printing changes for good, because the output of a container has the terminal now.
	hush()
	// close ends the printing, and prints the done objects if update did not.
	close(ends []Ending)
}

// newRenderer chooses and starts a renderer. The caller must close it.
func newRenderer(ctx context.Context, streams session.Streams, talk Talk, words progress.Words, timeout time.Duration) renderer {
	if streams.Release != nil {
		context.AfterFunc(ctx, streams.Release)
	}
	if talk.Events != nil {
		return eventRenderer{talk.Events}
	}
	if style, size, ok := terminalOf(streams.Err); ok && !talk.Quiet {
		return newTreeRenderer(ctx, streams, talk, progress.NewTree(words, style, time.Now(), timeout), size)
	}
	return newLineRenderer(ctx, streams, talk)
}

// printLogLine prints a line of a container's log as text.
func printLogLine(s session.Streams, src logSource, line []byte) {
	_, _ = fmt.Fprintf(streamFor(s, src), "[%s/%s] %s\n", src.pod.Name, src.container, line)
}

func printNote(s session.Streams, text string) {
	_, _ = fmt.Fprintln(s.Err, "note: "+terminal.Line(text))
}

// streamFor returns the stream to which the log of a source is printed, unchanged.
func streamFor(s session.Streams, src logSource) io.Writer {
	if src.stream == corev1.LogStreamStderr {
		return terminal.Raw(s.Err)
	}
	return terminal.Raw(s.Out)
}

// logWriter returns a writer that passes the log of a container to r line by line.
func logWriter(r renderer, src logSource) io.WriteCloser {
	return &lineWriter{handle: func(line []byte) { r.logLine(src, line) }}
}

// A lineWriter calls handle for each line that is written to it.
type lineWriter struct {
	handle func(line []byte)
	rest   []byte
}

// maxLine is the length at which a line without an end is split.
const maxLine = 64 << 10

// Write implements io.Writer.
func (l *lineWriter) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < maxLine {
			return len(b), nil
		}
		if end < 0 {
			end = len(l.rest)
		}
		l.handle(l.rest[:end])
		l.rest = append(l.rest[:0], l.rest[min(end+1, len(l.rest)):]...)
	}
}

// Close implements io.Closer.
func (l *lineWriter) Close() error {
	if len(l.rest) > 0 {
		l.handle(l.rest)
	}
	return nil
}
