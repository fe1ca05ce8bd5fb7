package catalog

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// plainNames reports whether name, namespace, labels and annotations of a new object are
// like those of nearly all objects, which no rule can have anything against. It looks
// at each letter once, where the rules run expressions; false says nothing.
func plainNames(kind *Kind, obj Object) bool {
	if kind.ValidateName != nil || !plainDomain(obj.GetName()) {
		return false
	}
	if prefix := obj.GetGenerateName(); prefix != "" && !plainLabel(strings.TrimSuffix(prefix, "-")) {
		return false
	}
	if namespace := obj.GetNamespace(); kind.Namespaced != (namespace != "") || kind.Namespaced && !plainLabel(namespace) {
		return false
	}
	for key, value := range obj.GetLabels() {
		if !plainKey(key) || value != "" && !plainValue(value) {
			return false
		}
	}
	size := 0
	for key, value := range obj.GetAnnotations() {
		if size += len(key) + len(value); !plainKey(key) {
			return false
		}
	}
	return size <= validation.TotalAnnotationSizeLimitB && obj.GetGeneration() >= 0
}

// checkRest is what there is to be checked beside plain names.
func checkRest(obj Object, at *field.Path) field.ErrorList {
	errs := validation.ValidateOwnerReferences(obj.GetOwnerReferences(), at.Child("ownerReferences"))
	return append(errs, validation.ValidateFinalizers(obj.GetFinalizers(), at.Child("finalizers"))...)
}

// plainLabel reports whether s is a label of DNS (RFC 1123) in lower case.
func plainLabel(s string) bool {
	if s == "" || len(s) > content.DNS1123LabelMaxLength || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// plainDomain reports whether s is such labels with dots between them.
func plainDomain(s string) bool {
	if len(s) > content.DNS1123SubdomainMaxLength {
		return false
	}
	for {
		label, rest, more := strings.Cut(s, ".")
		if !plainLabel(label) || !more {
			return plainLabel(label)
		}
		s = rest
	}
}

// plainKey reports whether s is the key of a label: a value that is not empty, behind a
// domain and a slash or alone.
func plainKey(s string) bool {
	domain, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return plainValue(s)
	}
	return plainDomain(domain) && plainValue(name)
}

// plainValue reports whether s is the value of a label and not empty.
func plainValue(s string) bool {
	if s == "" || len(s) > content.LabelValueMaxLength || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
