package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/cli/resource"
)

func rbacMapping(name, kind string, namespaced bool) resource.Mapping {
	return resource.Mapping{GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource(name), Kind: kind, Namespaced: namespaced}
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// ruleFlags are the flags about the rules of a role.
type ruleFlags struct {
	verbs, resources, names []string
	urls                    []string // of cluster roles alone
	server                  Server
}

func (r *ruleFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&r.verbs, "verb", nil, "verb that the rule allows; may be repeated")
	f.StringSliceVar(&r.resources, "resource", nil, "RESOURCE[.GROUP][/SUBRESOURCE] that the rule applies to; may be repeated")
	f.StringArrayVar(&r.names, "resource-name", nil, "name of an object that the rule applies to (default all); may be repeated")
}

func (r *ruleFlags) connect(s Server) { r.server = s }

// standardVerbs are the verbs of the Kubernetes API. Extensions may have others.
func standardVerbs() []string {
	return []string{
		"*", "get", "delete", "list", "create", "update", "patch", "watch", "proxy", "deletecollection", "use", "bind", "escalate", "impersonate",
	}
}

// urlVerbs are the verbs on paths that are not resources.
func urlVerbs() []string {
	return []string{"*", "get", "post", "put", "delete", "patch", "head", "options"}
}

// onlyOn returns the resources that a verb has a meaning for; nil means all.
func onlyOn(verb string) []schema.GroupResource {
	switch verb {
	case "use":
		return []schema.GroupResource{{Group: "policy", Resource: "podsecuritypolicies"}, {Group: "extensions", Resource: "podsecuritypolicies"}}
	case "bind", "escalate":
		return []schema.GroupResource{{Group: rbacv1.GroupName, Resource: "roles"}, {Group: rbacv1.GroupName, Resource: "clusterroles"}}
	case "impersonate":
		return []schema.GroupResource{{Resource: "users"}, {Resource: "serviceaccounts"}, {Resource: "groups"}, {Group: "authentication.k8s.io", Resource: "userextras"}}
	}
	return nil
}

// ruled is a resource that a rule is about.
type ruled struct {
	schema.GroupResource
	sub   string
	found error // the server does not have it
}

// every is the wildcard for all verbs and all resources.
const every = "*"

// read parses --resource and maps short names to the names that rules use.
func (r *ruleFlags) read() ([]ruled, error) {
	var all []ruled
	for _, text := range r.resources {
		name, sub, _ := strings.Cut(text, "/")
		word, group, grouped := strings.Cut(name, ".")
		one := ruled{GroupResource: schema.GroupResource{Group: group, Resource: word}, sub: sub}
		if word == every && !grouped && !strings.Contains(text, "/") {
			return []ruled{one}, nil
		}
		if word != every && word != "" {
			found, err := r.server.Resource(one.GroupResource)
			if err == nil {
				one.GroupResource = found
			}
			one.found = err
		}
		all = append(all, one)
	}
	return all, nil
}

// check returns the fault of resources, which the server may not have, and with the verbs on them.
func (r *ruleFlags) check(verbs []string, all []ruled) error {
	for _, v := range verbs {
		if !slices.Contains(standardVerbs(), v) {
			r.server.Warn(fmt.Sprintf("'%s' is not a standard resource verb", v))
		}
	}
	for _, one := range all {
		switch one.Resource {
		case "":
			return errors.New("resource must be specified if apiGroup/subresource specified")
		case every:
			return nil
		}
		for _, v := range verbs {
			only := onlyOn(v)
			if slices.Contains(only, one.GroupResource) {
				one.found = nil // some of these are no resources of a server
			} else if only != nil {
				return fmt.Errorf("can not perform '%s' on '%s' in group '%s'", v, one.Resource, one.Group)
			}
		}
		if one.found != nil {
			return &ServerError{one.found}
		}
	}
	return nil
}

