package flowcontrol

import (
	"fmt"
	"math"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// mostQueues is how many queues a level may have.
	mostQueues = 10_000_000

	// mostHashBits is how many bits the choice of a hand of queues may take of a hash.
	mostHashBits = 60

	// zeroSharesAnnotation belongs to an older version of the API, which needs it to write 0 shares.
	zeroSharesAnnotation = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

	// all stands for everything in lists.
	all = "*"
)

var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateSchema(s, _ *flowcontrolv1.FlowSchema) (errs field.ErrorList) {
	at := field.NewPath("spec")
	precedence := at.Child("matchingPrecedence")
	bad := func(when bool, why string) {
		if when {
			errs = append(errs, field.Invalid(precedence, s.Spec.MatchingPrecedence, why))
		}
	}
	const most = flowcontrolv1.FlowSchemaMaxMatchingPrecedence
	bad(s.Spec.MatchingPrecedence <= 0, "must be a positive value")
	bad(s.Spec.MatchingPrecedence > most, fmt.Sprintf("must not be greater than %v", most))
	bad(s.Spec.MatchingPrecedence == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt, "only the schema named 'exempt' may have matchingPrecedence 1")
	methods := []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}
	if m := s.Spec.DistinguisherMethod; m != nil && !slices.Contains(methods, m.Type) {
		errs = append(errs, field.NotSupported(at.Child("distinguisherMethod", "type"), m, []string{string(methods[0]), string(methods[1])}))
	}
	level, name := at.Child("priorityLevelConfiguration", "name"), s.Spec.PriorityLevelConfiguration.Name
	if name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, faults(level, name, apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	for i := range s.Spec.Rules {
		errs = append(errs, validateRule(&s.Spec.Rules[i], at.Child("rules").Index(i))...)
	}
	for _, m := range MandatorySchemas() {
		if m.Name == s.Name && !equality.Semantic.DeepEqual(m.Spec, s.Spec) {
			errs = append(errs, field.Invalid(at, s.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name)))
		}
	}
	return errs
}

func faults(at *field.Path, value any, why []string) (errs field.ErrorList) {
	for _, w := range why {
		errs = append(errs, field.Invalid(at, value, w))
	}
	return errs
}

func validateRule(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) (errs field.ErrorList) {
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(&r.Subjects[i], at.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		n, at := &r.NonResourceRules[i], at.Child("nonResourceRules").Index(i)
		errs = append(errs, validateVerbs(n.Verbs, at.Child("verbs"))...)
		urls := at.Child("nonResourceURLs")
		errs = append(errs, validateList(n.NonResourceURLs, urls, "nonResourceURLs must contain at least one value", "non-resource URLs")...)
		every := slices.Contains(n.NonResourceURLs, all)
		for k, url := range n.NonResourceURLs {
			if why := notPath(url); why != "" && !every {
				errs = append(errs, field.Invalid(urls.Index(k), url, why))
			}
		}
	}
	return errs
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, at.Child("verbs"))
	errs = append(errs, validateList(r.APIGroups, at.Child("apiGroups"), "resource rules must supply at least one api group", "api groups")...)
	errs = append(errs, validateList(r.Resources, at.Child("resources"), "resource rules must supply at least one resource", "resources")...)
	namespaces := at.Child("namespaces")
	if len(r.Namespaces) > 0 || !r.ClusterScope {
		errs = append(errs, validateList(r.Namespaces, namespaces, "resource rules that are not cluster scoped must supply at least one namespace", "namespaces")...)
	}
	if slices.Contains(r.Namespaces, all) {
		return errs
	}
	for i, n := range r.Namespaces {
		for _, fault := range apivalidation.ValidateNamespaceName(n, false) {
			errs = append(errs, field.Invalid(namespaces.Index(i), n, "each member of this list must be '*' or a DNS-1123 label; "+fault))
		}
	}
	return errs
}

// validateList requires a list of names, in which "*" stands alone.
func validateList(list []string, at *field.Path, required, others string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(at, required)}
	case len(list) > 1 && slices.Contains(list, all):
		return field.ErrorList{field.Invalid(at, list, "if '*' is present, must not specify other "+others)}
	}
	return nil
}

func validateVerbs(list []string, at *field.Path) field.ErrorList {
	errs := validateList(list, at, "verbs must contain at least one value", "verbs")
	if !slices.Contains(list, all) && !sets.New(verbs...).HasAll(list...) {
		errs = append(errs, field.NotSupported(at, list, verbs))
	}
	return errs
}

