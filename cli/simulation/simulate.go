package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/exit"
	cliresource "github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller/sets"
	"github.com/sampan-io/sampan/controller/workload"
	"github.com/sampan-io/sampan/internal/plural"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/simulation"
)

// Simulate returns the verb simulate.
func Simulate(g *session.Globals) *cobra.Command {
	var in session.Input
	var nodes string
	cmd := &cobra.Command{
		Use:   "simulate -f FILE --nodes=FILE|COUNT",
		Short: "Show where pods would be scheduled, without a cluster",
		Long: "Schedule the pods of objects on nodes that need not exist, and print the node of each pod and the free resources of\n" +
			"each node. No server is contacted.\n\n" +
			"--nodes is a number of equal nodes (32 CPUs, 256Gi of memory, 110 pods), a file with a SimulatedNodes object as for\n" +
			"'sampan up --simulated-node-file', or a file with Node objects, such as the output of 'sampan get nodes -o yaml'.\n" +
			"Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and ReplicationControllers are replaced by their pods.\n\n" +
			"Exit codes: 0 all pods fit, 2 a pod does not fit any node.",
		Example: "  sampan simulate -f app.yaml --nodes=3\n  sampan simulate -f app/ --nodes=nodes.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !in.Given() {
				return exit.Usage(cmd.CommandPath(), errors.New("must specify one of -f and -k"))
			}
			if nodes == "" {
				return exit.Usage(cmd.CommandPath(), errors.New("must specify --nodes: a number of nodes, or a file"))
			}
			switch g.Output {
			case "", "wide", "json", "yaml":
			default:
				return exit.Usage(cmd.CommandPath(), fmt.Errorf("-o %s: must be json or yaml; the default is tables", g.Output))
			}
			return simulate(cmd.Context(), g, in, nodes)
		},
	}
	in.FileFlags(cmd.Flags())
	cmd.Flags().StringVar(&nodes, "nodes", "", "number of nodes, or a file with Node objects or a SimulatedNodes object")
	return cmd
}

func simulate(ctx context.Context, g *session.Globals, in session.Input, nodesText string) error {
	k, err := newKinds()
	if err != nil {
		return err
	}
	s := g.Offline(k.mapper())
	nodes, err := k.nodesOf(ctx, s, nodesText)
	if err != nil {
		return err
	}
	pods, others, err := k.podsOf(ctx, s, in, nodes)
	if err != nil {
		return err
	}
	placed, err := place(ctx, pods, nodes, others)
	if err != nil {
		return err
	}
	r := report(pods, placed)
	switch g.Output {
	case "json":
		err = asJSON(g.Out, r)
	case "yaml":
		err = asYAML(g.Out, r)
	default:
		err = r.tables(g.Out)
	}
	if err != nil || r.Fits {
		return err
	}
	return exit.With(exit.Failed, fmt.Errorf("%d of %s %s not fit any node", r.Unplaced, plural.Count(len(r.Pods), "pod"), plural.Choose(r.Unplaced, "does", "do")))
}

// A Pod is one that an input stands for.
type Pod struct {
	*corev1.Pod
	Owner string // the object that it comes of, as kind/name
}

// Pods returns the pods that an input stands for on these nodes once all controllers have done their work, and the
// other objects. Of the session's server nothing is asked.
func Pods(ctx context.Context, s *session.Session, in session.Input, nodes []*corev1.Node) ([]Pod, []client.Object, error) {
	k, err := newKinds()
	if err != nil {
		return nil, nil, err
	}
	here := &session.Session{Streams: s.Streams, Mapper: k.mapper(), Namespace: s.Namespace, Enforced: s.Enforced}
	found, others, err := k.podsOf(ctx, here, in, nodes)
	pods := make([]Pod, len(found))
	for i, p := range found {
		pods[i] = Pod{p.pod, p.owner}
	}
	return pods, others, err
}

// podsOf returns the pods of the input, and the other objects, with a ReplicaSet in place of each
// Deployment. It prints a note on the error output about kinds that it does not know.
func (k kinds) podsOf(ctx context.Context, s *session.Session, in session.Input, nodes []*corev1.Node) (pods []*placement, others []client.Object, err error) {
	var errs []error
	for info, err := range cliresource.Stream(ctx, s.Mapper, s.Request(in, nil)) {
		if unknown := (*cliresource.NoKindError)(nil); errors.As(err, &unknown) {
			_, _ = fmt.Fprintf(s.Err, "note: %s: nothing is known of %s in %s, it counts for nothing\n", info.Source, unknown.Kind.Kind, unknown.Kind.GroupVersion())
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		obj, err := k.read(ctx, info)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		obj.SetNamespace(info.Namespace)
		called := info.Mapping.Called(obj.GetName())
		if d, ok := obj.(*appsv1.Deployment); ok {
			obj = replicaSetOf(d)
		}
		others = append(others, obj)
		made := workload.Expand(obj)
		if set, ok := obj.(*appsv1.DaemonSet); ok {
			made = sets.Expand(set, nodes)
		}
		pod := k.Kind(corev1.SchemeGroupVersion.WithKind("Pod"))
		for _, p := range made {
			p.Namespace = info.Namespace
			p.UID = types.UID(info.Namespace + "/" + p.Name)
			pod.Default(p) // more than templates get: requests that limits imply
			pods = append(pods, &placement{pod: p, owner: called})
		}
	}
	if len(pods) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("the objects contain no pods and no controllers of pods"))
	}
	return pods, others, errors.Join(errs...)
}

