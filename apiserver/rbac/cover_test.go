package rbac

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// coversOne reports whether a rule grants all that one does, which is a rule of one verb on one resource or path, value by
// value: the oracle.
func coversOne(r, one *rbacv1.PolicyRule) bool {
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

func missingOneByOne(held, rules []rbacv1.PolicyRule) (missing []rbacv1.PolicyRule) {
	for i := range rules {
		for one := range singles(&rules[i]) {
			if !slices.ContainsFunc(held, func(h rbacv1.PolicyRule) bool { return coversOne(&h, &one) }) {
				missing = append(missing, one)
			}
		}
	}
	return missing
}

// randomRules returns a few rules of values that often meet.
func randomRules(r *rand.Rand) []rbacv1.PolicyRule {
	some := func(most int, of ...string) (list []string) {
		for range r.IntN(most + 1) {
			list = append(list, of[r.IntN(len(of))])
		}
		return list
	}
	rules := make([]rbacv1.PolicyRule, r.IntN(6))
	for i := range rules {
		if r.IntN(4) == 0 {
			rules[i] = rbacv1.PolicyRule{Verbs: some(3, "get", "put", "post", "*"), NonResourceURLs: some(4, "*", "**", "/", "/a", "/a/*", "/a/b", "/a/b/*", "/a/**", "/b*", "")}
			continue
		}
		rules[i] = rbacv1.PolicyRule{
			Verbs: some(4, "get", "list", "watch", "*"), APIGroups: some(2, "", "apps", "*"),
			Resources: some(4, "pods", "pods/log", "*/log", "*", "nodes", "*/x", "pods/x", "pods/*", "/log"), ResourceNames: some(3, "a", "b", "c", "*", "")[:0],
		}
		if r.IntN(2) == 0 {
			rules[i].ResourceNames = some(4, "a", "b", "c", "*", "")
		}
	}
	return rules
}

func TestCoverageAgreesWithEachValue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	uncovered := 0
	for n := range 6_000 {
		held, rules := randomRules(r), randomRules(r)
		if n%4 == 0 { // all of it, in other pieces
			for one := range singles(&rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{"", "apps"}, Resources: []string{"pods", "nodes"}, ResourceNames: []string{"a", "b"}}) {
				if r.IntN(40) > 0 {
					held = append(held, one)
				}
			}
			rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{"apps", ""}, Resources: []string{"nodes", "pods"}, ResourceNames: []string{"b", "a"}})
		}
		want := missingOneByOne(held, rules)
		got, more, err := lacks(t.Context(), held, rules)
		if err != nil || more {
			t.Fatalf("%v, %v: %v, %v", held, rules, more, err)
		}
		if describe(got, false) != describe(want, false) {
			t.Fatalf("held %v\nrules %v\nmissing %v\nwant %v", held, rules, got, want)
		}
		if all := Missing(held, rules); describe(all, false) != describe(want, false) {
			t.Fatalf("held %v\nrules %v\nall that is missing %v\nwant %v", held, rules, all, want)
		}
		if len(want) > 0 {
			uncovered++
		}
	}
	if uncovered < 500 || uncovered > 5_500 {
		t.Errorf("%d of 6,000 have rules that are missing", uncovered)
	}
}

// many returns n values with a prefix.
func many(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return list
}

// spent returns the steps and the result of a comparison, and the length of its description.
func spent(t *testing.T, held, rules []rbacv1.PolicyRule) (steps, text int, covered bool, err error) {
	t.Helper()
	c := newCoverage(held)
	s := c.newSearch(t.Context(), sizeOf(rules))
	before := s.left
	covered = true
	for i := range rules {
		if c.resource(s, &rules[i]) != nil || c.path(s, &rules[i]) != nil {
			covered = false
		}
	}
	missing, more, _ := lacks(t.Context(), held, rules)
	return before - s.left, len(describe(missing, more)), covered, s.err
}

