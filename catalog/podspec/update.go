package podspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mayChange lists the fields that an update of a pod may change.
const mayChange = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// ValidateUpdate returns the faults of the change from old to spec. A pod
// with scheduling gates may also restrict the nodes on which it can run.
func ValidateUpdate(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	at := where{path}
	var r report
	fixed := true
	for _, list := range []struct {
		name     string
		now, was []corev1.Container
	}{{"containers", spec.Containers, old.Containers}, {"initContainers", spec.InitContainers, old.InitContainers}} {
		if len(list.now) != len(list.was) {
			r.forbidden(at.child(list.name), "pod updates may not add or remove containers")
			fixed = false
		}
	}
	if !fixed {
		return r.errs
	}
	r.checkDeadline(spec, old, at.child("activeDeadlineSeconds"))
	r.checkAddedTolerations(spec, old, at.child("tolerations"))
	r.checkRemovedGates(spec, old, at.child("schedulingGates"))

	// Changeable fields are taken out of the comparison.
	same := spec.DeepCopy()
	for i := range same.Containers {
		same.Containers[i].Image = old.Containers[i].Image
	}
	for i := range same.InitContainers {
		same.InitContainers[i].Image = old.InitContainers[i].Image
	}
	same.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	same.Tolerations = old.Tolerations
	same.SchedulingGates = old.SchedulingGates
	if g := old.TerminationGracePeriodSeconds; g != nil && *g < 0 && spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 1 {
		same.TerminationGracePeriodSeconds = g
	}
	if len(old.SchedulingGates) > 0 {
		r.checkNarrowed(same, old, at)
	}
	if !equality.Semantic.DeepEqual(same, old) {
		r.forbidden(at, fmt.Sprintf("pod updates may not change fields other than %s\n%s", mayChange, difference(same, old)))
	}
	return r.errs
}

func (r *report) checkDeadline(spec, old *corev1.PodSpec, at where) {
	now, was := spec.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds
	switch {
	case now == nil && was != nil:
		r.invalid(at, now, "must not update from a positive integer to nil value")
	case now == nil:
	case *now < 0 || *now > math.MaxInt32:
		r.invalid(at, *now, validation.InclusiveRangeError(0, math.MaxInt32))
	case was != nil && *now > *was:
		r.invalid(at, *now, "must be less than or equal to previous value")
	}
}

func (r *report) checkAddedTolerations(spec, old *corev1.PodSpec, at where) {
	kept := sets.New[corev1.Toleration]()
	for _, t := range spec.Tolerations {
		t.TolerationSeconds = nil
		kept.Insert(t)
	}
	for _, was := range old.Tolerations {
		if was.TolerationSeconds = nil; !kept.Has(was) {
			r.forbidden(at, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func (r *report) checkRemovedGates(spec, old *corev1.PodSpec, at where) {
	had := sets.New(old.SchedulingGates...)
	for i, g := range spec.SchedulingGates {
		if !had.Has(g) {
			r.forbidden(at.index(i), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name))
		}
	}
}

// checkNarrowed checks changes of a pod that the scheduler may not look at yet:
// its node selector may gain labels, its required node affinity requirements.
// Allowed changes are taken out of the comparison.
func (r *report) checkNarrowed(same, old *corev1.PodSpec, at where) {
	if !maps.Equal(same.NodeSelector, old.NodeSelector) {
		for key, value := range old.NodeSelector {
			if now, ok := same.NodeSelector[key]; !ok || now != value {
				r.invalid(at.child("nodeSelector"), same.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
				break
			}
		}
		same.NodeSelector = old.NodeSelector
	}
	was, now := nodeAffinity(old), nodeAffinity(same)
	if equality.Semantic.DeepEqual(was, now) {
		return
	}
	at = at.child("affinity", "nodeAffinity")
	if w := requiredTerms(was); len(w) > 0 {
		n := requiredTerms(now)
		if len(w) != len(n) {
			r.invalid(at.child(required, "nodeSelectorTerms"), n, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		} else {
			for i := range w {
				if !startsWith(n[i].MatchExpressions, w[i].MatchExpressions) || !startsWith(n[i].MatchFields, w[i].MatchFields) {
					r.invalid(at.child(required, "nodeSelectorTerms").index(i), n[i], "only additions are allowed (no mutations or deletions)")
				}
			}
		}
	}
	setNodeAffinity(same, old)
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

func requiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func startsWith(now, was []corev1.NodeSelectorRequirement) bool {
	return len(now) >= len(was) && equality.Semantic.DeepEqual(now[:len(was)], was)
}

func setNodeAffinity(same, old *corev1.PodSpec) {
	switch {
	case old.Affinity == nil && same.Affinity.PodAffinity == nil && same.Affinity.PodAntiAffinity == nil:
		same.Affinity = nil
	case old.Affinity == nil:
		same.Affinity.NodeAffinity = nil
	case same.Affinity == nil:
		same.Affinity = &corev1.Affinity{NodeAffinity: old.Affinity.NodeAffinity}
	default:
		same.Affinity.NodeAffinity = old.Affinity.NodeAffinity
	}
}

// difference says which fields of a spec differ, in JSON, before and after.
func difference(spec, old *corev1.PodSpec) string {
	lines := strings.Split(differentFields(old, spec), "\n")
	for i := range lines {
		lines[i] = "spec." + lines[i]
	}
	return strings.Join(lines, "\n")
}

// differentFields says which fields of two structs differ, in JSON, before and after.
func differentFields[T any](old, spec *T) string {
	now, was := reflect.ValueOf(spec).Elem(), reflect.ValueOf(old).Elem()
	var lines []string
	for i := range now.NumField() {
		a, b := was.Field(i).Interface(), now.Field(i).Interface()
		if equality.Semantic.DeepEqual(a, b) {
			continue
		}
		name, _, _ := strings.Cut(now.Type().Field(i).Tag.Get("json"), ",")
		lines = append(lines, fmt.Sprintf("%s: was %s, would be %s", name, asJSON(a), asJSON(b)))
	}
	return strings.Join(lines, "\n")
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
