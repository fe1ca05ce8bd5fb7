package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/cli/waiting"
)

type scale struct {
	*session.Globals
	in       session.Input
	replicas int64
	current  int64
	version  string
	dryRun   session.DryRun

	wrote waiting.Listener // may be nil
}

// Scale returns the verb scale.
func Scale(g *session.Globals) *cobra.Command {
	s := &scale{Globals: g}
	cmd := &cobra.Command{
		Use:     "scale --replicas=N TYPE/NAME…",
		Short:   "Set the number of replicas of an object",
		Example: "  sampan scale --replicas=5 rc/web\n  sampan scale --current-replicas=3 --replicas=5 rc/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("replicas") || s.replicas < 0 {
				return exit.Usage(cmd.CommandPath(), errors.New("the --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0"))
			}
			if s.current < -1 {
				return exit.Usage(cmd.CommandPath(), errors.New("the --current-replicas must specify an integer of -1 or greater"))
			}
			return s.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	s.in.FileFlags(f)
	s.in.SelectorFlags(f)
	s.PrintFlags(f)
	f.BoolVar(&s.in.All, "all", false, "all objects of the type in the namespace")
	f.Int64Var(&s.replicas, "replicas", 0, "new number of replicas (required)")
	f.Int64Var(&s.current, "current-replicas", -1, "precondition: scale only if this is the current number of replicas")
	f.StringVar(&s.version, "resource-version", "", "precondition: scale only if this is the object's current resource version")
	s.dryRun.AddFlag(cmd)
	waiting.AddFlags(g, cmd, &s.wrote, waiting.Options{Done: "scaled", Timeout: waiting.DefaultTimeout})
	return cmd
}

func (s *scale) run(ctx context.Context, args []string) error {
	f, err := s.Format()
	if err != nil {
		return err
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	infos, err := c.Infos(ctx, s.in, args)
	if err != nil && !s.in.Given() {
		return err
	}
	errs := session.Listed(err)
	found := 0
	for _, i := range infos {
		objs, err := c.Present(ctx, i)
		if err != nil {
			errs = append(errs, err)
		}
		for _, o := range objs {
			found++
			i.Name, i.Namespace = o.GetName(), o.GetNamespace()
			if err := s.one(ctx, c, i); err != nil {
				errs = append(errs, err)
				continue
			}
			if err := s.report(ctx, c, f, i); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if found == 0 && len(errs) == 0 {
		return exit.With(exit.Gone, errors.New("no objects passed to scale"))
	}
	return errors.Join(errs...)
}

// report prints a scaled object, and passes it to the listener. The response to a scale is
// not the object itself, so report reads the object if it is needed.
func (s *scale) report(ctx context.Context, c *session.Session, f show.Format, i resource.Info) error {
	if f.IsTable() && (s.wrote == nil || s.dryRun != "none") {
		_, err := fmt.Fprintf(s.Out, "%s scaled%s\n", i, s.dryRun.Note())
		return err
	}
	now, err := i.Latest(ctx, c.REST)
	if err != nil {
		return err
	}
	if s.dryRun == "none" {
		s.wrote.Notify(i.Mapping, now.Object)
	}
	return s.Say(f, s.dryRun, i.Mapping, now.Object, "scaled")
}

// scaleTries is how often a scale that lost a race is attempted. An attempt only fails if
// another client writes the object between two of our requests.
const scaleTries = 10

func (s *scale) one(ctx context.Context, c *session.Session, i resource.Info) error {
	var err error
	for range scaleTries {
		var now any
		if now, err = c.Get(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, "scale"); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("%s cannot be scaled: the server has no scale subresource for a %s", i, i.Mapping.Kind)
			}
			return err
		}
		u, ok := now.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("%s: the server returned a %T instead of a Scale", i, now)
		}
		u = u.DeepCopy()
		replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas") // absent is 0
		if s.current >= 0 && replicas != s.current {
			return fmt.Errorf("Expected replicas to be %d, was %d", s.current, replicas) //nolint:staticcheck // kubectl's words
		}
		if s.version != "" && s.version != u.GetResourceVersion() {
			return fmt.Errorf("Expected resource version to be %s, was %s", s.version, u.GetResourceVersion()) //nolint:staticcheck // kubectl's words
		}
		if err := unstructured.SetNestedField(u.Object, s.replicas, "spec", "replicas"); err != nil {
			return fmt.Errorf("%s: %w", i, err)
		}
		if s.dryRun == "client" {
			return nil
		}
		_, err = c.Update(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, u, metav1.UpdateOptions{DryRun: s.dryRun.Option()}, "scale")
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}
