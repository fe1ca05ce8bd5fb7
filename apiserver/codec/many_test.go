package codec_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/codec"
)

// A body of 3 MB with a million containers would take gigabytes.
func TestDocumentsWithManyObjectsAreRefused(t *testing.T) {
	const words = "the document has more than 100000 objects and lists"
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	for _, containers := range []int{99_000, 1_000_000} {
		text := `{"metadata":{"annotations":{"a":"` + strings.Repeat("{", 200_000) + `"}},"spec":{"containers":[` + strings.Repeat("{},", containers-1) + `{}]}}`
		_, asJSON := codec.Decode(t.Context(), codec.JSON, []byte(text), &corev1.Pod{}, kind, codec.Ignore)
		_, asYAML := codec.Decode(t.Context(), codec.YAML, []byte(text), &corev1.Pod{}, kind, codec.Ignore)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, containers/20)}}
		raw, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		// Texts that are empty count, too.
		_, asProtobuf := codec.Decode(t.Context(), codec.Protobuf, append([]byte("k8s\x00"), envelope...), &corev1.Pod{}, kind, codec.Ignore)
		for encoding, err := range map[string]error{"JSON": asJSON, "YAML": asYAML, "protobuf": asProtobuf} {
			if many := containers > 100_000; many != (err != nil && strings.Contains(err.Error(), words)) || !many && err != nil {
				t.Errorf("%d containers in %s: %.200v", containers, encoding, err)
			}
		}
	}
}
