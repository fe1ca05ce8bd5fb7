package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/sampan-io/sampan/catalog/podspec"
	"github.com/sampan-io/sampan/internal/podresources"
)

// limitRangerAnnotation is set on pods that got requests or limits, as in Kubernetes.
const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// LimitRanger gives containers the default requests and limits of the LimitRanges in their namespace, and refuses pods
// and claims that are outside of the ranges. Of the updates of pods it sees resizes alone, because others can't change
// resources.
type LimitRanger struct{ reader Reader }

// NewLimitRanger returns the plug-in.
func NewLimitRanger(r Reader) LimitRanger { return LimitRanger{r} }

// Name implements [Plugin].
func (LimitRanger) Name() string { return "LimitRanger" }

// Admit implements [Mutator].
func (p LimitRanger) Admit(ctx context.Context, a *Attributes) error {
	pod := a.sizedPod()
	if pod == nil || a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	ranges, err := p.ranges(ctx, a)
	if err != nil {
		return err
	}
	annotations, status := pod.Annotations, pod.Status
	for _, r := range ranges {
		defaultResources(r, pod)
	}
	if a.Old != nil { // a resize changes neither
		pod.Annotations, pod.Status = annotations, status
	}
	return nil
}

// sizedPod returns the pod that is created or resized, or nil.
func (a *Attributes) sizedPod() *corev1.Pod {
	if a.Operation == Update && a.is("pods", "resize") {
		pod, _ := a.Object.(*corev1.Pod)
		return pod
	}
	return a.createdPod()
}

// Validate implements [Validator].
func (p LimitRanger) Validate(ctx context.Context, a *Attributes) error {
	pod, claim := a.sizedPod(), (*corev1.PersistentVolumeClaim)(nil)
	if a.Operation == Create || a.Operation == Update {
		if c, ok := a.Object.(*corev1.PersistentVolumeClaim); ok && a.is("persistentvolumeclaims", "") {
			claim = c
		}
	}
	if pod == nil && claim == nil || a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	ranges, err := p.ranges(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		var errs []error
		for i := range r.Spec.Limits {
			if pod != nil {
				errs = append(errs, podOutside(&r.Spec.Limits[i], pod)...)
			} else {
				errs = append(errs, claimOutside(&r.Spec.Limits[i], claim)...)
			}
		}
		if len(errs) > 0 {
			return refuse(a, "%w", utilerrors.NewAggregate(errs))
		}
	}
	return nil
}

// ranges returns the LimitRanges of the namespace, by name.
func (p LimitRanger) ranges(ctx context.Context, a *Attributes) ([]*corev1.LimitRange, error) {
	all, err := p.reader.List(ctx, core("limitranges"), a.Namespace, nil)
	if err != nil {
		return nil, refuse(a, "unable to %s %v at this time because there was an error enforcing limit ranges", a.Operation, a.Kind.GVR())
	}
	var ranges []*corev1.LimitRange
	for _, o := range all {
		if r, ok := o.(*corev1.LimitRange); ok {
			ranges = append(ranges, r)
		}
	}
	slices.SortFunc(ranges, func(a, b *corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	return ranges, nil
}

// defaultResources gives the containers of a pod the defaults of r where they have no value, says so in an annotation,
// and computes the pod's quality of service class again.
func defaultResources(r *corev1.LimitRange, pod *corev1.Pod) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range r.Spec.Limits {
		if l := &r.Spec.Limits[i]; l.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, l.DefaultRequest)
			maps.Copy(limits, l.Default)
		}
	}
	var set []string
	fill := func(c *corev1.Container, what string) {
		if added := fillIn(&c.Resources.Requests, requests); added != "" {
			set = append(set, fmt.Sprintf("%s request for %s %s", added, what, c.Name))
		}
		if added := fillIn(&c.Resources.Limits, limits); added != "" {
			set = append(set, fmt.Sprintf("%s limit for %s %s", added, what, c.Name))
		}
	}
	for i := range pod.Spec.Containers {
		fill(&pod.Spec.Containers[i], "container")
	}
	for i := range pod.Spec.InitContainers {
		fill(&pod.Spec.InitContainers[i], "init container")
	}
	if len(set) == 0 {
		return
	}
	pod.Annotations = maps.Clone(pod.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(set, "; ")
	pod.Status.QOSClass = podspec.QOS(&pod.Spec)
}

// fillIn adds the values that list does not have. It returns their names, sorted and separated by commas.
func fillIn(list *corev1.ResourceList, values corev1.ResourceList) string {
	var added []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = values[name].DeepCopy()
		added = append(added, string(name))
	}
	return strings.Join(added, ", ")
}

