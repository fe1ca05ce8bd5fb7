package catalog

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The version of Kubernetes that is served.
const (
	major = 1
	minor = 37
)

// Deprecation returns the warning that every request for the kind gets, in the words of Kubernetes, or "" if the kind is not
// deprecated.
func (k *Kind) Deprecation() string { return k.deprecation }

// deprecationOf returns the deprecation warning of a kind, from its Go type.
func deprecationOf(k *Kind) string {
	if k.Deprecated != "" {
		return k.Deprecated
	}
	obj := k.New()
	life, ok := obj.(interface{ APILifecycleDeprecated() (major, minor int) })
	if !ok {
		return ""
	}
	x, y := life.APILifecycleDeprecated()
	if x == 0 && y == 0 || x > major || x == major && y > minor {
		return ""
	}
	text := fmt.Sprintf("%s %s is deprecated in v%d.%d+", k.GroupVersion(), k.Kind, x, y)
	if removed, ok := obj.(interface{ APILifecycleRemoved() (major, minor int) }); ok {
		x, y := removed.APILifecycleRemoved()
		text += fmt.Sprintf(", unavailable in v%d.%d+", x, y)
	}
	if by, ok := obj.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		gvk := by.APILifecycleReplacement()
		text += fmt.Sprintf("; use %s %s", gvk.GroupVersion(), gvk.Kind)
	}
	return text
}
