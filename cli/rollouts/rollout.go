package rollouts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/names"
)

// rolloutVerb is the common part of the verbs under rollout.
type rolloutVerb struct {
	*session.Globals
	name   string // of the verb, for messages
	in     session.Input
	prints bool // -o is for it
}

// A rolloutAct changes one object and returns the change in a word.
type rolloutAct func(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (done string, err error)

// Rollout returns the verb rollout, with the verbs below it.
func Rollout(g *session.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Manage the rollout of a Deployment, DaemonSet or StatefulSet",
		Long: "Manage the rollout of a Deployment, DaemonSet or StatefulSet: status, history, pause, resume, restart and undo. A\n" +
			"Deployment with the annotation sampan.dev/canaries stops at that many new pods; promote continues the rollout, abort\n" +
			"rolls it back.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		rolloutStatusCommand(g), rolloutHistoryCommand(g), rolloutUndoCommand(g),
		rolloutActCommand(g, "pause", "Pause a rollout", pauseRollout),
		rolloutActCommand(g, "resume", "Resume a paused rollout", resumeRollout),
		rolloutActCommand(g, "restart", "Restart all pods, a few at a time", restartRollout),
		rolloutActCommand(g, "promote", "Promote the canaries: continue the rollout to all pods", decideCanaries("promote")),
		rolloutActCommand(g, "abort", "Abort a rollout that waits with its canaries, and roll back", decideCanaries("abort")),
	)
	return cmd
}

func rolloutActCommand(g *session.Globals, name, short string, act rolloutAct) *cobra.Command {
	r := &rolloutVerb{Globals: g, name: name}
	cmd := &cobra.Command{
		Use:     name + " TYPE/NAME…",
		Short:   short,
		Example: "  sampan rollout " + name + " deployment/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.each(cmd.Context(), args, act)
		},
	}
	r.in.FileFlags(cmd.Flags())
	r.in.SelectorFlags(cmd.Flags())
	return cmd
}

// each changes every selected object, and prints the result.
func (r *rolloutVerb) each(ctx context.Context, args []string, act rolloutAct) error {
	f, err := r.Format()
	if err != nil {
		return err
	}
	if !f.IsTable() && !r.prints {
		return exit.Usage("sampan rollout "+r.name, fmt.Errorf("-o %s: this command prints no objects", r.Output))
	}
	s, err := r.Connect()
	if err != nil {
		return err
	}
	in := r.in
	if len(args) == 1 && !strings.Contains(args[0], "/") && in.Labels == "" && in.Fields == "" {
		in.All = true // as with kubectl, a type alone means all of them
	}
	infos, err := s.Infos(ctx, in, args)
	if err != nil {
		return err
	}
	var errs []error
	found := 0
	for _, i := range infos {
		objs, err := s.Present(ctx, i)
		if err != nil {
			errs = append(errs, err)
		}
		for _, o := range objs {
			found++
			i.Name, i.Namespace = o.GetName(), o.GetNamespace()
			u, is := o.(*unstructured.Unstructured)
			if !is {
				errs = append(errs, session.NotAnObject(i, o))
				continue
			}
			done, err := act(ctx, s, i, u)
			switch {
			case err != nil:
				errs = append(errs, err)
			case done != "":
				_, _ = fmt.Fprintf(r.Out, "%s %s\n", i, done)
			}
		}
	}
	if found == 0 && len(errs) == 0 {
		return exit.With(exit.Gone, errors.New("no objects match"))
	}
	return errors.Join(errs...)
}

// isDeployment reports whether an object is a Deployment of a version that still exists.
func isDeployment(i resource.Info) bool {
	return i.Mapping.GVK().GroupKind() == client.Deployments.GVK().GroupKind()
}

// deployment reads a Deployment; other kinds are an error that says what cannot be
// done with them.
func deployment(verb string, i resource.Info, u *unstructured.Unstructured) (*appsv1.Deployment, error) {
	if !isDeployment(i) {
		return nil, fmt.Errorf("%s: %s is only supported for a Deployment", i, verb)
	}
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return nil, fmt.Errorf("%s: %w", i, err)
	}
	return d, nil
}

// patch changes an object by a merge patch.
func patch(ctx context.Context, s *session.Session, i resource.Info, patch map[string]any) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("%s: %w", i, err)
	}
	_, err = s.Patch(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, types.MergePatchType, text, metav1.PatchOptions{}, "")
	return err
}

