package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// granted allows to mate what it lists as "VERB [GROUP/]RESOURCE[/SUBRESOURCE] [NAME]" or "VERB PATH", and everything to others.
type granted []string

func (g granted) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	if a.User.Name != "mate" {
		return rbac.Decision{Allowed: true}
	}
	what := a.Verb + " " + a.Path
	if a.Resource != "" {
		what = a.Verb + " " + a.Resource
		if a.Group != "" {
			what = a.Verb + " " + a.Group + "/" + a.Resource
		}
		if a.Subresource != "" {
			what += "/" + a.Subresource
		}
		if a.Name != "" {
			what += " " + a.Name
		}
	}
	return rbac.Decision{Allowed: slices.Contains(g, what)}
}

func TestConstrainedImpersonation(t *testing.T) {
	const (
		list     = "/api/v1/namespaces/default/configmaps"
		groupAPI = "authentication.k8s.io"
	)
	onList, jane := "impersonate-on:user-info:list configmaps", "impersonate:user-info "+groupAPI+"/users jane"
	for _, tt := range []struct {
		name    string
		granted granted
		path    string
		headers string
		refused string // empty if it is served
	}{
		{"both verbs", granted{onList, jane}, list, "User: jane", ""},
		{"another verb on the resource", granted{"impersonate-on:user-info:get configmaps", jane}, list, "User: jane", "cannot impersonate-on:user-info:list"},
		{"not the user", granted{onList}, list, "User: jane", `users.authentication.k8s.io "jane" is forbidden: User "mate" cannot impersonate:user-info resource "users"`},
		{"the plain verb", granted{"impersonate users jane"}, list, "User: jane", ""},
		{"a group", granted{onList, jane, "impersonate:user-info " + groupAPI + "/groups a"}, list, "User: jane|Group: a", ""},
		{"not the group", granted{onList, jane}, list, "User: jane|Group: a", `groups.authentication.k8s.io "a" is forbidden`},
		{"all groups", granted{onList, jane, "impersonate:user-info " + groupAPI + "/groups *"}, list, "User: jane|Group: a|Group: b|Group: c|Group: d", ""},
		{"three of all groups", granted{onList, jane, "impersonate:user-info " + groupAPI + "/groups *"}, list, "User: jane|Group: a|Group: b|Group: c", `"a" is forbidden`},
		{"administrators", granted{onList, jane, "impersonate:user-info " + groupAPI + "/groups system:masters"}, list, "User: jane|Group: system:masters", "impersonating the system:masters group is not allowed"},
		{"administrators, by the plain verb", granted{"impersonate users jane", "impersonate groups system:masters"}, list, "User: jane|Group: system:masters", ""},
		{"an account", granted{"impersonate-on:serviceaccount:list configmaps", "impersonate:serviceaccount " + groupAPI + "/serviceaccounts cook"}, list, "User: system:serviceaccount:ship:cook", ""},
		{"an account as a user", granted{onList, "impersonate:user-info " + groupAPI + "/users system:serviceaccount:ship:cook"}, list, "User: system:serviceaccount:ship:cook", "cannot impersonate-on:serviceaccount:list"},
		{"a node", granted{"impersonate-on:arbitrary-node:list configmaps", "impersonate:arbitrary-node " + groupAPI + "/nodes mast"}, list, "User: system:node:mast", ""},
		{"a path", granted{"impersonate-on:user-info:get /version", jane}, "/version", "User: jane", ""},
		{"one object of a list", granted{onList + " a", jane}, list + "?fieldSelector=metadata.name%3Da", "User: jane", ""},
		{"a watch", granted{"impersonate-on:user-info:watch configmaps", jane}, list, "User: jane", "cannot impersonate-on:user-info:list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t, func(o *apiserver.Options) { o.Authorizer = tt.granted })
			headers := []string{"X-User: mate"}
			for h := range strings.SplitSeq(tt.headers, "|") {
				headers = append(headers, "Impersonate-"+h)
			}
			a := f.do("GET", tt.path, nil, headers...)
			if served := a.code == 200 || a.code == 404; served != (tt.refused == "") || !strings.Contains(strings.ReplaceAll(string(a.body), `\"`, `"`), tt.refused) {
				t.Errorf("%d %s, want %q", a.code, a.body, tt.refused)
			}
		})
	}
}

type authorizerFunc func(rbac.Attributes) bool

func (f authorizerFunc) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: f(a)}
}

// always believes that every request is one user's.
type always struct{ user auth.User }

func (a always) Authenticate(*http.Request) (*auth.User, error) { return &a.user, nil }

// TestAssociatedNode impersonates the node of a token's pod.
func TestAssociatedNode(t *testing.T) {
	var asked []string
	authorizer := authorizerFunc(func(a rbac.Attributes) bool {
		asked = append(asked, fmt.Sprint(a.User.Name, " ", a.Verb, " ", a.Resource, " ", a.Name, " ", a.User.Extra))
		return true
	})
	f := serve(t, func(o *apiserver.Options) {
		o.Authorizer = authorizer
		o.Auth = always{auth.User{Name: "system:serviceaccount:ship:cook", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"mast"}}}}
	})
	if a := f.do("GET", "/api/v1/nodes", nil, "Impersonate-User: system:node:mast"); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	keys := " map[authentication.kubernetes.io/associated-node-keys:[authentication.kubernetes.io/node-name]]"
	want := []string{
		"system:serviceaccount:ship:cook impersonate-on:associated-node:list nodes " + keys,
		"system:serviceaccount:ship:cook impersonate:associated-node nodes *" + keys,
		"system:node:mast list nodes  map[]",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}
