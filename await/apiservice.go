package await

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/await/events"
)

var apiServiceRules = rulesFor(
	schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	rules[*unstructured.Unstructured]{judge: judgeAPIService},
)

// judgeAPIService judges an APIService. It is ready when the server behind it answers.
func judgeAPIService(d Degree, u *unstructured.Unstructured, _ *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "APIService", Ready)
	}
	if u.GetDeletionTimestamp() != nil {
		return waiting("it is being deleted"), nil
	}
	for _, c := range events.Conditions(u.Object) {
		switch {
		case c.Kind != "Available":
		case c.Status == "True", d == Observed:
			return done(), nil
		default:
			return waiting("%s", c), nil
		}
	}
	return waiting("it has no condition Available yet"), nil
}
