package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sampan-io/sampan/internal/run"
)

func quote(s string) string   { return strconv.Quote(s) }
func itoa(code int32) string  { return strconv.Itoa(int(code)) }
func newline(b []byte) []byte { return append(b, '\n') }

// A sender takes encoded events to where they are kept.
type sender interface {
	// send may be called from several goroutines. It may block for as long as ctx holds.
	send(ctx context.Context, events [][]byte) error
	close() error
}

// A sink is a sender with its mode.
type sink struct {
	name     string
	conf     Batch
	truncate Truncate
	legacy   bool
	to       sender
	auditor  *Auditor

	mu     sync.RWMutex
	queue  chan []byte // in mode batch
	closed bool        // guarded by mu
}

func (a *Auditor) newSink(name string, conf Batch, truncate Truncate, to sender) *sink {
	s := &sink{name: name, conf: conf, truncate: truncate, to: to, auditor: a}
	if conf.Mode == ModeBatch {
		s.queue = make(chan []byte, conf.BufferSize)
	}
	return s
}

// record takes an event, which is encoded as data. It reports false if the mode is strict and that failed.
func (s *sink) record(e *Event, data []byte) bool {
	data, err := s.shorten(e, data)
	if err == nil {
		switch s.conf.Mode {
		case ModeBatch:
			err = s.enqueue(data)
		default:
			err = s.to.send(s.auditor.work, [][]byte{data})
		}
	}
	if err != nil {
		s.auditor.failed(s.name, err, 1)
	}
	return err == nil || s.conf.Mode != ModeStrict
}

// shorten returns the event as the sink has it: without bodies if it is too large.
func (s *sink) shorten(e *Event, data []byte) ([]byte, error) {
	if s.truncate.Enabled && int64(len(data)) > s.truncate.MaxEventSize {
		short := *e
		if e.Level.rank() >= Request.rank() {
			short.RequestObject, short.ResponseObject = nil, nil
			short.Annotations = maps.Clone(e.Annotations)
			if short.Annotations == nil {
				short.Annotations = map[string]string{}
			}
			short.Annotations["audit.k8s.io/truncated"] = "true"
			var err error
			if data, err = json.Marshal(&short); err != nil {
				return nil, err
			}
		}
		if int64(len(data)) > s.truncate.MaxEventSize {
			return nil, errors.New("event is too large even after truncating")
		}
		e = &short
	}
	if s.legacy {
		return []byte(legacy(e)), nil
	}
	return data, nil
}

var errBlocked, errEnded = errors.New("audit buffer queue blocked"), errors.New("audit backend shut down")

func (s *sink) enqueue(data []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errEnded
	}
	select {
	case s.queue <- data:
		return nil
	default:
		return errBlocked
	}
}

// end takes no more events.
func (s *sink) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.queue != nil {
		close(s.queue)
	}
	s.closed = true
}

// maxSending bounds how many batches a webhook is sent at the same time. When so many wait for it, events stay in the
// queue.
const maxSending = 16

// run sends queued events until the queue is closed and empty.
func (s *sink) run(ctx context.Context) {
	if s.queue == nil {
		return
	}
	g := run.NewGroup(context.WithoutCancel(ctx), maxSending)
	defer g.Wait()
	var limit flowcontrol.RateLimiter
	if s.conf.ThrottleEnable {
		limit = flowcontrol.NewTokenBucketRateLimiter(float32(s.conf.ThrottleQPS), s.conf.ThrottleBurst)
		defer limit.Stop()
	}
	for {
		batch := s.collect()
		if len(batch) == 0 {
			return
		}
		if limit != nil {
			_ = limit.Wait(s.auditor.work) // it fails if the time to stop is over, and so does send
		}
		if !s.conf.concurrent {
			s.deliver(batch)
			continue
		}
		g.Go(func(context.Context) { s.deliver(batch) })
	}
}

func (s *sink) deliver(batch [][]byte) {
	for _, part := range s.split(batch) {
		if err := s.to.send(s.auditor.work, part); err != nil {
			s.auditor.failed(s.name, err, len(part))
		}
	}
}