func uniq(all []string) (out []string) {
	for _, one := range all {
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// chosenVerbs returns each verb once.
func (r *ruleFlags) chosenVerbs() []string {
	if slices.Contains(r.verbs, every) {
		return []string{every}
	}
	return uniq(r.verbs)
}

// rules returns a rule for the resources of each API group, in the order of their names.
func (r *ruleFlags) rules(verbs []string, all []ruled) []rbacv1.PolicyRule {
	groups := map[string][]string{}
	for _, one := range all {
		name := one.Resource
		if one.sub != "" {
			name += "/" + one.sub
		}
		groups[one.Group] = uniq(append(groups[one.Group], name))
	}
	rules := []rbacv1.PolicyRule{}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		rules = append(rules, rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{g}, Resources: groups[g], ResourceNames: uniq(r.names)})
	}
	if len(r.urls) > 0 {
		rules = append(rules, rbacv1.PolicyRule{Verbs: verbs, NonResourceURLs: uniq(r.urls)})
	}
	return rules
}

func roleForm() Form {
	var r ruleFlags
	return Form{
		Use: "role NAME --verb=VERB --resource=RESOURCE[.GROUP][/SUBRESOURCE]", Short: "Create a Role with one rule",
		Mapping: rbacMapping("roles", "Role", true), Flags: r.flags, Connect: r.connect,
		Object: func(name string, _ []string) (runtime.Object, error) {
			resources, err := r.read()
			verbs := r.chosenVerbs()
			switch {
			case err != nil:
				return nil, err
			case len(verbs) == 0:
				return nil, errors.New("at least one verb must be specified")
			case len(resources) == 0:
				return nil, errors.New("at least one resource must be specified")
			}
			if err := r.check(verbs, resources); err != nil {
				return nil, err
			}
			return &rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: meta(name), Rules: r.rules(verbs, resources)}, nil
		},
	}
}

func clusterRoleForm() Form {
	var (
		r         ruleFlags
		aggregate map[string]string
	)
	return Form{
		Use:     "clusterrole NAME --verb=VERB --resource=RESOURCE[.GROUP][/SUBRESOURCE] | --non-resource-url=PATH | --aggregation-rule=LABEL=VALUE",
		Short:   "Create a ClusterRole with one rule",
		Mapping: rbacMapping("clusterroles", "ClusterRole", false), Connect: r.connect,
		Flags: func(f *pflag.FlagSet) {
			r.flags(f)
			f.StringSliceVar(&r.urls, "non-resource-url", nil, "path of the server that the rule applies to, such as /healthz or /logs/*; may be repeated")
			f.Var((*pairs)(&aggregate), "aggregation-rule", "labels of the ClusterRoles to aggregate, instead of rules")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			role := &rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: meta(name)}
			if len(aggregate) > 0 {
				if len(r.urls)+len(r.verbs)+len(r.resources)+len(r.names) > 0 {
					return nil, errors.New("aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames")
				}
				role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: aggregate}}}
				return role, nil
			}
			resources, err := r.read()
			verbs := r.chosenVerbs()
			switch {
			case err != nil:
				return nil, err
			case len(verbs) == 0:
				return nil, errors.New("at least one verb must be specified")
			case len(resources)+len(r.urls) == 0:
				return nil, errors.New("one of resource or nonResourceURL must be specified")
			}
			if len(resources) > 0 {
				if err := r.check(verbs, resources); err != nil {
					return nil, err
				}
			}
			if len(r.urls) > 0 {
				if err := checkURLs(verbs, r.urls); err != nil {
					return nil, err
				}
			}
			role.Rules = r.rules(verbs, resources)
			return role, nil
		},
	}
}

func checkURLs(verbs, urls []string) error {
	for _, v := range verbs {
		if !slices.Contains(urlVerbs(), v) {
			return fmt.Errorf("invalid verb: '%s' for nonResourceURL", v)
		}
	}
	for _, u := range urls {
		switch {
		case u == every:
		case !strings.HasPrefix(u, "/"):
			return errors.New("nonResourceURL should start with /")
		case strings.Contains(u[:len(u)-1], every):
			return errors.New("nonResourceURL only supports wildcard matches when '*' is at the end")
		}
	}
	return nil
}

