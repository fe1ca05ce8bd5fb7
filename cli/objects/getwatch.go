package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/client"
)

// follow prints what there is, and then each change until the command is
// interrupted or the server ends the watch for good.
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
	if !f.IsTable() {
		return c.followObjects(ctx, s, f, i)
	}
	p := &tablePrinter{get: c, Table: show.NewTable(c.Out), wide: f.Kind == "wide", prefix: c.showKind}
	t, err := c.ask(ctx, s, i, false)
	if err != nil {
		return err
	}
	heads := !c.noHeaders
	if !c.watchOnly && len(t.Rows) > 0 {
		if err := p.print(t, heads); err != nil {
			return err
		}
		heads = false
	}
	p.columns = t.ColumnDefinitions
	return watchTables(ctx, s, i, t.ResourceVersion, func(rows metav1.Table) error {
		err := p.print(serverTable{i.Mapping, rows}, heads)
		heads = false
		return err
	})
}

func (c *get) followObjects(ctx context.Context, s *session.Session, f show.Format, i resource.Info) error {
	opts := metav1.ListOptions{LabelSelector: i.Labels, FieldSelector: i.Fields}
	objs, meta, err := s.List(ctx, i.Mapping.GroupVersionResource, i.Namespace, opts)
	if err != nil {
		return err
	}
	heads := !c.noHeaders
	show := func(o *unstructured.Unstructured) error {
		var err error
		if f.Kind == "custom-columns" {
			err = f.PrintColumns(c.Out, []*unstructured.Unstructured{o}, heads)
			heads = false
		} else {
			if f.Kind == "yaml" {
				_, _ = fmt.Fprintln(c.Out, "---")
			}
			err = f.Print(c.Out, i.Mapping, o)
		}
		return err
	}
	if !c.watchOnly {
		for _, o := range objs {
			if u, ok := o.(*unstructured.Unstructured); ok {
				if err := show(u); err != nil {
					return err
				}
			}
		}
	}
	opts.ResourceVersion = meta.ResourceVersion
	for {
		for e, err := range s.Watch(ctx, i.Mapping.GroupVersionResource, i.Namespace, opts) {
			if errors.Is(err, client.ErrWatchEnded) {
				break // from time to time servers end a watch; go on from where it was
			}
			if err != nil {
				return err
			}
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			opts.ResourceVersion = u.GetResourceVersion()
			if e.Type == watch.Bookmark {
				continue
			}
			if err := show(u); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// watchTables watches a selection as tables.
func watchTables(ctx context.Context, s *session.Session, i resource.Info, revision string, show func(metav1.Table) error) error {
	for {
		query := selection(i.Labels, i.Fields)
		query.Set("watch", "true")
		query.Set("allowWatchBookmarks", "true")
		query.Set("resourceVersion", revision)
		resp, err := s.Do(ctx, client.RawRequest{Path: i.Mapping.Path(i.Namespace, ""), Query: query, Accept: tableAccept, Endless: true})
		if err != nil {
			return err
		}
		revision, err = readTables(resp.Body, revision, show)
		_ = resp.Body.Close() // only read from
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
		default:
			return err
		}
	}
}

// readTables shows the events of one watch and returns the last revision seen
// and why the watch ended.
func readTables(body io.Reader, revision string, show func(metav1.Table) error) (string, error) {
	d := json.NewDecoder(body)
	for {
		var e metav1.WatchEvent
		if err := d.Decode(&e); err != nil {
			return revision, err
		}
		if e.Type == string(watch.Error) {
			var status metav1.Status
			if err := json.Unmarshal(e.Object.Raw, &status); err != nil {
				return revision, fmt.Errorf("reading the watch: %w", err)
			}
			return revision, apierrors.FromObject(&status)
		}
		var t metav1.Table
		var err error
		if e.Type == string(watch.Bookmark) { // it is of no object
			err = json.Unmarshal(e.Object.Raw, &t)
		} else {
			t, err = readTable(e.Object.Raw, time.Now())
		}
		if err != nil {
			return revision, fmt.Errorf("reading the watch: %w", err)
		}
		for _, r := range t.Rows {
			var o metav1.PartialObjectMetadata
			if json.Unmarshal(r.Object.Raw, &o) == nil && o.ResourceVersion != "" {
				revision = o.ResourceVersion
			}
		}
		if e.Type == string(watch.Bookmark) {
			if t.ResourceVersion != "" {
				revision = t.ResourceVersion
			}
			continue
		}
		if err := show(t); err != nil {
			return revision, err
		}
	}
}

func valueAt(path *jsonpath.JSONPath, object map[string]any) string {
	results, err := path.FindResults(object)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return ""
	}
	var text bytes.Buffer
	if err := path.PrintResults(&text, results[0]); err != nil {
		return ""
	}
	return text.String()
}

// compareValues sorts numbers and quantities by value, other texts as such.
func compareValues(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	switch {
	case errX == nil && errY == nil && x < y:
		return -1
	case errX == nil && errY == nil && x > y:
		return 1
	case errX == nil && errY == nil:
		return 0
	}
	p, errP := quantity.ParseQuantity(a)
	q, errQ := quantity.ParseQuantity(b)
	if errP == nil && errQ == nil {
		return p.Cmp(q)
	}
	return strings.Compare(a, b)
}
