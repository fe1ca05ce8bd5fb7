package footprint_test

import (
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/footprint"
)

func TestOf(t *testing.T) {
	type recursive struct {
		Next *recursive
		Name string
	}
	for _, tt := range []struct {
		name string
		v    any
		want int
	}{
		{"nothing", nil, 0},
		{"number", int64(1), 8},
		{"string", "abc", 16 + 3},
		{"pointer", new(int32), 8 + 4},
		{"slice with spare elements", make([]int64, 1, 10), 24 + 80},
		{"strings", []string{"a", "bc"}, 24 + 32 + 3},
		{"empty structs of a list", make([]corev1.Toleration, 3), 24 + 3*72},
		{"type within itself", &recursive{Next: &recursive{Name: "xy"}}, 8 + 24 + 24 + 2},
		{"interface", []any{"abc", int32(1), nil}, 24 + 48 + 16 + 3 + 4},
		{"time", metav1.Now(), 24},
	} {
		if got := footprint.Of(tt.v); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, tt.want)
		}
	}
	schema := &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: strings.Repeat("x", 1000)}}}
	if got := footprint.Of(schema); got < 2000 {
		t.Errorf("a schema in a schema: %d bytes", got)
	}
}

// TestOfBoundsWhatTheHeapHolds compares the result with the heap, for objects whose memory is far more than their encoding.
func TestOfBoundsWhatTheHeapHolds(t *testing.T) {
	const n = 200_000
	for name, build := range map[string]func() any{
		"tolerations": func() any { return &corev1.PodSpec{Tolerations: make([]corev1.Toleration, n)} },
		"variables": func() any {
			var p corev1.PodSpec
			p.Containers = []corev1.Container{{}}
			for range n {
				p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: strings.Repeat("x", 8), ValueFrom: &corev1.EnvVarSource{}})
			}
			return &p
		},
		"keys of a map": func() any {
			m := map[string]string{}
			for range n {
				m[strings.Repeat("x", 20+len(m)%7)+string(rune(len(m)))+string(rune(len(m)/1000))] = ""
			}
			return &corev1.ConfigMap{Data: m}
		},
	} {
		before := heap()
		v := build()
		held := heap() - before
		got := int64(footprint.Of(v))
		// With the race detector, small values do not share a block of the heap.
		if got < held*4/5 || got > held*5/2 {
			t.Errorf("%s: %d bytes, the heap holds %d", name, got, held)
		}
		runtime.KeepAlive(v)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
