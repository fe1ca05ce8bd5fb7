package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
)

type drain struct {
	nodeVerb
	ignoreDaemonSets bool
	deleteEmptyDir   bool
	force            bool
	grace            int64
	timeout          time.Duration
	disableEviction  bool
	podSelector      string
}

// Drain returns the verb drain.
func Drain(g *session.Globals) *cobra.Command {
	d := &drain{nodeVerb: nodeVerb{Globals: g, name: "drain"}}
	cmd := &cobra.Command{
		Use:   "drain NODE… | -l SELECTOR",
		Short: "Evict all pods of a node and wait until they are deleted",
		Long: "Mark nodes as unschedulable and evict their pods, as far as disruption budgets allow, until all pods are deleted.\n" +
			"An eviction that a disruption budget blocks is reported and retried when the state of the cluster changes. Pods that\n" +
			"cannot be recreated are only evicted with the flag for them; without it the command fails and changes nothing.",
		Example: "  sampan drain node-1 --ignore-daemonsets --timeout=5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	d.flags(cmd)
	f.BoolVar(&d.ignoreDaemonSets, "ignore-daemonsets", false, "ignore pods managed by DaemonSets: they would be recreated immediately")
	f.BoolVar(&d.deleteEmptyDir, "delete-emptydir-data", false, "evict pods that use emptyDir volumes; their data is lost")
	f.BoolVar(&d.force, "force", false, "evict pods that declare no controller; they are not recreated")
	f.Int64Var(&d.grace, "grace-period", -1, "seconds that pods get to terminate gracefully; negative means each pod's own grace period")
	f.DurationVar(&d.timeout, "timeout", 0, "how long to wait for all nodes; 0 means no limit")
	f.BoolVar(&d.disableEviction, "disable-eviction", false, "delete pods instead of evicting them, ignoring disruption budgets")
	f.StringVar(&d.podSelector, "pod-selector", "", "evict only pods that match this label selector")
	return cmd
}

func (d *drain) check() error {
	if d.timeout < 0 {
		return fmt.Errorf("--timeout=%v: want 0 or more", d.timeout)
	}
	if _, err := labels.Parse(d.podSelector); err != nil {
		return fmt.Errorf("--pod-selector=%s: %w", d.podSelector, err)
	}
	return nil
}

func (d *drain) run(ctx context.Context, args []string) error {
	if err := d.check(); err != nil {
		return exit.Usage("sampan drain", err)
	}
	d.Within(d.timeout)
	s, c, nodes, err := d.nodes(ctx, args)
	if err != nil {
		return err
	}
	// Find the pods that may not be evicted before anything is changed.
	var errs []error
	for _, n := range nodes {
		_, err := d.pods(ctx, c, n.Name, nil)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	limited := ctx
	if d.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, d.timeout)
		defer cancel()
	}
	for _, n := range nodes {
		if err := d.cordon(ctx, c, n, true); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		pods, err := d.pods(limited, c, n.Name, s.Warn)
		if err != nil {
			return d.ended(ctx, limited, err)
		}
		if d.dryRun != "none" {
			if err := d.rehearse(ctx, c, pods); err != nil {
				return err
			}
		} else if err := d.clear(ctx, limited, c, n.Name, pods); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(d.Out, "node/%s drained%s\n", n.Name, d.dryRun.Note()); err != nil {
			return err
		}
	}
	return nil
}

// ended says in how a request failed whether time ran out.
func (d *drain) ended(ctx, limited context.Context, err error) error {
	if ctx.Err() == nil && limited.Err() != nil {
		return exit.With(exit.TimedOut, fmt.Errorf("timed out after %v", d.timeout))
	}
	return err
}

// pods returns the pods of a node that must be evicted, or an error that names the pods that may
// not be evicted. It passes a warning about the pods that stay to warn.
func (d *drain) pods(ctx context.Context, c client.Interface, node string, warn func(string)) ([]*corev1.Pod, error) {
	all, _, err := client.Pods.List(ctx, c, "", metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), LabelSelector: d.podSelector,
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(nameOf(a), nameOf(b)) })
	var leave, stay []*corev1.Pod
	refused := map[string][]string{}
	for _, p := range all {
		verdict, err := d.judge(ctx, c, p)
		switch {
		case err != nil:
			return nil, err
		case verdict == evictable:
			leave = append(leave, p)
		case verdict == ignored:
			stay = append(stay, p)
		case verdict != notMine:
			refused[string(verdict)] = append(refused[string(verdict)], nameOf(p))
		}
	}
	var errs []error
	for _, why := range []verdict{ofDaemonSet, withData, alone} {
		if names := refused[string(why)]; len(names) > 0 {
			errs = append(errs, fmt.Errorf("node %q cannot be drained: %s: %s", node, why, strings.Join(names, ", ")))
		}
	}
	if len(stay) > 0 && warn != nil {
		var names []string
		for _, p := range stay {
			names = append(names, nameOf(p))
		}
		warn("ignoring DaemonSet-managed Pods: " + strings.Join(names, ", "))
	}
	return leave, errors.Join(errs...)
}

func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// A verdict says whether a pod may be evicted, and if not, why.
type verdict string

const (
	evictable   verdict = ""
	notMine     verdict = "static or mirror Pods" // its file on the node would bring it back
	ignored     verdict = "stays"
	ofDaemonSet verdict = "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"
	withData    verdict = "cannot delete Pods with local storage (use --delete-emptydir-data to override)"
	alone       verdict = "cannot delete Pods that declare no controller (use --force to override)"
)

func (d *drain) judge(ctx context.Context, c client.Interface, p *corev1.Pod) (verdict, error) {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return notMine, nil
	}
	if !podstate.Active(p) {
		return evictable, nil // nothing is lost
	}
	owner := metav1.GetControllerOf(p)
	if owner != nil && owner.Kind == client.DaemonSets.Kind && strings.HasPrefix(owner.APIVersion, client.DaemonSets.Group+"/") {
		_, err := client.DaemonSets.Get(ctx, c, p.Namespace, owner.Name)
		switch {
		case apierrors.IsNotFound(err): // nothing makes it again
			owner = nil
		case err != nil:
			return "", fmt.Errorf("getting the DaemonSet of pod %s: %w", nameOf(p), err)
		case d.ignoreDaemonSets:
			return ignored, nil
		default:
			return ofDaemonSet, nil
		}
	}
	data := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	switch {
	case data && !d.deleteEmptyDir:
		return withData, nil
	case owner == nil && !d.force:
		return alone, nil
	}
	return evictable, nil
}

// rehearse says what would be evicted, and asks the server for its opinion if
// that is wanted.
func (d *drain) rehearse(ctx context.Context, c client.Interface, pods []*corev1.Pod) error {
	var errs []error
	for _, p := range pods {
		if _, err := fmt.Fprintf(d.Out, "evicting pod %s%s\n", nameOf(p), d.dryRun.Note()); err != nil {
			return err
		}
		if d.dryRun == "server" {
			if err := d.evict(ctx, c, p); err != nil {
				errs = append(errs, fmt.Errorf("pod %s: %s", nameOf(p), whyNotEvicted(err)))
			}
		}
	}
	return errors.Join(errs...)
}
