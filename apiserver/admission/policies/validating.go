package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/admission/matching"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Options configures the plug-ins. All fields are required but Metrics.
type Options struct {
	Set        *Set
	Catalog    *catalog.Catalog
	Objects    admission.Reader
	Authorizer condition.Authorizer // answers the checks of expressions
	Types      Types                // of objects, for mutations that apply a configuration
	Metrics    *Metrics             // nil counts nothing
	Conditions *condition.Metrics   // of match conditions; nil counts nothing
}

// Validating refuses, warns of and records writes by the stored ValidatingAdmissionPolicies.
type Validating struct{ Options }

// NewValidating returns the plug-in.
func NewValidating(o Options) *Validating { return &Validating{o} }

// Name implements [admission.Plugin].
func (*Validating) Name() string { return "ValidatingAdmissionPolicy" }

// Validate implements [admission.Validator].
func (p *Validating) Validate(ctx context.Context, a *admission.Attributes) error {
	p.Set.follow(ctx, a)
	policies := p.Set.current.Load().validating
	if len(policies) == 0 || a.Inner || matching.Exempt(a) {
		return nil
	}
	v := validation{Validating: p, a: a}
	for i := range policies {
		if err := v.policy(ctx, &policies[i]); err != nil {
			return err
		}
	}
	v.publish()
	return v.refusal()
}

// A validation is one request on its way through the policies.
type validation struct {
	*Validating
	a       *admission.Attributes
	request *condition.Request // made when a policy matches
	denied  []denial
	audited []failure
}

// A denial is why a request is refused.
type denial struct {
	policy, binding string // binding is empty if the policy itself is at fault
	message         string
	reason          metav1.StatusReason
}

