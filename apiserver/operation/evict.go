package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/podstate"
)

var podDisruptionBudgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// Evictions, as clients know them from Kubernetes.
const (
	violatesBudget = "Cannot evict pod as it would violate the pod's disruption budget."
	evictionReason = "EvictionByEvictionAPI"

	retryUnseenBudget = 10   // seconds until a new budget has been looked at
	mostDisrupted     = 2000 // evictions that the controller has not confirmed
)

// evict deletes a pod if its disruption budget has room for that.
func (o *Operations) evict(ctx context.Context, t *Target, body runtime.Object, create metav1.CreateOptions) (Result, error) {
	eviction, ok := body.(*policyv1.Eviction)
	if !ok {
		return Result{}, apierrors.NewBadRequest(fmt.Sprintf("a %T is not an Eviction", body))
	}
	if eviction.Name != t.Name {
		return Result{}, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if err := checkNamespace(t, eviction); err != nil {
		return Result{}, err
	}
	var opts metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		opts = *eviction.DeleteOptions
	}
	switch {
	case len(opts.DryRun) == 0:
		opts.DryRun = create.DryRun
	case len(create.DryRun) > 0 && !reflect.DeepEqual(opts.DryRun, create.DryRun):
		return Result{}, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", create.DryRun, opts.DryRun))
	}
	if err := checkOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(&opts)); err != nil {
		return Result{}, err
	}
	r, err := o.untilWon(ctx, t, func() (Result, error) { return o.evictOnce(ctx, t, eviction, opts) })
	r.Created = err == nil
	return r, err
}

func (o *Operations) evictOnce(ctx context.Context, t *Target, eviction *policyv1.Eviction, opts metav1.DeleteOptions) (r Result, err error) {
	item, err := o.Lookup(ctx, t)
	if err != nil {
		return Result{}, err
	}
	if err := checkPreconditions(t, opts.Preconditions, item); err != nil {
		return Result{}, err
	}
	pod, ok := item.Object().(*corev1.Pod)
	if !ok {
		return Result{}, apierrors.NewInternalError(fmt.Errorf("a %s cannot be evicted", t.Kind.Kind))
	}
	a := t.attributes(ctx, admission.Create, len(opts.DryRun) > 0)
	a.Object, a.Old = eviction, pod
	defer func() { r.end(&a, false) }()
	if err := o.admitWhole(ctx, &a); err != nil {
		return Result{}, err
	}
	if err := o.spendBudget(ctx, t, pod, a.DryRun); err != nil {
		return Result{}, err
	}
	plain := Target{User: t.User, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, Allowed: true, Inner: true}
	if pod.DeletionTimestamp == nil && !a.DryRun {
		if err := o.markEvicted(ctx, plain, item); err != nil {
			return Result{}, err
		}
	}
	// The decision is about this pod; its revision has gone on by the mark.
	opts.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	if _, err := o.removeAllowed(ctx, &plain, opts); err != nil {
		return Result{}, err
	}
	return done(nil), nil
}

// markEvicted writes into the status of a pod why it ends. The pod must still be what
// was looked at; otherwise everything is looked at again.
func (o *Operations) markEvicted(ctx context.Context, t Target, seen *codec.Item) error {
	t.Sub = t.Kind.Subresource("status")
	_, err := o.modifyOnce(ctx, &modification{
		Target: t, operation: admission.Update, fields: keepFields,
		propose: func(old *codec.Item) (catalog.Object, runtime.Object, error) {
			if old.Revision() != seen.Revision() {
				return nil, nil, &racedError{seen: seen.Revision()}
			}
			pod := old.Object().DeepCopyObject().(*corev1.Pod) // as seen is
			mark := corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: now(),
				Reason: evictionReason, Message: "Eviction API: evicting",
			}
			pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == mark.Type
			}), mark)
			return pod, nil, nil
		},
	})
	return err
}

