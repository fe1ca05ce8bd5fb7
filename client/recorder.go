package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
)

// Limits of upstream's event correlation, which users know: how many events one object may cause at
// once and then per time, and how many similar ones within which time are aggregated.
const (
	eventBurst      = 25
	eventRefill     = 5 * time.Minute
	similarLimit    = 10
	similarInterval = 10 * time.Minute

	eventQueue  = 1000 // events waiting to be written
	eventMemory = 4096 // events and sources remembered

	// A server that cannot be reached is tried again so often, at pauses that
	// begin with a second and double.
	eventTries = 6
)

// A Recorder writes Events about objects for people to read. Recording never
// blocks and never fails: what cannot be written is dropped.
//
// Repetitions of an event raise the count of the one that is there. More than ten
// similar events (all but the message is the same) within ten minutes are
// combined. One object may cause 25 events at once and then one every five minutes.
type Recorder struct {
	client Interface
	source corev1.EventSource
	log    *slog.Logger
	wake   run.Bell     // rung when an event is put into the queue
	lost   atomic.Int64 // events dropped because the queue was full

	mu      sync.Mutex
	queue   []*corev1.Event     // guarded by mu; grows as needed: most recorders write nothing for days
	offset  time.Duration       // of the times in names, so that two recorders do not choose one name at one time
	clock   int64               // guarded by mu; makes names unique
	written map[string]*written // of Run alone
	similar map[string]*similar // of Run alone
	budgets map[string]*budget  // of Run alone
}

// written is an event that stands in the cluster.
type written struct {
	namespace, name string
	count           int32
	last            time.Time
}

// similar counts distinct messages of otherwise equal events.
type similar struct {
	messages map[string]struct{}
	last     time.Time
}

// budget is the token bucket of one object.
type budget struct {
	tokens float64
	last   time.Time
}

// NewRecorder returns a recorder for a component ("default-scheduler"). The host
// is the node that it speaks for, if any. A nil log means slog.Default. Events are
// written while [Recorder.Run] runs.
func NewRecorder(c Interface, component, host string, log *slog.Logger) *Recorder {
	if log == nil {
		log = slog.Default()
	}
	return &Recorder{
		client: c, source: corev1.EventSource{Component: component, Host: host}, log: log,
		offset:  rand.N(time.Millisecond),
		wake:    run.NewBell(),
		written: map[string]*written{},
		similar: map[string]*similar{},
		budgets: map[string]*budget{},
	}
}

// Reference returns a reference to obj, for [Recorder.EventFor]. Its kind is what
// the object or its Go type says.
func Reference(obj Object) corev1.ObjectReference {
	apiVersion, kind := KindOf(obj).ToAPIVersionAndKind()
	return corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}
}

// Event records that something happened to obj. The kind of event is
// corev1.EventTypeNormal or corev1.EventTypeWarning, the reason is a word in
// CamelCase, the rest is a message for people.
func (r *Recorder) Event(obj Object, kind, reason, format string, args ...any) {
	r.EventFor(Reference(obj), kind, reason, format, args...)
}

// EventFor is [Recorder.Event] for a part of an object (a container: FieldPath) or for
// an object that the caller does not have.
func (r *Recorder) EventFor(ref corev1.ObjectReference, kind, reason, format string, args ...any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	message = strings.ToValidUTF8(message, "\ufffd") // it may quote a container's output
	if len(message) > 1024 {                         // the API's limit for a note
		message = strings.ToValidUTF8(message[:1021], "") + "..."
	}
	now := time.Now()
	r.mu.Lock()
	r.clock = max(r.clock+1, now.Add(r.offset).UnixNano())
	stamp := r.clock
	r.mu.Unlock()
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", ref.Name, stamp)},
		InvolvedObject:      ref,
		Type:                kind,
		Reason:              reason,
		Message:             message,
		Source:              r.source,
		ReportingController: r.source.Component,
		ReportingInstance:   r.source.Host,
		Count:               1,
		FirstTimestamp:      metav1.NewTime(now).Rfc3339Copy(),
		LastTimestamp:       metav1.NewTime(now).Rfc3339Copy(),
	}
	if !r.enqueue(e) && r.lost.Add(1) == 1 {
		r.log.Warn("events are dropped: the queue is full", "component", r.source.Component)
	}
}

// enqueue adds e to the queue, and returns false if that is full.
func (r *Recorder) enqueue(e *corev1.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= eventQueue {
		return false
	}
	r.queue = append(r.queue, e)
	r.wake.Ring()
	return true
}

// dequeue takes the events that are in the queue.
func (r *Recorder) dequeue() []*corev1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.queue
	r.queue = nil
	return events
}

