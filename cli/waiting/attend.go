package waiting

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/terminal"
)

// Attend waits for one object and prints the output of the containers of its pods until the wait ends. If there is only
// one container and no stream of events, it copies the output unchanged; otherwise it prints it line by line, with the
// name of the container. Standard error goes to standard error if the server can separate the streams, unless one
// terminal shows both: there the order of the lines is more important. The error reports output that is missing.
func Attend(ctx context.Context, s *session.Session, c *client.REST, req await.Request, talk Talk, alone bool) (Ending, error) {
	e := Ending{words: progress.WordsOf(req.For), hint: s.Hint, request: req}
	r := newRenderer(ctx, s.Streams, talk, e.words, req.Timeout)
	output := &podOutput{renderer: r, streams: s.Streams, plain: alone && talk.Events == nil}
	logs := newPodLogs(ctx, c, output.of, r.note)
	logs.ready = true
	logs.apart = talk.Events != nil || !sameTerminal(s.Out, s.Err)
	for _, t := range req.Targets {
		logs.want(t.Namespace, t.UID)
	}
	e.Outcome, e.Err = await.Until(ctx, c, req, func(p await.Progress) { r.update(p, e.words, req) })
	err := logs.finish(ctx)
	r.close([]Ending{e})
	e.askRefused(ctx, c)
	return e, err
}

// podOutput prints the output of containers.
type podOutput struct {
	renderer
	streams session.Streams
	plain   bool // print it unchanged; otherwise line by line, with the name of the container

	mu sync.Mutex // one container at a time
}

func (o *podOutput) of(src logSource) io.WriteCloser {
	if !o.plain {
		return logWriter(o.renderer, src)
	}
	return &rawLog{o, streamFor(o.streams, src)}
}

type rawLog struct {
	*podOutput
	to io.Writer
}

// Write implements io.Writer.
func (o *rawLog) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hush() // the output may move the cursor
	return o.to.Write(b)
}

// Close implements io.Closer.
func (o *rawLog) Close() error { return nil }

// sameTerminal reports whether two streams write to the same terminal.
func sameTerminal(a, b io.Writer) bool {
	x, isX := terminal.File(a)
	y, isY := terminal.File(b)
	if !isX || !isY {
		return false
	}
	infoX, errX := x.Stat()
	infoY, errY := y.Stat()
	return errX == nil && errY == nil && os.SameFile(infoX, infoY)
}
