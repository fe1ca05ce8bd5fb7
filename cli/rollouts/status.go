package rollouts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/waiting"
	"github.com/sampan-io/sampan/client"
)

type rolloutStatus struct {
	rolloutVerb
	waiting.Patience
	watch   bool
	timeout time.Duration
	by      deadline // of all objects together
}

// A deadline ends several waits, one after the other. The zero deadline never comes.
type deadline struct{ time.Time }

// deadlineIn returns the deadline that is so far away; 0 means none.
func deadlineIn(d time.Duration, now time.Time) deadline {
	if d == 0 {
		return deadline{}
	}
	return deadline{now.Add(d)}
}

// limit sets the timeout of a wait to the time that is left. If none is left the wait
// only reads the present status.
func (d deadline) limit(req await.Request, now time.Time) await.Request {
	if d.IsZero() {
		return req
	}
	left := d.Sub(now)
	switch {
	case left <= 0:
		req.Timeout, req.Once = 0, true
	case req.Timeout == 0 || left < req.Timeout:
		req.Timeout = left
	}
	return req
}

func rolloutStatusCommand(g *session.Globals) *cobra.Command {
	r := &rolloutStatus{rolloutVerb: rolloutVerb{Globals: g, name: "status"}}
	cmd := &cobra.Command{
		Use:   "status TYPE/NAME…",
		Short: "Show the status of a rollout, and wait until it is done",
		Long: "Watch a rollout and print what it waits for, until it is done: all pods are updated and ready, they are in the\n" +
			"endpoints of their Services, and the old pods are deleted. It also ends when canaries are ready and wait for a\n" +
			"decision.\n\n" +
			"Exit codes: 0 done, 1 usage error or no connection, 2 failed, 3 timed out, 4 deleted, 5 automatically rolled back.",
		Example: "  sampan rollout status deployment/web --timeout=5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := r.Apply(&await.Request{})
			if r.timeout < 0 {
				err = fmt.Errorf("--timeout=%v: want 0 or more", r.timeout)
			}
			if err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			r.Within(r.timeout)
			r.by = deadlineIn(r.timeout, time.Now())
			return r.each(cmd.Context(), args, r.follow)
		},
	}
	f := cmd.Flags()
	r.in.FileFlags(f)
	r.in.SelectorFlags(f)
	f.BoolVarP(&r.watch, "watch", "w", true, "watch the rollout until it is done; false prints the status once")
	f.DurationVar(&r.timeout, "timeout", 0, "how long to wait for all rollouts; 0 means no limit")
	r.AddFlags(f)
	return cmd
}

// retreatTime is how long the controller may take to roll back a failed update.
const retreatTime = 30 * time.Second

func (r *rolloutStatus) follow(ctx context.Context, s *session.Session, i resource.Info, u *unstructured.Unstructured) (string, error) {
	if _, makesPods, _ := unstructured.NestedMap(u.Object, "spec", "template"); !makesPods && !isDeployment(i) {
		return "", fmt.Errorf("no status viewer has been implemented for %v", i.Mapping.GVK().GroupKind())
	}
	degree := await.OldGone
	if is, err := served(ctx, s, u); err != nil {
		return "", err
	} else if is {
		degree = await.All(await.OldGone, await.Serving)
	}
	req := await.Request{
		For:     degree,
		Targets: []await.Target{waiting.TargetOf(i)}, Once: !r.watch,
	}
	_ = r.Apply(&req) // it was checked
	talk := waiting.Talk{Quiet: r.Quiet, Logs: r.Logs, Silent: true}
	if !isDeployment(i) {
		if err := waiting.For(ctx, s, r.by.limit(req, time.Now()), talk); err != nil {
			return "", err
		}
		return "", r.done(i)
	}
	before, err := deployment("status", i, u)
	if err != nil {
		return "", err
	}
	if c := rolledBack(before); c != nil {
		return "", r.wentBack(i, c.Reason, c.Message)
	}
	failure, err := r.decided(ctx, s, req, talk, before.Annotations[canariesAnnotation] != "")
	if err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", failure
	}
	after, err := deploymentNow(ctx, s, req.Targets[0])
	if err != nil {
		return "", err
	}
	if failure != nil && exit.Code(failure) == exit.Failed && after.Annotations[autoRollback] == "true" && retreatOf(after) < before.Generation {
		back, err := await.ParseDegree("condition=RolledBack")
		if err != nil {
			return "", err
		}
		// If it does not come to pass, the failure stands.
		retreat := await.Request{For: back, Targets: req.Targets, Timeout: retreatTime, Fail: await.FailNever}
		_ = waiting.For(ctx, s, r.by.limit(retreat, time.Now()), waiting.Talk{Quiet: true, Silent: true})
		if after, err = deploymentNow(ctx, s, req.Targets[0]); err != nil {
			return "", err
		}
	}
	switch {
	case retreatOf(after) >= before.Generation, rolledBack(after) != nil: // the latter just before the first read
		if err := waiting.For(ctx, s, r.by.limit(req, time.Now()), talk); err != nil {
			return "", err
		}
		if after, err = deploymentNow(ctx, s, req.Targets[0]); err != nil {
			return "", err
		}
		reason, message := "", "it was rolled back, see its events"
		if c := rolledBack(after); c != nil {
			reason, message = c.Reason, c.Message
		}
		return "", r.wentBack(i, reason, message)
	case failure != nil:
		return "", failure
	case rolledBack(after) != nil:
		c := rolledBack(after)
		return "", r.wentBack(i, c.Reason, c.Message)
	case decides(after):
		_, err := fmt.Fprintf(r.Out, "%s %q is waiting with its canaries: %s\n'%s %s' continues, '%s %s' rolls back\n",
			lower(i), i.Name, conditionOf(after, appsv1.DeploymentProgressing).Message,
			s.Hint("rollout promote", i.Namespace), i, s.Hint("rollout abort", i.Namespace), i)
		return "", err
	}
	return "", r.done(i)
}