// replicaSetOf returns the set that a Deployment would have its pods in.
func replicaSetOf(d *appsv1.Deployment) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: client.ReplicaSets.Kind},
		ObjectMeta: d.ObjectMeta,
		Spec:       appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
}

// A result is what `-o json` prints.
type result struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Fits       bool         `json:"fits"`
	Unplaced   int          `json:"unplacedPods"`
	Pods       []podResult  `json:"pods"`
	Nodes      []nodeResult `json:"nodes"`
}

type podResult struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Owner     string `json:"owner"`
	NodeName  string `json:"nodeName,omitempty"`
	Reason    string `json:"reason,omitempty"` // why it goes nowhere
}

type nodeResult struct {
	Name        string              `json:"name"`
	Pods        int                 `json:"pods"`
	Allocatable corev1.ResourceList `json:"allocatable"`
	Left        corev1.ResourceList `json:"left"`
}

func report(pods []*placement, nodes []*plugin.Node) result {
	r := result{APIVersion: simulation.APIVersion, Kind: "SimulationResult", Fits: true, Pods: []podResult{}, Nodes: []nodeResult{}}
	for _, p := range pods {
		r.Pods = append(r.Pods, podResult{p.pod.Namespace, p.pod.Name, p.owner, p.node, p.why})
		if p.node == "" {
			r.Fits = false
			r.Unplaced++
		}
	}
	for _, n := range nodes {
		one := nodeResult{Name: n.Name, Pods: len(n.Pods), Allocatable: n.Status.Allocatable, Left: corev1.ResourceList{}}
		for name, has := range n.Status.Allocatable {
			one.Left[name] = left(name, has, n)
		}
		r.Nodes = append(r.Nodes, one)
	}
	return r
}

// left returns what is left of a resource.
func left(name corev1.ResourceName, has resource.Quantity, n *plugin.Node) resource.Quantity {
	q := has.DeepCopy()
	switch name {
	case corev1.ResourceCPU:
		q.Sub(*resource.NewMilliQuantity(n.Requested.MilliCPU, q.Format))
	case corev1.ResourceMemory:
		q.Sub(*resource.NewQuantity(n.Requested.Memory, q.Format))
	case corev1.ResourceEphemeralStorage:
		q.Sub(*resource.NewQuantity(n.Requested.Ephemeral, q.Format))
	case corev1.ResourcePods:
		q.Sub(*resource.NewQuantity(int64(len(n.Pods)), q.Format))
	default:
		q.Sub(*resource.NewQuantity(n.Requested.Other[name], q.Format))
	}
	return q
}

func asJSON(w io.Writer, r result) error {
	text, err := json.MarshalIndent(r, "", "    ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	return err
}

func asYAML(w io.Writer, r result) error {
	text, err := yaml.Marshal(r)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// tables prints where pods go, and what is left of the nodes that have some. Of the
// others it says how many there are.
func (r result) tables(w io.Writer) error {
	t := show.NewTable(w)
	t.Row([]string{"NAMESPACE", "POD", "NODE", "WHY NOT"})
	for _, p := range r.Pods {
		node := p.NodeName
		if node == "" {
			node = "<none>"
		}
		t.Row([]string{p.Namespace, p.Name, node, p.Reason})
	}
	if err := t.Flush(); err != nil {
		return err
	}
	names := map[corev1.ResourceName]bool{}
	for _, n := range r.Nodes {
		for name := range n.Allocatable {
			names[name] = true
		}
	}
	for _, first := range []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(names, first)
	}
	columns := append([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, slices.Sorted(maps.Keys(names))...)
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t = show.NewTable(w)
	head := []string{"NODE", "PODS", "PODS LEFT"}
	for _, c := range columns {
		head = append(head, columnName(c)+" LEFT")
	}
	t.Row(head)
	empty := 0
	for _, n := range r.Nodes {
		if n.Pods == 0 && len(r.Nodes) > few {
			empty++
			continue
		}
		podsLeft := n.Left[corev1.ResourcePods]
		row := []string{n.Name, strconv.Itoa(n.Pods), podsLeft.String()}
		for _, c := range columns {
			l, a := n.Left[c], n.Allocatable[c]
			row = append(row, l.String()+"/"+a.String())
		}
		t.Row(row)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if empty > 0 {
		_, err := fmt.Fprintf(w, "(and %s without pods)\n", plural.Count(empty, "node"))
		return err
	}
	return nil
}

// few is how many nodes are listed though they are empty.
const few = 20

func columnName(r corev1.ResourceName) string {
	switch r {
	case corev1.ResourceCPU:
		return "CPU"
	case corev1.ResourceMemory:
		return "MEMORY"
	case corev1.ResourceEphemeralStorage:
		return "STORAGE"
	default:
		return string(r)
	}
}
