package waiting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
)

// podLogs follows the logs of the pods that hold up a wait. A nil *podLogs does nothing. It is safe for concurrent use.
type podLogs struct {
	c     *client.REST
	sink  func(src logSource) io.WriteCloser
	note  func(text string) // reports a log that could not be followed
	ready bool              // follow ready pods, too
	apart bool              // separate standard output and standard error, if the server can
	group *run.Group
	bytes atomic.Int64 // read so far

	mu      sync.Mutex
	wanted  map[types.UID]bool                   // guarded by mu; the pods, and owners of pods, to follow
	watched map[string]*cache.Cache[*corev1.Pod] // guarded by mu; by namespace
	streams map[string]*logStream                // guarded by mu; by pod and container
	active  int                                  // guarded by mu
	full    bool                                 // guarded by mu; the limit was reported
}

// A logSource is one container whose log is printed.
type logSource struct {
	pod       *corev1.Pod
	container string
	stream    string // corev1.LogStreamStdout or LogStreamStderr; empty means both
}

// A logStream is one container that is followed, or was.
type logStream struct {
	id     string // ID of the container
	active bool
	over   chan struct{} // closed when it becomes inactive
	stop   context.CancelFunc
}

const (
	// maxStreams is how many logs are followed at the same time. Users could not read more.
	maxStreams = 20
	// drainTimeout is how long the end of a wait is delayed for the log of a terminated container
	// if no data arrive.
	drainTimeout = 10 * time.Second
)

func newPodLogs(ctx context.Context, c *client.REST, sink func(src logSource) io.WriteCloser, note func(string)) *podLogs {
	return &podLogs{
		c: c, sink: sink, note: note, group: run.NewGroup(ctx, 0),
		wanted: map[types.UID]bool{}, watched: map[string]*cache.Cache[*corev1.Pod]{}, streams: map[string]*logStream{},
	}
}

// update follows the pods of an object and of the parts that hold it up.
func (l *podLogs) update(p await.Progress) {
	s, isStatus := p.(await.Status)
	if l == nil || !isStatus || s.Object.UID == "" || s.Verdict.State == await.Done {
		return
	}
	uids := []types.UID{s.Object.UID}
	var add func(parts []await.Part)
	add = func(parts []await.Part) {
		for _, part := range parts {
			uids = append(uids, part.Object.UID)
			add(part.Parts)
		}
	}
	add(s.Parts)
	l.want(s.Object.Namespace, uids...)
}

// want follows the pods with these UIDs or with a controller that has one of them.
func (l *podLogs) want(namespace string, uids ...types.UID) {
	l.mu.Lock()
	news := false
	for _, id := range uids {
		news = news || !l.wanted[id]
		l.wanted[id] = true
	}
	pods := l.watched[namespace]
	if pods == nil && namespace != "" {
		pods = cache.New(l.c, client.Pods, cache.Options[*corev1.Pod]{Namespace: namespace, Log: slog.New(slog.DiscardHandler)})
		pods.Subscribe(func(_, pod *corev1.Pod) {
			if pod != nil {
				l.look(pod)
			}
		})
		l.watched[namespace] = pods
		l.group.Go(func(ctx context.Context) { _ = pods.Run(ctx) }) // it always returns nil
		news = false                                                // the subscription looks at all pods
	}
	l.mu.Unlock()
	if news && pods != nil {
		for _, p := range pods.List(namespace) {
			l.look(p)
		}
	}
}

// meant reports whether a pod's logs are to be followed; l.mu must be held.
func (l *podLogs) meant(p *corev1.Pod) bool {
	if l.wanted[p.UID] {
		return true
	}
	owner := metav1.GetControllerOf(p)
	return owner != nil && l.wanted[owner.UID]
}

// look follows the containers of a pod that have started.
func (l *podLogs) look(p *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.meant(p) {
		return
	}
	holdsUp := l.ready || p.Spec.RestartPolicy != corev1.RestartPolicyAlways || !podstate.Ready(p)
	for name, s := range begun(p) {
		key := string(p.UID) + "/" + name
		known := l.streams[key]
		switch {
		case known != nil && known.active && !holdsUp:
			known.stop()
		case !holdsUp, known != nil && (known.active || known.id == s.id):
		case l.active == maxStreams:
			if !l.full {
				l.full = true
				l.note(fmt.Sprintf("only the logs of %d containers are followed at the same time; 'sampan logs' shows the others", maxStreams))
			}
		default:
			l.begin(key, logSource{pod: p, container: name}, s.id)
		}
	}
}

// A run of a container.
type containerRun struct {
	id   string
	over bool
}

// begun returns the containers of a pod that are running or have run, by name.
func begun(p *corev1.Pod) map[string]containerRun {
	all := map[string]containerRun{}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range list {
			switch {
			case s.State.Running != nil:
				all[s.Name] = containerRun{id: s.ContainerID}
			case s.State.Terminated != nil && s.State.Terminated.ContainerID != "":
				all[s.Name] = containerRun{id: s.State.Terminated.ContainerID, over: true}
			}
		}
	}
	return all
}