func pauseRollout(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
	d, err := deployment("pausing", i, u)
	if err != nil {
		return "", err
	}
	if d.Spec.Paused {
		return "", fmt.Errorf("%s %q is already paused", i.Mapping.GroupResource(), d.Name)
	}
	return "paused", patch(ctx, s, i, map[string]any{"spec": map[string]any{"paused": true}})
}

func resumeRollout(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
	d, err := deployment("resuming", i, u)
	if err != nil {
		return "", err
	}
	if !d.Spec.Paused {
		return "", fmt.Errorf("%s %q is not paused", i.Mapping.GroupResource(), d.Name)
	}
	return "resumed", patch(ctx, s, i, map[string]any{"spec": map[string]any{"paused": false}})
}

// restartedAt is kubectl's annotation on a pod template that makes it another one.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

func restartRollout(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
	gk := i.Mapping.GVK().GroupKind()
	switch {
	case gk == client.ReplicationControllers.GVK().GroupKind():
		return "", fmt.Errorf("%s does not roll out changes itself: use %s", i, again(s, i.Name, "--replace-pods"))
	case gk.Group != appsv1.GroupName || gk.Kind != "Deployment" && gk.Kind != "DaemonSet" && gk.Kind != "StatefulSet":
		return "", fmt.Errorf("%s: restarting is only supported for a Deployment, DaemonSet or StatefulSet", i)
	}
	if paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); paused {
		return "", fmt.Errorf("%s %q can't restart paused deployment (run rollout resume first)", i.Mapping.GroupResource(), i.Name)
	}
	now := time.Now().Format(time.RFC3339)
	path := []string{"spec", "template", "metadata", "annotations", restartedAt}
	if before, _, _ := unstructured.NestedString(u.Object, path...); before == now {
		return "", fmt.Errorf("%s: if restart has already been triggered within the past second, please wait before attempting to trigger another", i)
	}
	change := map[string]any{}
	if err := unstructured.SetNestedField(change, now, path...); err != nil {
		return "", fmt.Errorf("%s: %w", i, err)
	}
	return "restarted", patch(ctx, s, i, change)
}

// The annotations and conditions of canaries and rollbacks; see the controller of Deployments in package
// controller/workload.
const (
	canariesAnnotation   = names.Canaries
	autoRollback         = names.AutoRollback
	rolledBackAnnotation = names.RolledBack
	revisionAnnotation   = "deployment.kubernetes.io/revision"
	canariesHeld         = "CanariesHeld"
	canariesAborted      = "CanariesAborted"
)

// decides reports whether a Deployment waits with canaries for promote or abort.
func decides(d *appsv1.Deployment) bool {
	c := conditionOf(d, appsv1.DeploymentProgressing)
	return c != nil && c.Status == corev1.ConditionUnknown && c.Reason == canariesHeld
}

func conditionOf(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for n := range d.Status.Conditions {
		if d.Status.Conditions[n].Type == kind {
			return &d.Status.Conditions[n]
		}
	}
	return nil
}

// decideCanaries returns what writes the decision on a Deployment: promote or abort.
func decideCanaries(verb string) rolloutAct {
	return func(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
		d, err := deployment(verb, i, u)
		if err != nil {
			return "", err
		}
		revision := d.Annotations[revisionAnnotation]
		switch {
		case d.Annotations[canariesAnnotation] == "":
			return "", fmt.Errorf("%s has no canaries: set the annotation %s to use them", i, canariesAnnotation)
		case d.Status.ObservedGeneration < d.Generation || revision == "":
			return "", fmt.Errorf("%s: the controller has not observed the latest change yet; try again", i)
		case !decides(d):
			return "", fmt.Errorf("%s is not waiting with canaries: see '%s %s'", i, s.Hint("rollout status", i.Namespace), i)
		}
		done := map[string]string{"promote": "promoted", "abort": "aborted"}[verb]
		return done, patch(ctx, s, i, map[string]any{"metadata": map[string]any{
			"resourceVersion": d.ResourceVersion, // it is this revision that was looked at
			"annotations":     map[string]any{names.Prefix + verb: revision},
		}})
	}
}

// lower returns the kind of an object as kubectl rollout says it.
func lower(i resource.Info) string { return strings.ToLower(i.Mapping.Kind) }
