package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/core"
)

// readPod decodes the manifest of a static pod, in YAML or JSON. It is checked as the API server checks a new pod: a manifest that the
// node accepts has a mirror pod that the API server accepts.
func readPod(data []byte, complete func(*corev1.Pod) error) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	var object any
	if err := yaml.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	if err := codec.CheckQuantities(object, pod); err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		return nil, err
	}
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		return nil, fmt.Errorf("must be a Pod of v1, got %q of %q", pod.Kind, pod.APIVersion)
	}
	if err := complete(pod); err != nil {
		return nil, err
	}
	kinds := core.Kinds()
	kind := kinds[slices.IndexFunc(kinds, func(k *catalog.Kind) bool { return k.Kind == "Pod" })]
	kind.Default(pod)
	kind.Prepare(pod, nil)
	errs := append(catalog.ValidateMeta(kind, pod, nil), kind.Validate(pod, nil)...)
	if len(errs) > 0 {
		return nil, fmt.Errorf("invalid pod: %w", errs.ToAggregate())
	}
	return pod, nil
}