// A failure is an item of the audit annotation of failed validations.
type failure struct {
	Message           string                                     `json:"message"`
	Policy            string                                     `json:"policy"`
	Binding           string                                     `json:"binding"`
	ExpressionIndex   int                                        `json:"expressionIndex"`
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// misconfigured counts a fault of the configuration by the failure policy.
func (v *validation) misconfigured(p *bound[validations], b *binding, err error) {
	if p.ignore {
		return
	}
	if b == nil {
		v.denied = append(v.denied, denial{policy: p.name, message: "failed to configure policy: " + err.Error()})
		return
	}
	v.denied = append(v.denied, denial{policy: p.name, binding: b.name, message: "failed to configure binding: " + err.Error()})
}

func (v *validation) policy(ctx context.Context, p *bound[validations]) error {
	in, err := p.matcher.Match(ctx, v.a, v.Objects)
	if err != nil {
		v.misconfigured(p, nil, err)
		return nil
	}
	if in == nil {
		return nil
	}
	kind, err := paramKind(v.Catalog, p.params)
	if err != nil {
		v.misconfigured(p, nil, err)
		return nil
	}
	if v.request == nil {
		v.request = condition.NewRequest(v.a, v.Authorizer)
	}
	var notes annotations
	for _, b := range p.bindings {
		if err := v.binding(ctx, p, b, in, kind, &notes); err != nil {
			return err
		}
	}
	notes.publish(v.a, p.name)
	return nil
}

func (v *validation) binding(ctx context.Context, p *bound[validations], b *binding, in, kind *catalog.Kind, notes *annotations) error {
	if b.matcher != nil {
		matches, err := b.matcher.Match(ctx, v.a, v.Objects)
		if err != nil {
			v.misconfigured(p, b, err)
			return nil
		}
		if matches == nil {
			return nil
		}
	}
	params, err := paramsOf(ctx, v.Objects, kind, b.params, v.a.AdmissionNamespace())
	if err != nil {
		v.misconfigured(p, b, err)
		return nil
	}
	if len(params) == 0 {
		return nil
	}
	values, err := v.request.In(in)
	if err != nil {
		v.misconfigured(p, b, fmt.Errorf("failed to convert object version: %w", err))
		return nil
	}
	namespace, err := v.request.Namespace(ctx, v.Objects)
	if err != nil {
		return err
	}
	for _, param := range params {
		if param != nil {
			values.Params = admissioncel.Value(param)
		}
		inNamespace := values
		inNamespace.Namespace = admissioncel.Value(namespace)
		findings, found := v.evaluate(ctx, p.policy, values, inNamespace)
		v.decide(p, b, findings)
		v.annotate(p, b, found, notes)
	}
	return nil
}

// decide performs the binding's actions for the checks that did not pass.
func (v *validation) decide(p *bound[validations], b *binding, findings []finding) {
	for i := range findings {
		f := &findings[i]
		if !f.denies {
			if f.outcome == faulted {
				v.Metrics.checked(p.name, b.name, f, "allow")
			}
			continue
		}
		for _, action := range b.actions {
			switch action {
			case admissionregistrationv1.Deny:
				v.denied = append(v.denied, denial{p.name, b.name, f.message, f.reason})
				v.Metrics.checked(p.name, b.name, f, "deny")
			case admissionregistrationv1.Audit:
				v.audited = append(v.audited, failure{f.message, b.policy, b.name, i, b.actions})
				v.Metrics.checked(p.name, b.name, f, "audit")
			case admissionregistrationv1.Warn:
				v.a.Warnings = append(v.a.Warnings, fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", p.name, b.name, f.message))
				v.Metrics.checked(p.name, b.name, f, "warn")
			}
		}
	}
}

// annotate collects audit annotations. With the failure policy Fail, one that has no value refuses the request.
func (v *validation) annotate(p *bound[validations], b *binding, found []note, notes *annotations) {
	for _, n := range found {
		if n.err == "" {
			notes.add(n.key, n.value)
			continue
		}
		v.denied = append(v.denied, denial{policy: p.name, binding: b.name, message: n.err})
		v.Metrics.checked(p.name, b.name, &finding{outcome: faulted, message: n.err, took: n.took}, "deny")
	}
}

// maxFailures is how many failed validations an audit event lists.
const maxFailures = 50

// publish adds the failed validations to the audit event.
func (v *validation) publish() {
	if len(v.audited) == 0 {
		return
	}
	if text, err := json.Marshal(v.audited[:min(len(v.audited), maxFailures)]); err == nil {
		v.a.Audit.Annotate("validation.policy.admission.k8s.io/validation_failure", string(text))
	}
}

// refusal returns the answer if the request is refused: the first reason.
func (v *validation) refusal() error {
	if len(v.denied) == 0 {
		return nil
	}
	d := v.denied[0]
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", d.policy, d.message)
	if d.binding != "" {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", d.policy, d.binding, d.message)
	}
	err := forbidden(v.a, message)
	err.ErrStatus.Reason, err.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	switch d.reason {
	case metav1.StatusReasonForbidden:
		err.ErrStatus.Reason, err.ErrStatus.Code = d.reason, http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		err.ErrStatus.Reason, err.ErrStatus.Code = d.reason, http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		err.ErrStatus.Reason, err.ErrStatus.Code = d.reason, http.StatusRequestEntityTooLarge
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return err
}

// forbidden returns a Forbidden error about the object of the request.
func forbidden(a *admission.Attributes, message string) *apierrors.StatusError {
	name := a.Name
	if a.Generated && a.Object != nil && a.Object.GetGenerateName() != "" {
		name = a.Object.GetGenerateName()
	}
	return apierrors.NewForbidden(a.Requested().GR(), name, fmt.Errorf("%s", message))
}

// annotations collects the audit annotations of a policy: a few values under one key if the bindings have different ones.
type annotations struct {
	keys   []string
	values map[string][]string
}

// maxAnnotation is the longest value of an audit annotation, in bytes.
const maxAnnotation = 10 * 1024

func (n *annotations) add(key, value string) {
	if len(value) > maxAnnotation {
		value = value[:maxAnnotation]
		for !utf8.ValidString(value) {
			value = value[:len(value)-1]
		}
	}
	if n.values == nil {
		n.values = map[string][]string{}
	}
	if slices.Contains(n.values[key], value) {
		return
	}
	if n.values[key] == nil {
		n.keys = append(n.keys, key)
	}
	n.values[key] = append(n.values[key], value)
}

func (n *annotations) publish(a *admission.Attributes, policy string) {
	for _, key := range n.keys {
		a.Audit.Annotate(policy+"/"+key, strings.Join(n.values[key], ", "))
	}
}

// matches reports whether the match conditions of a policy hold. Upstream's metrics have the same type for both kinds of policies.
func (o *Options) matches(a *admission.Attributes, name string, conditions admissioncel.Conditions, e *admissioncel.Evaluation) (bool, error) {
	return o.Conditions.Match(condition.Subject{Name: name, Kind: condition.Policy, Type: "validate", Operation: string(a.Operation)}, conditions, e)
}
