package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apicel "k8s.io/apiserver/pkg/cel"

	"github.com/sampan-io/sampan/internal/admissioncel"
)

// validations is the part of a validating policy that other policies lack.
type validations struct {
	checks      []check
	messages    bool // a check has a message expression
	annotations []annotation
}

// A check is a compiled spec.validations item.
type check struct {
	program admissioncel.Program
	message string
	expr    *admissioncel.Program // of the message, or nil
	reason  metav1.StatusReason
}

// An annotation is a compiled spec.auditAnnotations item.
type annotation struct {
	key   string
	value admissioncel.Program
}

func compileValidating(p *admissionregistrationv1.ValidatingAdmissionPolicy) *policy[validations] {
	spec := p.Spec.DeepCopy()
	c := admissioncel.NewPolicyCompiler(admissioncel.Stored)
	d := admissioncel.Declarations{Params: spec.ParamKind != nil, Authorizer: true}
	for _, v := range spec.Variables {
		c.Define(v.Name, v.Expression, d)
	}
	out := &policy[validations]{
		name: p.Name, params: spec.ParamKind,
		ignore:  spec.FailurePolicy != nil && *spec.FailurePolicy == admissionregistrationv1.Ignore,
		matcher: matcherOf(spec.MatchConstraints, false), conditions: c.Conditions(spec.MatchConditions, d),
	}
	for _, v := range spec.Validations {
		one := check{program: c.Compile(v.Expression, d, cel.BoolType), message: strings.TrimSpace(v.Message), reason: metav1.StatusReasonInvalid}
		if v.Reason != nil {
			one.reason = *v.Reason
		}
		if v.MessageExpression != "" {
			one.expr = new(c.Compile(v.MessageExpression, admissioncel.Declarations{Params: d.Params}, cel.StringType))
			out.body.messages = true
		}
		out.body.checks = append(out.body.checks, one)
	}
	for _, a := range spec.AuditAnnotations {
		out.body.annotations = append(out.body.annotations, annotation{a.Key, c.Compile(a.ValueExpression, d, cel.StringType, cel.NullType)})
	}
	out.variables = c.Variables()
	return out
}

// An outcome is the result of a check.
type outcome int

const (
	passed  outcome = iota
	failed          // the expression is false
	faulted         // the expression could not be evaluated, and the failure policy decides
)

// A finding is the outcome of one check.
type finding struct {
	outcome outcome
	denies  bool
	message string
	reason  metav1.StatusReason
	took    time.Duration
}

// A note is the value of an audit annotation.
type note struct {
	key, value string
	err        string // why there is none
	took       time.Duration
}

// evaluate runs a policy for one parameter. The values have no namespace yet, because match conditions do not see it.
func (x *validation) evaluate(ctx context.Context, p *policy[validations], v, withNamespace admissioncel.Values) ([]finding, []note) {
	fault := func(err error) []finding {
		return []finding{{outcome: faulted, denies: !p.ignore, message: err.Error()}}
	}
	if len(p.conditions) > 0 {
		holds, err := x.matches(x.a, p.name, p.conditions, admissioncel.NewEvaluation(ctx, v, p.variables, admissioncel.MatchBudget))
		switch {
		case err != nil && !p.ignore:
			return fault(err), nil
		case err != nil || !holds:
			return nil, nil
		}
	}
	v = withNamespace
	e := admissioncel.NewEvaluation(ctx, v, p.variables, admissioncel.Budget)
	findings := make([]finding, len(p.body.checks))
	allPassed := true
	for i := range p.body.checks {
		r, err := e.Run(&p.body.checks[i].program)
		switch {
		case err != nil:
			return fault(err), nil
		case r.Err != nil:
			findings[i] = finding{outcome: faulted, denies: !p.ignore, message: r.Err.Error(), took: r.Took}
		case r.Value != types.True:
			findings[i] = finding{outcome: failed, denies: true, reason: p.body.checks[i].reason, took: r.Took}
			allPassed = false
		default:
			findings[i] = finding{took: r.Took}
		}
	}
	if !allPassed {
		p.body.explain(ctx, p, v, e.Budget, findings)
	}
	if len(p.body.annotations) == 0 {
		return findings, nil
	}
	notes, err := p.body.notes(ctx, p, v)
	if err != nil {
		return fault(err), nil
	}
	return findings, notes
}

// explain gives the failed checks their messages, out of the rest of the budget.
func (b *validations) explain(ctx context.Context, p *policy[validations], v admissioncel.Values, budget int64, findings []finding) {
	messages, err := b.evaluated(ctx, p, v, budget)
	for i := range findings {
		f, c := &findings[i], &b.checks[i]
		if f.outcome != failed {
			continue
		}
		if errors.Is(err, apicel.ErrInternal) || errors.Is(err, apicel.ErrOutOfBudget) {
			*f = finding{outcome: faulted, denies: !p.ignore, message: fmt.Sprintf("failed messageExpression: %s", err), took: f.took}
			continue
		}
		if i < len(messages) {
			f.message = messages[i]
		}
		if f.message == "" {
			f.message = c.message
		}
		if f.message == "" {
			f.message = "failed expression: " + strings.TrimSpace(c.program.Text)
		}
	}
}

// evaluated returns the results of the message expressions: empty where there is none, or none that can be used.
func (b *validations) evaluated(ctx context.Context, p *policy[validations], v admissioncel.Values, budget int64) ([]string, error) {
	if !b.messages {
		return nil, nil
	}
	e := admissioncel.NewEvaluation(ctx, v.WithoutAuthorizer(), p.variables, budget)
	messages := make([]string, len(b.checks))
	for i := range b.checks {
		if b.checks[i].expr == nil {
			continue
		}
		r, err := e.Run(b.checks[i].expr)
		if err != nil {
			return nil, err
		}
		if r.Err != nil {
			continue
		}
		text, _ := r.Value.Value().(string)
		if text = strings.TrimSpace(text); len(text) <= admissioncel.MaxMessage && !strings.Contains(text, "\n") {
			messages[i] = text
		}
	}
	return messages, nil
}

// notes evaluates the audit annotations.
func (b *validations) notes(ctx context.Context, p *policy[validations], v admissioncel.Values) ([]note, error) {
	e := admissioncel.NewEvaluation(ctx, v.WithoutAuthorizer(), p.variables, admissioncel.Budget)
	var notes []note
	for i := range b.annotations {
		a := &b.annotations[i]
		r, err := e.Run(&a.value)
		switch {
		case err != nil:
			return nil, err
		case r.Err != nil && p.ignore:
		case r.Err != nil:
			notes = append(notes, note{key: a.key, err: r.Err.Error(), took: r.Took})
		case r.Value.Type() == types.StringType:
			if text, _ := r.Value.Value().(string); strings.TrimSpace(text) != "" {
				notes = append(notes, note{key: a.key, value: strings.TrimSpace(text), took: r.Took})
			}
		case r.Value.Type() != types.NullType:
			notes = append(notes, note{key: a.key, took: r.Took, err: fmt.Sprintf(
				"valueExpression '%v' resulted in unsupported return type: %v. Return type must be either string or null.", a.value.Text, r.Value.Type())})
		}
	}
	return notes, nil
}
