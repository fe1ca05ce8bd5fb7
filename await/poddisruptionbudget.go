package await

import (
	policyv1 "k8s.io/api/policy/v1"

	"github.com/sampan-io/sampan/await/events"
)

var disruptionBudgetRules = rulesFor(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), rules[*policyv1.PodDisruptionBudget]{
	judge: judgeDisruptionBudget,
})

// judgeDisruptionBudget judges a PodDisruptionBudget. It is ready when at least the desired number of pods is healthy.
func judgeDisruptionBudget(d Degree, b *policyv1.PodDisruptionBudget, _ *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "PodDisruptionBudget", Ready)
	}
	switch {
	case b.DeletionTimestamp != nil:
		return waiting("it is being deleted"), nil
	case b.Status.ObservedGeneration < b.Generation:
		return waiting(unseen), nil
	case d == Observed:
		return done(), nil
	}
	for _, c := range b.Status.Conditions {
		if c.Type == policyv1.DisruptionAllowedCondition && c.Reason == policyv1.SyncFailedReason {
			return failed(Likely, "%s", events.Reason(c.Reason, c.Message)), nil
		}
	}
	if b.Status.CurrentHealthy < b.Status.DesiredHealthy {
		return waiting("%d/%d pods healthy", b.Status.CurrentHealthy, b.Status.DesiredHealthy), nil
	}
	return done(), nil
}
