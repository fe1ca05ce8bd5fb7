package priority

import (
	"hash/maphash"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// A Request is what schemas look at, besides its user.
type Request struct {
	Verb string // as authorization knows it

	// Path is the path of the URL, for a request that is not about a resource; otherwise it is empty.
	Path string

	Group, Resource, Subresource string
	Namespace                    string // empty for cluster-scoped resources, and for all namespaces
}

// A User has the rules that concern one user, in the order of precedence. It is valid as long as the
// configuration is: see [Dispatcher.User].
type User struct {
	config *snapshot
	user   *auth.User
	hash   uint64
	rules  []userRule
}

type userRule struct {
	schema *schema
	rule   *flowcontrolv1.PolicyRulesWithSubjects
}

// A Class is the schema that matches a request, and the flow of the request.
type Class struct {
	schema *schema
	flow   uint64 // its hash
}

// Schema returns the name of the schema.
func (c Class) Schema() string { return c.schema.name }

// Level returns the name of the priority level.
func (c Class) Level() string { return c.schema.level.name }

// Exempt reports whether the requests of the class have no limits.
func (c Class) Exempt() bool { return c.schema.level.exempt }

// Headers returns the UIDs of the schema and of the priority level, as values of the response headers
// X-Kubernetes-PF-FlowSchema-UID and X-Kubernetes-PF-PriorityLevel-UID. They must not be changed.
func (c Class) Headers() (schema, level []string) { return c.schema.header, c.schema.level.header }

// newUser collects the rules whose subjects a user is.
func newUser(config *snapshot, u *auth.User) *User {
	out := &User{config: config, user: u, hash: maphash.String(config.seed, u.Name)}
	for _, s := range config.schemas {
		for i := range s.rules {
			if slices.ContainsFunc(s.rules[i].Subjects, func(sub flowcontrolv1.Subject) bool { return isSubject(&sub, u) }) {
				out.rules = append(out.rules, userRule{s, &s.rules[i]})
			}
		}
	}
	return out
}

func isSubject(s *flowcontrolv1.Subject, u *auth.User) bool {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		return s.User.Name == flowcontrolv1.NameAll || s.User.Name == u.Name
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		return s.Group.Name == flowcontrolv1.NameAll || u.In(s.Group.Name)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		if s.ServiceAccount.Name == flowcontrolv1.NameAll {
			return strings.HasPrefix(u.Name, auth.ServiceAccountUser(s.ServiceAccount.Namespace, ""))
		}
		return u.Name == auth.ServiceAccountUser(s.ServiceAccount.Namespace, s.ServiceAccount.Name)
	}
	return false
}

// classify returns the class of a request of the user.
func (u *User) classify(r *Request) Class {
	for i := range u.rules {
		if rule := &u.rules[i]; matches(rule.rule, r) {
			return u.class(rule.schema, r)
		}
	}
	return u.class(u.config.rest, r)
}

func (u *User) class(s *schema, r *Request) Class {
	c := Class{schema: s, flow: s.seed}
	switch s.distinguisher {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		c.flow ^= u.hash
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		c.flow ^= maphash.String(u.config.seed, r.Namespace)
	}
	return c
}

func matches(rule *flowcontrolv1.PolicyRulesWithSubjects, r *Request) bool {
	if r.Path != "" {
		for i := range rule.NonResourceRules {
			n := &rule.NonResourceRules[i]
			if has(n.Verbs, r.Verb) && hasPath(n.NonResourceURLs, r.Path) {
				return true
			}
		}
		return false
	}
	for i := range rule.ResourceRules {
		if matchesResource(&rule.ResourceRules[i], r) {
			return true
		}
	}
	return false
}

func matchesResource(rule *flowcontrolv1.ResourcePolicyRule, r *Request) bool {
	if !has(rule.Verbs, r.Verb) || !has(rule.APIGroups, r.Group) || !hasResource(rule.Resources, r) {
		return false
	}
	if r.Namespace == "" {
		return rule.ClusterScope
	}
	return has(rule.Namespaces, r.Namespace)
}

// everything is the list that contains all names.
func everything(list []string) bool { return len(list) == 1 && list[0] == "*" }

func has(list []string, name string) bool {
	if everything(list) {
		return true
	}
	for _, one := range list {
		if one == name {
			return true
		}
	}
	return false
}

// hasResource reports whether the list has a resource, or RESOURCE/SUBRESOURCE, without making that string.
func hasResource(list []string, r *Request) bool {
	if everything(list) {
		return true
	}
	for _, one := range list {
		behind, ok := strings.CutPrefix(one, r.Resource)
		switch {
		case !ok:
		case r.Subresource == "" && behind == "":
			return true
		case r.Subresource != "" && len(behind) > 1 && behind[0] == '/' && behind[1:] == r.Subresource:
			return true
		}
	}
	return false
}

// hasPath reports whether the list has a path, or one above it: "/healthz" is above "/healthz/ping", as "/healthz/*" is.
func hasPath(list []string, path string) bool {
	for _, one := range list {
		if one == flowcontrolv1.NonResourceAll || one == path {
			return true
		}
		one = strings.TrimSuffix(strings.TrimSuffix(one, "*"), "/")
		if behind, ok := strings.CutPrefix(path, one); ok && strings.HasPrefix(behind, "/") {
			return true
		}
	}
	return false
}