// notPath returns the fault of the path of a URL, or "".
func notPath(path string) string {
	switch stars := strings.Count(path, "*"); {
	case path == "":
		return "must not be empty"
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

// validateSubject requires the part of a subject that its kind names, and no other.
func validateSubject(s *flowcontrolv1.Subject, at *field.Path) (errs field.ErrorList) {
	user, group, account := at.Child("user"), at.Child("group"), at.Child("serviceAccount")
	switch s.Kind {
	case flowcontrolv1.SubjectKindUser, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount:
	default:
		return field.ErrorList{field.NotSupported(at.Child("kind"), s.Kind, []flowcontrolv1.SubjectKind{
			flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser,
		})}
	}
	// part reports whether the part is there and should be.
	part := func(kind flowcontrolv1.SubjectKind, at *field.Path, name string, set bool) bool {
		switch {
		case s.Kind == kind && !set:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", name, kind)))
		case s.Kind != kind && set:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", name, kind)))
		}
		return s.Kind == kind && set
	}
	if part(flowcontrolv1.SubjectKindUser, user, "user", s.User != nil) && s.User.Name == "" {
		errs = append(errs, field.Required(user.Child("name"), ""))
	}
	if part(flowcontrolv1.SubjectKindGroup, group, "group", s.Group != nil) && s.Group.Name == "" {
		errs = append(errs, field.Required(group.Child("name"), ""))
	}
	if !part(flowcontrolv1.SubjectKindServiceAccount, account, "serviceAccount", s.ServiceAccount != nil) {
		return errs
	}
	switch name := s.ServiceAccount.Name; name {
	case all:
	case "":
		errs = append(errs, field.Required(account.Child("name"), ""))
	default:
		errs = append(errs, faults(account.Child("name"), name, apivalidation.ValidateServiceAccountName(name, false))...)
	}
	if namespace := s.ServiceAccount.Namespace; namespace == "" {
		errs = append(errs, field.Required(account.Child("namespace"), "must specify namespace for service account"))
	} else {
		errs = append(errs, faults(account.Child("namespace"), namespace, apivalidation.ValidateNamespaceName(namespace, false))...)
	}
	return errs
}

// validateTypes refuses conditions without a type, and two of one type.
func validateTypes[T ~string](types []T) (errs field.ErrorList) {
	known := make(map[T]bool, len(types))
	for i, t := range types {
		at := field.NewPath("status", "conditions").Index(i).Child("type")
		if known[t] {
			errs = append(errs, field.Duplicate(at, t))
		}
		known[t] = true
		if t == "" {
			errs = append(errs, field.Required(at, ""))
		}
	}
	return errs
}

func validateSchemaStatus(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	var types []flowcontrolv1.FlowSchemaConditionType
	for _, c := range s.Status.Conditions {
		types = append(types, c.Type)
	}
	return validateTypes(types)
}

func validateLevelStatus(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var types []flowcontrolv1.PriorityLevelConfigurationConditionType
	for _, c := range l.Status.Conditions {
		types = append(types, c.Type)
	}
	return validateTypes(types)
}

func validateLevel(l, _ *flowcontrolv1.PriorityLevelConfiguration) (errs field.ErrorList) {
	if _, ok := l.Annotations[zeroSharesAnnotation]; ok {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"), fmt.Sprintf("annotation '%s' is forbidden", zeroSharesAnnotation)))
	}
	at, s := field.NewPath("spec"), &l.Spec
	exempt := l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt
	if exempt != (s.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(at.Child("type"), s.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch s.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if s.Exempt != nil {
			errs = append(errs, validateShares(s.Exempt.NominalConcurrencyShares, s.Exempt.LendablePercent, at.Child("exempt"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if s.Limited != nil {
			errs = append(errs, validateLimited(s.Limited, at.Child("limited"))...)
		}
	case "":
		errs = append(errs, field.Required(at.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), s.Type, []flowcontrolv1.PriorityLevelEnablement{
			flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited,
		}))
	}
	limited := at.Child("limited")
	errs = append(errs, validateMember(s.Limited != nil, s.Type == flowcontrolv1.PriorityLevelEnablementLimited, limited)...)
	if s.Limited != nil { // of whatever type the level is
		r, at := &s.Limited.LimitResponse, limited.Child("limitResponse")
		if r.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		errs = append(errs, validateMember(r.Queuing != nil, r.Type == flowcontrolv1.LimitResponseTypeQueue, at.Child("queuing"))...)
	}
	if s.Exempt != nil && s.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		errs = append(errs, field.Forbidden(at.Child("exempt"), ""))
	}
	for _, m := range MandatoryLevels() {
		if m.Name != l.Name {
			continue
		}
		has, except := *s, ""
		if exempt {
			has.Exempt, except = m.Spec.Exempt, " except the 'spec.exempt' field" // which may change
		}
		if !equality.Semantic.DeepEqual(has, m.Spec) {
			errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("spec of '%s'%s must equal the fixed value", l.Name, except)))
		}
	}
	return errs
}

func validateShares(shares, lendable *int32, at *field.Path) (errs field.ErrorList) {
	if shares != nil && *shares < 0 {
		errs = append(errs, field.Invalid(at.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(at.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, l.LendablePercent, at)
	if p := l.BorrowingLimitPercent; p != nil && *p < 0 {
		errs = append(errs, field.Invalid(at.Child("borrowingLimitPercent"), *p, "if specified, must be a non-negative integer"))
	}
	r, at := &l.LimitResponse, at.Child("limitResponse")
	switch r.Type {
	case flowcontrolv1.LimitResponseTypeReject, "":
	case flowcontrolv1.LimitResponseTypeQueue:
		if r.Queuing != nil {
			errs = append(errs, validateQueuing(r.Queuing, at.Child("queuing"))...)
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), r.Type, []flowcontrolv1.LimitResponseType{
			flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject,
		}))
	}
	return errs
}

// validateMember checks a member of a union, which must be set if and only if the type says so.
func validateMember(set, wanted bool, at *field.Path) field.ErrorList {
	switch {
	case set && !wanted:
		return field.ErrorList{field.Forbidden(at, "")}
	case wanted && !set:
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, at *field.Path) (errs field.ErrorList) {
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(at.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	switch queues := at.Child("queues"); {
	case q.Queues <= 0:
		errs = append(errs, field.Invalid(queues, q.Queues, "must be positive"))
	case q.Queues > mostQueues:
		errs = append(errs, field.Invalid(queues, q.Queues, fmt.Sprintf("must not be greater than %d", mostQueues)))
	}
	bits := math.Ceil(math.Log2(float64(q.Queues)) * float64(q.HandSize))
	switch hand := at.Child("handSize"); {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case bits > mostHashBits:
		errs = append(errs, field.Invalid(hand, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, mostHashBits)))
	}
	return errs
}
