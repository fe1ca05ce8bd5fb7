// Package quantity parses quantities in text of any origin.
package quantity

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a quantity as it is written, as for the bodies of requests.
const (
	longest  = 999 // characters
	exponent = 3   // digits
)

// Parse is [resource.ParseQuantity] with an error for text that takes long to parse or to compare: 1e-10000000 takes seconds,
// larger exponents take gigabytes.
func Parse(text string) (resource.Quantity, error) {
	if len(text) > longest {
		return resource.Quantity{}, fmt.Errorf("a quantity must have at most %d characters, got %d", longest, len(text))
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 && len(strings.TrimLeft(text[at+1:], "+-0")) > exponent {
		return resource.Quantity{}, fmt.Errorf("the exponent of a quantity must have at most %d digits, got %q", exponent, text)
	}
	return resource.ParseQuantity(text)
}
