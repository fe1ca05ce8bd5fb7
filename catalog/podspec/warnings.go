package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/internal/podfeature"
)

// Warnings returns a sentence for each thing that spec, which is valid, asks for and that Sampan's own node agent
// does not do.
func Warnings(spec *corev1.PodSpec, at *field.Path) []string {
	var sentences []string
	for _, f := range podfeature.Check(spec, at) {
		sentences = append(sentences, f.Warning())
	}
	return sentences
}
