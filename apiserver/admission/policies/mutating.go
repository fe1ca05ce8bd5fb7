package policies

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/admission/matching"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Mutating changes writes by the stored MutatingAdmissionPolicies.
type Mutating struct{ Options }

// NewMutating returns the plug-in.
func NewMutating(o Options) *Mutating { return &Mutating{o} }

// Name implements [admission.Plugin].
func (*Mutating) Name() string { return "MutatingAdmissionPolicy" }

// Reinvokes implements [admission.Reinvoker].
func (*Mutating) Reinvokes() {}

// Admit implements [admission.Mutator].
func (p *Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	policies := p.Set.current.Load().mutating
	if len(policies) == 0 || a.Inner || a.Operation == admission.Delete || matching.Exempt(a) {
		return nil
	}
	m := changing{Mutating: p, a: a}
	var invocations []invocation
	for i := range policies {
		invocations = append(invocations, m.invocations(ctx, &policies[i])...)
	}
	if len(invocations) > 0 {
		if err := m.run(ctx, invocations); err != nil {
			return err
		}
	}
	return m.refusal()
}

// A changing is one request on its way through the policies.
type changing struct {
	*Mutating
	a       *admission.Attributes
	request *condition.Request
	denied  []denial
}

// An invocation is a policy with a binding and a parameter.
type invocation struct {
	policy  *bound[mutations]
	binding *binding
	in      *catalog.Kind // the version in which the policy sees the object
	param   runtime.Object
}

// A key names an invocation.
type key struct{ policy, binding, namespace, param string }

func (i *invocation) key() key {
	k := key{policy: i.policy.name, binding: i.binding.name}
	if p, ok := i.param.(catalog.Object); ok {
		k.namespace, k.param = p.GetNamespace(), p.GetName()
	}
	return k
}

// rounds is the state between the rounds of a request: see [admission.Attributes.Kept].
type rounds struct {
	after    runtime.Object // the object after the policies of the first round
	invoked  map[key]bool   // may be invoked again if the object changes after them
	reinvoke map[key]bool   // and it did
}

// changed says that the object was changed: what was invoked before is invoked again.
func (r *rounds) changed() {
	for k := range r.invoked {
		r.reinvoke[k] = true
	}
	clear(r.invoked)
}

// fail counts an error of a policy by its failure policy.
func (m *changing) fail(p *bound[mutations], b *binding, reason metav1.StatusReason, err error) {
	if p.ignore {
		return
	}
	d := denial{policy: p.name, message: err.Error(), reason: reason}
	if b != nil {
		d.binding = b.name
	}
	m.denied = append(m.denied, d)
}

func (m *changing) misconfigured(p *bound[mutations], b *binding, err error) {
	if b == nil {
		m.fail(p, nil, "", fmt.Errorf("failed to configure policy: %w", err))
		return
	}
	m.fail(p, b, "", fmt.Errorf("failed to configure binding: %w", err))
}

// invocations returns those of one policy that match the request.
func (m *changing) invocations(ctx context.Context, p *bound[mutations]) (all []invocation) {
	in, err := p.matcher.Match(ctx, m.a, m.Objects)
	if err != nil {
		m.misconfigured(p, nil, err)
		return nil
	}
	if in == nil {
		return nil
	}
	kind, err := paramKind(m.Catalog, p.params)
	if err != nil {
		m.misconfigured(p, nil, err)
		return nil
	}
	for _, b := range p.bindings {
		if b.matcher != nil {
			matches, err := b.matcher.Match(ctx, m.a, m.Objects)
			if err != nil {
				m.misconfigured(p, b, err)
				continue
			}
			if matches == nil {
				continue
			}
		}
		params, err := paramsOf(ctx, m.Objects, kind, b.params, m.a.AdmissionNamespace())
		if err != nil {
			m.misconfigured(p, b, err)
			continue
		}
		for _, param := range params {
			all = append(all, invocation{p, b, in, param})
		}
	}
	return all
}

// run invokes policies one after the other. Each sees the changes of the ones before it.
func (m *changing) run(ctx context.Context, invocations []invocation) error {
	m.request = condition.NewRequest(m.a, m.Authorizer)
	namespace, err := m.request.Namespace(ctx, m.Objects)
	if err != nil {
		return err
	}
	state, ok := m.a.Kept[m.Name()].(*rounds)
	if !ok {
		state = &rounds{invoked: map[key]bool{}, reinvoke: map[key]bool{}}
		if m.a.Kept == nil {
			m.a.Kept = map[string]any{}
		}
		m.a.Kept[m.Name()] = state
	}
	if m.a.Round > 0 && !equality.Semantic.DeepEqual(state.after, m.a.New()) {
		state.changed()
	}
	for i := range invocations {
		if err := m.invoke(ctx, &invocations[i], state, admissioncel.Value(namespace)); err != nil {
			return err
		}
	}
	if obj := m.a.New(); obj != nil && m.a.Round == 0 {
		state.after = obj.DeepCopyObject()
	}
	return nil
}

