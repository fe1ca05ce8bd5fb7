package await

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// judgeDefinition: ready means established, which is when objects of the kind can be
// made. Names that another definition has taken are a certain failure.
func judgeDefinition(d Degree, u *unstructured.Unstructured) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "CustomResourceDefinition", Ready)
	}
	if u.GetDeletionTimestamp() != nil {
		return waiting("it is being deleted"), nil
	}
	verdict := waiting("it is not established yet")
	for _, c := range conditions(u.Object) {
		switch {
		case c.kind == "NamesAccepted" && c.status == "False":
			return failed(Certain, "%s", c), nil
		case c.kind == "Terminating" && c.status == "True":
			return failed(Certain, "%s", c), nil
		case c.kind == "Established" && c.status == "True":
			verdict = done()
		case c.kind == "Established":
			verdict = waiting("%s", c)
		case d == Observed:
			verdict = done()
		}
	}
	return verdict, nil
}
