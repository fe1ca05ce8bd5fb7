package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Allow reports whether any of the rules allows a request. It does not look at namespaces: they belong to
// bindings, and so does the rule that paths which are not resources can only be allowed everywhere.
func Allow(rules []rbacv1.PolicyRule, a *Attributes) bool {
	for i := range rules {
		if allows(&rules[i], a) {
			return true
		}
	}
	return false
}

func allows(r *rbacv1.PolicyRule, a *Attributes) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if a.Resource == "" {
		return slices.ContainsFunc(r.NonResourceURLs, func(pattern string) bool { return matchesPath(pattern, a.Path) })
	}
	return has(r.APIGroups, a.Group) &&
		slices.ContainsFunc(r.Resources, func(pattern string) bool { return matchesResource(pattern, a.Resource, a.Subresource) }) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

// has reports whether a list contains s or a star.
func has(list []string, s string) bool {
	for _, x := range list {
		if x == s || x == "*" {
			return true
		}
	}
	return false
}

// matchesResource interprets the patterns "*", "pods", "pods/log" and "*/scale". A star stands
// nowhere else: "pods/*" is the subresource "*" of pods.
func matchesResource(pattern, resource, subresource string) bool {
	if pattern == "*" {
		return true
	}
	if subresource == "" {
		return pattern == resource
	}
	prefix, ok := strings.CutSuffix(pattern, subresource)
	if !ok {
		return false
	}
	prefix, ok = strings.CutSuffix(prefix, "/")
	return ok && (prefix == resource || prefix == "*")
}

// matchesPath interprets the patterns "*", "/version" and "/apis/*". As in Kubernetes a pattern may
// end with several stars.
func matchesPath(pattern, path string) bool {
	return pattern == path || strings.HasSuffix(pattern, "*") && strings.HasPrefix(path, strings.TrimRight(pattern, "*"))
}

// Missing returns what rules grant and held rules do not, in rules of one verb on one resource or
// path each; nil if the held rules cover everything.
//
// As in Kubernetes, each such rule must be covered by one held rule. A star is covered by a star
// only, not by a list of everything that exists.
func Missing(held, rules []rbacv1.PolicyRule) (missing []rbacv1.PolicyRule) {
	for i := range rules {
		singles(&rules[i], func(one rbacv1.PolicyRule) {
			if !slices.ContainsFunc(held, func(h rbacv1.PolicyRule) bool { return covers(&h, &one) }) {
				missing = append(missing, one)
			}
		})
	}
	return missing
}

// singles calls f with each of the rules of one verb on one resource or path that r consists of.
func singles(r *rbacv1.PolicyRule, f func(rbacv1.PolicyRule)) {
	for i := range r.APIGroups {
		for j := range r.Resources {
			for k := range r.Verbs {
				one := rbacv1.PolicyRule{APIGroups: r.APIGroups[i : i+1 : i+1], Resources: r.Resources[j : j+1 : j+1], Verbs: r.Verbs[k : k+1 : k+1]}
				for n := range r.ResourceNames {
					one.ResourceNames = r.ResourceNames[n : n+1 : n+1]
					f(one)
				}
				if len(r.ResourceNames) == 0 {
					f(one)
				}
			}
		}
	}
	for i := range r.NonResourceURLs {
		for k := range r.Verbs {
			f(rbacv1.PolicyRule{NonResourceURLs: r.NonResourceURLs[i : i+1 : i+1], Verbs: r.Verbs[k : k+1 : k+1]})
		}
	}
}

// covers reports whether a rule grants all that one does, which is a rule of one verb on one resource
// or path.
func covers(r, one *rbacv1.PolicyRule) bool {
	if !has(r.Verbs, one.Verbs[0]) {
		return false
	}
	if len(r.ResourceNames) > 0 && (len(one.ResourceNames) == 0 || !slices.Contains(r.ResourceNames, one.ResourceNames[0])) {
		return false
	}
	if len(one.NonResourceURLs) > 0 {
		return slices.ContainsFunc(r.NonResourceURLs, func(pattern string) bool { return matchesPath(pattern, one.NonResourceURLs[0]) })
	}
	resource, everywhere := one.Resources[0], ""
	if _, subresource, ok := strings.Cut(resource, "/"); ok {
		everywhere = "*/" + subresource
	}
	return has(r.APIGroups, one.APIGroups[0]) && slices.ContainsFunc(r.Resources, func(pattern string) bool {
		return pattern == "*" || pattern == resource || everywhere != "" && pattern == everywhere
	})
}

// describe returns the rules that [Missing] returned as Kubernetes shows them, one in each line and
// sorted. Verbs on the same resource share a line.
func describe(missing []rbacv1.PolicyRule) string {
	type object struct {
		group, resource, name string
		named                 bool
	}
	verbs := map[object][]string{}
	var lines []string
	for i := range missing {
		r := &missing[i]
		if len(r.NonResourceURLs) > 0 {
			lines = append(lines, fmt.Sprintf("{NonResourceURLs:%q, Verbs:%q}", r.NonResourceURLs, r.Verbs))
			continue
		}
		o := object{group: r.APIGroups[0], resource: r.Resources[0]}
		if len(r.ResourceNames) > 0 {
			o.name, o.named = r.ResourceNames[0], true
		}
		verbs[o] = append(verbs[o], r.Verbs...)
	}
	for o, v := range verbs {
		names := ""
		if o.named {
			names = fmt.Sprintf(", ResourceNames:[%q]", o.name)
		}
		lines = append(lines, fmt.Sprintf("{APIGroups:[%q], Resources:[%q]%s, Verbs:%q}", o.group, o.resource, names, v))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}
