package httpserver

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/table"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

// A watch over HTTP without a timeout ends after half an hour to an hour, as in Kubernetes, so that
// connections are distributed again from time to time.
const leastWatch = 1800 // seconds

// serveWatch streams events until the client goes, the time is over or the server
// stops.
func (s *Server) serveWatch(x *exchange, t operation.Target) {
	m, ok := x.media(codec.Offer{Forms: true, Watch: true, Untyped: t.Kind.Untyped()})
	if !ok {
		return
	}
	q := x.query()
	opts, err := listOptions(q)
	if err == nil {
		err = notAt(q)
	}
	if err != nil {
		x.fail(err)
		return
	}
	if t.Name != "" { // a watch of one object by its path
		if opts.FieldSelector, err = selectName(t.Name, opts.FieldSelector); err != nil {
			x.fail(err)
			return
		}
	}
	if opts.TimeoutSeconds == nil || *opts.TimeoutSeconds <= 0 {
		seconds := int64(leastWatch + rand.IntN(leastWatch))
		opts.TimeoutSeconds = &seconds
	}
	e := events{kind: t.Kind, media: m}
	if m.Form == codec.Table {
		if e.include, err = x.includeObject(); err != nil {
			x.fail(err)
			return
		}
	}
	if m.Form == codec.MetadataList { // a watch is of single objects
		x.fail(notThatForm())
		return
	}
	ctx, stop := s.streamContext(x.r.Context())
	defer stop()
	// The first state costs as much as a list, and holds a seat as that does.
	if !s.begin(x) {
		return
	}
	defer x.finish()
	if t.Kind.Untyped() {
		var end context.CancelFunc
		ctx, end = operation.WhileServed(ctx, t.Kind)
		defer end()
	}
	changes, err := s.objects.Watch(ctx, t, opts)
	if err != nil {
		x.fail(err)
		return
	}
	end, err := x.beginLong(fairness.Watches)
	if err != nil {
		x.fail(err)
		return
	}
	defer end()
	defer s.metrics.stream(&x.subject)()
	sent := s.metrics.events.WithLabelValues(x.subject.group, x.subject.version, x.subject.resource)
	if wsstream.IsWebSocketRequest(x.r) {
		(&messages{s, x, &e, sent, stop}).serve(ctx, changes)
		return
	}
	for c, err := range changes {
		if err != nil {
			if e.w == nil { // nothing was said yet: this is an answer like any other
				x.fail(err)
				return
			}
			if codec.WriteEvent(e.w, codec.Media{Encoding: m.Encoding}, watch.Error, asStatus(err)) != nil {
				return
			}
			break
		}
		if e.w == nil {
			h := x.Header()
			h["Content-Type"] = []string{m.Encoding.WatchContentType()}
			h["Cache-Control"] = noCache
			x.WriteHeader(http.StatusOK)
			e.w = bufio.NewWriterSize(x, onePiece)
		}
		if c.Type == "" {
			x.seat.release()
			if e.w.Flush() != nil {
				return
			}
			x.Flush()
			continue
		}
		switch err := run.Catch(func() error { return e.write(ctx, c) }); {
		case err == nil:
			sent.Inc()
		case isPanic(err): // before anything of the event was written
			s.panicked(ctx, x, c, err)
		default:
			return // the client is gone
		}
	}
	if e.w != nil && e.w.Flush() == nil {
		x.Flush()
	}
}

// panicked logs that an event of a watch was left out.
func (s *Server) panicked(ctx context.Context, x *exchange, c operation.Change, err error) {
	s.opts.Log.ErrorContext(ctx, "panic over an event; the watch leaves it out", "path", x.r.URL.Path, "event", c.String(), "err", err)
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*run.PanicError](err)
	return ok
}

// selectName returns the selector of fields of a watch of one object. The one that the client gave may only name the same object.
func selectName(name, selector string) (string, error) {
	if selector == "" {
		return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), nil
	}
	where, err := fields.ParseSelector(selector)
	if err != nil {
		return "", apierrors.NewBadRequest(err.Error())
	}
	if selected, ok := where.RequiresExactMatch(metav1.ObjectNameField); !ok || selected != name {
		return "", apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return selector, nil
}

// events writes changes in the form that a client wants.
type events struct {
	w       *bufio.Writer // nil until the answer has begun
	kind    *catalog.Kind
	media   codec.Media
	include metav1.IncludeObjectPolicy
	headed  bool // the columns of the table were sent
}

func (e *events) write(ctx context.Context, c operation.Change) error {
	if e.media.Form == codec.Whole {
		if c.Item != nil {
			shown, err := c.Item.In(ctx, e.kind)
			if err != nil {
				return err
			}
			return codec.WriteItemEvent(e.w, e.media.Encoding, c.Type, shown)
		}
		return codec.WriteEvent(e.w, codec.Media{Encoding: e.media.Encoding}, c.Type, codec.EmptyObject(e.kind, c.ResourceVersion, c.Annotations))
	}
	obj, err := e.reshape(ctx, c)
	if err != nil {
		return err
	}
	return codec.WriteEvent(e.w, e.media, c.Type, obj)
}

// reshape makes of a change the table or the metadata that the client wants. Only the
// first table names its columns.
func (e *events) reshape(ctx context.Context, c operation.Change) (runtime.Object, error) {
	if e.media.Form == codec.MetadataOnly {
		if c.Item != nil {
			return table.Metadata(c.Item.Object()), nil
		}
		return table.Metadata(codec.EmptyObject(e.kind, c.ResourceVersion, c.Annotations)), nil
	}
	var out *metav1.Table
	if c.Item == nil {
		out = table.New(e.kind)
		out.ResourceVersion = c.ResourceVersion
		if len(c.Annotations) > 0 { // a table's own metadata has no annotations
			row, err := table.Row(e.kind, codec.EmptyObject(e.kind, c.ResourceVersion, c.Annotations), time.Now(), metav1.IncludeMetadata, nil)
			if err != nil {
				return nil, err
			}
			out.Rows = append(out.Rows, row)
		}
	} else {
		var err error
		if out, err = tableOf(ctx, e.kind, []catalog.Object{c.Item.Object()}, metav1.ListMeta{ResourceVersion: c.Item.ResourceVersion()}, e.include,
			func(int) ([]byte, error) { return jsonIn(ctx, e.kind, c.Item) }); err != nil {
			return nil, err
		}
	}
	if e.headed {
		out.ColumnDefinitions = nil
	}
	e.headed = true
	return out, nil
}