// begin follows a container; l.mu must be held.
func (l *podLogs) begin(key string, src logSource, id string) {
	s := &logStream{id: id, active: true, over: make(chan struct{})}
	l.streams[key] = s
	l.active++
	started := l.group.Go(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l.mu.Lock()
		s.stop = cancel
		l.mu.Unlock()
		sources := []logSource{src}
		if l.apart && separatesStreams(ctx, l.c, src) {
			sources = nil
			for _, stream := range []string{corev1.LogStreamStdout, corev1.LogStreamStderr} {
				src.stream = stream
				sources = append(sources, src)
			}
		}
		parts := run.NewGroup(ctx, 0)
		for _, src := range sources {
			parts.Go(func(ctx context.Context) {
				out := l.sink(src)
				err := copyLog(ctx, l.c, src, id, counting{out, &l.bytes})
				_ = out.Close() // it only prints an unfinished last line
				if err != nil && ctx.Err() == nil {
					l.note(fmt.Sprintf("the log of pod/%s, container %s, cannot be followed: %v", src.pod.Name, src.container, err))
				}
			})
		}
		parts.Wait()
		parts.Stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.active--
		s.active = false
		close(s.over)
	})
	if !started {
		l.active--
		s.active = false
		close(s.over)
		return
	}
	if s.stop == nil {
		s.stop = func() {} // the goroutine has not begun; the next look stops it
	}
}

// counting counts what is written.
type counting struct {
	io.Writer
	n *atomic.Int64
}

// Write implements io.Writer.
func (c counting) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// copyLog copies the complete log of one run of a container until that run ends. It reconnects after an error, and
// continues where it was.
func copyLog(ctx context.Context, c *client.REST, src logSource, id string, w io.Writer) error {
	pauses := run.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}
	var written int64
	for empty := 1; ; empty++ { // reads in a row that brought nothing
		n, err := readLog(ctx, c, src, written, w)
		written += n
		if n > 0 {
			empty = 0
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			p, err := client.Pods.Get(ctx, c, src.pod.Namespace, src.pod.Name)
			if apierrors.IsNotFound(err) || err == nil && p.UID != src.pod.UID {
				return nil
			}
			if err == nil {
				if now, known := begun(p)[src.container]; !known || now.over || now.id != id {
					return nil
				}
			}
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), errors.Is(err, errNoReader):
			return err
		}
		if !run.Pause(ctx, pauses.Pause(empty)) {
			return context.Cause(ctx)
		}
	}
}

// errNoReader says that writing a log to the output has failed.
var errNoReader = errors.New("the output is closed")

// readLog copies a log until the server ends it. It skips the first before bytes.
func readLog(ctx context.Context, c *client.REST, src logSource, before int64, w io.Writer) (int64, error) {
	query := url.Values{"container": {src.container}, "follow": {"true"}}
	if src.stream != "" {
		query.Set("stream", src.stream)
	}
	resp, err := c.Do(ctx, client.RawRequest{Path: logPath(src), Query: query, Endless: true})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, before); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil // the log was truncated
		}
		return 0, err
	}
	t := &tracked{w: w}
	_, err = io.Copy(t, resp.Body)
	if t.failed {
		err = errNoReader
	}
	return t.n, err
}

func logPath(src logSource) string {
	return "/api/v1/namespaces/" + src.pod.Namespace + "/pods/" + src.pod.Name + "/log"
}

// separatesStreams reports whether the server can return one stream of a log (KEP-3288), by a request for an invalid
// stream. A server that can rejects it with the list of streams; one with the feature disabled rejects the option; an
// older one ignores the option.
func separatesStreams(ctx context.Context, c *client.REST, src logSource) bool {
	resp, err := c.Do(ctx, client.RawRequest{
		Path: logPath(src), Query: url.Values{"container": {src.container}, "limitBytes": {"1"}, "stream": {"Which"}},
	})
	if err == nil {
		_ = resp.Body.Close() // the response is not needed
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "stream" && c.Type == metav1.CauseTypeFieldValueNotSupported
	})
}

// tracked counts what is written, and records whether writing has failed.
type tracked struct {
	w      io.Writer
	n      int64
	failed bool
}

// Write implements io.Writer.
func (t *tracked) Write(b []byte) (int, error) {
	n, err := t.w.Write(b)
	t.n += int64(n)
	t.failed = t.failed || err != nil
	return n, err
}

// finish reads the rest of the logs of terminated containers, and stops. It returns an error if that fails.
func (l *podLogs) finish(ctx context.Context) error {
	if l == nil {
		return nil
	}
	defer l.group.Stop()
	l.mu.Lock()
	namespaces := slices.Collect(maps.Keys(l.watched))
	l.mu.Unlock()
	for _, ns := range namespaces {
		// A list, because the cache may be behind the watch of the wait.
		pods, _, err := client.Pods.List(ctx, l.c, ns, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("the end of the logs: %w", err)
		}
		for _, p := range pods {
			l.look(p)
		}
		for _, p := range pods {
			if err := l.drain(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain waits for the logs of a pod's terminated containers.
func (l *podLogs) drain(ctx context.Context, p *corev1.Pod) error {
	for name, r := range begun(p) {
		l.mu.Lock()
		s := l.streams[string(p.UID)+"/"+name]
		l.mu.Unlock()
		if s == nil || !r.over {
			continue
		}
		stalled := time.NewTicker(drainTimeout)
		defer stalled.Stop()
		for seen, waiting := int64(-1), true; waiting; {
			select {
			case <-s.over:
				waiting = false
			case <-ctx.Done():
				return nil // after an interrupt, an incomplete log is expected
			case <-stalled.C:
				if now := l.bytes.Load(); now == seen {
					return fmt.Errorf("the end of the log of pod/%s, container %s, could not be read within %v", p.Name, name, drainTimeout)
				}
				seen = l.bytes.Load()
			}
		}
	}
	return nil
}
