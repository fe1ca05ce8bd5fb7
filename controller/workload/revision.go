package workload

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/controller/dependents"
)

// Annotations of Deployments and their ReplicaSets, as kubectl knows them.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history" // revisions that a set had before
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
	appliedAnnotation  = corev1.LastAppliedConfigAnnotation
)

// longestHistory bounds historyAnnotation, in characters.
const longestHistory = 2000

// hashLabel is the label of ReplicaSets and pods with the hash of their template.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// notCopied are the annotations that a Deployment does not share with its ReplicaSets.
func notCopied(key string) bool {
	switch key {
	case appliedAnnotation, revisionAnnotation, historyAnnotation, desiredAnnotation, maxAnnotation,
		appsv1.DeprecatedRollbackTo, lastGoodAnnotation, rolledBackAnnotation, failedAnnotation, completedAnnotation:
		return true
	}
	return false
}

// bareTemplate returns the template of a set without the label that made it one of
// many.
func bareTemplate(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	bare := t.DeepCopy()
	delete(bare.Labels, hashLabel)
	return bare
}

func sameTemplate(set *appsv1.ReplicaSet, t *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(bareTemplate(&set.Spec.Template), bareTemplate(t))
}

// hashOf returns the hash by which a set is known.
func hashOf(set *appsv1.ReplicaSet) string { return set.Labels[hashLabel] }

// revisionOf returns the number of a rollout; 0 means that there is none.
func revisionOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// newSet returns the ReplicaSet of the present template of d, of size 0.
func newSet(d *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	hash, err := dependents.TemplateHash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, err
	}
	template := d.Spec.Template.DeepCopy()
	template.Labels = dependents.With(template.Labels, hashLabel, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = dependents.With(selector.MatchLabels, hashLabel, hash)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       d.Namespace,
			Name:            d.Name + "-" + hash,
			Labels:          maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{dependents.Reference(d)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32(0)),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        *template,
		},
	}, nil
}

// annotateSet returns the annotations that the set of the present template is to have:
// those of d, and a revision that is above all others.
func annotateSet(d *appsv1.Deployment, set *appsv1.ReplicaSet, others []*part) map[string]string {
	annotations := maps.Clone(set.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range d.Annotations {
		if !notCopied(key) {
			annotations[key] = value
		}
	}
	revision := int64(1)
	for _, other := range others {
		revision = max(revision, revisionOf(other.set.Annotations)+1)
	}
	before := revisionOf(annotations)
	if before >= revision {
		return annotations
	}
	if before > 0 {
		annotations[historyAnnotation] = appendHistory(annotations[historyAnnotation], before)
	}
	annotations[revisionAnnotation] = strconv.FormatInt(revision, 10)
	return annotations
}

// appendHistory adds a revision to a list, at the cost of the oldest.
func appendHistory(list string, revision int64) string {
	all := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	all = append(all, strconv.FormatInt(revision, 10))
	for len(strings.Join(all, ",")) > longestHistory {
		all = all[1:]
	}
	return strings.Join(all, ",")
}

// outdated returns the sets beyond the limit of the history, oldest first. Sets with pods, or that want pods, are left out.
func outdated(d *appsv1.Deployment, old []*part) (remove []*appsv1.ReplicaSet) {
	if d.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	alive := slices.DeleteFunc(slices.Clone(old), func(p *part) bool { return p.set.DeletionTimestamp != nil })
	surplus := len(alive) - int(*d.Spec.RevisionHistoryLimit)
	if surplus <= 0 {
		return nil
	}
	slices.SortStableFunc(alive, func(a, b *part) int {
		return cmp.Compare(revisionOf(a.set.Annotations), revisionOf(b.set.Annotations))
	})
	for _, p := range alive[:surplus] {
		if p.size == 0 && sizeOf(p.set) == 0 && p.set.Status.Replicas == 0 && p.set.Generation <= p.set.Status.ObservedGeneration {
			remove = append(remove, p.set)
		}
	}
	return remove
}
