package sets

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
)

// revisionLabel is the label of pods and ControllerRevisions with the hash of their template.
const revisionLabel = appsv1.ControllerRevisionHashLabelKey

// recordedHash is the label by which a ControllerRevision of a StatefulSet is known.
const recordedHash = "controller.kubernetes.io/hash"

// A recorded object keeps the history of its template in ControllerRevisions.
type recorded struct {
	dependents.Owner
	template   *corev1.PodTemplateSpec
	limit      *int32
	collisions *int32
	hashLabel  string
}

// A history carries out the plan for ControllerRevisions.
type history struct {
	dependents.Claims[*appsv1.ControllerRevision]
	matches *matches
}

// revisionData returns the template as kubectl applies it to go back to it: a patch of
// the whole object.
func revisionData(t *corev1.PodTemplateSpec) ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode the pod template: %w", err)
	}
	var template map[string]any
	if err := json.Unmarshal(text, &template); err != nil {
		return nil, fmt.Errorf("encode the pod template: %w", err)
	}
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// templateOf returns the template that a revision records.
func templateOf(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(bytes.NewReader(r.Data.Raw)).Decode(&data); err != nil {
		return nil, fmt.Errorf("controller revision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &data.Spec.Template, nil
}

// newRevision returns the record of the present template of o.
func newRevision(o recorded, number int64) (*appsv1.ControllerRevision, error) {
	data, err := revisionData(o.template)
	if err != nil {
		return nil, err
	}
	hash, err := dependents.TemplateHash(o.template, o.collisions)
	if err != nil {
		return nil, err
	}
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       o.GetNamespace(),
			Name:            o.GetName() + "-" + hash,
			Labels:          dependents.With(o.template.Labels, o.hashLabel, hash),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{dependents.Reference(o.Object)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}, nil
}

// A record is where the present template of an object stands in its history.
type record struct {
	all     []*appsv1.ControllerRevision // in order of their numbers
	present *appsv1.ControllerRevision   // nil if it is not recorded yet
	number  int64                        // that the present one is to have
}

// planRecord looks the present template of o up. Records says whether a revision has it.
func planRecord(o recorded, revisions []*appsv1.ControllerRevision, records func(recorded, *appsv1.ControllerRevision) bool) (r record) {
	r.all = slices.Clone(revisions)
	slices.SortFunc(r.all, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	r.number = 1
	for _, one := range r.all {
		if records(o, one) {
			r.present = one
		}
		r.number = max(r.number, one.Revision+1)
	}
	if r.present != nil && r.present == r.all[len(r.all)-1] {
		r.number = r.present.Revision
	}
	return r
}

// sync records the present template of o if it is new, or makes it the last one if it
// has become the present one again. Collided is called when another object has the name
// that the record is to have.
func (h *history) sync(ctx context.Context, o recorded, collided func() error) (record, error) {
	mine, err := h.Claim(ctx, o.Owner, "")
	if err != nil {
		return record{}, err
	}
	r := planRecord(o, mine, h.matches.of)
	switch {
	case o.GetDeletionTimestamp() != nil, r.present != nil && r.present.Revision == r.number:
		return r, nil
	case r.present != nil:
		err = h.renumber(ctx, r.present, r.number)
	default:
		err = h.add(ctx, o, r.number, collided)
	}
	if err != nil {
		return r, err
	}
	r = planRecord(o, h.Mine(o.Owner), h.matches.of)
	if r.present == nil {
		return r, controller.Again("the cache does not have the present revision")
	}
	return r, nil
}

func (h *history) renumber(ctx context.Context, r *appsv1.ControllerRevision, number int64) error {
	changed := r.DeepCopy()
	changed.Revision = number
	now, err := h.Resource.Update(ctx, h.Client, changed, "")
	if err != nil {
		return fmt.Errorf("update controller revision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return h.Cache.Await(ctx, now.ResourceVersion)
}

func (h *history) add(ctx context.Context, o recorded, number int64, collided func() error) error {
	r, err := newRevision(o, number)
	if err != nil {
		return err
	}
	now, err := h.Resource.Create(ctx, h.Client, r)
	switch {
	case apierrors.IsAlreadyExists(err):
		there, err := h.Resource.Get(ctx, h.Client, r.Namespace, r.Name)
		if err != nil {
			return fmt.Errorf("get controller revision %s/%s, which exists: %w", r.Namespace, r.Name, err)
		}
		if t, err := templateOf(there); err == nil && metav1.IsControlledBy(there, o.Object) && equality.Semantic.DeepEqual(t, o.template) {
			return h.Cache.Await(ctx, there.ResourceVersion)
		}
		if err := collided(); err != nil {
			return err
		}
		return controller.Again(fmt.Sprintf("hash collision: controller revision %s has another template", r.Name))
	case err != nil:
		return fmt.Errorf("create controller revision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return h.Cache.Await(ctx, now.ResourceVersion)
}

// forget removes the oldest revisions beyond the limit that no pod has and that are not
// in use.
func (h *history) forget(ctx context.Context, o recorded, r record, inUse func(*appsv1.ControllerRevision) bool) error {
	for _, old := range surplus(o, r, inUse) {
		if _, err := h.Delete(ctx, old, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// surplus returns the revisions that the history has no room for. With a negative limit it keeps all.
func surplus(o recorded, r record, inUse func(*appsv1.ControllerRevision) bool) []*appsv1.ControllerRevision {
	if o.limit == nil || *o.limit < 0 || o.GetDeletionTimestamp() != nil {
		return nil
	}
	old := slices.DeleteFunc(slices.Clone(r.all), func(one *appsv1.ControllerRevision) bool { return one == r.present || inUse(one) })
	return old[:max(0, len(old)-int(*o.limit))]
}