func TestComparisonsCostWhatTheirRulesAreLarge(t *testing.T) {
	product := func(n int) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: many("v", n), APIGroups: many("g", n), Resources: many("r", n), ResourceNames: many("n", n)}
	}
	each := func(n int, f func(i int) rbacv1.PolicyRule) (rules []rbacv1.PolicyRule) {
		for i := range n {
			rules = append(rules, f(i))
		}
		return rules
	}
	one := func(i int) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprintf("r%d", i)}}
	}
	for name, tt := range map[string]struct {
		held, rules func(n int) []rbacv1.PolicyRule
		covered     bool
	}{
		"nothing is held":  {func(int) []rbacv1.PolicyRule { return nil }, func(n int) []rbacv1.PolicyRule { return []rbacv1.PolicyRule{product(n)} }, false},
		"the same is held": {func(n int) []rbacv1.PolicyRule { return []rbacv1.PolicyRule{product(n)} }, func(n int) []rbacv1.PolicyRule { return []rbacv1.PolicyRule{product(n)} }, true},
		"all is held":      {func(int) []rbacv1.PolicyRule { return everything }, func(n int) []rbacv1.PolicyRule { return []rbacv1.PolicyRule{product(n)} }, true},
		"a name is missing": {func(n int) []rbacv1.PolicyRule {
			r := product(n)
			r.ResourceNames = r.ResourceNames[1:]
			return []rbacv1.PolicyRule{r}
		}, func(n int) []rbacv1.PolicyRule { return []rbacv1.PolicyRule{product(n)} }, false},
		"rules for resources": {func(n int) []rbacv1.PolicyRule { return each(n, one) }, func(n int) []rbacv1.PolicyRule { return each(n, one) }, true},
		"held in pieces": {func(n int) []rbacv1.PolicyRule { return each(n, one) }, func(n int) []rbacv1.PolicyRule {
			return []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: many("r", n)}}
		}, true},
		"verbs here, names there": {func(n int) []rbacv1.PolicyRule {
			return append(each(n, func(i int) rbacv1.PolicyRule {
				return rbacv1.PolicyRule{Verbs: []string{fmt.Sprintf("v%d", i)}, APIGroups: []string{"*"}, Resources: []string{"*"}, ResourceNames: []string{"n0"}}
			}), rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ResourceNames: many("n", n)})
		}, func(n int) []rbacv1.PolicyRule { return []rbacv1.PolicyRule{product(n)} }, true},
		"paths": {func(n int) []rbacv1.PolicyRule {
			return []rbacv1.PolicyRule{{Verbs: many("v", n), NonResourceURLs: append(many("/p", n), "/x*")}}
		}, func(n int) []rbacv1.PolicyRule {
			return []rbacv1.PolicyRule{{Verbs: many("v", n), NonResourceURLs: append(many("/p", n), "/x/y")}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 2000
			steps, text, covered, err := spent(t, tt.held(n), tt.rules(n))
			twice, _, again, errTwice := spent(t, tt.held(2*n), tt.rules(2*n))
			if covered != tt.covered || again != tt.covered || err != nil || errTwice != nil {
				t.Errorf("covered: %v, %v, %v, %v", covered, again, err, errTwice)
			}
			if twice > steps*5/2 {
				t.Errorf("%d values take %d steps, twice as many %d", n, steps, twice)
			}
			if text > 40<<10 {
				t.Errorf("what is missing is described with %d bytes", text)
			}
		})
	}
}

// Rules of which each value has its own held rules are refused: no comparison of such rules has a bound.
func TestComparisonsHaveABound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	half := func(prefix string) (list []string) {
		for _, v := range many(prefix, 200) {
			if r.IntN(2) == 0 {
				list = append(list, v)
			}
		}
		return list
	}
	var held []rbacv1.PolicyRule
	for range 400 {
		held = append(held, rbacv1.PolicyRule{Verbs: half("v"), APIGroups: half("g"), Resources: half("r"), ResourceNames: half("n")})
	}
	rules := []rbacv1.PolicyRule{{Verbs: many("v", 200), APIGroups: many("g", 200), Resources: many("r", 200), ResourceNames: many("n", 200)}}
	if _, _, err := lacks(t.Context(), held, rules); !errors.Is(err, errCosts) {
		t.Errorf("lacks = %v", err)
	}
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, _, err := lacks(ctx, held, rules); !errors.Is(err, gone) {
		t.Errorf("lacks = %v", err)
	}
	u := &auth.User{Name: "jane"}
	p := NewPolicy(Objects{})
	if err := p.ConfirmNoEscalation(t.Context(), u, "a", rules); err == nil || len(err.Error()) > 40<<10 || !strings.Contains(err.Error(), "… and more") {
		t.Errorf("the error has %d bytes: %.2000s", len(fmt.Sprint(err)), err)
	}
}

// A role of which the user has many bindings is one role.
func TestRolesOfManyBindingsCountOnce(t *testing.T) {
	p := NewPolicy(Objects{})
	role := &rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
	role.Namespace, role.Name = "a", "r"
	p.SetRole(role)
	for i := range 100 {
		b := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}}}
		b.Namespace, b.Name = "a", fmt.Sprint("b", i)
		p.SetRoleBinding(b)
	}
	if rules, err := p.RulesFor(&auth.User{Name: "jane"}, "a"); err != nil || len(rules) != 1 {
		t.Errorf("%d rules, %v", len(rules), err)
	}
}
