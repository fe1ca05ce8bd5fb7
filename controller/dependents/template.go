package dependents

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/sampan-io/sampan/client"
)

// PodFrom returns a new pod of an owner after a template. It shares nothing with the
// template, and its name is left to the API server.
func PodFrom(owner client.Object, template *corev1.PodTemplateSpec) *corev1.Pod {
	t := template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    owner.GetName() + "-",
			Labels:          t.Labels,
			Annotations:     t.Annotations,
			Finalizers:      t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{Reference(owner)},
		},
		Spec: t.Spec,
	}
}

// TemplateHash returns a short name for a template. A collision count above 0 gives
// another one.
func TemplateHash(t *corev1.PodTemplateSpec, collisions *int32) (string, error) {
	h := fnv.New32a()
	text, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("hash of a pod template: %w", err)
	}
	_, _ = h.Write(text) // a hash takes everything
	if collisions != nil {
		_, _ = fmt.Fprint(h, *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10)), nil
}

// NextCollision returns the count of collisions after one more.
func NextCollision(count *int32) *int32 {
	if count == nil {
		return new(int32(1))
	}
	return new(*count + 1)
}

// With returns a copy of labels or annotations in which key has the value.
func With(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// Size returns how many replicas a field asks for: 1 if it says nothing.
func Size(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}
