package await

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/await/events"
)

var definitionRules = rulesFor(
	schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	rules[*unstructured.Unstructured]{judge: judgeDefinition},
)

// judgeDefinition judges a CustomResourceDefinition. It is ready when it is established, so that objects of the kind can
// be created. Names that another definition uses are a certain failure.
func judgeDefinition(d Degree, u *unstructured.Unstructured, _ *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "CustomResourceDefinition", Ready)
	}
	if u.GetDeletionTimestamp() != nil {
		return waiting("it is being deleted"), nil
	}
	verdict := waiting("it is not established yet")
	for _, c := range events.Conditions(u.Object) {
		switch {
		case c.Kind == "NamesAccepted" && c.Status == "False":
			return failed(Certain, "%s", c), nil
		case c.Kind == "Terminating" && c.Status == "True":
			return failed(Certain, "%s", c), nil
		case c.Kind == "Established" && c.Status == "True":
			verdict = done()
		case c.Kind == "Established":
			verdict = waiting("%s", c)
		case d == Observed:
			verdict = done()
		}
	}
	return verdict, nil
}
