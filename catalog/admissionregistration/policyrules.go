package admissionregistration

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Limits of Kubernetes.
const (
	maxConditions             = 64
	maxAuditAnnotations       = 20
	maxAuditAnnotationExpress = 5 * 1024 // bytes
)

// expressions are those of an object that is stored already: they are accepted again even if a new object must not
// have them.
type expressions struct{ conditions, validations, messages, annotations, mutations []string }

// origin says where an expression comes from, given the stored ones.
func origin(text string, stored []string) admissioncel.Origin {
	if slices.Contains(stored, text) {
		return admissioncel.Stored
	}
	return admissioncel.New
}

// compiled returns the faults of an expression; shown is its text as the user wrote it.
func compiled(p *admissioncel.Program, shown string, at *field.Path) field.ErrorList {
	switch {
	case p.Err == nil:
		return nil
	case p.Err.Type == apicel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, p.Err.Detail)}
	case p.Err.Type == apicel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, shown, p.Err.Detail)}
	}
	return field.ErrorList{field.InternalError(at, p.Err)}
}

// validateConditions checks match conditions, which may use params if there are any, and the authorizer.
func validateConditions(conditions []admissionregistrationv1.MatchCondition, params bool, stored []string, at *field.Path) (errs field.ErrorList) {
	if len(conditions) > maxConditions {
		errs = append(errs, field.TooMany(at, len(conditions), maxConditions))
	}
	seen := map[string]bool{}
	compiler := admissioncel.NewCompiler(admissioncel.New)
	for i, c := range conditions {
		at := at.Index(i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			compiler.Accept(origin(text, stored))
			p := compiler.Compile(text, admissioncel.Declarations{Params: params, Authorizer: true}, cel.BoolType)
			errs = append(errs, compiled(&p, text, at.Child("expression"))...)
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, qualifiedName(c.Name, at.Child("name"))...)
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
	}
	return errs
}

func qualifiedName(name string, at *field.Path) (errs field.ErrorList) {
	for _, fault := range content.IsLabelKey(name) {
		errs = append(errs, field.Invalid(at, name, fault))
	}
	return errs
}

// validateMatch checks the match rules of a policy or a binding.
func validateMatch(m *admissionregistrationv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	if m.MatchPolicy == nil {
		errs = append(errs, field.Required(at.Child("matchPolicy"), ""))
	} else {
		errs = append(errs, oneOf(at.Child("matchPolicy"), *m.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	}
	for _, s := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{{"namespaceSelector", m.NamespaceSelector}, {"objectSelector", m.ObjectSelector}} {
		if s.selector == nil {
			errs = append(errs, field.Required(at.Child(s.name), ""))
			continue
		}
		errs = append(errs, metavalidation.ValidateLabelSelector(s.selector, metavalidation.LabelSelectorValidationOptions{}, at.Child(s.name))...)
	}
	errs = append(errs, validateNamedRules(m.ResourceRules, at.Child("resourceRules"))...)
	return append(errs, validateNamedRules(m.ExcludeResourceRules, at.Child("excludeResourceRules"))...)
}

func validateNamedRules(rules []admissionregistrationv1.NamedRuleWithOperations, at *field.Path) (errs field.ErrorList) {
	for i := range rules {
		at := at.Index(i)
		seen := map[string]bool{}
		for j, name := range rules[i].ResourceNames {
			at := at.Child("resourceNames").Index(j)
			for _, fault := range content.IsPathSegmentName(name) {
				errs = append(errs, field.Invalid(at, name, fault))
			}
			if seen[name] {
				errs = append(errs, field.Duplicate(at, name))
			}
			seen[name] = true
		}
		errs = append(errs, validateOperations(&rules[i].RuleWithOperations, at)...)
	}
	return errs
}

// validateMutable refuses operations that change nothing.
func validateMutable(m *admissionregistrationv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	for _, rule := range m.ResourceRules {
		for _, op := range rule.Operations {
			errs = append(errs, oneOf(at.Child("resourceRules", "operations"), op, admissionregistrationv1.OperationAll,
				admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update)...)
		}
	}
	return errs
}

// validateConstraints checks the match rules of a policy, which must not be empty.
func validateConstraints(m *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateMatch(m, at)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), ""))
	}
	return errs
}

