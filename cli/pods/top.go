package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/sorting"
)

type topping struct {
	*session.Globals
	labels, fields       string
	sortBy               string
	noHeaders            bool
	containers, sum      bool
	allNamespaces, allOf bool
}

// Top returns the verb top with its verbs pods and nodes.
func Top(g *session.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top pods|nodes",
		Short: "Show the CPU and memory that pods or nodes use",
		Long:  "Show the CPU and memory that pods or nodes use, as the metrics API (metrics.k8s.io) reports it.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(topPods(g), topNodes(g))
	return cmd
}

func (t *topping) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&t.labels, "selector", "l", "", "label selector")
	f.StringVar(&t.sortBy, "sort-by", "", "sort by cpu or memory, largest first")
	f.BoolVar(&t.noHeaders, "no-headers", false, "print no headers")
}

func (t *topping) check(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return exit.Usage(cmd.CommandPath(), fmt.Errorf("at most one NAME is accepted, got %d", len(args)))
	case len(args) > 0 && t.labels != "":
		return exit.Usage(cmd.CommandPath(), errors.New("only one of NAME or --selector can be provided"))
	case t.sortBy != "" && t.sortBy != "cpu" && t.sortBy != "memory":
		return exit.Usage(cmd.CommandPath(), errors.New("--sort-by accepts only cpu or memory"))
	}
	return nil
}

func topPods(g *session.Globals) *cobra.Command {
	t := &topping{Globals: g}
	cmd := &cobra.Command{
		Use: "pods [NAME]", Aliases: []string{"pod", "po"},
		Short: "Show the CPU and memory that pods use",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(cmd, args); err != nil {
				return err
			}
			return t.pods(cmd.Context(), args)
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&t.containers, "containers", false, "show each container")
	f.BoolVarP(&t.allNamespaces, "all-namespaces", "A", false, "show the pods of all namespaces")
	f.BoolVar(&t.sum, "sum", false, "print the sum")
	f.StringVar(&t.fields, "field-selector", "", "field selector of pods")
	return cmd
}

func topNodes(g *session.Globals) *cobra.Command {
	t := &topping{Globals: g}
	cmd := &cobra.Command{
		Use: "nodes [NAME]", Aliases: []string{"node", "no"},
		Short: "Show the CPU and memory that nodes use",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(cmd, args); err != nil {
				return err
			}
			return t.nodes(cmd.Context(), args)
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&t.allOf, "show-capacity", false, "compute percentages from the capacity instead of what pods may use")
	return cmd
}

// read reads objects of the metrics API: all that the query selects, or one.
func read[T any](ctx context.Context, c *client.REST, path string, query url.Values, args []string) ([]T, error) {
	if len(args) > 0 {
		path += "/" + args[0]
	}
	resp, err := c.Do(ctx, client.RawRequest{Path: "/apis/metrics.k8s.io/v1beta1/" + path, Query: query, Accept: "application/json"})
	if err != nil {
		var s apierrors.APIStatus
		if errors.As(err, &s) && apierrors.IsNotFound(err) && (s.Status().Details == nil || s.Status().Details.Name == "") {
			return nil, errors.New("Metrics API not available") //nolint:staticcheck // kubectl's words
		}
		return nil, err
	}
	defer resp.Body.Close()
	if len(args) > 0 {
		var one T
		err := json.NewDecoder(resp.Body).Decode(&one)
		return []T{one}, err
	}
	var list struct {
		Items []T `json:"items"`
	}
	err = json.NewDecoder(resp.Body).Decode(&list)
	return list.Items, err
}

// An amount is what something uses.
type amount struct{ milli, bytes int64 }

func amountOf(u corev1.ResourceList) amount { return amount{u.Cpu().MilliValue(), u.Memory().Value()} }

func (a amount) plus(b amount) amount { return amount{a.milli + b.milli, a.bytes + b.bytes} }

func (a amount) cells() []string {
	return []string{fmt.Sprintf("%dm", a.milli), fmt.Sprintf("%dMi", a.bytes>>20)}
}

// A usageRow is the contents of one line.
type usageRow struct {
	where []string // namespace, pod and container, as far as they are shown
	used  amount
	more  []string // columns after the amount; nil means the plain ones
}

func (t *topping) sort(rows []usageRow) {
	sorting.Stable(rows, func(a, b usageRow) int {
		switch t.sortBy {
		case "cpu":
			return cmp.Compare(b.used.milli, a.used.milli)
		case "memory":
			return cmp.Compare(b.used.bytes, a.used.bytes)
		}
		return slices.Compare(a.where, b.where)
	})
}

