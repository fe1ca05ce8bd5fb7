package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/core"
	"github.com/sampan-io/sampan/internal/document"
)

// readPod decodes the manifest of a static pod, in YAML or JSON. It is checked as the API server checks a new pod: a manifest that the
// node accepts has a mirror pod that the API server accepts. As upstream, it reads the first document of a file; ignored says that
// there are more, or is empty. Errors have the name of the file and the lines of the fields.
func readPod(file string, data []byte, complete func(*corev1.Pod) error) (pod *corev1.Pod, ignored string, err error) {
	d, ignored, err := document.ParseFirst(file, data)
	if err != nil {
		return nil, "", err
	}
	var object any
	if err := d.Decode(&object); err != nil {
		return nil, "", err
	}
	if err := codec.CheckQuantities(object, &corev1.Pod{}); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	var kindOf metav1.TypeMeta
	if _, err := d.DecodeKnown(&kindOf); err != nil {
		return nil, "", err
	}
	if err := d.Faults(checkType(kindOf)); err != nil {
		return nil, "", err
	}
	pod = &corev1.Pod{}
	if err := d.Decode(pod); err != nil {
		return nil, "", err
	}
	if err := complete(pod); err != nil {
		if fault, ok := errors.AsType[*field.Error](err); ok {
			err = d.Faults(field.ErrorList{fault})
		}
		return nil, "", err
	}
	kinds := core.Kinds()
	kind := kinds[slices.IndexFunc(kinds, func(k *catalog.Kind) bool { return k.Kind == "Pod" })]
	kind.Default(pod)
	kind.Prepare(pod, nil)
	ctx := context.Background() //nolint:forbidigo // the rules of pods do not wait
	if err := d.Faults(append(catalog.ValidateMeta(kind, pod, nil), kind.Validate(ctx, pod, nil)...)); err != nil {
		return nil, "", err
	}
	return pod, ignored, nil
}

// checkType checks the kind of a manifest.
func checkType(t metav1.TypeMeta) (errs field.ErrorList) {
	for _, c := range []struct{ name, value, want string }{{"apiVersion", t.APIVersion, "v1"}, {"kind", t.Kind, "Pod"}} {
		switch c.value {
		case c.want:
		case "":
			errs = append(errs, field.Required(field.NewPath(c.name), "must be "+c.want))
		default:
			errs = append(errs, field.NotSupported(field.NewPath(c.name), c.value, []string{c.want}))
		}
	}
	return errs
}
