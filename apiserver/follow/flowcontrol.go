package follow

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// flowControlManager is the manager of the statuses of schemas, as upstream's.
const flowControlManager = "api-priority-and-fairness-config-consumer-v1"

// statusPause is the least time between two rounds of writes of statuses, in case that another client writes others.
const statusPause = time.Second

// statusDelay is how long statuses wait for more changes, so that a schema and the level that it refers to can be
// written in either order.
const statusDelay = 100 * time.Millisecond

// FlowControl calls configure with the stored FlowSchemas and PriorityLevelConfigurations, if the mandatory levels are among them,
// and keeps the condition Dangling of the schemas by api, until ctx is over.
func FlowControl(ctx context.Context, c *catalog.Catalog, st Store, api Writer, configure func(priority.Config), log *slog.Logger) {
	f := flowControlFollower{configure: configure, changed: run.NewBell(), objects: map[string]catalog.Object{}}
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, resource := range []string{"prioritylevelconfigurations", "flowschemas"} {
		if kind := c.Resource(flowcontrolv1.SchemeGroupVersion.WithResource(resource)); kind != nil {
			g.Go(func(ctx context.Context) { f.follow(ctx, st, kind.Prefix("")) })
		}
	}
	f.writeStatuses(ctx, api, log)
}

// A flowControlFollower follows the two resources.
type flowControlFollower struct {
	configure func(priority.Config)
	changed   run.Bell // rung when statuses may have to be written

	mu      sync.Mutex
	objects map[string]catalog.Object // guarded by mu; by key
}

func (f *flowControlFollower) follow(ctx context.Context, st Store, prefix string) {
	Records(ctx, st, store.Query{Prefix: prefix}, Follower{
		All: func(_ context.Context, records []store.Record) error {
			f.update(func() {
				maps.DeleteFunc(f.objects, func(key string, _ catalog.Object) bool { return strings.HasPrefix(key, prefix) })
				for _, rec := range records {
					keep(f.objects, rec)
				}
			})
			return nil
		},
		Changed: func(_ context.Context, ev store.Event) {
			f.update(func() {
				if ev.Deleted {
					delete(f.objects, ev.Key)
				} else {
					keep(f.objects, ev.Record)
				}
			})
		},
	})
}

// update makes a change and lets the server use the new state.
func (f *flowControlFollower) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	if c, ok := f.config(); ok {
		f.configure(c)
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
func (f *flowControlFollower) writeStatuses(ctx context.Context, api Writer, log *slog.Logger) {
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
					log.WarnContext(ctx, "cannot write the status of a flow schema", "flowschema", s.Name, "err", err)
				}
			})
		}
		g.Wait()
		g.Stop()
		run.Pause(ctx, statusPause)
	}
}
