package admissionregistration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// TestSelectorsAreDescribedAsByTheirString compares with the method String, which other columns of upstream are made of.
func TestSelectorsAreDescribedAsByTheirString(t *testing.T) {
	word := rapid.StringMatching(`[a-z./ ]{0,5}`)
	rapid.Check(t, func(t *rapid.T) {
		s := &metav1.LabelSelector{MatchLabels: rapid.MapOf(word, word).Draw(t, "labels")}
		for range rapid.IntRange(0, 3).Draw(t, "expressions") {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: word.Draw(t, "key"), Operator: metav1.LabelSelectorOperator(word.Draw(t, "operator")), Values: rapid.SliceOfN(word, 0, 3).Draw(t, "values"),
			})
		}
		if got, want := describeSelector(s), s.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
