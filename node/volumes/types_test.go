package volumes

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podfeature"
	"github.com/sampan-io/sampan/node/metrics"
)

// TestKnownVolumesAreMade checks that each type of volume that the node has is made in one way, and has the name of a
// plug-in for metrics, which that of a claim gets from its volume.
func TestKnownVolumesAreMade(t *testing.T) {
	for field := range reflect.TypeFor[corev1.VolumeSource]().Fields() {
		v := &corev1.Volume{}
		reflect.ValueOf(&v.VolumeSource).Elem().FieldByIndex(field.Index).Set(reflect.New(field.Type.Elem()))
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		want, ways := 0, 0
		if strings.Contains(podfeature.KnownVolumes+",", " "+name+",") || strings.HasSuffix(podfeature.KnownVolumes, " "+name) ||
			strings.Contains(podfeature.KnownVolumes, " "+name+" or ") {
			want = 1
		}
		for _, made := range []bool{v.Image != nil, v.EmptyDir != nil, isWritten(v), isHosted(v)} {
			if made {
				ways++
			}
		}
		if ways != want {
			t.Errorf("%s: made in %d ways, want %d", name, ways, want)
		}
		claim := v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		if named := new(metrics.Volumes).Plugin("uid", v) != metrics.NoPlugin; named != (want == 1 && !claim) {
			t.Errorf("%s: has a plug-in for metrics: %t", name, named)
		}
	}
}