// pairs is the value of a flag with KEY=VALUE, several times or with commas between.
type pairs map[string]string

func (p *pairs) String() string {
	var texts []string
	for _, k := range slices.Sorted(maps.Keys(*p)) {
		texts = append(texts, k+"="+(*p)[k])
	}
	return strings.Join(texts, ",")
}

func (*pairs) Type() string { return "mapStringString" }

// Set implements pflag.Value.
func (p *pairs) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return errors.New("malformed pair, expect string=string")
		}
		*p = with(*p, strings.TrimSpace(key), strings.TrimSpace(value))
	}
	return nil
}

// bindingFlags are the flags about who gets a role.
type bindingFlags struct{ users, groups, accounts []string }

func (b *bindingFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&b.users, "user", nil, "user to bind to the role; may be repeated")
	f.StringArrayVar(&b.groups, "group", nil, "group to bind to the role; may be repeated")
	f.StringArrayVar(&b.accounts, "serviceaccount", nil, "NAMESPACE:NAME of a service account to bind to the role; may be repeated")
}

func (b *bindingFlags) subjects() (all []rbacv1.Subject, err error) {
	for _, name := range b.users {
		all = append(all, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name})
	}
	for _, name := range b.groups {
		all = append(all, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name})
	}
	for _, text := range b.accounts {
		namespace, name, ok := strings.Cut(text, ":")
		if !ok || namespace == "" || name == "" || strings.Contains(name, ":") {
			return nil, errors.New("serviceaccount must be <namespace>:<name>")
		}
		all = append(all, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	}
	return all, nil
}

func roleBindingForm() Form {
	var (
		b             bindingFlags
		role, cluster string
	)
	return Form{
		Use:     "rolebinding NAME --role=NAME | --clusterrole=NAME [--user=USER] [--group=GROUP] [--serviceaccount=NAMESPACE:NAME]",
		Short:   "Create a RoleBinding, which gives a Role or a ClusterRole to users in a namespace",
		Mapping: rbacMapping("rolebindings", "RoleBinding", true), Failure: "failed to create rolebinding",
		Flags: func(f *pflag.FlagSet) {
			b.flags(f)
			f.StringVar(&role, "role", "", "Role that the binding refers to")
			f.StringVar(&cluster, "clusterrole", "", "ClusterRole that the binding refers to")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			if (role == "") == (cluster == "") {
				return nil, errors.New("exactly one of clusterrole or role must be specified")
			}
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}
			if cluster != "" {
				ref.Kind, ref.Name = "ClusterRole", cluster
			}
			subjects, err := b.subjects()
			return &rbacv1.RoleBinding{TypeMeta: rbacType("RoleBinding"), ObjectMeta: meta(name), RoleRef: ref, Subjects: subjects}, err
		},
	}
}

func clusterRoleBindingForm() Form {
	var (
		b    bindingFlags
		role string
	)
	return Form{
		Use:     "clusterrolebinding NAME --clusterrole=NAME [--user=USER] [--group=GROUP] [--serviceaccount=NAMESPACE:NAME]",
		Short:   "Create a ClusterRoleBinding, which gives a ClusterRole to users in all namespaces",
		Mapping: rbacMapping("clusterrolebindings", "ClusterRoleBinding", false), Failure: "failed to create clusterrolebinding",
		Flags: func(f *pflag.FlagSet) {
			b.flags(f)
			f.StringVar(&role, "clusterrole", "", "ClusterRole that the binding refers to (required)")
		},
		Required: []string{"clusterrole"},
		Object: func(name string, _ []string) (runtime.Object, error) {
			subjects, err := b.subjects()
			return &rbacv1.ClusterRoleBinding{
				TypeMeta: rbacType("ClusterRoleBinding"), ObjectMeta: meta(name),
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
			}, err
		},
	}
}
