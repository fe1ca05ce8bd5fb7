package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/sampan-io/sampan/apiserver/audit"
)

// When a namespace gets a stricter level, its present pods are checked for a warning: so many of them, for so long at
// most. Both numbers are upstream's.
const (
	maxPodsToCheck  = 3000
	podCheckTimeout = time.Second
)

// PodSecurity holds pods to the Pod Security Standards that labels of their namespace name (KEP-2579). The checks and
// their words are upstream's; there are no exemptions. Violations of the level of the audit label become annotations of
// audit events. It is to be the last plug-in that sees pods: it changes nothing.
type PodSecurity struct {
	reader    Reader
	evaluator policy.Evaluator
}

// NewPodSecurity returns the plug-in.
func NewPodSecurity(r Reader) (*PodSecurity, error) {
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("checks of the Pod Security Standards: %w", err)
	}
	return &PodSecurity{reader: r, evaluator: e}, nil
}

// Name implements [Plugin].
func (*PodSecurity) Name() string { return "PodSecurity" }

// Validate implements [Validator].
func (p *PodSecurity) Validate(ctx context.Context, a *Attributes) error {
	if a.Subresource != "" && !a.is("pods", "ephemeralcontainers") || a.Operation != Create && a.Operation != Update {
		return nil
	}
	if ns, ok := a.Object.(*corev1.Namespace); ok {
		return p.admitNamespace(ctx, a, ns)
	}
	meta, spec := podOf(a.Object)
	if spec == nil {
		return nil
	}
	o, err := p.reader.Get(ctx, core("namespaces"), "", a.Namespace)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", a.Namespace))
	}
	// Labels that are wrong, which cannot be written, count as the strictest level to enforce and as none to warn of.
	levels, errs := api.PolicyToEvaluate(o.GetLabels(), privileged())
	if len(errs) == 0 && levels.FullyPrivileged() {
		return nil
	}
	_, isPod := a.Object.(*corev1.Pod)
	if old, ok := a.Old.(*corev1.Pod); ok && isPod && sameImages(spec, &old.Spec) {
		return nil // nothing else that is checked can change
	}
	if record := audit.From(ctx); record != nil {
		p.annotate(record, levels, errs, isPod, meta, spec)
	}
	if isPod {
		if r := p.check(levels.Enforce, meta, spec); !r.Allowed {
			return refuse(a, "violates PodSecurity %q: %s", levels.Enforce.String(), r.ForbiddenDetail())
		}
	}
	if r := p.check(levels.Warn, meta, spec); !r.Allowed {
		a.warn("would violate PodSecurity %q: %s", levels.Warn.String(), r.ForbiddenDetail())
	}
	return nil
}

// annotate adds upstream's annotations to the audit events of a request.
func (p *PodSecurity) annotate(
	record *audit.Record, levels api.Policy, errs field.ErrorList, isPod bool, meta *metav1.ObjectMeta, spec *corev1.PodSpec,
) {
	if len(errs) > 0 {
		record.Annotate(api.AuditAnnotationPrefix+"error", fmt.Sprintf("Failed to parse policy: %v", errs.ToAggregate()))
	}
	if isPod {
		record.Annotate(api.AuditAnnotationPrefix+api.EnforcedPolicyAnnotationKey, levels.Enforce.String())
	}
	if r := p.check(levels.Audit, meta, spec); !r.Allowed {
		record.Annotate(api.AuditAnnotationPrefix+api.AuditViolationsAnnotationKey,
			fmt.Sprintf("would violate PodSecurity %q: %s", levels.Audit.String(), r.ForbiddenDetail()))
	}
}

func (p *PodSecurity) check(
	level api.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec,
) policy.AggregateCheckResult {
	return policy.AggregateCheckResults(p.evaluator.EvaluatePod(level, meta, spec))
}

