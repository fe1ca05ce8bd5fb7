package admissionregistration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

// policies returns the kinds of admission policies and their bindings. Kubernetes v1.37 serves version v1 of them by default, and
// no other.
func policies() []*catalog.Kind {
	return []*catalog.Kind{validatingPolicies(), validatingBindings(), mutatingPolicies(), mutatingBindings()}
}

const unset = "<unset>" // what columns show of something optional

func paramKind(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return unset
	}
	return k.APIVersion + "/" + k.Kind
}

// paramRef describes the parameters of a binding. It cannot be seen here whether they have a namespace.
func paramRef(r *admissionregistrationv1.ParamRef) string {
	switch {
	case r == nil:
		return unset
	case r.Name != "" && r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return "*/" + r.Name
	case r.Selector != nil:
		return describeSelector(r.Selector)
	}
	return unset
}

// describeSelector returns the text of its method String, which takes a time that grows with the square of the length.
func describeSelector(s *metav1.LabelSelector) string {
	var text strings.Builder
	text.WriteString("&LabelSelector{MatchLabels:map[string]string{")
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		fmt.Fprintf(&text, "%s: %s,", key, s.MatchLabels[key])
	}
	text.WriteString("},MatchExpressions:[]LabelSelectorRequirement{")
	for i := range s.MatchExpressions {
		e := &s.MatchExpressions[i]
		fmt.Fprintf(&text, "LabelSelectorRequirement{Key:%s,Operator:%s,Values:%v,},", e.Key, e.Operator, e.Values)
	}
	text.WriteString("},}")
	return text.String()
}

func validatingPolicies() *catalog.Kind {
	type policy = admissionregistrationv1.ValidatingAdmissionPolicy
	return &catalog.Kind{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		Resource:         "validatingadmissionpolicies",
		Singular:         "validatingadmissionpolicy",
		Categories:       []string{"api-extensions"},
		New:              func() catalog.Object { return &policy{} },
		NewList:          func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyList{} },
		Conditional:      true,
		Generation:       true,
		Default: catalog.Default(func(p *policy) {
			orFail(&p.Spec.FailurePolicy)
			defaultResources(p.Spec.MatchConstraints)
		}),
		Prepare: catalog.Prepare(func(p, old *policy) {
			p.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
			if old != nil {
				p.Status = old.Status
			}
		}),
		Validate: declared.With(catalog.Validate(validateValidatingPolicy), ""),
		Warn:     warnName,
		Columns: []catalog.Column{
			catalog.Number("Validations", "Validations indicates the number of validation rules defined in this configuration", func(p *policy) int64 {
				return int64(len(p.Spec.Validations))
			}),
			catalog.Text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", func(p *policy) string {
				return paramKind(p.Spec.ParamKind)
			}),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(p, old *policy) {
					p.Spec = old.Spec
					metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps:    []string{"metadata"},
				Validate: catalog.Validate(validateStatus),
			},
		}},
	}
}

func validatingBindings() *catalog.Kind {
	type binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	return &catalog.Kind{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
		Resource:         "validatingadmissionpolicybindings",
		Singular:         "validatingadmissionpolicybinding",
		Categories:       []string{"api-extensions"},
		New:              func() catalog.Object { return &binding{} },
		NewList:          func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{} },
		Conditional:      true,
		Generation:       true,
		Default:          catalog.Default(func(b *binding) { defaultResources(b.Spec.MatchResources) }),
		Validate:         declared.With(catalog.Validate(validateValidatingBinding), ""),
		Warn:             warnName,
		Columns: bindingColumns(
			func(b *binding) string { return b.Spec.PolicyName },
			func(b *binding) *admissionregistrationv1.ParamRef { return b.Spec.ParamRef }),
	}
}

func mutatingPolicies() *catalog.Kind {
	type policy = admissionregistrationv1.MutatingAdmissionPolicy
	return &catalog.Kind{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"),
		Resource:         "mutatingadmissionpolicies",
		Singular:         "mutatingadmissionpolicy",
		Categories:       []string{"api-extensions"},
		New:              func() catalog.Object { return &policy{} },
		NewList:          func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyList{} },
		Conditional:      true,
		Generation:       true,
		Default: catalog.Default(func(p *policy) {
			orFail(&p.Spec.FailurePolicy)
			defaultResources(p.Spec.MatchConstraints)
		}),
		Validate: declared.With(catalog.Validate(validateMutatingPolicy), ""),
		Warn:     warnName,
		Columns: []catalog.Column{
			catalog.Number("Mutations", "Mutation indicates the number of mutations rules defined in this configuration", func(p *policy) int64 {
				return int64(len(p.Spec.Mutations))
			}),
			catalog.Text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", func(p *policy) string {
				return paramKind(p.Spec.ParamKind)
			}),
			catalog.Age(),
		},
	}
}

func mutatingBindings() *catalog.Kind {
	type binding = admissionregistrationv1.MutatingAdmissionPolicyBinding
	return &catalog.Kind{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"),
		Resource:         "mutatingadmissionpolicybindings",
		Singular:         "mutatingadmissionpolicybinding",
		Categories:       []string{"api-extensions"},
		New:              func() catalog.Object { return &binding{} },
		NewList:          func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBindingList{} },
		Conditional:      true,
		Generation:       true,
		Default:          catalog.Default(func(b *binding) { defaultResources(b.Spec.MatchResources) }),
		Validate:         declared.With(catalog.Validate(validateMutatingBinding), ""),
		Warn:             warnName,
		Columns: bindingColumns(
			func(b *binding) string { return b.Spec.PolicyName },
			func(b *binding) *admissionregistrationv1.ParamRef { return b.Spec.ParamRef }),
	}
}

func bindingColumns[T catalog.Object](policy func(T) string, params func(T) *admissionregistrationv1.ParamRef) []catalog.Column {
	return []catalog.Column{
		catalog.Text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to", policy),
		catalog.Text("ParamRef", "ParamRef indicates the param resource which sets the configuration param", func(b T) string { return paramRef(params(b)) }),
		catalog.Age(),
	}
}

func warnName(obj, old catalog.Object) []string {
	if old == nil {
		return nil // a new object with such a name is invalid
	}
	return warnStaticSuffix(obj.GetName())
}

func orFail(p **admissionregistrationv1.FailurePolicyType) {
	if *p == nil {
		*p = new(admissionregistrationv1.Fail)
	}
}

// defaultResources completes the match rules of a policy or a binding.
func defaultResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	if m.MatchPolicy == nil {
		m.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			if rules[i].Scope == nil {
				rules[i].Scope = new(admissionregistrationv1.AllScopes)
			}
		}
	}
}
