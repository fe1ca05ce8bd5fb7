package policies

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/matching"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Resources returns the resources that a set is made of.
func Resources() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, name := range []string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	} {
		all = append(all, admissionregistrationv1.SchemeGroupVersion.WithResource(name))
	}
	return all
}

// A Set has the stored policies and bindings. It is safe for concurrent use.
type Set struct {
	objects admission.Reader
	current atomic.Pointer[snapshot]

	mu                 sync.Mutex // serialises changes
	validating         map[string]*policy[validations]
	mutating           map[string]*policy[mutations]
	validatingBindings map[string]*binding
	mutatingBindings   map[string]*binding
}

// A snapshot has what requests need: the policies that have bindings, in the order of their names.
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
	uid        types.UID
	generation int64
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
	uid          types.UID
	generation   int64
	params       *admissionregistrationv1.ParamRef
	matcher      *matching.Matcher // nil matches everything
	actions      []admissionregistrationv1.ValidationAction
}

// NewSet returns an empty set of the policies that a reader has.
func NewSet(objects admission.Reader) *Set {
	s := &Set{
		objects: objects, validating: map[string]*policy[validations]{}, mutating: map[string]*policy[mutations]{},
		validatingBindings: map[string]*binding{}, mutatingBindings: map[string]*binding{},
	}
	s.current.Store(&snapshot{})
	return s
}

// Load reads all stored policies and bindings. Unreadable ones are left out.
func (s *Set) Load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range Resources() {
		all, err := s.objects.List(ctx, resource, "", nil)
		if err != nil {
			return err
		}
		gone := s.names(resource.Resource)
		for _, obj := range all {
			delete(gone, obj.GetName())
			s.set(obj)
		}
		for name := range gone {
			s.remove(resource.Resource, name)
		}
	}
	s.publish()
	return nil
}

// Reload reads one policy or binding again. It reads the newest state, so that the order of calls does not matter.
func (s *Set) Reload(ctx context.Context, resource, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, err := s.objects.Get(ctx, admissionregistrationv1.SchemeGroupVersion.WithResource(resource), "", name)
	switch {
	case err == nil:
		if !s.set(obj) {
			return nil
		}
	case apierrors.IsNotFound(err):
		s.remove(resource, name)
	default:
		s.remove(resource, name)
		s.publish()
		return err
	}
	s.publish()
	return nil
}

func (s *Set) names(resource string) map[string]bool {
	names := map[string]bool{}
	switch resource {
	case "validatingadmissionpolicies":
		add(names, s.validating)
	case "mutatingadmissionpolicies":
		add(names, s.mutating)
	case "validatingadmissionpolicybindings":
		add(names, s.validatingBindings)
	case "mutatingadmissionpolicybindings":
		add(names, s.mutatingBindings)
	}
	return names
}

func add[V any](names map[string]bool, from map[string]V) {
	for name := range from {
		names[name] = true
	}
}

func (s *Set) remove(resource, name string) {
	switch resource {
	case "validatingadmissionpolicies":
		delete(s.validating, name)
	case "mutatingadmissionpolicies":
		delete(s.mutating, name)
	case "validatingadmissionpolicybindings":
		delete(s.validatingBindings, name)
	case "mutatingadmissionpolicybindings":
		delete(s.mutatingBindings, name)
	}
}

// set compiles an object unless it has that generation of it already, and reports whether it did.
func (s *Set) set(obj catalog.Object) bool {
	switch obj := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		if old := s.validating[obj.Name]; old != nil && old.uid == obj.UID && old.generation == obj.Generation {
			return false
		}
		s.validating[obj.Name] = compileValidating(obj)
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		if old := s.mutating[obj.Name]; old != nil && old.uid == obj.UID && old.generation == obj.Generation {
			return false
		}
		s.mutating[obj.Name] = compileMutating(obj)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		if old := s.validatingBindings[obj.Name]; old != nil && old.uid == obj.UID && old.generation == obj.Generation {
			return false
		}
		spec := obj.Spec.DeepCopy()
		s.validatingBindings[obj.Name] = &binding{
			name: obj.Name, policy: spec.PolicyName, uid: obj.UID, generation: obj.Generation, params: spec.ParamRef,
			matcher: bindingMatcher(spec.MatchResources), actions: spec.ValidationActions,
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		if old := s.mutatingBindings[obj.Name]; old != nil && old.uid == obj.UID && old.generation == obj.Generation {
			return false
		}
		spec := obj.Spec.DeepCopy()
		s.mutatingBindings[obj.Name] = &binding{
			name: obj.Name, policy: spec.PolicyName, uid: obj.UID, generation: obj.Generation, params: spec.ParamRef,
			matcher: bindingMatcher(spec.MatchResources),
		}
	}
	return true
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
		validating: bind(s.validating, s.validatingBindings),
		mutating:   bind(s.mutating, s.mutatingBindings),
	})
}

// bind returns the policies that have bindings.
func bind[B any](policies map[string]*policy[B], bindings map[string]*binding) []bound[B] {
	of := map[string][]*binding{}
	for _, name := range slices.Sorted(maps.Keys(bindings)) {
		b := bindings[name]
		of[b.policy] = append(of[b.policy], b)
	}
	var all []bound[B]
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if len(of[name]) > 0 {
			all = append(all, bound[B]{policies[name], of[name]})
		}
	}
	return all
}

// follow makes the set have what the request writes, before the request is answered.
func (s *Set) follow(ctx context.Context, a *admission.Attributes) {
	if a.Kind.Group != admissionregistrationv1.GroupName || a.DryRun {
		return
	}
	resource, name := a.Kind.Resource, a.Name
	if !slices.ContainsFunc(Resources(), func(r schema.GroupVersionResource) bool { return r.Resource == resource }) {
		return
	}
	a.Done = append(a.Done, func(committed bool) {
		if committed {
			_ = s.Reload(context.WithoutCancel(ctx), resource, name) // what cannot be read has no effect
		}
	})
}
