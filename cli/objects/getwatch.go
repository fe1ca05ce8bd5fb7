package objects

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
)

// follow prints what there is, and then each change until the command is
// interrupted or a request fails.
func (c *get) follow(ctx context.Context, s *session.Session, f show.Format, i resource.Info) error {
	if !i.Selection {
		i.Fields = "metadata.name=" + i.Name
		if !c.watchOnly {
			// A watch of a name that does not exist would wait for ever.
			if _, err := s.Get(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, ""); err != nil {
				return err
			}
		}
		i.Name = ""
	}
	w := follow.Follower{Client: s, Source: follow.Source{
		GroupVersionResource: i.Mapping.GroupVersionResource, Namespace: i.Namespace, Labels: i.Labels, Fields: i.Fields,
	}, PageSize: c.chunkSize}
	show := c.objectPrinter(f, i)
	if f.IsTable() {
		w.Client = &tableClient{get: c, session: s, info: i}
		show = c.rowPrinter(f, i)
	}
	for step := range w.Steps(ctx) {
		var objs []client.Object
		event := watch.Added
		switch s := step.(type) {
		case follow.Page:
			if !c.watchOnly {
				objs = s.Objects
			}
		case *follow.Changed:
			objs = []client.Object{s.Object}
			if !s.Added {
				event = watch.Modified
			}
		case follow.Deleted:
			objs = []client.Object{s.Object}
			event = watch.Deleted
		case follow.Failed:
			return s.Err
		case follow.Expired: // as kubectl does; a new list would print everything again
			return s.Err
		}
		for _, o := range objs {
			if err := show(event, o); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// objectPrinter returns a function that prints whole objects.
func (c *get) objectPrinter(f show.Format, i resource.Info) func(watch.EventType, client.Object) error {
	heads, first := !c.noHeaders, true
	return func(event watch.EventType, o client.Object) error {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("the client returned a %T, want an unstructured object", o)
		}
		if f.Kind == "yaml" && !first {
			_, _ = fmt.Fprintln(c.Out, "---")
		}
		withHeads := heads && first
		first = false
		switch {
		case c.events:
			return f.PrintEvent(c.Out, i.Mapping, event, u, withHeads)
		case f.Kind == "custom-columns":
			return f.PrintColumns(c.Out, []*unstructured.Unstructured{u}, withHeads)
		}
		return f.Print(c.Out, i.Mapping, u)
	}
}

// rowPrinter returns a function that prints the tables of a [tableClient].
func (c *get) rowPrinter(f show.Format, i resource.Info) func(watch.EventType, client.Object) error {
	p := &tablePrinter{get: c, Table: show.NewTable(c.Out), wide: f.Kind == "wide", prefix: c.showKind}
	heads := !c.noHeaders
	return func(event watch.EventType, o client.Object) error {
		t, ok := o.(*tableObject)
		if !ok {
			return fmt.Errorf("the client returned a %T, want a table", o)
		}
		if len(t.Rows) == 0 {
			return nil
		}
		p.event = fmt.Sprintf("%-*s", len(watch.Modified), event)
		err := p.print(serverTable{i.Mapping, t.Table}, heads)
		heads = false
		return err
	}
}
