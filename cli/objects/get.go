package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/internal/terminal"
)

type get struct {
	*session.Globals
	in             session.Input
	watch          bool
	watchOnly      bool
	noHeaders      bool
	sortBy         string
	ignoreNotFound bool
	showLabels     bool
	labelColumns   []string
	showKind       bool
	raw            string
	subresource    string
	chunkSize      int64
	events         bool
	at             string // the moment whose objects are printed; empty means now
}

// chunkSize is kubectl's --chunk-size.
const chunkSize = 500

// Get returns the verb get.
func Get(g *session.Globals) *cobra.Command {
	c := &get{Globals: g}
	c.in.Lazy = true
	cmd := &cobra.Command{
		Use:     "get TYPE[/NAME] [NAME…]",
		Short:   "Print objects",
		Example: "  sampan get pods -A\n  sampan get rc/web -o yaml\n  sampan get pods -l app=web -w\n  sampan get --raw '/readyz?verbose'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("raw") {
				return c.path(cmd.Context(), args)
			}
			return c.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	c.in.FileFlags(f)
	c.in.SelectorFlags(f)
	f.BoolVarP(&c.watch, "watch", "w", false, "after listing, watch for changes")
	f.BoolVar(&c.watchOnly, "watch-only", false, "watch for changes without listing first")
	f.BoolVar(&c.noHeaders, "no-headers", false, "do not print column headers")
	f.StringVar(&c.sortBy, "sort-by", "", "JSONPath of the field to sort by, such as {.metadata.name}")
	f.BoolVar(&c.ignoreNotFound, "ignore-not-found", false, "do not report an error for an object that does not exist")
	f.BoolVar(&c.showLabels, "show-labels", false, "show all labels in the last column")
	f.StringSliceVarP(&c.labelColumns, "label-columns", "L", nil, "comma-separated labels to show as columns")
	f.BoolVar(&c.showKind, "show-kind", false, "show the resource type with each name")
	c.PrintFlags(f)
	f.BoolVar(&c.events, "output-watch-events", false, "print the type of each event with its object; with -w or --watch-only. The objects that exist are ADDED")
	f.StringVar(&c.subresource, "subresource", "", "print this subresource of the named objects, such as status, scale or resize")
	f.Int64Var(&c.chunkSize, "chunk-size", chunkSize, "read lists in chunks of this size; 0 reads each list with one request")
	f.StringVar(&c.at, "at", "", "print the objects as they were at this moment: a time such as 2006-01-02T15:04:05Z, a time before now such as 10m, or a revision. The cluster has to keep its history")
	f.StringVar(&c.raw, "raw", "", "GET this path from the server and print the response unchanged")
	return cmd
}

func (c *get) run(ctx context.Context, args []string) error {
	f, err := c.Format()
	if err == nil {
		err = c.misuse()
	}
	if err != nil {
		return err
	}
	c.at = momentOf(c.at, time.Now())
	var order *jsonpath.JSONPath
	if c.sortBy != "" {
		if order, err = show.Path("{" + strings.Trim(c.sortBy, "{}") + "}"); err != nil {
			return err
		}
	}
	s, err := c.Connect()
	if err != nil {
		return err
	}
	infos, err := s.Infos(ctx, c.in, args)
	if len(infos) == 0 {
		if err == nil && f.IsTable() {
			_, _ = fmt.Fprintf(c.Err, "No resources found in %s namespace.\n", s.Namespace)
		}
		if err != nil || f.IsTable() {
			return err
		}
	}
	if c.subresource != "" && slices.ContainsFunc(infos, func(i resource.Info) bool { return i.Selection }) {
		return errors.New("subresource cannot be used when bulk resources are specified")
	}
	if c.watch || c.watchOnly {
		if len(infos) > 1 {
			return errors.New("watch is only supported on individual resources and resource collections: specify one type or one object")
		}
		return errors.Join(err, c.follow(ctx, s, f, infos[0]))
	}
	if f.IsTable() {
		return errors.Join(err, c.tables(ctx, s, f, order, infos))
	}
	return errors.Join(err, c.objects(ctx, s, f, order, infos))
}

// misuse returns an error for flags that do not go together.
func (c *get) misuse() error {
	switch {
	case c.events && !c.watch && !c.watchOnly:
		return errors.New("--output-watch-events option can only be used with --watch or --watch-only")
	case c.chunkSize < 0:
		return fmt.Errorf("--chunk-size=%d: want 0 or more", c.chunkSize)
	case c.subresource != "" && (c.watch || c.watchOnly):
		return errors.New("--subresource cannot be used with --watch or --watch-only")
	case c.at != "" && (c.watch || c.watchOnly):
		return errors.New("--at cannot be used with --watch or --watch-only")
	case strings.Contains(c.subresource, "/"):
		return fmt.Errorf("--subresource=%s: must be the name of a subresource, such as status", c.subresource)
	}
	return nil
}