func validateFailurePolicy(p *admissionregistrationv1.FailurePolicyType, at *field.Path) field.ErrorList {
	if p == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	return oneOf(at, *p, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
}

func validateParamKind(k *admissionregistrationv1.ParamKind, at *field.Path) (errs field.ErrorList) {
	if k == nil {
		return nil
	}
	group, version, grouped := strings.Cut(k.APIVersion, "/")
	if !grouped {
		group, version = "", k.APIVersion
	}
	switch apiVersion := at.Child("apiVersion"); {
	case k.APIVersion == "":
		errs = append(errs, field.Required(apiVersion, ""))
	case strings.Contains(version, "/"):
		errs = append(errs, field.Invalid(apiVersion, k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion))
	default:
		if group != "" {
			if faults := validation.IsDNS1123Subdomain(group); len(faults) > 0 {
				errs = append(errs, field.Invalid(apiVersion, group, strings.Join(faults, ",")))
			}
		}
		if version == "" {
			errs = append(errs, field.Invalid(apiVersion, k.APIVersion, "version must be specified"))
		} else if faults := validation.IsDNS1035Label(version); len(faults) > 0 {
			errs = append(errs, field.Invalid(apiVersion, version, strings.Join(faults, ",")))
		}
	}
	if k.Kind == "" {
		errs = append(errs, field.Required(at.Child("kind"), ""))
	} else if faults := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(faults) > 0 {
		errs = append(errs, field.Invalid(at.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(faults, ",")))
	}
	return errs
}

var (
	identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
	reserved   = []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
		"loop", "package", "namespace", "return", "var", "void", "while",
	}
)

// validateVariables compiles spec.variables; the compiler knows them afterwards.
func validateVariables(c *admissioncel.Compiler, variables []admissionregistrationv1.Variable, params bool, stored []string, at *field.Path) (errs field.ErrorList) {
	for i, v := range variables {
		at := at.Index(i)
		if strings.TrimSpace(v.Name) == "" {
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		} else if !identifier.MatchString(v.Name) || slices.Contains(reserved, v.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
			continue
		}
		c.Accept(origin(v.Expression, stored))
		p := c.Define(v.Name, v.Expression, admissioncel.Declarations{Params: params, Authorizer: true})
		errs = append(errs, compiled(&p, v.Expression, at.Child("expression"))...)
	}
	return errs
}

// newCompiler returns the compiler of a policy. Only policies that define variables know the variable of that name.
func newCompiler(variables []admissionregistrationv1.Variable) *admissioncel.Compiler {
	if len(variables) == 0 {
		return admissioncel.NewCompiler(admissioncel.New)
	}
	return admissioncel.NewPolicyCompiler(admissioncel.New)
}

func validateValidatingPolicy(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	var errs field.ErrorList
	var stored expressions
	conditions := true
	if old == nil {
		errs = validateStaticSuffix(p.Name)
	} else {
		stored = validatingExpressions(&old.Spec)
		conditions = !equality.Semantic.DeepEqual(p.Spec.ParamKind, old.Spec.ParamKind) ||
			!equality.Semantic.DeepEqual(p.Spec.MatchConditions, old.Spec.MatchConditions)
	}
	at, spec := field.NewPath("spec"), &p.Spec
	params := spec.ParamKind != nil
	errs = append(errs, validateFailurePolicy(spec.FailurePolicy, at.Child("failurePolicy"))...)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	if conditions {
		errs = append(errs, validateConditions(spec.MatchConditions, params, stored.conditions, at.Child("matchConditions"))...)
	}
	c := newCompiler(spec.Variables)
	errs = append(errs, validateVariables(c, spec.Variables, params, stored.validations, at.Child("variables"))...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const want = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(at.Child("validations"), want), field.Required(at.Child("auditAnnotations"), want))
	}
	for i := range spec.Validations {
		errs = append(errs, validateValidation(c, &spec.Validations[i], params, &stored, at.Child("validations").Index(i))...)
	}
	return append(errs, validateAnnotations(c, p.Name, spec.AuditAnnotations, params, stored.annotations, at.Child("auditAnnotations"))...)
}

func validatingExpressions(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) (e expressions) {
	for _, c := range s.MatchConditions {
		e.conditions = append(e.conditions, c.Expression)
	}
	for _, v := range s.Validations {
		e.validations = append(e.validations, v.Expression)
		e.messages = append(e.messages, v.MessageExpression)
	}
	for _, v := range s.Variables {
		e.validations = append(e.validations, v.Expression)
	}
	for _, a := range s.AuditAnnotations {
		e.annotations = append(e.annotations, a.ValueExpression)
	}
	return e
}

