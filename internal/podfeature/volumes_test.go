package podfeature

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestVolumeTypesAreKnownOrRejected checks that each type of volume of the API is either in the list of the types
// that a node has, or has a rule that rejects it.
func TestVolumeTypesAreKnownOrRejected(t *testing.T) {
	known := strings.FieldsFunc(strings.TrimPrefix(KnownVolumes, "volumes are "), func(r rune) bool { return r == ',' || r == ' ' })
	for field := range reflect.TypeFor[corev1.VolumeSource]().Fields() {
		v := corev1.Volume{}
		reflect.ValueOf(&v.VolumeSource).Elem().FieldByIndex(field.Index).Set(reflect.New(field.Type.Elem()))
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		rejects := slices.ContainsFunc(volumeRules, func(r rule[corev1.Volume]) bool {
			_, asked := r.asked(&v)
			return asked && r.effect == Rejected && r.field == name
		})
		if listed := slices.Contains(known, name); listed == rejects {
			t.Errorf("%s: in the list of known volumes: %t, rejected: %t", name, listed, rejects)
		}
	}
}
