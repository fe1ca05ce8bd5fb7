package await

import "strings"

// newer reports whether resource version a is newer than b. Resource versions are increasing numbers (guaranteed since
// Kubernetes 1.35). It returns false if either is not a number.
func newer(a, b string) bool {
	number := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !number(a) || !number(b) {
		return false
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}