// Run writes recorded events until ctx is cancelled, and then those still in the
// queue as long as the server accepts them at the first try, for a second at most. It
// is called once.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-r.wake:
			events := r.dequeue()
			for i, e := range events {
				if c := r.correlate(e); c != "" && !r.write(ctx, c, *e, eventTries) {
					r.flush(ctx, func(last context.Context) { r.write(last, c, *e, 1) }, events[i+1:])
					return nil
				}
			}
		case <-ctx.Done():
			r.flush(ctx, func(context.Context) {}, nil)
			return nil
		}
	}
}

// flush does what the end of ctx interrupted, and writes the events that were taken and those in the queue.
func (r *Recorder) flush(ctx context.Context, interrupted func(context.Context), taken []*corev1.Event) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	interrupted(last)
	for _, e := range append(taken, r.dequeue()...) {
		if last.Err() != nil {
			return
		}
		if c := r.correlate(e); c != "" {
			r.write(last, c, *e, 1)
		}
	}
}

// correlate changes e to the event that should be written and returns the key under which its
// repetitions are counted, or "" if the object has used up its limit.
func (r *Recorder) correlate(e *corev1.Event) string {
	now := e.LastTimestamp.Time
	if !r.afford(objectKey(e), now) {
		return ""
	}
	return r.combine(e, now)
}

// write writes e and reports whether the matter is settled; it is not when ctx
// ended first.
func (r *Recorder) write(ctx context.Context, key string, e corev1.Event, tries int) bool {
	for try := 1; ; try++ {
		err := r.put(ctx, key, e)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case answered(err) || try >= tries:
			// A server that answered has refused, which is what happens in a
			// namespace that is going away.
			r.log.Debug("event not written", "event", e.Namespace+"/"+e.Name, "reason", e.Reason, "err", err)
			return true
		}
		if !run.Pause(ctx, run.Backoff{First: time.Second, Max: time.Minute}.Pause(try)) {
			return false
		}
	}
}

func (r *Recorder) put(ctx context.Context, key string, e corev1.Event) error {
	w := r.written[key]
	if w != nil {
		patch, err := json.Marshal(map[string]any{
			"count": w.count + 1, "lastTimestamp": e.LastTimestamp, "message": e.Message,
		})
		if err != nil {
			return err
		}
		_, err = Events.Patch(ctx, r.client, w.namespace, w.name, types.StrategicMergePatchType, patch, "")
		if err == nil {
			w.count, w.last = w.count+1, e.LastTimestamp.Time
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		e.Count = w.count + 1 // it was deleted in the meantime (a crash, its time to live): write it again
	}
	if _, err := Events.Create(ctx, r.client, &e); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	forget(r.written, func(w *written) time.Time { return w.last })
	r.written[key] = &written{namespace: e.Namespace, name: e.Name, count: e.Count, last: e.LastTimestamp.Time}
	return nil
}

// afford takes a token from the bucket of the object and reports whether there
// was one.
func (r *Recorder) afford(object string, now time.Time) bool {
	b := r.budgets[object]
	if b == nil {
		forget(r.budgets, func(b *budget) time.Time { return b.last })
		b = &budget{tokens: eventBurst, last: now}
		r.budgets[object] = b
	}
	b.tokens = min(eventBurst, b.tokens+now.Sub(b.last).Seconds()/eventRefill.Seconds())
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// combine changes e into a combined event if there are many similar ones, and
// returns the key under which repetitions are counted.
func (r *Recorder) combine(e *corev1.Event, now time.Time) string {
	group := objectKey(e) + "\x00" + strings.Join([]string{e.Type, e.Reason, e.ReportingController, e.ReportingInstance}, "\x00")
	s := r.similar[group]
	if s == nil || now.Sub(s.last) > similarInterval {
		forget(r.similar, func(s *similar) time.Time { return s.last })
		s = &similar{messages: map[string]struct{}{}}
		r.similar[group] = s
	}
	s.last = now
	if len(s.messages) < similarLimit {
		s.messages[e.Message] = struct{}{}
	} else if _, known := s.messages[e.Message]; !known {
		e.Message = "(combined from similar events): " + e.Message
		return group
	}
	return group + "\x00" + e.InvolvedObject.FieldPath + "\x00" + e.Message
}

// objectKey is what one budget is for: an object with all of its parts, as for client-go. A pod may have a thousand containers.
func objectKey(e *corev1.Event) string {
	o := e.InvolvedObject
	return strings.Join([]string{o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "\x00")
}

// forget makes room in m: when it is full, the older half goes.
func forget[V any](m map[string]V, last func(V) time.Time) {
	if len(m) < eventMemory {
		return
	}
	var oldest, newest time.Time
	for _, v := range m {
		if t := last(v); oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
		if t := last(v); t.After(newest) {
			newest = t
		}
	}
	middle := oldest.Add(newest.Sub(oldest) / 2)
	for k, v := range m {
		if !last(v).After(middle) {
			delete(m, k)
		}
	}
}
