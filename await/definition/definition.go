package definition

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Kind is what a definition serves.
type Kind struct {
	Resource   schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Find returns what a definition (apiextensions.k8s.io/v1) serves, if name is one that it
// gives its kind: the plural, the singular, the kind or a short one, without regard to
// case, alone or as NAME.GROUP or NAME.VERSION.GROUP. Group and version of want, where
// they are not empty, must be the definition's. Of several versions it is the one that
// was asked for, or else the one that is stored.
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

// versionOf returns the version that is served and asked for, or, if none is asked for,
// the stored one before any other; empty if there is none.
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
