package follow

import "strings"

// Newer reports whether resource version a is newer than b. Versions are numbers
// that rise (Kubernetes 1.35 and later say so); what is none is never newer.
func Newer(a, b string) bool {
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
