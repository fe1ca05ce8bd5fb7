package tokens

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	// cleanUpPeriod is how long a token must be unused before it is marked, and marked before it is deleted; upstream's
	// --legacy-service-account-token-clean-up-period.
	cleanUpPeriod = 365 * 24 * time.Hour

	day = 24 * time.Hour

	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
	trackingName      = "kube-apiserver-legacy-service-account-token-tracking"
	trackingKey       = "since"
)

// A fate is what happens to a token next.
type fate interface{ isFate() }

type (
	keep       struct{ until time.Time } // until it has to be decided again; zero: until something changes
	invalidate struct{}                  // mark it as invalid
	remove     struct{}
)

func (keep) isFate()       {}
func (invalidate) isFate() {}
func (remove) isFate()     {}

// decide returns the fate of the Secret of a token that was made automatically and is not mounted in a pod. Since is
// the day on which the recording of uses began. A day counts as a whole.
func decide(s *corev1.Secret, since string, now time.Time) fate {
	began, err := time.Parse(time.DateOnly, since)
	if err != nil {
		return keep{}
	}
	now = now.UTC()
	until := began.Add(day + cleanUpPeriod)
	later := func(t time.Time) {
		if t.After(until) {
			until = t
		}
	}
	later(s.CreationTimestamp.Add(cleanUpPeriod))
	if used, ok := s.Labels[lastUsedLabel]; ok {
		at, err := time.Parse(time.DateOnly, used)
		if err != nil {
			return keep{} // it is unknown when it was used
		}
		later(at.Add(day + cleanUpPeriod))
	}
	if now.Before(until) {
		return keep{until}
	}
	marked, err := time.Parse(time.DateOnly, s.Labels[invalidSinceLabel])
	if err != nil {
		return invalidate{}
	}
	if end := marked.Add(day + cleanUpPeriod); now.Before(end) {
		return keep{end}
	}
	return remove{}
}

// A cleaner marks and deletes tokens.
type cleaner struct {
	client   client.Interface
	secrets  *cache.Cache[*corev1.Secret]
	accounts *cache.Cache[*corev1.ServiceAccount]
	configs  *cache.Cache[*corev1.ConfigMap]
	pods     *cache.Cache[*corev1.Pod]
}

func cleanerTask(opts Options, config controller.Config, secrets *cache.Cache[*corev1.Secret], accounts *cache.Cache[*corev1.ServiceAccount]) run.Task {
	c := &cleaner{opts.Cleaner, secrets, accounts, cache.Of(config.Caches, client.ConfigMaps, nil), cache.Of(config.Caches, client.Pods, nil)}
	loop := controller.New(controller.Options{
		Name: CleanerLoop, Reconcile: c.reconcile, Workers: 1, Log: config.Log,
		Needs: []<-chan struct{}{secrets.Ready(), accounts.Ready(), c.configs.Ready(), c.pods.Ready()},
	})
	secrets.Subscribe(func(_, after *corev1.Secret) {
		if isToken(after) {
			loop.Add(controller.KeyOf(after))
		}
	})
	accounts.Subscribe(func(_, after *corev1.ServiceAccount) {
		if after == nil {
			return
		}
		for _, r := range after.Secrets {
			loop.Add(controller.Key{Namespace: after.Namespace, Name: r.Name})
		}
	})
	c.configs.Subscribe(func(_, after *corev1.ConfigMap) {
		if after == nil || after.Name != trackingName || after.Namespace != metav1.NamespaceSystem {
			return
		}
		for _, s := range secrets.List("") {
			if isToken(s) {
				loop.Add(controller.KeyOf(s))
			}
		}
	})
	return loop.Task()
}

func (c *cleaner) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	s, ok := c.secrets.Get(key.Namespace, key.Name)
	if !ok || !isToken(s) || s.DeletionTimestamp != nil || !c.automatic(s) {
		return controller.Result{}, nil
	}
	tracking, ok := c.configs.Get(metav1.NamespaceSystem, trackingName)
	if !ok {
		return controller.Result{}, nil
	}
	now := time.Now()
	what := decide(s, tracking.Data[trackingKey], now)
	if k, ok := what.(keep); ok {
		if k.until.IsZero() {
			return controller.Result{}, nil
		}
		return controller.Result{After: k.until.Sub(now)}, nil
	}
	if c.mounted(s) {
		return controller.Result{After: day}, nil // as often as upstream looks; such tokens are rare
	}
	var err error
	if _, ok := what.(remove); ok {
		err = client.Secrets.Delete(ctx, c.client, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &s.ResourceVersion}})
	} else {
		err = c.mark(ctx, s, now)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return controller.Result{}, fmt.Errorf("cleaning up the token in secret %s: %w", key, err)
	}
	return controller.Result{}, nil // the change of the Secret comes back
}

func (c *cleaner) mark(ctx context.Context, s *corev1.Secret, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.UID, "labels": map[string]string{invalidSinceLabel: now.UTC().Format(time.DateOnly)},
	}})
	if err != nil {
		return err
	}
	_, err = client.Secrets.Patch(ctx, c.client, s.Namespace, s.Name, types.MergePatchType, patch, "")
	return err
}

// automatic reports whether a token was made by Kubernetes on its own: its service account refers to it.
func (c *cleaner) automatic(s *corev1.Secret) bool {
	a, ok := c.accounts.Get(s.Namespace, s.Annotations[corev1.ServiceAccountNameKey])
	uid := types.UID(s.Annotations[corev1.ServiceAccountUIDKey])
	return ok && (uid == "" || uid == a.UID) && slices.ContainsFunc(a.Secrets, func(r corev1.ObjectReference) bool { return r.Name == s.Name })
}

// mounted reports whether a pod uses the Secret.
func (c *cleaner) mounted(s *corev1.Secret) bool {
	return slices.ContainsFunc(c.pods.List(s.Namespace), func(p *corev1.Pod) bool { return uses(&p.Spec, s.Name) })
}

// uses reports whether a pod names a Secret.
func uses(p *corev1.PodSpec, name string) bool {
	local := func(r *corev1.LocalObjectReference) bool { return r != nil && r.Name == name }
	for i := range p.ImagePullSecrets {
		if local(&p.ImagePullSecrets[i]) {
			return true
		}
	}
	for i := range p.Volumes {
		v := &p.Volumes[i].VolumeSource
		if v.Secret != nil && v.Secret.SecretName == name || v.CSI != nil && local(v.CSI.NodePublishSecretRef) || v.FlexVolume != nil && local(v.FlexVolume.SecretRef) {
			return true
		}
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil && local(&p.Secret.LocalObjectReference) }) {
			return true
		}
	}
	container := func(env []corev1.EnvVar, from []corev1.EnvFromSource) bool {
		return slices.ContainsFunc(env, func(e corev1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && local(&e.ValueFrom.SecretKeyRef.LocalObjectReference)
		}) || slices.ContainsFunc(from, func(e corev1.EnvFromSource) bool {
			return e.SecretRef != nil && local(&e.SecretRef.LocalObjectReference)
		})
	}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		if container(c.Env, c.EnvFrom) {
			return true
		}
	}
	return slices.ContainsFunc(p.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return container(c.Env, c.EnvFrom) })
}
