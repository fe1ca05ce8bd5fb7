package sets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
)

// A claimFinder returns a claim of the set's namespace by its name.
type claimFinder func(name string) (*corev1.PersistentVolumeClaim, bool)

// claimName is how the claim of a place is called.
func claimName(template, set string, ordinal int) string {
	return template + "-" + set + "-" + strconv.Itoa(ordinal)
}

// claimFrom returns the claim of an ordinal, made from a template. It has no owner: the retention policy decides about that, as
// for a claim that already existed.
func claimFrom(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) *corev1.PersistentVolumeClaim {
	c := template.DeepCopy()
	c.Status = corev1.PersistentVolumeClaimStatus{}
	c.Namespace, c.Name = set.Namespace, claimName(template.Name, set.Name, ordinal)
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	if set.Spec.Selector != nil {
		maps.Copy(c.Labels, set.Spec.Selector.MatchLabels)
	}
	return c
}

// mountClaims makes the claims of a place volumes of its pod. One of the same name that the
// template has gives way.
func mountClaims(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) {
	var volumes []corev1.Volume
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(name, set.Name, ordinal)},
		}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(claim corev1.Volume) bool { return claim.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}

// A claimPlan is the list of changes of the claims of a set.
type claimPlan struct {
	create []placedClaim
	hold   []*corev1.PersistentVolumeClaim // with the owners that they are to have
	wait   []placedClaim                   // they go, and there can be no pod before they are gone
}

// A placedClaim is a claim and the pod for which it is.
type placedClaim struct {
	*corev1.PersistentVolumeClaim
	pod string
}

// retention returns what becomes of claims.
func retention(set *appsv1.StatefulSet) (deleted, scaled bool) {
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	if p == nil {
		return false, false
	}
	return p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType, p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// planClaims adds the changes of claims to the plan. A pod is not created while its claim is being deleted.
func (v *statefulView) planClaims(plan *statefulPlan) {
	if len(v.set.Spec.VolumeClaimTemplates) == 0 || v.set.DeletionTimestamp != nil {
		return
	}
	at, surplus := v.split()
	for _, i := range at.sorted() {
		v.planPlace(i+v.start(), at[i], false, &plan.claims)
	}
	for _, pod := range surplus {
		n, _ := ordinalOf(v.set.Name, pod.Name)
		v.planPlace(n, pod, true, &plan.claims)
	}
	plan.create = slices.DeleteFunc(plan.create, func(one statefulPod) bool {
		waiting := len(plan.claims.wait)
		v.planPlace(one.ordinal, nil, false, &plan.claims)
		return len(plan.claims.wait) > waiting
	})
}

// planPlace looks at the claims of one place before a pod is made there (pod is nil), or
// of a pod that is there. Surplus says that the place is one that there is not to be.
//
// A claim goes with whom its owner references name: with the set, if claims go with it;
// with the pod, once its place is given up and claims go then. A claim that still names a
// pod that was there before is about to go, and no pod may have it any more.
func (v *statefulView) planPlace(ordinal int, pod *corev1.Pod, surplus bool, plan *claimPlan) {
	withSet, withPod := retention(v.set)
	for i := range v.set.Spec.VolumeClaimTemplates {
		t := &v.set.Spec.VolumeClaimTemplates[i]
		c, ok := v.claims(claimName(t.Name, v.set.Name, ordinal))
		switch {
		case !ok && pod == nil:
			c = claimFrom(v.set, t, ordinal)
			c.OwnerReferences = v.holders(c, nil, withSet, false)
			plan.create = append(plan.create, placedClaim{c, podName(v.set, ordinal)})
			continue
		case !ok:
			continue // of a pod that runs; it is made with the next one
		case pod == nil && (c.DeletionTimestamp != nil || withPod && v.heldByAPod(c)):
			plan.wait = append(plan.wait, placedClaim{c, podName(v.set, ordinal)})
			continue
		}
		refs := v.holders(c, pod, withSet && !(surplus && withPod), surplus && withPod)
		same := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID && controls(a) == controls(b) }
		if c.DeletionTimestamp == nil && !slices.EqualFunc(refs, c.OwnerReferences, same) {
			c = c.DeepCopy()
			c.OwnerReferences = refs
			plan.hold = append(plan.hold, c)
		}
	}
}

// holders returns the owner references that a claim is to have. Others than ours stay; if
// one of them is its controller we add none.
func (v *statefulView) holders(c *corev1.PersistentVolumeClaim, pod *corev1.Pod, withSet, withPod bool) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(c.OwnerReferences), func(r metav1.OwnerReference) bool {
		return r.UID == v.set.UID || r.Kind == client.Pods.Kind && v.placeOf(r.Name)
	})
	switch {
	case slices.ContainsFunc(refs, controls):
	case withSet:
		refs = append(refs, dependents.Reference(v.set))
	case withPod && pod != nil:
		refs = append(refs, dependents.Reference(pod))
	}
	return refs
}

// controls reports whether an owner is the controller of its object.
func controls(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }

func (v *statefulView) placeOf(pod string) bool {
	_, ok := ordinalOf(v.set.Name, pod)
	return ok
}

func (v *statefulView) heldByAPod(c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == client.Pods.Kind && v.placeOf(r.Name)
	})
}

// claimChanged wakes the sets that a changed claim concerns: those whose places it could
// be of by its name.
func (s statefulSets) claimChanged(before, after *corev1.PersistentVolumeClaim) {
	c := after
	if c == nil {
		c = before
	}
	for _, set := range s.Objects.List(c.Namespace) {
		for i := range set.Spec.VolumeClaimTemplates {
			if _, ok := ordinalOf(set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name, c.Name); ok {
				s.Loop.Add(controller.KeyOf(set))
			}
		}
	}
}

// keepClaims carries out the plan for claims. After an error there may be claims
// that pods need missing.
func (s statefulSets) keepClaims(ctx context.Context, set *appsv1.StatefulSet, plan claimPlan) error {
	for _, c := range plan.wait {
		s.Events.Event(set, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: pvc %s is being deleted", c.pod, set.Name, c.Name)
	}
	var errs []error
	for _, c := range plan.hold {
		now, err := client.PersistentVolumeClaims.Update(ctx, s.Client, c, "")
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			errs = append(errs, fmt.Errorf("change the owners of claim %s/%s: %w", c.Namespace, c.Name, err))
		default:
			errs = append(errs, s.claims.Await(ctx, now.ResourceVersion))
		}
	}
	errs = append(errs, dependents.Batches(ctx, len(plan.create), func(ctx context.Context, i int) error {
		c := plan.create[i]
		now, err := client.PersistentVolumeClaims.Create(ctx, s.Client, c.PersistentVolumeClaim)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil
		case err != nil:
			if ctx.Err() == nil {
				s.Events.Event(set, corev1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s in StatefulSet %s failed error: %v", c.Name, c.pod, set.Name, err)
			}
			return fmt.Errorf("create claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		s.Events.Event(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", c.Name, c.pod, set.Name)
		return s.claims.Await(ctx, now.ResourceVersion)
	}))
	return errors.Join(errs...)
}
