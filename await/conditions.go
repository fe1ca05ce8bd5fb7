package await

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

// judgeCondition judges an object of any kind by one entry of status.conditions.
func judgeCondition(d Degree, obj client.Object, object map[string]any) (Verdict, error) {
	all := events.Conditions(object)
	var have []string
	for _, c := range all {
		have = append(have, c.Kind)
		if !strings.EqualFold(c.Kind, d.condition) {
			continue
		}
		observed, found := events.ObservedGeneration(object)
		if c.Observed > 0 {
			observed, found = c.Observed, true
		}
		switch {
		case found && observed < obj.GetGeneration():
			return waiting(unseen), nil
		case strings.EqualFold(c.Status, d.value):
			return done(), nil
		}
		return waiting("%s", c), nil
	}
	_, isPod := obj.(*corev1.Pod)
	added := isPod && strings.Contains(d.condition, "/")
	if known, closed := events.KnownConditions(obj); closed && !added && !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, d.condition) }) {
		hint := "it has no conditions"
		if len(known) > 0 {
			hint = "its conditions are " + strings.Join(known, ", ")
		}
		return Verdict{}, &MisuseError{d, words(kindOf(obj)), hint + "; or wait for ready"}
	}
	if len(have) > 0 {
		return waiting("it has no condition %s (it has %s)", d.condition, strings.Join(have, ", ")), nil
	}
	return waiting("it has no condition %s", d.condition), nil
}