// podOutside returns the amounts outside of a range in a pod and its containers.
func podOutside(l *corev1.LimitRangeItem, pod *corev1.Pod) (errs []error) {
	switch l.Type {
	case corev1.LimitTypeContainer:
		for i := range pod.Spec.Containers {
			errs = append(errs, outside(l, &pod.Spec.Containers[i].Resources)...)
		}
		for i := range pod.Spec.InitContainers {
			errs = append(errs, outside(l, &pod.Spec.InitContainers[i].Resources)...)
		}
	case corev1.LimitTypePod:
		// The overhead of a pod does not count, and of the values for the pod as a whole only CPU and memory do.
		opts := podresources.Options{ExcludeOverhead: true, SkipPodLevelResources: true}
		whole := corev1.ResourceRequirements{Requests: podresources.Requests(pod, opts), Limits: podresources.Limits(pod, opts)}
		if r := pod.Spec.Resources; r != nil {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				replace(whole.Requests, r.Requests, name)
				replace(whole.Limits, r.Limits, name)
			}
		}
		errs = outside(l, &whole)
	}
	return errs
}

// replace sets a value of list to that of other, if other has one.
func replace(list, other corev1.ResourceList, name corev1.ResourceName) {
	if q, ok := other[name]; ok {
		list[name] = q
	}
}

// outside returns the violations of a range by requests and limits.
func outside(l *corev1.LimitRangeItem, r *corev1.ResourceRequirements) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(l.Min)) {
		errs = append(errs, belowMin(l, name, r.Requests, r.Limits))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Max)) {
		errs = append(errs, aboveMax(l, name, r))
	}
	for _, name := range slices.Sorted(maps.Keys(l.MaxLimitRequestRatio)) {
		errs = append(errs, aboveRatio(l, name, r))
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// claimOutside returns the violations of a range by the requests of a claim. Its limits do not count.
func claimOutside(l *corev1.LimitRangeItem, claim *corev1.PersistentVolumeClaim) (errs []error) {
	if l.Type != corev1.LimitTypePersistentVolumeClaim {
		return nil
	}
	requests := claim.Spec.Resources.Requests
	for _, name := range slices.Sorted(maps.Keys(l.Min)) {
		errs = append(errs, belowMin(l, name, requests, nil))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Max)) {
		bound := l.Max[name]
		switch q, ok := requests[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, l.Type, bound.String()))
		case exceeds(q, bound):
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, l.Type, bound.String(), q.String()))
		}
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func belowMin(l *corev1.LimitRangeItem, name corev1.ResourceName, requests, limits corev1.ResourceList) error {
	bound := l.Min[name]
	request, ok := requests[name]
	limit, limited := limits[name]
	switch {
	case !ok:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, l.Type, bound.String())
	case exceeds(bound, request):
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, l.Type, bound.String(), request.String())
	case limited && exceeds(bound, limit):
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, l.Type, bound.String(), limit.String())
	}
	return nil
}

func aboveMax(l *corev1.LimitRangeItem, name corev1.ResourceName, r *corev1.ResourceRequirements) error {
	bound := l.Max[name]
	limit, ok := r.Limits[name]
	request, requested := r.Requests[name]
	switch {
	case !ok:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, l.Type, bound.String())
	case exceeds(limit, bound):
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, l.Type, bound.String(), limit.String())
	case requested && exceeds(request, bound):
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, l.Type, bound.String(), request.String())
	}
	return nil
}

func aboveRatio(l *corev1.LimitRangeItem, name corev1.ResourceName, r *corev1.ResourceRequirements) error {
	bound := l.MaxLimitRequestRatio[name]
	limit, limited := r.Limits[name]
	request, requested := r.Requests[name]
	of, to := values(limit, request)
	switch {
	case !requested || to == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, l.Type, bound.String())
	case !limited || of == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, l.Type, bound.String())
	}
	ratio := float64(of) / float64(to)
	most, scale := float64(bound.Value()), 1.0
	if bound.Value() <= resource.MaxMilliValue {
		most, scale = float64(bound.MilliValue()), 1000
	}
	if ratio*scale > most {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, l.Type, bound.String(), ratio)
	}
	return nil
}

// exceeds reports whether a is more than b.
func exceeds(a, b resource.Quantity) bool {
	x, y := values(a, b)
	return x > y
}

// values returns two quantities in the same unit: thousandths, or for large ones whole numbers.
func values(a, b resource.Quantity) (x, y int64) {
	x, y = a.Value(), b.Value()
	if x <= resource.MaxMilliValue && y <= resource.MaxMilliValue {
		return a.MilliValue(), b.MilliValue()
	}
	return x, y
}
