package apiserver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// newDispatcher returns a dispatcher that uses the objects which every cluster starts with, until it
// follows the stored ones.
func newDispatcher(seats int) *priority.Dispatcher {
	d := priority.New(seats)
	d.Configure(priority.Config{
		Schemas: append(flowcontrol.MandatorySchemas(), flowcontrol.SuggestedSchemas()...),
		Levels:  append(flowcontrol.MandatoryLevels(), flowcontrol.SuggestedLevels()...),
	})
	return d
}

// The response headers that name the schema and the priority level of a request: in the form that header maps need, and in that of
// HTTP/2, which has to be made of the other one for each answer.
const (
	headerSchema = "X-Kubernetes-Pf-Flowschema-Uid"
	headerLevel  = "X-Kubernetes-Pf-Prioritylevel-Uid"

	headerSchemaHTTP2 = "x-kubernetes-pf-flowschema-uid"
	headerLevelHTTP2  = "x-kubernetes-pf-prioritylevel-uid"
)

// classify finds the class of the request, and says in the answer which it is.
func (s *Server) classify(x *exchange, r priority.Request) {
	last := &s.rules
	if x.conn != nil {
		last = &x.conn.rules
	}
	known := last.Load()
	rules := s.priority.User(known, x.user)
	if rules != known {
		last.Store(rules)
	}
	x.seat.asked = r
	x.seat.class = rules.Classify(&x.seat.asked)
	h := x.Header()
	if x.r.ProtoMajor == 2 {
		h[headerSchemaHTTP2], h[headerLevelHTTP2] = x.seat.class.Headers()
	} else {
		h[headerSchema], h[headerLevel] = x.seat.class.Headers()
	}
}

// seatsOf returns how many seats a list takes, or the first state of a watch: more if it reads many objects.
func (s *Server) seatsOf(x *exchange, t *operation.Target, verb string) int {
	objects, ok := s.opts.Store.(counter)
	if !ok {
		return 1
	}
	n := objects.Count(t.Kind.Prefix(""))
	if priority.Seats(n) == 1 {
		return 1
	}
	q := x.query()
	if verb == operation.VerbWatch {
		if rv := q.Get("resourceVersion"); rv != "" && rv != "0" && !isTrue(q, "sendInitialEvents") {
			return 1
		}
	}
	if t.Name != "" || strings.HasPrefix(q.Get("fieldSelector"), metav1.ObjectNameField+"=") {
		return 1
	}
	if limit, err := number(q, "limit"); err == nil && limit != nil && *limit > 0 && *limit < int64(n) {
		n = int(*limit)
	}
	return priority.Seats(n)
}

// debugPriority begins the paths of the tables for debugging.
const debugPriority = "/debug/api_priority_and_fairness/"

// serveDump answers /debug/api_priority_and_fairness/NAME with a table of the state of the priority levels.
func (s *Server) serveDump(x *exchange, table string) {
	var b strings.Builder
	if !s.priority.Dump(&b, table) {
		x.notFoundPage()
		return
	}
	h := x.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	x.writeText(b.String())
}

// flowControlManager is the manager of the statuses of schemas, as upstream's.
const flowControlManager = "api-priority-and-fairness-config-consumer-v1"

// statusPause is the least time between two rounds of writes of statuses, in case that another client writes others.
const statusPause = time.Second

// statusDelay is how long statuses wait for more changes, so that a schema and the level that it refers to can be
// written in either order.
const statusDelay = 100 * time.Millisecond

// FollowFlowControl makes the server use the stored FlowSchemas and PriorityLevelConfigurations, and keeps the
// condition Dangling of the schemas, until ctx is over. As long as the mandatory levels are not stored, the server
// uses the objects that every cluster starts with.
func (s *Server) FollowFlowControl(ctx context.Context) error {
	f := flowControlFollower{server: s, changed: run.NewBell(), objects: map[string]catalog.Object{}}
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, resource := range []string{"prioritylevelconfigurations", "flowschemas"} {
		if kind := s.opts.Catalog.Resource(flowcontrolv1.SchemeGroupVersion.WithResource(resource)); kind != nil {
			g.Go(func(ctx context.Context) { f.follow(ctx, kind.Prefix("")) })
		}
	}
	f.writeStatuses(ctx)
	return nil
}

// A flowControlFollower follows the two resources.
type flowControlFollower struct {
	server  *Server
	changed run.Bell // rung when statuses may have to be written

	mu      sync.Mutex
	objects map[string]catalog.Object // guarded by mu; by key
}

func (f *flowControlFollower) follow(ctx context.Context, prefix string) {
	follow.Records(ctx, f.server.opts.Store, store.Query{Prefix: prefix}, follow.Follower{
		All: func(_ context.Context, records []store.Record) error {
			f.update(func() {
				maps.DeleteFunc(f.objects, func(key string, _ catalog.Object) bool { return strings.HasPrefix(key, prefix) })
				for _, rec := range records {
					f.set(rec)
				}
			})
			return nil
		},
		Changed: func(_ context.Context, ev store.Event) {
			f.update(func() {
				if ev.Deleted {
					delete(f.objects, ev.Key)
				} else {
					f.set(ev.Record)
				}
			})
		},
	})
}

// set takes a stored object. One that cannot be read counts as missing. The caller holds mu.
func (f *flowControlFollower) set(rec store.Record) {
	delete(f.objects, rec.Key)
	if item := rec.Value.(*codec.Item); item.Fault() == nil {
		f.objects[rec.Key] = item.Object()
	}
}

// update makes a change and lets the server use it.
func (f *flowControlFollower) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	if c, ok := f.config(); ok {
		f.server.priority.Configure(c)
	}
	f.changed.Ring()
}

// config returns the stored objects, and whether the mandatory levels are among them. The caller holds mu.
func (f *flowControlFollower) config() (c priority.Config, ok bool) {
	for _, obj := range f.objects {
		switch obj := obj.(type) {
		case *flowcontrolv1.FlowSchema:
			c.Schemas = append(c.Schemas, obj)
		case *flowcontrolv1.PriorityLevelConfiguration:
			c.Levels = append(c.Levels, obj)
		}
	}
	for _, m := range flowcontrol.MandatoryLevels() {
		if !slices.ContainsFunc(c.Levels, func(l *flowcontrolv1.PriorityLevelConfiguration) bool { return l.Name == m.Name }) {
			return c, false
		}
	}
	return c, true
}

// writeStatuses writes the statuses of schemas that have to change, until ctx is over.
func (f *flowControlFollower) writeStatuses(ctx context.Context) {
	api := f.server.As(auth.User{Name: "system:apiserver", Groups: []string{auth.GroupMasters}})
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		run.Pause(ctx, statusDelay)
		f.mu.Lock()
		c, ok := f.config()
		f.mu.Unlock()
		due := c.Conditions(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
		if !ok || len(due) == 0 {
			continue
		}
		g := run.NewGroup(ctx, 0) // at once, so that they share a sync of the disk
		for _, s := range due {
			g.Go(func(ctx context.Context) {
				_, err := api.Update(ctx, flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas"), "", s.Name, s, metav1.UpdateOptions{FieldManager: flowControlManager}, "status")
				// An object that was changed or deleted meanwhile is looked at again because of that.
				if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					f.server.opts.Log.WarnContext(ctx, "cannot write the status of a flow schema", "flowschema", s.Name, "err", err)
				}
			})
		}
		g.Wait()
		g.Stop()
		run.Pause(ctx, statusPause)
	}
}
