package rollouts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/sorting"
)

const changeCause = "kubernetes.io/change-cause"

// A controlled object is one whose controller keeps a history of its pod template.
type controlled struct {
	obj      client.Object
	info     resource.Info
	template *corev1.PodTemplateSpec
	selector *metav1.LabelSelector

	deployment *appsv1.Deployment // its replica sets are its history; nil if it has controller revisions
}

// controlledBy reads an object that has a history; other kinds are an error that says so,
// in which verb is what cannot be done with them.
func controlledBy(verb string, i resource.Info, u *unstructured.Unstructured) (controlled, error) {
	read := func(into client.Object) error {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
			return fmt.Errorf("%s: %w", i, err)
		}
		return nil
	}
	switch i.Mapping.GVK().GroupKind() {
	case client.Deployments.GVK().GroupKind():
		o := &appsv1.Deployment{}
		err := read(o)
		return controlled{obj: o, info: i, template: &o.Spec.Template, selector: o.Spec.Selector, deployment: o}, err
	case client.StatefulSets.GVK().GroupKind():
		o := &appsv1.StatefulSet{}
		err := read(o)
		return controlled{obj: o, info: i, template: &o.Spec.Template, selector: o.Spec.Selector}, err
	case client.DaemonSets.GVK().GroupKind():
		o := &appsv1.DaemonSet{}
		err := read(o)
		return controlled{obj: o, info: i, template: &o.Spec.Template, selector: o.Spec.Selector}, err
	}
	return controlled{}, fmt.Errorf("%s: %s is only supported for a Deployment, StatefulSet or DaemonSet", i, verb)
}

// A revision is a template that an object had, or has.
type revision struct {
	number   int64
	cause    string // of the change; may be empty
	template *corev1.PodTemplateSpec
	record   client.Object // the replica set or controller revision that keeps it
}

// revisions returns the revisions of an object, oldest first.
func (o controlled) revisions(ctx context.Context, s *session.Session) ([]revision, error) {
	selector, err := metav1.LabelSelectorAsSelector(o.selector)
	if err != nil {
		return nil, fmt.Errorf("%s: selector: %w", o.info, err)
	}
	c, err := s.Typed()
	if err != nil {
		return nil, err
	}
	list := metav1.ListOptions{LabelSelector: selector.String()}
	var all []revision
	if o.deployment != nil {
		sets, _, err := client.ReplicaSets.List(ctx, c, o.obj.GetNamespace(), list)
		if err != nil {
			return nil, err
		}
		for _, set := range sets {
			n, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
			if err == nil && metav1.IsControlledBy(set, o.obj) {
				all = append(all, revision{n, set.Annotations[changeCause], noted(&set.Spec.Template, set.Annotations[changeCause]), set})
			}
		}
	} else {
		records, _, err := client.ControllerRevisions.List(ctx, c, o.obj.GetNamespace(), list)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if !metav1.IsControlledBy(r, o.obj) {
				continue
			}
			t, err := recorded(r)
			if err != nil {
				return nil, err
			}
			all = append(all, revision{r.Revision, r.Annotations[changeCause], t, r})
		}
	}
	sorting.Slice(all, func(a, b revision) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

// noted returns a template with the cause of its change in it, as kubectl shows it.
func noted(t *corev1.PodTemplateSpec, cause string) *corev1.PodTemplateSpec {
	if cause == "" {
		return t
	}
	t = t.DeepCopy()
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	t.Annotations[changeCause] = cause
	return t
}

// recorded returns the template that a controller revision keeps: it is a patch of the
// whole object that replaces the template.
func recorded(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	err := json.NewDecoder(bytes.NewReader(r.Data.Raw)).Decode(&data)
	if err == nil && data.Spec.Template == nil {
		err = fmt.Errorf("the object has no spec.template")
	}
	if err != nil {
		return nil, fmt.Errorf("unable to parse history %s: %w", r.Name, err)
	}
	return data.Spec.Template, nil
}

// chosen returns the revision to go back to; 0 is the one before the present.
func (o controlled) chosen(all []revision, to int64) (revision, error) {
	for _, v := range all {
		if v.number == to {
			return v, nil
		}
	}
	switch {
	case to != 0:
		return revision{}, fmt.Errorf("unable to find specified revision %d in history", to)
	case len(all) >= 2:
		return all[len(all)-2], nil
	case o.deployment != nil:
		return revision{}, fmt.Errorf("no rollout history found for deployment %q", o.obj.GetName())
	}
	return revision{}, fmt.Errorf("no last revision to roll back to")
}

// matches reports whether the object has the template of a revision.
func (o controlled) matches(v revision) bool {
	if set, is := v.record.(*appsv1.ReplicaSet); is {
		return apiequality.Semantic.DeepEqual(unhashed(&set.Spec.Template), unhashed(o.template))
	}
	return apiequality.Semantic.DeepEqual(v.template, o.template)
}

// unhashed returns a template without the label that its controller gave it.
func unhashed(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	t = t.DeepCopy()
	delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return t
}

// goBack replaces the object's template with that of a revision, and removes fields that
// only the present one has. It changes nothing if the object was recreated.
func (o controlled) goBack(ctx context.Context, s *session.Session, v revision, dry session.DryRun) error {
	template := v.template
	patch := []map[string]any{{"op": "test", "path": "/metadata/uid", "value": o.obj.GetUID()}}
	if set, is := v.record.(*appsv1.ReplicaSet); is {
		template = unhashed(&set.Spec.Template)
		annotations := maps.Clone(o.obj.GetAnnotations())
		delete(annotations, changeCause)
		if v.cause != "" {
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[changeCause] = v.cause
		}
		if annotations != nil {
			patch = append(patch, map[string]any{"op": "add", "path": "/metadata/annotations", "value": annotations})
		}
	}
	patch = append(patch, map[string]any{"op": "replace", "path": "/spec/template", "value": template})
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("%s: %w", o.info, err)
	}
	_, err = s.Patch(ctx, o.info.Mapping.GroupVersionResource, o.info.Namespace, o.info.Name, types.JSONPatchType, text, metav1.PatchOptions{DryRun: dry.Option()}, "")
	return err
}

// shown returns the printed form of a revision with -o: the replica set, or the object as
// it was.
func (o controlled) shown(v revision, u *unstructured.Unstructured) (resource.Mapping, *unstructured.Unstructured, error) {
	if set, is := v.record.(*appsv1.ReplicaSet); is {
		m := resource.MappingOf(client.ReplicaSets)
		set = set.DeepCopy()
		set.SetGroupVersionKind(client.ReplicaSets.GVK())
		was, err := resource.Unstructured(set)
		return m, was, err
	}
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v.template)
	if err != nil {
		return o.info.Mapping, nil, fmt.Errorf("%s: %w", o.info, err)
	}
	was := u.DeepCopy()
	err = unstructured.SetNestedMap(was.Object, template, "spec", "template")
	return o.info.Mapping, was, err
}
