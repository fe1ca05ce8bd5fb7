package auth_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// claimed returns the claims of a way, as text.
func claimed(m *auth.Impersonation) string {
	var claims []string
	for _, c := range m.Claims {
		text := c.Resource
		if c.Subresource != "" {
			text += "/" + c.Subresource
		}
		text += " "
		if c.Namespace != "" {
			text += c.Namespace + "/"
		}
		text += c.Name
		if c.All != nil {
			text += " or " + c.All.Name
		}
		if c.Refused != "" {
			text += "!"
		}
		claims = append(claims, text)
	}
	return strings.Join(claims, ", ")
}

// TestImpersonation checks the last way, which is the plain verb.
func TestImpersonation(t *testing.T) {
	for _, tt := range []struct {
		name, headers, user, groups, claims string
	}{
		{"a user", "User: jane", "jane", "system:authenticated", "users jane"},
		{"with groups", "User: jane|Group: cooks|Group: sailors", "jane", "cooks sailors system:authenticated", "users jane, groups cooks, groups sailors"},
		{"who says to be authenticated", "User: jane|Group: system:authenticated", "jane", "system:authenticated", "users jane, groups system:authenticated"},
		{"who says not to be", "User: jane|Group: system:unauthenticated", "jane", "system:unauthenticated", "users jane, groups system:unauthenticated"},
		{"nobody", "User: system:anonymous", "system:anonymous", "system:unauthenticated", "users system:anonymous"},
		{
			"a service account", "User: system:serviceaccount:ship:cook", "system:serviceaccount:ship:cook",
			"system:serviceaccounts system:serviceaccounts:ship system:authenticated", "serviceaccounts ship/cook",
		},
		{"a service account with groups", "User: system:serviceaccount:ship:cook|Group: a", "system:serviceaccount:ship:cook", "a system:authenticated", "serviceaccounts ship/cook, groups a"},
		{"no service account", "User: system:serviceaccount:ship", "system:serviceaccount:ship", "system:authenticated", "users system:serviceaccount:ship"},
		{"extra and uid", "User: jane|Extra-Scopes%2fx: a|Uid: 7", "jane", "system:authenticated", "users jane, uids 7, userextras/scopes/x a"},
		{"administrators", "User: jane|Group: system:masters", "jane", "system:masters system:authenticated", "users jane, groups system:masters"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ways, err := auth.ImpersonationsOf(impersonation(tt.headers), &auth.User{Name: "mate"})
			if err != nil || len(ways) == 0 {
				t.Fatal(ways, err)
			}
			m := ways[len(ways)-1]
			got := []string{m.Verb, m.On, m.User.Name, strings.Join(m.User.Groups, " "), claimed(&m)}
			if diff := cmp.Diff([]string{"impersonate", "", tt.user, tt.groups, tt.claims}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if ways, err := auth.ImpersonationsOf(http.Header{"Accept": {"x"}}, nil); ways != nil || err != nil {
		t.Errorf("without headers: %v, %v", ways, err)
	}
	for _, headers := range []string{"Group: system:masters", "Uid: 7", "Extra-A: b", "User: |Group: a"} {
		if _, err := auth.ImpersonationsOf(impersonation(headers), nil); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "without impersonating a user") {
			t.Errorf("%s: %v", headers, err)
		}
	}
}

func TestConstrainedImpersonation(t *testing.T) {
	onMast := &auth.User{Name: "system:serviceaccount:ship:cook", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"mast"}}}
	notAnAccount := &auth.User{Name: "mate", Extra: onMast.Extra}
	for _, tt := range []struct {
		name, headers string
		requestor     *auth.User
		want          []string // MODE > GROUPS > CLAIMS
	}{
		{"a user", "User: jane", onMast, []string{"user-info > system:authenticated > users jane"}},
		{"all of a user", "User: jane|Group: a|Uid: 7|Extra-Example.com%2fx: v", onMast, []string{"user-info > a system:authenticated > users jane, uids 7, groups a, userextras/example.com/x v"}},
		{"an extra key without a domain", "User: jane|Extra-x: v", onMast, []string{"user-info > system:authenticated > users jane, userextras !"}},
		{"an empty group", "User: jane|Group: ", onMast, []string{"user-info >  system:authenticated > users jane, groups !"}},
		{"administrators", "User: jane|Group: a|Group: system:masters", onMast, []string{"user-info > a system:masters system:authenticated > users jane, groups system:masters!"}},
		{"many groups", "User: jane|Group: a|Group: b|Group: c|Group: d", onMast, []string{"user-info > a b c d system:authenticated > users jane, groups a or *, groups b or *, groups c or *, groups d or *"}},
		{"a service account", "User: system:serviceaccount:ship:mate", onMast, []string{"serviceaccount > system:serviceaccounts system:serviceaccounts:ship system:authenticated > serviceaccounts ship/mate"}},
		{"a service account with groups", "User: system:serviceaccount:ship:mate|Group: a", onMast, nil},
		{"the own node", "User: system:node:mast", onMast, []string{
			"associated-node > system:nodes system:authenticated > nodes *",
			"arbitrary-node > system:nodes system:authenticated > nodes mast",
		}},
		{"another node", "User: system:node:stern", onMast, []string{"arbitrary-node > system:nodes system:authenticated > nodes stern"}},
		{"a node, by a user", "User: system:node:mast", notAnAccount, []string{"arbitrary-node > system:nodes system:authenticated > nodes mast"}},
		{"a node with groups", "User: system:node:mast|Group: system:masters", onMast, nil},
	} {
		h := impersonation(tt.headers)
		ways, err := auth.ImpersonationsOf(h, tt.requestor)
		if err != nil {
			t.Fatal(err)
		}
		if len(h) != 0 {
			t.Errorf("%s: the headers %v are left", tt.name, h)
		}
		var got []string
		for _, m := range ways[:len(ways)-1] {
			mode := strings.TrimPrefix(m.Verb, "impersonate:")
			if m.On != "impersonate-on:"+mode+":" {
				t.Errorf("%s: %q with %q", tt.name, m.On, m.Verb)
			}
			got = append(got, mode+" > "+strings.Join(m.User.Groups, " ")+" > "+claimed(&m))
			if mode == "associated-node" && !slices.Equal(m.Requestor.Extra["authentication.kubernetes.io/associated-node-keys"], []string{"authentication.kubernetes.io/node-name"}) {
				t.Errorf("%s: the requestor has %v", tt.name, m.Requestor.Extra)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func impersonation(headers string) http.Header {
	h := http.Header{}
	for _, line := range slices.Collect(strings.SplitSeq(headers, "|")) {
		name, value, _ := strings.Cut(line, ":")
		h.Add("Impersonate-"+name, strings.TrimSpace(value))
	}
	return h
}