func (t *topping) print(headers []string, rows []usageRow) error {
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(t.Out, 6, 4, 3, ' ', 0)
	line := func(cells []string) { _, _ = io.WriteString(w, strings.Join(cells, "\t")+"\t\n") }
	if !t.noHeaders {
		line(headers)
	}
	var total amount
	for _, r := range rows {
		total = total.plus(r.used)
		cells := r.more
		if cells == nil {
			cells = r.used.cells()
		}
		line(slices.Concat(r.where, cells))
	}
	if t.sum {
		empty := make([]string, len(headers)-2)
		line(append(slices.Clone(empty), "________", "________"))
		line(append(empty, total.cells()...))
	}
	return w.Flush()
}

func (t *topping) pods(ctx context.Context, args []string) error {
	s, err := t.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	namespace := s.Namespace
	path := "namespaces/" + namespace + "/pods"
	if t.allNamespaces {
		namespace, path = "", "pods"
	}
	found, err := read[metricsv1beta1.PodMetrics](ctx, c, path, t.selecting(), args)
	if err != nil {
		return err
	}
	if t.fields != "" {
		chosen, _, err := client.Pods.List(ctx, c, namespace, metav1.ListOptions{LabelSelector: t.labels, FieldSelector: t.fields})
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(m metricsv1beta1.PodMetrics) bool {
			return !slices.ContainsFunc(chosen, func(p *corev1.Pod) bool { return p.Namespace == m.Namespace && p.Name == m.Name })
		})
	}
	if len(found) == 0 && t.allNamespaces {
		_, _ = fmt.Fprintln(t.Err, "No resources found")
	} else if len(found) == 0 {
		_, _ = fmt.Fprintf(t.Err, "No resources found in %s namespace.\n", namespace)
	}
	var rows []usageRow
	for _, m := range found {
		rows = append(rows, t.podRows(&m)...)
	}
	t.sort(rows)
	headers := []string{"NAME", "CPU(cores)", "MEMORY(bytes)"}
	if t.containers {
		headers = append([]string{"POD"}, headers...)
	}
	if t.allNamespaces {
		headers = append([]string{"NAMESPACE"}, headers...)
	}
	return t.print(headers, rows)
}

func (t *topping) selecting() url.Values {
	if t.labels == "" {
		return nil
	}
	return url.Values{"labelSelector": {t.labels}}
}

// podRows returns the line of a pod, or those of its containers.
func (t *topping) podRows(m *metricsv1beta1.PodMetrics) (rows []usageRow) {
	where := []string{m.Name}
	if t.allNamespaces {
		where = []string{m.Namespace, m.Name}
	}
	var total amount
	for _, c := range m.Containers {
		used := amountOf(c.Usage)
		total = total.plus(used)
		if t.containers {
			rows = append(rows, usageRow{where: append(slices.Clone(where), c.Name), used: used})
		}
	}
	if !t.containers {
		rows = append(rows, usageRow{where: where, used: total})
	}
	return rows
}

func (t *topping) nodes(ctx context.Context, args []string) error {
	s, err := t.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	found, err := read[metricsv1beta1.NodeMetrics](ctx, c, "nodes", t.selecting(), args)
	if err != nil {
		return err
	}
	nodes, _, err := client.Nodes.List(ctx, c, "", metav1.ListOptions{LabelSelector: t.labels})
	if err != nil {
		return err
	}
	var rows, unknown []usageRow
	for _, n := range nodes {
		if len(args) > 0 && n.Name != args[0] {
			continue
		}
		i := slices.IndexFunc(found, func(m metricsv1beta1.NodeMetrics) bool { return m.Name == n.Name })
		if i < 0 {
			unknown = append(unknown, usageRow{where: []string{n.Name}, more: []string{"<unknown>", "<unknown>", "<unknown>", "<unknown>"}})
			continue
		}
		of := n.Status.Allocatable
		if t.allOf {
			of = n.Status.Capacity
		}
		used, all := amountOf(found[i].Usage), amountOf(of)
		cells := used.cells()
		rows = append(rows, usageRow{where: []string{n.Name}, used: used, more: []string{
			cells[0], percent(used.milli, all.milli), cells[1], percent(used.bytes, all.bytes),
		}})
	}
	t.sort(rows)
	return t.print([]string{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"}, append(rows, unknown...))
}

func percent(used, of int64) string {
	if of == 0 {
		return "0%"
	}
	return fmt.Sprintf("%d%%", int64(float64(used)/float64(of)*100)) // percent
}
