package definition

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Kind is the resource that a definition serves.
type Kind struct {
	Resource   schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Find returns the resource that a definition (apiextensions.k8s.io/v1) serves, if name is one of the definition's names:
// the plural, the singular, the kind or a short name, in any case, as NAME, NAME.GROUP or NAME.VERSION.GROUP. If want has
// a group or version, it must match. If no version is given, Find returns the storage version, or another served one.
func Find(definition *unstructured.Unstructured, name string, want schema.GroupVersion) (Kind, bool) {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(definition.Object, append([]string{"spec"}, path...)...)
		return s
	}
	group, plural := text("group"), text("names", "plural")
	short, _, _ := unstructured.NestedStringSlice(definition.Object, "spec", "names", "shortNames")

	word, rest, qualified := strings.Cut(strings.ToLower(name), ".")
	known := false
	for _, n := range append(short, plural, text("names", "singular"), text("names", "kind")) {
		known = known || n != "" && strings.ToLower(n) == word
	}
	version := want.Version
	if qualified && rest != group {
		version, rest, _ = strings.Cut(rest, ".")
		known = known && rest == group
	}
	if !known || want.Group != "" && want.Group != group || want.Version != "" && want.Version != version {
		return Kind{}, false
	}
	served := versionOf(definition, version)
	return Kind{
		Resource: schema.GroupVersionResource{Group: group, Version: served, Resource: plural},
		Kind:     text("names", "kind"), Namespaced: text("scope") != "Cluster",
	}, served != ""
}

// versionOf returns the asked version if it is served. If asked is empty, it returns the storage version if that is
// served, otherwise another served version. It returns "" if there is none.
func versionOf(definition *unstructured.Unstructured, asked string) (best string) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, e := range versions {
		v, _ := e.(map[string]any)
		name, _, _ := unstructured.NestedString(v, "name")
		served, _, _ := unstructured.NestedBool(v, "served")
		stored, _, _ := unstructured.NestedBool(v, "storage")
		switch {
		case !served, asked != "" && name != asked:
		case best == "" || stored:
			best = name
		}
	}
	return best
}