// admitNamespace refuses labels that are wrong, and warns of the pods that a stricter level would not have let in.
func (p *PodSecurity) admitNamespace(ctx context.Context, a *Attributes, ns *corev1.Namespace) error {
	now, errs := api.PolicyToEvaluate(ns.Labels, privileged())
	before := privileged()
	if old, ok := a.Old.(*corev1.Namespace); ok {
		was, oldErrs := api.PolicyToEvaluate(old.Labels, privileged())
		before = was
		if fmt.Sprint(errs) == fmt.Sprint(oldErrs) {
			errs = nil // they may have been wrong before
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(a.Kind.GroupKind(), a.Name, errs)
	}
	switch {
	case a.Operation != Update, now.Enforce == before.Enforce, now.Enforce.Level == api.LevelPrivileged:
	case now.Enforce.Version == before.Enforce.Version && api.CompareLevels(now.Enforce.Level, before.Enforce.Level) < 1:
	default:
		p.warnOfPods(ctx, a, now.Enforce)
	}
	return nil
}

// A violation is one rule that pods of a namespace break, with the names of these pods.
type violation struct {
	first string // name of the first pod in the order of names
	pods  int
}

// warnOfPods warns of the present pods of a namespace that a new level would not let in.
func (p *PodSecurity) warnOfPods(ctx context.Context, a *Attributes, level api.LevelVersion) {
	objects, err := p.reader.List(ctx, core("pods"), a.Name, nil)
	if err != nil {
		a.warn("failed to list pods while checking new PodSecurity enforce level")
		return
	}
	pods := oneOfEachFirst(objects)
	found := map[string]violation{}
	checked := 0
	deadline := time.Now().Add(podCheckTimeout)
	for _, pod := range pods[:min(len(pods), maxPodsToCheck)] {
		checked++
		if r := p.check(level, &pod.ObjectMeta, &pod.Spec); !r.Allowed {
			v := found[r.ForbiddenReason()]
			if v.pods++; v.pods == 1 || pod.Name < v.first {
				v.first = pod.Name
			}
			found[r.ForbiddenReason()] = v
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			break
		}
	}
	if checked < len(pods) {
		a.warn("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods))
	}
	if len(found) == 0 {
		return
	}
	a.warn("existing pods in namespace %q violate the new PodSecurity enforce level %q", a.Name, level.String())
	var sentences []string
	for reason, v := range found {
		switch v.pods {
		case 1:
			sentences = append(sentences, fmt.Sprintf("%s: %s", v.first, reason))
		case 2:
			sentences = append(sentences, fmt.Sprintf("%s (and 1 other pod): %s", v.first, reason))
		default:
			sentences = append(sentences, fmt.Sprintf("%s (and %d other pods): %s", v.first, v.pods-1, reason))
		}
	}
	slices.Sort(sentences)
	a.Warnings = append(a.Warnings, sentences...)
}

// privileged is the policy of a namespace without labels.
func privileged() api.Policy {
	all := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	return api.Policy{Enforce: all, Audit: all, Warn: all}
}

// podOf returns the pod that an object is or makes pods of; nil if it has none.
func podOf(o any) (*metav1.ObjectMeta, *corev1.PodSpec) {
	var t *corev1.PodTemplateSpec
	switch o := o.(type) {
	case *corev1.Pod:
		return &o.ObjectMeta, &o.Spec
	case *corev1.PodTemplate:
		t = &o.Template
	case *corev1.ReplicationController:
		t = o.Spec.Template
	case *appsv1.ReplicaSet:
		t = &o.Spec.Template
	case *appsv1.Deployment:
		t = &o.Spec.Template
	case *appsv1.StatefulSet:
		t = &o.Spec.Template
	case *appsv1.DaemonSet:
		t = &o.Spec.Template
	case *batchv1.Job:
		t = &o.Spec.Template
	case *batchv1.CronJob:
		t = &o.Spec.JobTemplate.Spec.Template
	}
	if t == nil {
		return nil, nil
	}
	return &t.ObjectMeta, &t.Spec
}

// sameImages reports whether two specifications have the same containers with the same images. An
// update of the images is checked because upstream does, an added ephemeral container as well, and because an update can change no other
// field that is checked.
func sameImages(now, was *corev1.PodSpec) bool {
	same := func(a, b corev1.Container) bool { return a.Image == b.Image }
	return slices.EqualFunc(now.Containers, was.Containers, same) &&
		slices.EqualFunc(now.InitContainers, was.InitContainers, same) &&
		!slices.ContainsFunc(now.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
			return !slices.ContainsFunc(was.EphemeralContainers, func(old corev1.EphemeralContainer) bool {
				return old.Name == c.Name && old.Image == c.Image
			})
		})
}

// oneOfEachFirst returns pods, the further ones of each controller last: what is wrong with them is wrong with the
// first.
func oneOfEachFirst[T any](objects []T) []*corev1.Pod {
	var first, others []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, o := range objects {
		pod, ok := any(o).(*corev1.Pod)
		if !ok {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && seen[owner.UID] {
			others = append(others, pod)
			continue
		}
		if owner != nil {
			seen[owner.UID] = true
		}
		first = append(first, pod)
	}
	return append(first, others...)
}