// chunks reads a list in parts: page reads at most limit objects from a place in the list, "" being its begin, and returns
// where the next part begins, "" after the last one. If the list expires meanwhile, page is called again for all of it.
func chunks(limit int64, page func(limit int64, from string) (next string, err error)) error {
	for from := ""; ; {
		next, err := page(limit, from)
		switch {
		case err != nil && from != "" && apierrors.IsResourceExpired(err):
			limit, next = 0, ""
			_, err = page(0, "")
			return err
		case err != nil || next == "":
			return err
		}
		from = next
	}
}

// path prints the server's answer at the path of --raw.
func (c *get) path(ctx context.Context, args []string) error {
	if len(args) > 0 || c.in.Given() || c.watch || c.watchOnly || c.Output != "" || c.at != "" {
		return errors.New("--raw cannot be used with arguments, files, -w, -o or --at")
	}
	u, err := url.ParseRequestURI(c.raw)
	if err != nil || !strings.HasPrefix(c.raw, "/") {
		return fmt.Errorf("--raw: must be a path of the server such as /api/v1/nodes or /readyz?verbose, got %q", c.raw)
	}
	s, err := c.Connect()
	if err != nil {
		return err
	}
	answer, err := s.Stream(ctx, http.MethodGet, u.Path, u.Query(), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(terminal.Data(c.Out), answer)
	return errors.Join(err, answer.Close())
}

// objects prints whole objects.
func (c *get) objects(ctx context.Context, s *session.Session, f show.Format, order *jsonpath.JSONPath, infos []resource.Info) error {
	var (
		objs     []*unstructured.Unstructured
		mappings []resource.Mapping
		errs     []error
	)
	for _, i := range infos {
		var got []runtime.Object
		var err error
		switch {
		case c.at != "":
			got, err = c.earlier(ctx, s, i)
		case i.Selection:
			got, err = c.list(ctx, s, i)
		default:
			var one runtime.Object
			one, err = s.Get(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, c.subresource)
			got = []runtime.Object{one}
		}
		if err != nil {
			if !c.ignoreNotFound || !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
			continue
		}
		for _, o := range got {
			if u, ok := o.(*unstructured.Unstructured); ok {
				objs, mappings = append(objs, u), append(mappings, i.Mapping)
			}
		}
	}
	if order != nil {
		sortObjects(objs, mappings, order)
	}
	single := len(infos) == 1 && !infos[0].Selection
	if len(objs) > 0 || len(errs) == 0 && !single {
		errs = append(errs, f.PrintAll(c.Out, mappings, objs, single, !c.noHeaders))
	}
	return errors.Join(errs...)
}

// list returns the objects of a selection.
func (c *get) list(ctx context.Context, s *session.Session, i resource.Info) (all []runtime.Object, err error) {
	err = chunks(c.chunkSize, func(limit int64, from string) (string, error) {
		some, meta, err := s.List(ctx, i.Mapping.GroupVersionResource, i.Namespace,
			metav1.ListOptions{LabelSelector: i.Labels, FieldSelector: i.Fields, Limit: limit, Continue: from})
		if from == "" {
			all = nil
		}
		all = append(all, some...)
		return meta.Continue, err
	})
	return all, err
}

// A serverTable is the server's table of objects for people to read.
type serverTable struct {
	mapping resource.Mapping
	metav1.Table
}

// selection returns the query of a list or watch. A limit of 0 is none; from is where a further part of a list begins.
func selection(labels, fields string, limit int64, from string) url.Values {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.FormatInt(limit, 10))
	}
	if from != "" {
		q.Set("continue", from)
	}
	if labels != "" {
		q.Set("labelSelector", labels)
	}
	if fields != "" {
		q.Set("fieldSelector", fields)
	}
	return q
}

// table returns the table of a selection or an object, with the whole objects in it if they are wanted.
func (c *get) table(ctx context.Context, s *session.Session, i resource.Info, whole bool) (all serverTable, err error) {
	limit := c.chunkSize
	if !i.Selection {
		limit = 0
	}
	err = chunks(limit, func(limit int64, from string) (string, error) {
		t, err := c.ask(ctx, s, i, whole, limit, from)
		if from == "" {
			all = t
		} else {
			all.Rows = append(all.Rows, t.Rows...)
		}
		return t.Continue, err
	})
	return all, err
}

