package await

import (
	"fmt"
	"strings"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

// judgeGeneric judges a kind without a file by the API conventions: status.observedGeneration, and the conditions Ready,
// Available, Complete, Completed, Succeeded, Failed, Stalled and Reconciling. It ignores a condition that was observed at
// an older generation. An object without any of these is ready when it exists.
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
	verdict, said := done(), false
	for _, c := range events.Conditions(object) {
		stale := c.Observed > 0 && c.Observed < obj.GetGeneration()
		asked := d.isOneOf(Finished, Complete) && (c.Kind == "Complete" || c.Kind == "Completed" || c.Kind == "Succeeded") ||
			(plain(d) || d == Running) && (c.Kind == "Ready" || c.Kind == "Available")
		switch {
		case stale && asked:
			verdict, said = waiting(unseen), true
		case stale:
		case c.Kind == "Failed" && c.Status == "True":
			return failed(Certain, "%s", c), nil
		case c.Kind == "Stalled" && c.Status == "True":
			return failed(Likely, "%s", c), nil
		case c.Kind == "Reconciling" && c.Status == "True":
			return waiting("%s", c), nil
		case asked && c.Status != "True":
			verdict, said = waiting("%s", c), true
		case asked:
			said = true
		}
	}
	switch {
	case said && verdict.State != Done:
		return verdict.because(v.warning()), nil
	case said, plain(d):
		return done(), nil
	}
	return Verdict{}, &MisuseError{d, strings.ToLower(kindOf(obj)), "it has no condition that says so; use ready, condition=NAME or jsonpath=PATH"}
}

func kindOf(obj client.Object) string {
	if k := client.KindOf(obj).Kind; k != "" {
		return k
	}
	name := fmt.Sprintf("%T", obj)
	return name[strings.LastIndex(name, ".")+1:]
}
