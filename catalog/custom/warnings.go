package custom

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/catalog"
)

// warn warns of finalizers that obj has and old, unless it is nil, had not, and that other controllers may use as well.
func warn(obj, old catalog.Object) (warnings []string) {
	added := sets.New(obj.GetFinalizers()...)
	if old != nil {
		added.Delete(old.GetFinalizers()...)
	}
	for _, name := range sets.List(added) {
		about := fmt.Sprintf("metadata.finalizers: %q: ", name)
		for _, fault := range validation.IsQualifiedName(name) {
			warnings = append(warnings, about+fault)
		}
		standard := name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents || name == string(corev1.FinalizerKubernetes)
		if strings.Contains(name, "/") || standard {
			continue
		}
		path := ""
		if strings.Contains(name, ".") {
			path = " including a path (/)"
		}
		warnings = append(warnings, about+"prefer a domain-qualified finalizer name"+path+" to avoid accidental conflicts with other finalizer writers")
	}
	return warnings
}

// deprecation returns the warning of a version, or "" if it is not deprecated.
func deprecation(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if !v.Deprecated {
		return ""
	}
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	better := ""
	for _, other := range crd.Spec.Versions {
		if other.Served && !other.Deprecated && apiversion.CompareKubeAwareVersionStrings(other.Name, v.Name) > 0 &&
			(better == "" || apiversion.CompareKubeAwareVersionStrings(other.Name, better) > 0) {
			better = other.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
	if better != "" {
		text += fmt.Sprintf("; use %s/%s %s", crd.Spec.Group, better, crd.Spec.Names.Kind)
	}
	return text
}