// ask asks for one part of the table that [get.table] returns.
func (c *get) ask(ctx context.Context, s *session.Session, i resource.Info, whole bool, limit int64, from string) (serverTable, error) {
	query := selection(i.Labels, i.Fields, limit, from)
	if c.at != "" {
		query.Set("at", c.at)
	}
	if whole {
		query.Set("includeObject", string(metav1.IncludeObject))
	}
	at := i.Mapping.Path(i.Namespace, i.Name)
	if c.subresource != "" {
		at += "/" + url.PathEscape(c.subresource)
	}
	resp, err := s.Do(ctx, client.RawRequest{Path: at, Query: query, Accept: tableAccept})
	if err != nil {
		return serverTable{}, err
	}
	defer resp.Body.Close()
	t := serverTable{mapping: i.Mapping}
	if err := c.knowsPast(resp); err != nil {
		return t, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err == nil {
		t.Table, err = readTable(answer, time.Now())
	}
	if err != nil {
		return t, fmt.Errorf("reading the table of %s: %w", i.Mapping.Resource, err)
	}
	return t, nil
}

const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// tables prints one table per type, as the server lays them out.
func (c *get) tables(ctx context.Context, s *session.Session, f show.Format, order *jsonpath.JSONPath, infos []resource.Info) error {
	var (
		tables []serverTable
		errs   []error
		rows   int
	)
	for _, i := range infos {
		t, err := c.table(ctx, s, i, order != nil)
		if err != nil {
			if !c.ignoreNotFound || !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
			continue
		}
		rows += len(t.Rows)
		// Objects of one type that were named one by one share a table.
		if n := len(tables); n > 0 && tables[n-1].mapping.GroupVersionResource == t.mapping.GroupVersionResource {
			tables[n-1].Rows = append(tables[n-1].Rows, t.Rows...)
			continue
		}
		tables = append(tables, t)
	}
	tables = slices.DeleteFunc(tables, func(t serverTable) bool { return len(t.Rows) == 0 })
	for n, t := range tables {
		if n > 0 {
			_, _ = fmt.Fprintln(c.Out)
		}
		if order != nil {
			sorting.Stable(t.Rows, func(a, b metav1.TableRow) int {
				return compareValues(valueAt(order, rowObject(a)), valueAt(order, rowObject(b)))
			})
		}
		p := tablePrinter{get: c, Table: show.NewTable(c.Out), wide: f.Kind == "wide", prefix: c.showKind || len(tables) > 1}
		errs = append(errs, p.print(t, !c.noHeaders))
	}
	if rows == 0 && len(errs) == 0 && !c.ignoreNotFound {
		where := ""
		if i := infos[0]; i.Mapping.Namespaced && !c.in.AllNamespaces {
			where = fmt.Sprintf(" in %s namespace.", s.Namespace)
		}
		_, _ = fmt.Fprintf(c.Err, "No resources found%s\n", where)
	}
	return errors.Join(errs...)
}

func rowObject(r metav1.TableRow) map[string]any {
	var m map[string]any
	_ = json.Unmarshal(r.Object.Raw, &m) // a row without an object sorts first
	return m
}

// A tablePrinter lays out tables.
type tablePrinter struct {
	*get
	*show.Table
	wide   bool
	prefix bool   // names say their type
	event  string // the event of the rows, for --output-watch-events
}

func (p *tablePrinter) print(t serverTable, heads bool) error {
	var cells []string
	row := func(event, namespace string, labels []string, cell func(i int, d metav1.TableColumnDefinition) string) {
		cells = cells[:0]
		if p.events {
			cells = append(cells, event)
		}
		if p.in.AllNamespaces && t.mapping.Namespaced {
			cells = append(cells, namespace)
		}
		for i, d := range t.ColumnDefinitions {
			if d.Priority == 0 || p.wide {
				cells = append(cells, cell(i, d))
			}
		}
		p.Row(append(cells, labels...))
	}
	if heads {
		row("EVENT", "NAMESPACE", p.labelHeads(), func(_ int, d metav1.TableColumnDefinition) string { return strings.ToUpper(d.Name) })
	}
	for _, r := range t.Rows {
		var object metav1.PartialObjectMetadata
		_ = json.Unmarshal(r.Object.Raw, &object) // without it the cells beside have no values
		row(p.event, object.Namespace, p.labelCells(object.Labels), func(i int, d metav1.TableColumnDefinition) string {
			if i >= len(r.Cells) || r.Cells[i] == nil {
				return "" // as kubectl prints it
			}
			text := fmt.Sprint(r.Cells[i])
			if f, ok := r.Cells[i].(float64); ok && f == float64(int64(f)) {
				text = fmt.Sprint(int64(f)) // numbers in tables are whole
			}
			if p.prefix && d.Format == "name" {
				text = t.mapping.Called(text)
			}
			return show.FirstLine(text)
		})
	}
	return p.Flush()
}

func (c *get) labelHeads() []string {
	var heads []string
	for _, name := range c.labelColumns {
		heads = append(heads, strings.ToUpper(name[strings.LastIndex(name, "/")+1:]))
	}
	if c.showLabels {
		heads = append(heads, "LABELS")
	}
	return heads
}

func (c *get) labelCells(labels map[string]string) []string {
	var cells []string
	for _, name := range c.labelColumns {
		cells = append(cells, labels[name]) // empty without it, as kubectl has it
	}
	if c.showLabels {
		cells = append(cells, labelsOf(labels))
	}
	return cells
}

func labelsOf(m map[string]string) string {
	if len(m) == 0 {
		return "<none>"
	}
	var pairs []string
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}