func validateValidation(c *admissioncel.Compiler, v *admissionregistrationv1.Validation, params bool, stored *expressions, at *field.Path) (errs field.ErrorList) {
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		c.Accept(origin(v.Expression, stored.validations))
		p := c.Compile(v.Expression, admissioncel.Declarations{Params: params, Authorizer: true}, cel.BoolType)
		errs = append(errs, compiled(&p, v.Expression, at.Child("expression"))...)
	}
	if v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
		} else {
			c.Accept(origin(v.MessageExpression, stored.messages))
			p := c.Compile(v.MessageExpression, admissioncel.Declarations{Params: params}, cel.StringType)
			errs = append(errs, compiled(&p, v.MessageExpression, at.Child("messageExpression"))...)
		}
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(message, "\n\r"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must not contain line breaks"))
	}
	if v.Reason != nil {
		errs = append(errs, oneOf(at.Child("reason"), *v.Reason,
			metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
	}
	return errs
}

func validateAnnotations(c *admissioncel.Compiler, policy string, annotations []admissionregistrationv1.AuditAnnotation, params bool, stored []string, at *field.Path) (errs field.ErrorList) {
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(at, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	seen := map[string]bool{}
	for i := range annotations {
		at, a := at.Index(i), &annotations[i]
		if policy == "" {
			errs = append(errs, field.Invalid(at.Child("key"), a.Key, "requires metadata.name be non-empty"))
		} else {
			errs = append(errs, qualifiedName(policy+"/"+a.Key, at.Child("key"))...)
		}
		switch text := strings.TrimSpace(a.ValueExpression); {
		case text == "":
			errs = append(errs, field.Required(at.Child("valueExpression"), "valueExpression is not specified"))
		case len(text) > maxAuditAnnotationExpress:
			errs = append(errs, field.Required(at.Child("valueExpression"), fmt.Sprintf("must not exceed %d bytes in length", maxAuditAnnotationExpress)))
		default:
			c.Accept(origin(a.ValueExpression, stored))
			p := c.Compile(text, admissioncel.Declarations{Params: params, Authorizer: true}, cel.StringType, cel.NullType)
			errs = append(errs, compiled(&p, a.ValueExpression, at.Child("valueExpression"))...)
		}
		if seen[a.Key] {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		seen[a.Key] = true
	}
	return errs
}

// validateStatus checks the type checker's findings.
func validateStatus(p, _ *admissionregistrationv1.ValidatingAdmissionPolicy) (errs field.ErrorList) {
	at := field.NewPath("status")
	if p.Status.TypeChecking != nil {
		for i, w := range p.Status.TypeChecking.ExpressionWarnings {
			at := at.Child("typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				errs = append(errs, field.Required(at.Child("warning"), ""))
			}
			errs = append(errs, validateFieldRef(w.FieldRef, at.Child("fieldRef"))...)
		}
	}
	return append(errs, metavalidation.ValidateConditions(p.Status.Conditions, at.Child("conditions"))...)
}

func validateFieldRef(ref string, at *field.Path) field.ErrorList {
	if ref = strings.TrimSpace(ref); ref == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if err := parsePath(ref); err != nil {
		return field.ErrorList{field.Invalid(at, ref, fmt.Sprintf("invalid JSONPath: %v", err))}
	}
	return nil
}

// longestPath is far longer than any path to an expression, in bytes. The parser of the library recurses.
const longestPath = 4096

func parsePath(ref string) error {
	if len(ref) > longestPath {
		return errors.New("too long")
	}
	return jsonpath.New("spec").Parse("{" + ref + "}")
}

func validateValidatingBinding(b, old *admissionregistrationv1.ValidatingAdmissionPolicyBinding) (errs field.ErrorList) {
	if old == nil {
		errs = validateStaticSuffix(b.Name)
	}
	at := field.NewPath("spec")
	errs = append(errs, validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, at)...)
	return append(errs, validateActions(b.Spec.ValidationActions, at.Child("validationActions"))...)
}

func validateMutatingBinding(b, old *admissionregistrationv1.MutatingAdmissionPolicyBinding) (errs field.ErrorList) {
	if old == nil {
		errs = validateStaticSuffix(b.Name)
	}
	at := field.NewPath("spec")
	errs = append(errs, validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, at)...)
	return append(errs, validateMutable(b.Spec.MatchResources, at.Child("matchResources"))...)
}

func validateBinding(policy string, params *admissionregistrationv1.ParamRef, m *admissionregistrationv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if policy == "" {
		errs = append(errs, field.Required(at.Child("policyName"), ""))
	} else {
		for _, fault := range validation.IsDNS1123Subdomain(policy) {
			errs = append(errs, field.Invalid(at.Child("policyName"), policy, fault))
		}
	}
	errs = append(errs, validateParamRef(params, at.Child("paramRef"))...)
	return append(errs, validateMatch(m, at.Child("matchResources"))...)
}

func validateActions(actions []admissionregistrationv1.ValidationAction, at *field.Path) (errs field.ErrorList) {
	const deny, warn, audit = admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit
	known := make(map[admissionregistrationv1.ValidationAction]bool, len(actions))
	for i, a := range actions {
		errs = append(errs, oneOf(at.Index(i), a, audit, deny, warn)...)
		if known[a] {
			errs = append(errs, field.Duplicate(at.Index(i), a))
		}
		known[a] = true
	}
	if slices.Contains(actions, deny) && slices.Contains(actions, warn) {
		errs = append(errs, field.Invalid(at, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	if len(actions) == 0 {
		errs = append(errs, field.Required(at, "at least one validation action is required").MarkCoveredByDeclarative())
	}
	return errs
}

func validateParamRef(r *admissionregistrationv1.ParamRef, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	const exclusive = "name and selector are mutually exclusive"
	if r.Name != "" {
		for _, fault := range content.IsPathSegmentName(r.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), r.Name, fault))
		}
		if r.Selector != nil {
			errs = append(errs, field.Forbidden(at.Child("name"), exclusive))
		}
	}
	if r.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(r.Selector, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
		if r.Name != "" {
			errs = append(errs, field.Forbidden(at.Child("selector"), exclusive))
		}
	}
	if r.Name == "" && r.Selector == nil {
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	}
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	if action := *r.ParameterNotFoundAction; action != admissionregistrationv1.DenyAction && action != admissionregistrationv1.AllowAction {
		errs = append(errs, field.NotSupported(at.Child("parameterNotFoundAction"), action,
			[]admissionregistrationv1.ParameterNotFoundActionType{admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction}))
	}
	return errs
}

func validateMutatingPolicy(p, old *admissionregistrationv1.MutatingAdmissionPolicy) (errs field.ErrorList) {
	var stored expressions
	conditions := true
	if old == nil {
		errs = validateStaticSuffix(p.Name)
	} else {
		stored = mutatingExpressions(&old.Spec)
		conditions = !equality.Semantic.DeepEqual(p.Spec.ParamKind, old.Spec.ParamKind) ||
			!equality.Semantic.DeepEqual(p.Spec.MatchConditions, old.Spec.MatchConditions)
	}
	at, spec := field.NewPath("spec"), &p.Spec
	params := spec.ParamKind != nil
	errs = append(errs, validateFailurePolicy(spec.FailurePolicy, at.Child("failurePolicy"))...)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	errs = append(errs, validateMutable(spec.MatchConstraints, at.Child("matchConstraints"))...)
	if conditions {
		errs = append(errs, validateConditions(spec.MatchConditions, params, stored.conditions, at.Child("matchConditions"))...)
	}
	c := admissioncel.NewPolicyCompiler(admissioncel.New)
	errs = append(errs, validateVariables(c, spec.Variables, params, stored.mutations, at.Child("variables"))...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range spec.Mutations {
		errs = append(errs, validateMutation(c, &spec.Mutations[i], params, stored.mutations, at.Child("mutations").Index(i))...)
	}
	if policy := at.Child("reinvocationPolicy"); spec.ReinvocationPolicy == "" {
		errs = append(errs, field.Required(policy, ""))
	} else {
		errs = append(errs, oneOf(policy, spec.ReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	}
	return errs
}

func mutatingExpressions(s *admissionregistrationv1.MutatingAdmissionPolicySpec) (e expressions) {
	for _, c := range s.MatchConditions {
		e.conditions = append(e.conditions, c.Expression)
	}
	for _, v := range s.Variables {
		e.mutations = append(e.mutations, v.Expression)
	}
	for _, m := range s.Mutations {
		if m.ApplyConfiguration != nil {
			e.mutations = append(e.mutations, m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			e.mutations = append(e.mutations, m.JSONPatch.Expression)
		}
	}
	return e
}

func validateMutation(c *admissioncel.Compiler, m *admissionregistrationv1.Mutation, params bool, stored []string, at *field.Path) (errs field.ErrorList) {
	const patch, apply = admissionregistrationv1.PatchTypeJSONPatch, admissionregistrationv1.PatchTypeApplyConfiguration
	expression := func(text string, result *cel.Type, at *field.Path) {
		trimmed := strings.TrimSpace(text)
		if trimmed == "" {
			errs = append(errs, field.Required(at, ""))
			return
		}
		c.Accept(origin(text, stored))
		p := c.Compile(trimmed, admissioncel.Declarations{Params: params, Authorizer: true, Patches: true}, result)
		errs = append(errs, compiled(&p, trimmed, at)...)
	}
	switch m.PatchType {
	case "":
		errs = append(errs, field.Required(at.Child("patchType"), ""))
	case patch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(at.Child("jsonPatch"), "must be specified when patchType is JSONPatch"))
		} else {
			expression(m.JSONPatch.Expression, admissioncel.JSONPatches, at.Child("jsonPatch", "expression"))
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(at.Child("applyConfiguration"), "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	case apply:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(at.Child("applyConfiguration"), "must be specified when patchType is ApplyConfiguration"))
		} else {
			expression(m.ApplyConfiguration.Expression, admissioncel.AppliedObject, at.Child("applyConfiguration", "expression"))
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(at.Child("jsonPatch"), "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	default:
		errs = append(errs, oneOf(at.Child("patchType"), m.PatchType, apply, patch)...)
	}
	return errs
}
