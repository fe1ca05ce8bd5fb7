package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// hashed gives a form of a ConfigMap or a Secret --append-hash: a name that changes with the contents, so that pods that
// name the object are replaced.
func hashed(form Form) Form {
	var on bool
	flags, object := form.Flags, form.Object
	form.Flags = func(f *pflag.FlagSet) {
		flags(f)
		f.BoolVar(&on, "append-hash", false, "append a hash of the contents to the name")
	}
	form.Object = func(name string, command []string) (runtime.Object, error) {
		obj, err := object(name, command)
		if err != nil || !on {
			return obj, err
		}
		var contents map[string]any
		switch o := obj.(type) {
		case *corev1.ConfigMap:
			contents = map[string]any{"kind": o.Kind, "name": o.Name, "data": orEmpty(o.Data)}
			if len(o.BinaryData) > 0 {
				contents["binaryData"] = o.BinaryData
			}
		case *corev1.Secret:
			contents = map[string]any{"kind": o.Kind, "name": o.Name, "type": o.Type, "data": orEmpty(o.Data)}
		}
		text, err := json.Marshal(contents) // with sorted keys
		if err != nil {
			return nil, fmt.Errorf("hashing %s: %w", name, err)
		}
		obj.(metav1.Object).SetName(name + "-" + nameHash(text)) // both kinds have a name
		return obj, nil
	}
	return form
}

// orEmpty returns m, or an empty map if it is nil, which has another encoding.
func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// hashLength is the number of characters of a hash in a name: 40 bits.
const hashLength = 10

// nameHash returns the hash of a text as kubectl and kustomize write it into names: the first hexadecimal digits of its SHA-256, in
// letters that spell no words.
func nameHash(text []byte) string {
	sum := sha256.Sum256(text)
	return strings.NewReplacer("0", "g", "1", "h", "3", "k", "a", "m", "e", "t").Replace(hex.EncodeToString(sum[:])[:hashLength])
}