// decided waits until a rollout is done or has failed, which is the first result, or
// waits with its canaries.
func (r *rolloutStatus) decided(ctx context.Context, s *session.Session, req await.Request, talk waiting.Talk, canaries bool) (failure, err error) {
	req = r.by.limit(req, time.Now())
	if canaries && req.Once {
		d, err := deploymentNow(ctx, s, req.Targets[0])
		if err != nil || decides(d) && d.Status.ObservedGeneration >= d.Generation {
			return nil, err
		}
	}
	if !canaries || req.Once {
		return waiting.For(ctx, s, req, talk), nil
	}
	held := req
	held.Timeout, held.Fail = 0, await.FailNever
	held.For = await.Condition(string(appsv1.DeploymentProgressing), string(corev1.ConditionUnknown))
	if failure = waiting.Either(ctx, s, req, held, talk); failure != nil {
		return failure, nil
	}
	d, err := deploymentNow(ctx, s, req.Targets[0])
	if err != nil || decides(d) {
		return nil, err
	}
	return waiting.For(ctx, s, r.by.limit(req, time.Now()), talk), nil // it is decided: this says how
}

// served reports whether there is a service that selects the pods of an object.
func served(ctx context.Context, s *session.Session, u *unstructured.Unstructured) (bool, error) {
	pods, _, err := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
	if err != nil || len(pods) == 0 {
		return false, nil // it makes no pods that a service could select
	}
	c, err := s.Typed()
	if err != nil {
		return false, err
	}
	services, _, err := client.Services.List(ctx, c, u.GetNamespace(), metav1.ListOptions{})
	for _, service := range services {
		if len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pods)) {
			return true, nil
		}
	}
	return false, err
}

func deploymentNow(ctx context.Context, s *session.Session, t await.Target) (*appsv1.Deployment, error) {
	c, err := s.Typed()
	if err != nil {
		return nil, err
	}
	return client.Deployments.Get(ctx, c, t.Namespace, t.Name)
}

func (r *rolloutStatus) done(i resource.Info) error {
	_, err := fmt.Fprintf(r.Out, "%s %q successfully rolled out\n", lower(i), i.Name)
	return err
}

// wentBack reports a rollback, which is an error unless the user requested it.
func (r *rolloutStatus) wentBack(i resource.Info, reason, message string) error {
	if reason == canariesAborted {
		_, err := fmt.Fprintf(r.Out, "%s %q: %s\n", lower(i), i.Name, message)
		return err
	}
	return exit.With(exit.RolledBack, fmt.Errorf("%s %q: %s", lower(i), i.Name, message))
}

// rolledBack returns the condition of a Deployment that has been rolled back, or nil. A status older than the
// specification does not count, because a change of the template ends the condition.
func rolledBack(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	c := conditionOf(d, "RolledBack")
	if c == nil || c.Status != corev1.ConditionTrue || d.Status.ObservedGeneration < d.Generation {
		return nil
	}
	return c
}

// retreatOf returns the last generation that was rolled back; 0 is none.
func retreatOf(d *appsv1.Deployment) int64 {
	var note struct {
		Generation int64 `json:"generation"`
	}
	if err := json.Unmarshal([]byte(d.Annotations[rolledBackAnnotation]), &note); err != nil {
		return 0 // there is none
	}
	return note.Generation
}
