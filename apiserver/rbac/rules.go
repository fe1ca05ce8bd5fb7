package rbac

import (
	"context"
	"fmt"
	"iter"
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
//
// The result is as large as the product of the lists of a rule. For rules of any origin use [Policy.ConfirmNoEscalation].
func Missing(held, rules []rbacv1.PolicyRule) (missing []rbacv1.PolicyRule) {
	c := newCoverage(held)
	s := c.newSearch(context.Background(), sizeOf(rules))
	for i := range rules {
		if c.resource(s, &rules[i]) == nil && c.path(s, &rules[i]) == nil && s.err == nil {
			continue
		}
		s.err = nil
		for one := range singles(&rules[i]) {
			if !c.covers(s, &one) {
				missing = append(missing, one)
			}
		}
	}
	return missing
}

// Bounds on messages about rules that are not held.
const (
	mostMissing = 1_000  // rules of one verb on one resource that are named
	mostTried   = 10_000 // such rules that are compared to find them
)

// lacks returns what rules grant and held rules do not, as [Missing] does, but at most mostMissing of it; more reports whether
// there may be others. The time is in proportion to the lists and not to their product. The error is errCosts, or the
// cause of ctx if that is over.
func lacks(ctx context.Context, held, rules []rbacv1.PolicyRule) (missing []rbacv1.PolicyRule, more bool, err error) {
	c := newCoverage(held)
	s := c.newSearch(ctx, sizeOf(rules))
	tried := 0
	for i := range rules {
		resource, path := c.resource(s, &rules[i]), c.path(s, &rules[i])
		if s.err != nil {
			return missing, true, s.err
		}
		if resource == nil && path == nil {
			continue
		}
		if len(missing) >= mostMissing || tried >= mostTried {
			return missing, true, nil
		}
		before := len(missing)
		t := c.newSearch(ctx, 0)
		for one := range singles(&rules[i]) {
			if tried++; tried > mostTried || len(missing) >= mostMissing {
				more = true
				break
			}
			if !c.covers(t, &one) {
				missing = append(missing, one)
			}
		}
		if len(missing) > before {
			continue
		}
		for _, one := range []*rbacv1.PolicyRule{resource, path} {
			if one != nil {
				missing = append(missing, *one)
			}
		}
	}
	return missing, more, nil
}

// singles returns the rules of one verb on one resource or path that r consists of.
func singles(r *rbacv1.PolicyRule) iter.Seq[rbacv1.PolicyRule] {
	return func(yield func(rbacv1.PolicyRule) bool) {
		for i := range r.APIGroups {
			for j := range r.Resources {
				for k := range r.Verbs {
					one := rbacv1.PolicyRule{APIGroups: r.APIGroups[i : i+1 : i+1], Resources: r.Resources[j : j+1 : j+1], Verbs: r.Verbs[k : k+1 : k+1]}
					if !withNames(one, r.ResourceNames, yield) {
						return
					}
				}
			}
		}
		for i := range r.NonResourceURLs {
			for k := range r.Verbs {
				if !yield(rbacv1.PolicyRule{NonResourceURLs: r.NonResourceURLs[i : i+1 : i+1], Verbs: r.Verbs[k : k+1 : k+1]}) {
					return
				}
			}
		}
	}
}

// withNames yields a rule with each of the names, or without a name if there are none.
func withNames(one rbacv1.PolicyRule, names []string, yield func(rbacv1.PolicyRule) bool) bool {
	for n := range names {
		if one.ResourceNames = names[n : n+1 : n+1]; !yield(one) {
			return false
		}
	}
	return len(names) > 0 || yield(one)
}

// describe returns the rules that [Missing] returned as Kubernetes shows them, one in each line and
// sorted. Verbs on the same resource share a line. It says so if it leaves out rules because of mostDescribed.
func describe(missing []rbacv1.PolicyRule, more bool) string {
	type object struct {
		group, resource, name string
		named                 bool
	}
	verbs := map[object][]string{}
	var lines []string
	for i := range missing {
		r := &missing[i]
		if len(r.NonResourceURLs) > 0 {
			lines = append(lines, fmt.Sprintf("{NonResourceURLs:%s, Verbs:%s}", quoted(r.NonResourceURLs...), quoted(r.Verbs...)))
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
			names = ", ResourceNames:" + quoted(o.name)
		}
		lines = append(lines, fmt.Sprintf("{APIGroups:%s, Resources:%s%s, Verbs:%s}", quoted(o.group), quoted(o.resource), names, quoted(v...)))
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	size := 0
	for i, line := range lines {
		if size += len(line); size > mostDescribed {
			lines, more = lines[:max(i, 1)], true
			break
		}
	}
	if more {
		lines = append(lines, "… and more")
	}
	return strings.Join(lines, "\n")
}

// Bounds on the bytes of a description.
const (
	mostDescribed = 32 << 10 // of all
	mostOfValue   = 512      // of a value; names of objects have up to 253
)

// quoted returns a list as the verb %q prints it. Long values are cut.
func quoted(list ...string) string {
	short := list
	for i, v := range list {
		if len(v) > mostOfValue {
			if &short[0] == &list[0] {
				short = slices.Clone(list)
			}
			short[i] = v[:mostOfValue] + "…"
		}
	}
	return fmt.Sprintf("%q", short)
}
