package quantity_test

import (
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/quantity"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"100m": "", "1Ei": "", "2E": "", "1e3": "", "1E-0009": "", "1e999": "",
		"1e-10000000": "exponent", "1E+30000000": "exponent", "1e1000": "exponent",
		strings.Repeat("1", 1000): "at most 999 characters", "fast": "quantities must match", "": "quantities must match",
	} {
		_, err := quantity.Parse(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}