// split divides a batch that is too large.
func (s *sink) split(batch [][]byte) [][][]byte {
	if !s.truncate.Enabled {
		return [][][]byte{batch}
	}
	var parts [][][]byte
	size := int64(0)
	for _, e := range batch {
		if len(parts) == 0 || size+int64(len(e)) > s.truncate.MaxBatchSize {
			parts, size = append(parts, nil), 0
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], e)
		size += int64(len(e))
	}
	return parts
}

// collect waits for an event and for more of them until the batch is full or has waited long enough. It returns none if
// there will be no more.
func (s *sink) collect() [][]byte {
	first, ok := <-s.queue
	if !ok {
		return nil
	}
	batch := [][]byte{first}
	if s.conf.MaxSize <= 1 {
		return batch
	}
	wait := time.NewTimer(s.conf.MaxWait)
	defer wait.Stop()
	for len(batch) < s.conf.MaxSize {
		select {
		case e, ok := <-s.queue:
			if !ok {
				return batch
			}
			batch = append(batch, e)
		case <-wait.C:
			return batch
		}
	}
	return batch
}

// A logFile writes each event as a line.
type logFile struct {
	mu  sync.Mutex
	out io.Writer // guarded by mu
}

// openLog opens the log, which it makes if need be.
func openLog(c *Log) (*logFile, error) {
	if c.Path == "-" {
		return &logFile{out: os.Stdout}, nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	f, err := os.OpenFile(c.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	if c.MaxSize == 0 {
		return &logFile{out: f}, nil
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return &logFile{out: &lumberjack.Logger{Filename: c.Path, MaxAge: c.MaxAge, MaxBackups: c.MaxBackups, MaxSize: c.MaxSize, Compress: c.Compress}}, nil
}

func (l *logFile) send(_ context.Context, events [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if _, err := l.out.Write(newline(e[:len(e):len(e)])); err != nil {
			return err
		}
	}
	return nil
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.out.(io.Closer); ok && l.out != os.Stdout {
		return c.Close()
	}
	return nil
}

// A webhook posts events as lists.
type webhook struct {
	url     string
	client  *http.Client
	backoff time.Duration
}

// Bounds on sending to a webhook; upstream's. Each pause is half as long again as the one before it.
const (
	webhookTimeout = 30 * time.Second
	webhookTries   = 5
)

// openWebhook reads the kubeconfig with the address and the credentials of a webhook.
func openWebhook(c *Webhook) (*webhook, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.ConfigFile}
	conf, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: --audit-webhook-config-file %s: %w", c.ConfigFile, err)
	}
	conf.Timeout = webhookTimeout
	client, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: --audit-webhook-config-file %s: %w", c.ConfigFile, err)
	}
	url, _, err := rest.DefaultServerUrlFor(conf)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: --audit-webhook-config-file %s: %w", c.ConfigFile, err)
	}
	return &webhook{url: url.String(), client: client, backoff: c.InitialBackoff}, nil
}

// Items of a list have no kind.
const (
	eventStart = `{"kind":"Event","apiVersion":"` + apiVersion + `",`
	listStart  = `{"kind":"EventList","apiVersion":"` + apiVersion + `","metadata":{},"items":[`
)

func (w *webhook) send(ctx context.Context, events [][]byte) (err error) {
	var body bytes.Buffer
	body.WriteString(listStart)
	for i, e := range events {
		if i > 0 {
			body.WriteByte(',')
		}
		body.WriteByte('{')
		body.Write(bytes.TrimPrefix(e, []byte(eventStart)))
	}
	body.WriteString("]}")
	pause := w.backoff
	for try := 1; ; try++ {
		if err = w.post(ctx, body.Bytes()); err == nil || try == webhookTries {
			return err
		}
		if !run.Pause(ctx, pause) {
			return err
		}
		pause += pause / 2
	}
}

func (w *webhook) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the webhook answered %s", resp.Status)
	}
	return nil
}

func (w *webhook) close() error {
	w.client.CloseIdleConnections()
	return nil
}
