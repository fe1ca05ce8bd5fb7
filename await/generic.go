package await

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

// judgeGeneric judges a kind without a file by the API conventions: status.observedGeneration, and the conditions Ready,
// Available, Complete, Completed, Succeeded, Failed, Stalled and Reconciling, in any order. It ignores a condition that was
// observed at an older generation. An object without any of these is ready when it exists.
func judgeGeneric(d Degree, obj client.Object, v *view) (Verdict, error) {
	object, err := fields(obj)
	if err != nil {
		return Verdict{}, err
	}
	if obj.GetDeletionTimestamp() != nil {
		return waiting("it is being deleted"), nil
	}
	if observed, found := events.ObservedGeneration(object); found && observed < obj.GetGeneration() {
		return waiting(unseen), nil
	}
	if d == Observed {
		return done(), nil
	}
	conditions := events.Conditions(object)
	stale := func(c events.Condition) bool { return c.Observed > 0 && c.Observed < obj.GetGeneration() }
	if verdict, ends := troubleOf(slices.DeleteFunc(slices.Clone(conditions), stale)); ends {
		return verdict, nil
	}
	verdict, said := done(), false
	for _, c := range answering(d, conditions) {
		switch {
		case stale(c):
			verdict = waiting(unseen)
		case !isTrue(c):
			verdict = waiting("%s", c)
		}
		said = true
	}
	_, custom := obj.(*unstructured.Unstructured)
	switch {
	case said && verdict.State != Done:
		return verdict.because(v.warning()), nil
	case said, plain(d):
		return done(), nil
	case custom && len(conditions) == 0 && d.isOneOf(Finished, Complete):
		return waiting("it has no conditions yet").because(v.warning()), nil
	}
	return Verdict{}, &MisuseError{d, strings.ToLower(kindOf(obj)), "it has no condition that says so; use ready, condition=NAME or jsonpath=PATH"}
}

// troubleOf returns the verdict of conditions that say that an object does not become ready, whatever the others say, and false
// if there is none. Of work that runs once, Succeeded=False is the end; until then it is Unknown.
func troubleOf(conditions []events.Condition) (Verdict, bool) {
	find := func(kind, status string) int {
		return slices.IndexFunc(conditions, func(c events.Condition) bool { return c.Kind == kind && strings.EqualFold(c.Status, status) })
	}
	if i := find("Failed", "True"); i >= 0 {
		return failed(Certain, "%s", conditions[i]), true
	}
	for _, c := range []struct{ kind, status string }{{"Stalled", "True"}, {"Succeeded", "False"}} {
		if i := find(c.kind, c.status); i >= 0 {
			return failed(Likely, "%s", conditions[i]), true
		}
	}
	if i := find("Reconciling", "True"); i >= 0 {
		return waiting("%s", conditions[i]), true
	}
	return Verdict{}, false
}

// answering returns the conditions that say whether an object has reached a degree. Available counts without Ready alone: an
// object may be ready and offer something that is not available.
func answering(d Degree, conditions []events.Condition) (found []events.Condition) {
	of := func(kinds ...string) (found []events.Condition) {
		for _, c := range conditions {
			if slices.Contains(kinds, c.Kind) {
				found = append(found, c)
			}
		}
		return found
	}
	switch {
	case d.isOneOf(Finished, Complete):
		return of("Complete", "Completed", "Succeeded")
	case plain(d) || d == Running:
		if found = of("Ready"); len(found) == 0 {
			found = of("Available")
		}
	}
	return found
}

func isTrue(c events.Condition) bool { return strings.EqualFold(c.Status, "True") }

func kindOf(obj client.Object) string {
	if k := client.KindOf(obj).Kind; k != "" {
		return k
	}
	name := fmt.Sprintf("%T", obj)
	return name[strings.LastIndex(name, ".")+1:]
}
