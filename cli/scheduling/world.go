package scheduling

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/simulation"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// pageSize is how many objects are asked for at a time: client-go's.
const pageSize = 500

// A world is a scheduler's view of a server.
type world struct {
	cluster plugin.Cluster
	nodes   []*corev1.Node
	pods    map[types.NamespacedName]*corev1.Pod // that take something or are promised it

	schedulers map[string]bool // names of schedulers that have decided about a pod
}

// look reads what decisions need.
func look(ctx context.Context, server client.Interface, conf *config.Config) (*world, error) {
	w := &world{pods: map[types.NamespacedName]*corev1.Pod{}, schedulers: map[string]bool{corev1.DefaultSchedulerName: true, "": true}}
	err := each(ctx, server, client.Nodes.GroupVersionResource, func(o *corev1.Node) {
		w.nodes = append(w.nodes, o)
		w.cluster.SetNode(o)
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, server, client.Namespaces.GroupVersionResource, func(o *corev1.Namespace) { w.cluster.SetNamespace(o.Name, o.Labels) })
	if err != nil {
		return nil, err
	}
	err = each(ctx, server, client.Pods.GroupVersionResource, w.count)
	if err != nil {
		return nil, err
	}
	entries := builtin.Default().Entries
	if conf != nil {
		entries = nil
		for _, p := range conf.Profiles {
			entries = append(entries, p.Plugins.Entries...)
		}
	}
	seen := map[schema.GroupVersionResource]bool{}
	for _, e := range entries {
		n, ok := e.Plugin.(plugin.Needer)
		if !ok {
			continue
		}
		for _, r := range n.Needs() {
			if seen[r] {
				continue
			}
			seen[r] = true
			err := each(ctx, server, r, func(o client.Object) { w.cluster.SetObject(r, o) })
			if err != nil && !apierrors.IsNotFound(err) { // a server that does not have the kind has no such objects
				return nil, err
			}
		}
	}
	return w, nil
}

// count adds the resources that a pod takes, or is promised.
func (w *world) count(pod *corev1.Pod) {
	if decided(pod) {
		w.schedulers[pod.Spec.SchedulerName] = true
	}
	switch p := plugin.NewPod(pod); {
	case podstate.Finished(pod):
		return
	case pod.Spec.NodeName != "":
		w.cluster.Place(p, pod.Spec.NodeName)
	case pod.Status.NominatedNodeName != "" && pod.DeletionTimestamp == nil:
		w.cluster.Nominate(p, pod.Status.NominatedNodeName)
	default:
		return
	}
	w.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
}

// decided reports whether a scheduler has decided about a pod: every scheduler binds it or
// writes a condition PodScheduled.
func decided(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
}

// unusuallyLong is after what time a pod without a decision shows that its scheduler does not run: a scheduler decides
// within milliseconds, and within seconds if thousands of pods are created at once.
const unusuallyLong = 10 * time.Second

// overlooked reports whether no scheduler has decided about a pod of the server for unusually long.
func overlooked(pod *corev1.Pod, now time.Time) bool {
	return !pod.CreationTimestamp.IsZero() && now.Sub(pod.CreationTimestamp.Time) > unusuallyLong && !decided(pod)
}

// expect readies the world for pods that need not exist: those of the same names are no longer there, and
// priorities are what admission would make them.
func (w *world) expect(ctx context.Context, server client.Interface, pods []simulation.Pod, others []client.Object) error {
	simulation.SetOthers(&w.cluster, others)
	var classes []*schedulingv1.PriorityClass
	err := each(ctx, server, client.PriorityClasses.GroupVersionResource, func(c *schedulingv1.PriorityClass) { classes = append(classes, c) })
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for _, p := range pods {
		if old := w.pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]; old != nil {
			w.cluster.Unplace(old.UID)
			w.cluster.Nominate(plugin.NewPod(old), "")
		}
		class, err := classOf(p.Pod, classes)
		if err != nil {
			return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		if class == nil {
			continue
		}
		p.Spec.Priority = &class.Value
		if class.PreemptionPolicy != nil {
			p.Spec.PreemptionPolicy = class.PreemptionPolicy
		}
	}
	return nil
}

// classOf returns the class that a pod names, or the default one; nil if there is none.
func classOf(pod *corev1.Pod, classes []*schedulingv1.PriorityClass) (*schedulingv1.PriorityClass, error) {
	var best *schedulingv1.PriorityClass
	for _, c := range classes {
		switch {
		case pod.Spec.PriorityClassName != "":
			if c.Name == pod.Spec.PriorityClassName {
				return c, nil
			}
		case c.GlobalDefault && (best == nil || c.Value < best.Value):
			best = c
		}
	}
	if name := pod.Spec.PriorityClassName; name != "" {
		return nil, fmt.Errorf("spec.priorityClassName: no PriorityClass with name %s was found", name)
	}
	return best, nil
}

// each calls f with the objects of a resource in all namespaces.
func each[T client.Object](ctx context.Context, server client.Interface, r schema.GroupVersionResource, f func(T)) error {
	var all []T
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		items, meta, err := server.List(ctx, r, "", opts)
		if err != nil && opts.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
			// Too much is changing to read it in pages.
			all, opts = nil, metav1.ListOptions{}
			continue
		}
		if err != nil {
			return err
		}
		for _, item := range items {
			o, ok := item.(T)
			if !ok {
				return fmt.Errorf("the server returned a %T in the list of %s", item, r.Resource)
			}
			all = append(all, o)
		}
		if opts.Continue = meta.Continue; opts.Continue == "" {
			break
		}
	}
	for _, o := range all {
		f(o)
	}
	return nil
}
