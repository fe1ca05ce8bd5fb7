package cli

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
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

type rolloutStatus struct {
	rolloutVerb
	patience
	watch   bool
	timeout time.Duration
}

func rolloutStatusCommand(g *Globals) *cobra.Command {
	r := &rolloutStatus{rolloutVerb: rolloutVerb{Globals: g, name: "status"}}
	cmd := &cobra.Command{
		Use:   "status TYPE/NAME…",
		Short: "Follow a rollout to its end",
		Long: "Follow a rollout, saying what holds it up, until it is done: all pods are new and ready, they are in the endpoints of\n" +
			"their services, and the old ones are gone. It ends as well when canaries are ready and wait for a decision.\n\n" +
			"Exit codes: 0 done, 1 wrong use or no connection, 2 failed for good, 3 timed out, 4 gone, 5 it was rolled back by itself.",
		Example: "  sampan rollout status deployment/web --timeout=5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.each(cmd.Context(), args, r.follow)
		},
	}
	f := cmd.Flags()
	r.in.fileFlag(f)
	r.in.selectorFlags(f)
	f.BoolVarP(&r.watch, "watch", "w", true, "follow it to its end; false looks once")
	f.DurationVar(&r.timeout, "timeout", 0, "how long to follow it; 0 means to the end")
	r.flags(f)
	return cmd
}

// retreatTime is how long the controller may take to roll back what has failed.
const retreatTime = 30 * time.Second

func (r *rolloutStatus) follow(ctx context.Context, s *session, i resource.Info, u *unstructured.Unstructured) (string, error) {
	degree := await.OldGone
	if is, err := s.served(ctx, u); err != nil {
		return "", err
	} else if is {
		degree = await.All(await.OldGone, await.Serving)
	}
	req := await.Request{
		For:     degree,
		Targets: []await.Target{targetOf(i)}, Timeout: max(0, r.timeout), Once: !r.watch,
	}
	if err := r.apply(&req); err != nil {
		return "", &usageError{"sampan rollout status", err}
	}
	talk := waitTalk{quiet: r.quiet, logs: r.logs, silent: true}
	if !isDeployment(i) {
		if err := s.await(ctx, req, talk); err != nil {
			return "", err
		}
		return "", r.done(i)
	}
	before, err := deployment("status", i, u)
	if err != nil {
		return "", err
	}
	if c := conditionOf(before, "RolledBack"); c != nil && c.Status == corev1.ConditionTrue {
		return "", r.wentBack(i, c.Reason, c.Message)
	}
	failure, err := s.decided(ctx, req, talk, before.Annotations[canariesAnnotation] != "")
	if err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", failure
	}
	after, err := s.deploymentNow(ctx, req.Targets[0])
	if err != nil {
		return "", err
	}
	if failure != nil && exitCode(failure) == exitFailed && after.Annotations[autoRollback] == "true" && retreatOf(after) < before.Generation {
		back, err := await.ParseDegree("condition=RolledBack")
		if err != nil {
			return "", err
		}
		// If it does not come to pass, the failure stands.
		_ = s.await(ctx, await.Request{For: back, Targets: req.Targets, Timeout: retreatTime, Fail: await.FailNever}, waitTalk{quiet: true, silent: true})
		if after, err = s.deploymentNow(ctx, req.Targets[0]); err != nil {
			return "", err
		}
	}
	switch {
	case retreatOf(after) >= before.Generation:
		if err := s.await(ctx, req, talk); err != nil {
			return "", err
		}
		if after, err = s.deploymentNow(ctx, req.Targets[0]); err != nil {
			return "", err
		}
		reason, message := "", "it was rolled back, see its events"
		if c := conditionOf(after, "RolledBack"); c != nil {
			reason, message = c.Reason, c.Message
		}
		return "", r.wentBack(i, reason, message)
	case failure != nil:
		return "", failure
	case decides(after):
		_, err := fmt.Fprintf(r.Out, "%s %q waits with its canaries: %s\n'sampan rollout promote %s' goes on, 'sampan rollout abort %s' goes back\n",
			lower(i), i.Name, conditionOf(after, appsv1.DeploymentProgressing).Message, i, i)
		return "", err
	}
	return "", r.done(i)
}

// decided waits until a rollout is done or has failed, which is the first result, or
// waits with its canaries.
func (s *session) decided(ctx context.Context, req await.Request, talk waitTalk, canaries bool) (failure, err error) {
	if !canaries {
		return s.await(ctx, req, talk), nil
	}
	// While it may still be that, no trouble of the pods is a failure of the wait: what
	// the controller says of its progress is.
	ends := []await.Degree{req.For}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
		d, err := await.ParseDegree("condition=" + string(appsv1.DeploymentProgressing) + "=" + string(status))
		if err != nil {
			return nil, err
		}
		ends = append(ends, d)
	}
	first := req
	first.For = await.Any(ends...)
	if failure = s.await(ctx, first, talk); failure != nil {
		return failure, nil
	}
	d, err := s.deploymentNow(ctx, req.Targets[0])
	if err != nil || decides(d) {
		return nil, err
	}
	return s.await(ctx, req, talk), nil // it is decided: this says how
}

// served reports whether there is a service that selects the pods of an object.
func (s *session) served(ctx context.Context, u *unstructured.Unstructured) (bool, error) {
	pods, _, err := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
	if err != nil || len(pods) == 0 {
		return false, nil //nolint:nilerr // it makes no pods that a service could select
	}
	c, err := s.typed()
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

func (s *session) deploymentNow(ctx context.Context, t await.Target) (*appsv1.Deployment, error) {
	c, err := s.typed()
	if err != nil {
		return nil, err
	}
	return client.Deployments.Get(ctx, c, t.Namespace, t.Name)
}

func (r *rolloutStatus) done(i resource.Info) error {
	_, err := fmt.Fprintf(r.Out, "%s %q successfully rolled out\n", lower(i), i.Name)
	return err
}

// wentBack says that there was a rollback, which is an error unless somebody asked
// for it.
func (r *rolloutStatus) wentBack(i resource.Info, reason, message string) error {
	if reason == canariesAborted {
		_, err := fmt.Fprintf(r.Out, "%s %q: %s\n", lower(i), i.Name, message)
		return err
	}
	return &exitError{exitRolledBack, fmt.Errorf("%s %q: %s", lower(i), i.Name, message)}
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
