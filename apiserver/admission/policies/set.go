package policies

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/matching"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Resources returns the resources that a set is made of.
func Resources() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, t := range NewSet(nil, nil).tables() {
		all = append(all, t.resource())
	}
	return all
}

// A Set has the stored policies and bindings. It is safe for concurrent use.
type Set struct {
	objects admission.Reader
	log     *slog.Logger
	current atomic.Pointer[snapshot]

	mu                 sync.Mutex // serialises changes of the tables
	validating         compiled[*admissionregistrationv1.ValidatingAdmissionPolicy, *policy[validations]]
	mutating           compiled[*admissionregistrationv1.MutatingAdmissionPolicy, *policy[mutations]]
	validatingBindings compiled[*admissionregistrationv1.ValidatingAdmissionPolicyBinding, *binding]
	mutatingBindings   compiled[*admissionregistrationv1.MutatingAdmissionPolicyBinding, *binding]
	unreadable         map[string]bool // by RESOURCE/NAME; the ones that were logged
}

// A snapshot has the data for requests: the policies that have bindings, in the order of their names.
type snapshot struct {
	validating []bound[validations]
	mutating   []bound[mutations]
}

// bound is a policy with its bindings, in the order of their names.
type bound[B any] struct {
	*policy[B]
	bindings []*binding
}

// A policy is a compiled policy. It never changes.
type policy[B any] struct {
	name       string
	ignore     bool // what fails
	params     *admissionregistrationv1.ParamKind
	matcher    *matching.Matcher
	variables  admissioncel.Variables
	conditions admissioncel.Conditions
	body       B
}

// A binding is a compiled binding. It never changes.
type binding struct {
	name, policy string
	params       *admissionregistrationv1.ParamRef
	matcher      *matching.Matcher // nil matches everything
	actions      []admissionregistrationv1.ValidationAction
}

// NewSet returns an empty set of the policies that a reader has. It logs which ones cannot be read; a nil log is
// slog.Default.
func NewSet(objects admission.Reader, log *slog.Logger) *Set {
	s := &Set{
		objects:            objects,
		log:                cmp.Or(log, slog.Default()),
		unreadable:         map[string]bool{},
		validating:         newCompiled("validatingadmissionpolicies", compileValidating),
		mutating:           newCompiled("mutatingadmissionpolicies", compileMutating),
		validatingBindings: newCompiled("validatingadmissionpolicybindings", compileValidatingBinding),
		mutatingBindings:   newCompiled("mutatingadmissionpolicybindings", compileMutatingBinding),
	}
	s.current.Store(&snapshot{})
	return s
}

func (s *Set) tables() []table {
	return []table{&s.validating, &s.validatingBindings, &s.mutating, &s.mutatingBindings}
}

// table returns the table of a resource of the group, nil if the set has none.
func (s *Set) table(resource string) table {
	for _, t := range s.tables() {
		if t.resource().Resource == resource {
			return t
		}
	}
	return nil
}

// Load reads all stored policies and bindings. Unreadable ones are left out.
func (s *Set) Load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables() {
		all, err := s.objects.List(ctx, t.resource(), "", nil)
		if err != nil {
			return err
		}
		t.replace(all)
	}
	s.publish()
	return nil
}

// Reload reads one policy or binding again, of one of [Resources]. It reads the newest state, so that the order of calls
// does not matter. One that cannot be read has no effect, and is logged once.
func (s *Set) Reload(ctx context.Context, resource, name string) {
	t := s.table(resource)
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, err := s.objects.Get(ctx, t.resource(), "", name)
	key := resource + "/" + name
	if err == nil || apierrors.IsNotFound(err) {
		delete(s.unreadable, key)
	} else if !s.unreadable[key] {
		s.unreadable[key] = true
		s.log.ErrorContext(ctx, "an admission policy or binding cannot be read and has no effect", "resource", resource, "name", name, "err", err)
	}
	if err != nil {
		t.remove(name)
	} else if !t.set(obj) {
		return
	}
	s.publish()
}

func compileValidatingBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *binding {
	spec := b.Spec.DeepCopy()
	return &binding{
		name: b.Name, policy: spec.PolicyName, params: spec.ParamRef, matcher: bindingMatcher(spec.MatchResources),
		actions: spec.ValidationActions,
	}
}

func compileMutatingBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) *binding {
	spec := b.Spec.DeepCopy()
	return &binding{name: b.Name, policy: spec.PolicyName, params: spec.ParamRef, matcher: bindingMatcher(spec.MatchResources)}
}

func bindingMatcher(m *admissionregistrationv1.MatchResources) *matching.Matcher {
	if m == nil {
		return nil
	}
	return matcherOf(m, true)
}

// matcherOf compiles what a policy or a binding matches. No rules at all are all requests in a binding, and none in a policy.
func matcherOf(m *admissionregistrationv1.MatchResources, always bool) *matching.Matcher {
	if m == nil {
		return matching.Compile(&matching.Constraint{Always: always})
	}
	return matching.Compile(&matching.Constraint{
		Rules: m.ResourceRules, Excluded: m.ExcludeResourceRules, Always: always,
		NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector, MatchPolicy: m.MatchPolicy,
	})
}

// publish makes the state the current one. The caller holds mu.
func (s *Set) publish() {
	s.current.Store(&snapshot{
		validating: bind(s.validating.inOrder(), s.validatingBindings.inOrder()),
		mutating:   bind(s.mutating.inOrder(), s.mutatingBindings.inOrder()),
	})
}

// bind returns the policies that have bindings.
func bind[B any](policies []*policy[B], bindings []*binding) []bound[B] {
	of := map[string][]*binding{}
	for _, b := range bindings {
		of[b.policy] = append(of[b.policy], b)
	}
	var all []bound[B]
	for _, p := range policies {
		if len(of[p.name]) > 0 {
			all = append(all, bound[B]{p, of[p.name]})
		}
	}
	return all
}

// follow puts the object that the request writes into the set, before the request is answered.
func (s *Set) follow(ctx context.Context, a *admission.Attributes) {
	if a.Kind.Group != admissionregistrationv1.GroupName || a.DryRun {
		return
	}
	resource, name := a.Kind.Resource, a.Name
	if s.table(resource) == nil {
		return
	}
	a.Done = append(a.Done, func(committed bool) {
		if committed {
			s.Reload(context.WithoutCancel(ctx), resource, name)
		}
	})
}
