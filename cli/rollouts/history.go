package rollouts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
)

func rolloutHistoryCommand(g *session.Globals) *cobra.Command {
	r := &rolloutVerb{Globals: g, name: "history", prints: true}
	var number int64
	cmd := &cobra.Command{
		Use:   "history TYPE/NAME…",
		Short: "Show the rollout history",
		Long: "Show the rollout history of a Deployment, StatefulSet or DaemonSet. With --revision the pod template of that revision\n" +
			"is printed; with -o objects are printed: the ReplicaSet of a Deployment, or a StatefulSet or DaemonSet at that\n" +
			"revision.",
		Example: "  sampan rollout history deployment/web\n  sampan rollout history statefulset/db --revision=2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if number < 0 {
				return exit.Usage(cmd.CommandPath(), fmt.Errorf("--revision: must be a revision number, or 0 for all revisions, got %d", number))
			}
			f, err := r.Format()
			if err != nil {
				return err
			}
			printed := 0
			return r.each(cmd.Context(), args, func(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
				o, err := controlledBy("history", i, u)
				if err != nil {
					return "", err
				}
				all, err := o.revisions(ctx, s)
				if err != nil {
					return "", err
				}
				if number > 0 && (len(all) > 0 || !f.IsTable()) {
					if all, err = only(all, number); err != nil {
						return "", err
					}
				}
				if f.IsTable() {
					return "", tellHistory(r.Out, i, all, number)
				}
				for _, v := range all {
					m, was, err := o.shown(v, u)
					if err != nil {
						return "", err
					}
					if f.Kind == "yaml" && printed > 0 {
						_, _ = fmt.Fprintln(r.Out, "---")
					}
					printed++
					if err := f.Print(r.Out, m, was); err != nil {
						return "", err
					}
				}
				return "", nil
			})
		},
	}
	r.in.FileFlags(cmd.Flags())
	r.in.SelectorFlags(cmd.Flags())
	r.PrintFlags(cmd.Flags())
	cmd.Flags().Int64Var(&number, "revision", 0, "show this revision; 0 lists all revisions")
	return cmd
}

// only returns the one revision with a number.
func only(all []revision, number int64) ([]revision, error) {
	for _, v := range all {
		if v.number == number {
			return []revision{v}, nil
		}
	}
	return nil, errors.New("unable to find the specified revision")
}

// tellHistory prints a list of revisions, or the one with a number, as kubectl does.
func tellHistory(w io.Writer, i resource.Info, all []revision, number int64) error {
	which := ""
	if number > 0 {
		which = fmt.Sprintf("with revision #%d", number)
	}
	_, _ = fmt.Fprintf(w, "%s %s\n", i, which)
	switch {
	case len(all) == 0:
		_, err := fmt.Fprintln(w, "No rollout history found.")
		return err
	case number > 0:
		_, err := fmt.Fprintln(w, templateText(all[0].template))
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "REVISION\tCHANGE-CAUSE")
	for _, v := range all {
		_, _ = fmt.Fprintf(t, "%d\t%s\n", v.number, cmp.Or(v.cause, "<none>"))
	}
	_, _ = fmt.Fprintln(t)
	return t.Flush()
}

func rolloutUndoCommand(g *session.Globals) *cobra.Command {
	r := &rolloutVerb{Globals: g, name: "undo"}
	var (
		to  int64
		dry session.DryRun
	)
	cmd := &cobra.Command{
		Use:     "undo TYPE/NAME…",
		Short:   "Roll back to an earlier revision",
		Long:    "Roll a Deployment, StatefulSet or DaemonSet back to the pod template of an earlier revision.",
		Example: "  sampan rollout undo deployment/web\n  sampan rollout undo statefulset/db --to-revision=3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to < 0 {
				return exit.Usage(cmd.CommandPath(), fmt.Errorf("--to-revision: must be a revision of 'sampan rollout history', or 0 for the previous one, got %d", to))
			}
			return r.each(cmd.Context(), args, func(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
				o, err := controlledBy("undoing", i, u)
				if err != nil {
					return "", err
				}
				return o.undo(ctx, s, to, dry)
			})
		},
	}
	r.in.FileFlags(cmd.Flags())
	r.in.SelectorFlags(cmd.Flags())
	r.PrintFlags(cmd.Flags())
	cmd.Flags().Int64Var(&to, "to-revision", 0, "revision to roll back to; 0 means the previous one")
	dry.AddFlag(cmd)
	return cmd
}

// undo goes back to a revision, and returns the change in kubectl's words.
func (o controlled) undo(ctx context.Context, s *session.Session, to int64, dry session.DryRun) (string, error) {
	if o.deployment != nil && o.deployment.Spec.Paused && dry != "client" {
		return "", fmt.Errorf("you cannot rollback a paused deployment; resume it first with '%s %s' and try again", s.Hint("rollout resume", o.info.Namespace), o.info)
	}
	all, err := o.revisions(ctx, s)
	if err != nil {
		return "", err
	}
	v, err := o.chosen(all, to)
	switch {
	case err != nil:
		return "", err
	case dry == "client" && o.deployment != nil:
		return templateText(v.template) + dry.Note(), nil
	case dry == "client":
		return "will roll back to " + templateText(v.template) + dry.Note(), nil
	case o.matches(v):
		return fmt.Sprintf("skipped rollback (current template already matches revision %d)%s", v.number, dry.Note()), nil
	}
	return "rolled back" + dry.Note(), o.goBack(ctx, s, v, dry)
}
