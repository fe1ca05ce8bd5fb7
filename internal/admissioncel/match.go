package admissioncel

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Conditions are compiled match conditions, in their order. They are immutable.
type Conditions []Condition

// A Condition is a compiled match condition.
type Condition struct {
	Name    string
	Program Program
}

// Conditions compiles match conditions. A condition that cannot be compiled fails when it is evaluated.
func (c *Compiler) Conditions(conditions []admissionregistrationv1.MatchCondition, d Declarations) Conditions {
	list := make(Conditions, len(conditions))
	for i := range conditions {
		list[i] = Condition{conditions[i].Name, c.Compile(conditions[i].Expression, d, cel.BoolType)}
	}
	return list
}

// A Verdict is what conditions say of a request.
type Verdict struct {
	Holds  bool   // all of them are true
	Failed string // the name of the first one that is false
	Faults int    // how many failed before that one
}

// Match reports whether all conditions hold. A condition that is false decides, even if others fail. Otherwise the errors of all
// that fail are one error, and the failure policy of the webhook or policy decides: with Ignore it is as if a condition were
// false.
func (list Conditions) Match(e *Evaluation) (v Verdict, err error) {
	results := make([]Result, len(list))
	for i := range list {
		if results[i], err = e.Run(&list[i].Program); err != nil {
			return Verdict{}, err // the budget is spent
		}
	}
	var errs []error
	for i, r := range results {
		if r.Err != nil {
			errs = append(errs, r.Err)
		} else if r.Value == types.False {
			return Verdict{Failed: list[i].Name, Faults: len(errs)}, nil
		}
	}
	if len(errs) > 0 {
		return Verdict{Faults: len(errs)}, utilerrors.NewAggregate(errs)
	}
	return Verdict{Holds: true}, nil
}