// spendBudget takes the eviction of a pod from its budget, or says why that has no room.
// A pod that does not serve, and cannot be missed, costs nothing.
func (o *Operations) spendBudget(ctx context.Context, t *Target, pod *corev1.Pod, dryRun bool) error {
	if pod.Status.Phase == corev1.PodPending || !podstate.Active(pod) {
		return nil
	}
	budgets, err := o.budgetsOf(ctx, pod)
	switch {
	case err != nil:
		return err
	case len(budgets) == 0:
		return nil
	case len(budgets) > 1:
		return apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")) //nolint:staticcheck,revive // the API's sentence
	}
	if b := budgets[0]; !podstate.Ready(pod) {
		policy := b.Spec.UnhealthyPodEvictionPolicy
		always := policy != nil && *policy == policyv1.AlwaysAllow
		if always || b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0 {
			return nil
		}
	}
	kind := o.catalog.Resource(podDisruptionBudgets)
	_, err = o.modify(ctx, &modification{
		Target:    Target{User: t.User, Kind: kind, Sub: kind.Subresource("status"), Namespace: t.Namespace, Name: budgets[0].Name, Allowed: true},
		operation: admission.Update, dryRun: dryRun, fields: keepFields,
		propose: func(old *codec.Item) (catalog.Object, runtime.Object, error) {
			b, err := withEviction(old.Object().(*policyv1.PodDisruptionBudget), pod.Name) // as its kind says
			return b, nil, err
		},
	})
	if apierrors.IsNotFound(err) {
		return nil // the budget has just been deleted
	}
	return err
}

// withEviction returns a budget from which the eviction of a pod is taken. One that was
// taken already, for an eviction that was not carried out, is not taken again.
func withEviction(b *policyv1.PodDisruptionBudget, pod string) (*policyv1.PodDisruptionBudget, error) {
	st := b.Status
	gr := podDisruptionBudgets.GroupResource()
	if _, taken := st.DisruptedPods[pod]; taken {
		return b.DeepCopy(), nil
	}
	switch {
	case st.ObservedGeneration < b.Generation:
		return nil, tooManyEvictions(retryUnseenBudget, "The disruption budget %s is still being processed by the server.", b.Name)
	case st.DisruptionsAllowed < 0:
		return nil, apierrors.NewForbidden(gr, b.Name, errors.New("pdb disruptions allowed is negative"))
	case len(st.DisruptedPods) > mostDisrupted:
		return nil, apierrors.NewForbidden(gr, b.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case st.DisruptionsAllowed == 0:
		if c := meta.FindStatusCondition(st.Conditions, policyv1.DisruptionAllowedCondition); c != nil && c.Reason == policyv1.SyncFailedReason {
			return nil, tooManyEvictions(0, "The disruption budget %s does not allow evicting pods currently because it failed sync: %v", b.Name, c.Message)
		}
		return nil, tooManyEvictions(0, "The disruption budget %s needs %d healthy pods and has %d currently", b.Name, st.DesiredHealthy, st.CurrentHealthy)
	}
	b = b.DeepCopy()
	b.Status.DisruptionsAllowed--
	b.Status.DisruptedPods = maps.Clone(b.Status.DisruptedPods)
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod] = now()
	if b.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Generation,
		})
	}
	return b, nil
}

// tooManyEvictions is the refusal by which "kubectl drain" knows to try again.
func tooManyEvictions(after int, format string, args ...any) error {
	err := apierrors.NewTooManyRequests(violatesBudget, after)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(format, args...),
	})
	return err
}

// budgetsOf returns the budgets that select a pod.
func (o *Operations) budgetsOf(ctx context.Context, pod *corev1.Pod) (found []*policyv1.PodDisruptionBudget, err error) {
	kind := o.catalog.Resource(podDisruptionBudgets)
	if kind == nil {
		return nil, nil
	}
	c, err := Select(kind, pod.Namespace, "", "")
	if err != nil {
		return nil, err
	}
	all, err := o.listChosen(ctx, &c, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, item := range all.Items {
		b, ok := item.Object().(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		// No selector selects nothing, an empty one everything; one that is wrong,
		// which validation does not let through, selects nothing.
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, b)
		}
	}
	return found, nil
}