// invoke runs the mutations of a policy for one parameter. An error ends the request, whatever the failure policy.
func (m *changing) invoke(ctx context.Context, i *invocation, state *rounds, namespace ref.Val) error {
	p := i.policy
	values, err := m.values(i)
	if err != nil {
		m.misconfigured(p, nil, err)
		return nil
	}
	if len(p.conditions) > 0 {
		holds, err := m.matches(m.a, p.name, p.conditions, admissioncel.NewEvaluation(ctx, values, p.variables, admissioncel.MatchBudget))
		if err != nil {
			m.fail(p, i.binding, metav1.StatusReasonInvalid, err)
		}
		if err != nil || !holds {
			return nil
		}
	}
	if m.a.Round > 0 && !state.reinvoke[i.key()] {
		return nil
	}
	changed := false
	for n := range p.body.changes {
		if m.a.New() == nil {
			break // there is nothing to change
		}
		start := time.Now()
		did, err := m.change(ctx, i, &p.body.changes[n], namespace)
		m.Metrics.mutated(p.name, i.binding.name, err, time.Since(start))
		if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
			return status
		}
		if err != nil {
			m.fail(p, i.binding, metav1.StatusReasonInvalid, err)
			continue
		}
		changed = changed || did
	}
	if changed {
		state.changed()
		m.a.Changed = true
	}
	if p.body.reinvoke {
		state.invoked[i.key()] = true
	}
	return nil
}

func (m *changing) values(i *invocation) (admissioncel.Values, error) {
	values, err := m.request.In(i.in)
	if i.param != nil {
		values.Params = admissioncel.Value(i.param)
	}
	return values, err
}

// change makes one change, and reports whether it was one.
func (m *changing) change(ctx context.Context, i *invocation, c *change, namespace ref.Val) (bool, error) {
	values, err := m.values(i)
	if err != nil {
		return false, err
	}
	values.Namespace = namespace
	r, err := admissioncel.NewEvaluation(ctx, values, i.policy.variables, admissioncel.Budget).Run(&c.program)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		return false, err
	}
	obj, _, err := m.request.Objects(i.in)
	if err != nil {
		return false, err
	}
	after, err := c.patch(m.Types, obj, i.in, r.Value)
	if err != nil || after == obj {
		return false, err
	}
	return m.replace(i.in, obj, after)
}

// replace makes the request's object the one that a policy has made of it, in the version of the policy, and reports whether
// it differs. The kind, and what names the object, stay.
func (m *changing) replace(in *catalog.Kind, before, after runtime.Object) (bool, error) {
	target := m.a.New()
	stored := after
	if o, ok := after.(catalog.Object); ok && before.GetObjectKind().GroupVersionKind() == in.GroupVersionKind {
		was := before.(catalog.Object)
		if o.GetObjectKind().GroupVersionKind() != in.GroupVersionKind {
			return false, fmt.Errorf("a policy must not change the kind of the object to %v", o.GetObjectKind().GroupVersionKind())
		}
		if o.GetName() != was.GetName() || o.GetNamespace() != was.GetNamespace() || o.GetUID() != was.GetUID() {
			return false, errors.New("a policy must not change metadata.name, metadata.namespace or metadata.uid")
		}
		if in.Coerce != nil {
			if _, err := in.Coerce(o, catalog.Coercion{}); err != nil {
				return false, err
			}
		}
		hub, err := in.Accept(o)
		if err != nil {
			return false, err
		}
		if d := in.Hub().Default; d != nil {
			d(hub)
		}
		stored = hub
	}
	if reflect.TypeOf(stored) != reflect.TypeOf(target) {
		return false, apierrors.NewInternalError(fmt.Errorf("a policy made a %T of a %T", stored, target))
	}
	if equality.Semantic.DeepEqual(stored, target) {
		return false, nil
	}
	// In place: others have the pointer.
	reflect.ValueOf(target).Elem().Set(reflect.ValueOf(stored).Elem())
	m.request.Changed()
	return true, nil
}

// refusal returns the answer if policies failed: the first reason, with all as causes.
func (m *changing) refusal() error {
	if len(m.denied) == 0 {
		return nil
	}
	err := forbidden(m.a, "admission request denied by policy")
	for i := range m.denied {
		d := &m.denied[i]
		message := fmt.Sprintf("policy %q denied request: %s", d.policy, d.message)
		if d.binding != "" {
			message = fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", d.policy, d.binding, d.message)
		}
		if i == 0 {
			err.ErrStatus.Message = message
			if d.reason != "" {
				err.ErrStatus.Reason = d.reason
			}
		}
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	}
	return err
}
