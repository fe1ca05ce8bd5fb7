package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// A tableClient reads one selection as tables. A list is one object, with all rows. It implements [follow.Client].
type tableClient struct {
	get     *get
	session *session.Session
	info    resource.Info
	columns []metav1.TableColumnDefinition // of the last list; the tables of a watch may have none
}

// A tableObject is a table as an object. Its metadata has the resource version only.
type tableObject struct {
	metav1.Table
	metav1.ObjectMeta
}

// List implements [follow.Client]. The resource, the namespace and the selectors are those of the table.
func (c *tableClient) List(ctx context.Context, _ schema.GroupVersionResource, _ string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	t, err := c.get.ask(ctx, c.session, c.info, false, opts.Limit, opts.Continue)
	c.columns = t.ColumnDefinitions
	return []runtime.Object{&tableObject{Table: t.Table}}, t.ListMeta, err
}

// Watch implements [follow.Client].
func (c *tableClient) Watch(ctx context.Context, _ schema.GroupVersionResource, _ string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		query := selection(c.info.Labels, c.info.Fields, 0, "")
		query.Set("watch", "true")
		query.Set("allowWatchBookmarks", "true")
		query.Set("resourceVersion", opts.ResourceVersion)
		resp, err := c.session.Do(ctx, client.RawRequest{
			Path: c.info.Mapping.Path(c.info.Namespace, ""), Query: query, Accept: tableAccept, Endless: true,
		})
		if err != nil {
			yield(watch.Event{}, err)
			return
		}
		defer resp.Body.Close()
		for d := json.NewDecoder(resp.Body); ; {
			e, err := c.event(d)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// event reads one event of a watch.
func (c *tableClient) event(d *json.Decoder) (watch.Event, error) {
	var e metav1.WatchEvent
	if err := d.Decode(&e); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return watch.Event{}, client.ErrWatchEnded
	} else if err != nil {
		return watch.Event{}, err
	}
	var o tableObject
	var err error
	switch watch.EventType(e.Type) {
	case watch.Error:
		var status metav1.Status
		if err = json.Unmarshal(e.Object.Raw, &status); err == nil {
			return watch.Event{}, apierrors.FromObject(&status)
		}
	case watch.Bookmark: // it is of no object
		err = json.Unmarshal(e.Object.Raw, &o.Table)
	default:
		o.Table, err = readTable(e.Object.Raw, time.Now())
	}
	if err != nil {
		return watch.Event{}, fmt.Errorf("reading the watch: %w", err)
	}
	if len(o.ColumnDefinitions) == 0 {
		o.ColumnDefinitions = c.columns
	}
	o.ResourceVersion = o.ListMeta.ResourceVersion
	for _, r := range o.Rows {
		var row metav1.PartialObjectMetadata
		if json.Unmarshal(r.Object.Raw, &row) == nil && row.ResourceVersion != "" {
			o.ResourceVersion = row.ResourceVersion
		}
	}
	return watch.Event{Type: watch.EventType(e.Type), Object: &o}, nil
}
