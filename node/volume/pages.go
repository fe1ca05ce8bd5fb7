package volume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/internal/quantity"
)

// PageSize returns the size, in bytes, of the huge pages of an empty directory with this medium: "HugePages" for the only
// size that the pod requests, or "HugePages-SIZE". The pod must request pages of this size. Errors are in kubelet's words.
func PageSize(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	var want resource.Quantity
	if text, named := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); named {
		var err error
		if want, err = quantity.Parse(text); err != nil {
			return 0, fmt.Errorf("medium %s: %w", medium, err)
		}
	}
	lists := []corev1.ResourceList{}
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Requests)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			lists = append(lists, containers[i].Resources.Requests)
		}
	}
	var found int64
	for _, list := range lists {
		for name := range list {
			text, huge := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
			if !huge {
				continue
			}
			size, err := quantity.Parse(text)
			if err != nil {
				return 0, fmt.Errorf("resource %s: %w", name, err)
			}
			switch {
			case !want.IsZero() && size.Cmp(want) != 0:
			case found != 0 && found != size.Value():
				return 0, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
			default:
				found = size.Value()
			}
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("medium %s: hugePages storage requested, but there is "+"no resource request for huge pages" /* upstream's words */, medium)
	}
	return found, nil
}
