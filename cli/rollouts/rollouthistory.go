package rollouts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

const changeCause = "kubernetes.io/change-cause"

// A revision is a template that a Deployment had, or has.
type revision struct {
	number int64
	set    *appsv1.ReplicaSet
}

// revisions returns what a Deployment went through, oldest first.
func revisions(ctx context.Context, s *session.Session, d *appsv1.Deployment) ([]revision, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("deployment %q: selector: %w", d.Name, err)
	}
	c, err := s.Typed()
	if err != nil {
		return nil, err
	}
	sets, _, err := client.ReplicaSets.List(ctx, c, d.Namespace, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	var all []revision
	for _, set := range sets {
		n, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
		if err == nil && metav1.IsControlledBy(set, d) {
			all = append(all, revision{n, set})
		}
	}
	slices.SortFunc(all, func(a, b revision) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

func rolloutHistoryCommand(g *session.Globals) *cobra.Command {
	r := &rolloutVerb{Globals: g, name: "history"}
	cmd := &cobra.Command{
		Use:     "history deployment/NAME…",
		Short:   "List the revisions that can be gone back to",
		Example: "  sampan rollout history deployment/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.each(cmd.Context(), args, r.history)
		},
	}
	r.in.FileFlags(cmd.Flags())
	r.in.SelectorFlags(cmd.Flags())
	return cmd
}

func (r *rolloutVerb) history(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
	d, err := deployment("history", i, u)
	if err != nil {
		return "", err
	}
	all, err := revisions(ctx, s, d)
	if err != nil {
		return "", err
	}
	_, _ = fmt.Fprintf(r.Out, "%s \n", i)
	w := tabwriter.NewWriter(r.Out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "REVISION\tCHANGE-CAUSE")
	for _, v := range all {
		_, _ = fmt.Fprintf(w, "%d\t%s\n", v.number, cmp.Or(v.set.Annotations[changeCause], "<none>"))
	}
	_, _ = fmt.Fprintln(w)
	return "", w.Flush()
}

func rolloutUndoCommand(g *session.Globals) *cobra.Command {
	r := &rolloutVerb{Globals: g, name: "undo"}
	var (
		to  int64
		dry session.DryRun
	)
	cmd := &cobra.Command{
		Use:     "undo deployment/NAME…",
		Short:   "Go back to an earlier revision",
		Example: "  sampan rollout undo deployment/web\n  sampan rollout undo deployment/web --to-revision=3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to < 0 {
				return exit.Usage(cmd.CommandPath(), fmt.Errorf("--to-revision=%d: want a revision of 'sampan rollout history', or 0 for the one before", to))
			}
			return r.each(cmd.Context(), args, func(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
				return undoRollout(ctx, s, i, u, to, dry)
			})
		},
	}
	r.in.FileFlags(cmd.Flags())
	r.in.SelectorFlags(cmd.Flags())
	cmd.Flags().Int64Var(&to, "to-revision", 0, "which revision to go back to; 0 means the one before")
	dry.AddFlag(cmd)
	return cmd
}

func undoRollout(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured, to int64, dry session.DryRun) (string, error) {
	d, err := deployment("undoing", i, u)
	if err != nil {
		return "", err
	}
	if d.Spec.Paused {
		return "", fmt.Errorf("you cannot rollback a paused deployment; resume it first with 'sampan rollout resume %s' and try again", i)
	}
	all, err := revisions(ctx, s, d)
	if err != nil {
		return "", err
	}
	target, err := chosen(all, d, to)
	if err != nil {
		return "", err
	}
	template := target.set.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	if apiequality.Semantic.DeepEqual(*template, d.Spec.Template) {
		return fmt.Sprintf("skipped rollback (current template already matches revision %d)", target.number), nil
	}
	if dry == "client" {
		return "rolled back" + dry.Note(), nil
	}
	annotations := map[string]string{}
	for k, v := range d.Annotations {
		if k != changeCause {
			annotations[k] = v
		}
	}
	if cause := target.set.Annotations[changeCause]; cause != "" {
		annotations[changeCause] = cause
	}
	// A template is replaced as a whole: what the present one has more goes.
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": d.UID},
		{"op": "replace", "path": "/spec/template", "value": template},
		{"op": "replace", "path": "/metadata/annotations", "value": annotations},
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", i, err)
	}
	_, err = s.Patch(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: dry.Option()}, "")
	return "rolled back" + dry.Note(), err
}

// chosen returns the revision to go back to; 0 is the one before the present.
func chosen(all []revision, d *appsv1.Deployment, to int64) (revision, error) {
	for _, v := range all {
		if v.number == to {
			return v, nil
		}
	}
	switch {
	case to != 0:
		return revision{}, fmt.Errorf("unable to find specified revision %d in history of deployment %q", to, d.Name)
	case len(all) < 2:
		return revision{}, fmt.Errorf("no rollout history found for deployment %q", d.Name)
	}
	return all[len(all)-2], nil
}
