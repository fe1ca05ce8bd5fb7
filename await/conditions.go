package await

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

// mistaken reports whether a condition of one of Kubernetes' own kinds is a mistake, so that a wait for it would only time out.
// Other controllers may write any condition: a kind with conditions can have more than Kubernetes writes.
// A mistake is a condition that a kind does not have and other kinds do, or a name that is much like one of its own.
func mistaken(obj client.Object, known []string, condition string) bool {
	if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, condition) }) {
		return false
	}
	return len(known) == 0 && !events.HasConditions(obj) || events.Common(condition) || slices.ContainsFunc(known, func(k string) bool { return nearly(k, condition) })
}

// nearly reports whether two names differ in case and at most two letters.
func nearly(a, b string) bool {
	const most = 2
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return false
	}
	row := make([]int, len(b)+1) // of the Levenshtein distance
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := last
			if a[i] != b[j] {
				change++
			}
			last = row[j+1]
			row[j+1] = min(change, last+1, row[j]+1)
		}
	}
	return row[len(b)] <= most
}

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
	if known, closed := events.KnownConditions(obj); closed && !added && mistaken(obj, known, d.condition) {
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
