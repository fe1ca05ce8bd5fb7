package audit

import (
	"strings"
	"testing"

	"github.com/sampan-io/sampan/apiserver/auth"
)

func policyOf(t *testing.T, text string) *Policy {
	t.Helper()
	p, warning, err := parsePolicy("policy.yaml", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+text))
	if err != nil || warning != nil {
		t.Fatal(err, warning)
	}
	return p
}

func TestRulesMatch(t *testing.T) {
	alice := &auth.User{Name: "alice", Groups: []string{"crew", "system:authenticated"}}
	pods := Attributes{User: alice, Verb: "get", Version: "v1", Resource: "pods", Namespace: "default", Name: "web"}
	with := func(change func(*Attributes)) Attributes {
		a := pods
		change(&a)
		return a
	}
	logs := with(func(a *Attributes) { a.Subresource = "log" })
	node := with(func(a *Attributes) { a.Resource, a.Namespace = "nodes", "" })
	deployment := with(func(a *Attributes) { a.Group, a.Resource = "apps", "deployments" })
	health := Attributes{User: alice, Verb: "get", Path: "/healthz/ping"}
	nobody := with(func(a *Attributes) { a.User = nil })
	for _, tt := range []struct {
		rule string
		at   Attributes
		want bool
	}{
		{"{}", pods, true},
		{"{}", health, true},
		{"users: [alice, bob]", pods, true},
		{"users: [bob]", pods, false},
		{"users: [alice]", nobody, false},
		{"userGroups: [crew]", pods, true},
		{"userGroups: [guests]", pods, false},
		{"userGroups: [crew]", nobody, false},
		{"verbs: [get, list]", pods, true},
		{"verbs: [create]", pods, false},
		{"namespaces: [default]", pods, true},
		{"namespaces: [other]", pods, false},
		{"namespaces: ['']", node, true},
		{"namespaces: ['']", pods, false},
		{"namespaces: [default]", health, false},
		{"resources: [{}]", pods, true},
		{"resources: [{}]", deployment, false},
		{"resources: [{group: '*'}]", deployment, true},
		{"resources: [{group: apps}]", deployment, true},
		{"resources: [{}]", health, false},
		{"resources: [{resources: [pods]}]", pods, true},
		{"resources: [{resources: [pods]}]", logs, false},
		{"resources: [{resources: [pods/log]}]", logs, true},
		{"resources: [{resources: [pods/log]}]", pods, false},
		{"resources: [{resources: ['pods/*']}]", logs, true},
		{"resources: [{resources: ['pods/*']}]", pods, true},
		{"resources: [{resources: ['*/log']}]", logs, true},
		{"resources: [{resources: ['*/status']}]", logs, false},
		{"resources: [{resources: ['*']}]", logs, true},
		{"resources: [{resources: [pods], resourceNames: [web]}]", pods, true},
		{"resources: [{resources: [pods], resourceNames: [db]}]", pods, false},
		{"nonResourceURLs: ['/healthz*']", health, true},
		{"nonResourceURLs: ['/healthz']", health, false},
		{"nonResourceURLs: ['/healthz/ping']", health, true},
		{"nonResourceURLs: ['*']", health, true},
		{"nonResourceURLs: ['*']", pods, false},
		{"verbs: [get]\n  users: [bob]", pods, false},
	} {
		p := policyOf(t, "rules:\n- level: Metadata\n  "+strings.Trim(tt.rule, "{}"))
		if got := p.decide(&tt.at).level; (got == Metadata) != tt.want {
			t.Errorf("%q and %+v: level %s", tt.rule, tt.at, got)
		}
	}
}

func TestTheFirstRuleCounts(t *testing.T) {
	p := policyOf(t, `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, verbs: [watch]}
- {level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}
- {level: RequestResponse, verbs: [get, list]}
`)
	for verb, want := range map[string]scope{
		"watch":  {None, []Stage{RequestReceived}, true},
		"get":    {Request, []Stage{RequestReceived, Panic}, false},
		"list":   {RequestResponse, []Stage{RequestReceived}, true},
		"create": {None, nil, false},
	} {
		got := p.decide(&Attributes{Verb: verb})
		if got.level != want.level || len(got.omitStages) != len(want.omitStages) || got.omitFields != want.omitFields {
			t.Errorf("%s: %+v, want %+v", verb, got, want)
		}
	}
}

func TestPoliciesAreValidated(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"rules: []", "loaded illegal policy with 0 rules"},
		{"rules: [{}]", "rules[0].level: Required value"},
		{"rules: [{level: All}]", `rules[0].level: Unsupported value: "All"`},
		{"rules: [{level: None}]\nomitStages: [Later]", `omitStages[0]: "Later": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic`},
		{"rules: [{level: None, omitStages: [x]}]", "rules[0].omitStages[0]"},
		{"rules: [{level: None, nonResourceURLs: [healthz]}]", "non-resource URL rules must begin with a '/' character"},
		{"rules: [{level: None, nonResourceURLs: ['/a*b']}]", "non-resource URL wildcards '*' must be the final character of the rule"},
		{"rules: [{level: None, nonResourceURLs: ['/a'], namespaces: [a]}]", "rules cannot apply to both regular resources and non-resource URLs"},
		{"rules: [{level: None, resources: [{group: a/v1}]}]", "rules[0].resources[0].group"},
		{"rules: [{level: None, resources: [{resourceNames: [a]}]}]", "using resourceNames requires at least one resource"},
		{"rules: {}", "want a list"},
	} {
		_, _, err := parsePolicy("policy.yaml", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "policy.yaml") {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
	if _, _, err := parsePolicy("p", []byte("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]")); err == nil {
		t.Error("a policy of another version is accepted")
	}
	if _, warning, err := parsePolicy("p", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, foo: bar}]")); err != nil || warning == nil {
		t.Errorf("an unknown field: %v, %v; want a warning", warning, err)
	}
}
