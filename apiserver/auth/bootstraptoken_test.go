package auth_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// bootstrapSecret returns the Secret of token abcdef.0123456789abcdef, with changes "KEY=VALUE".
func bootstrapSecret(changes ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: meta("kube-system", "bootstrap-token-abcdef", "1"), Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
		},
	}
	for _, c := range changes {
		key, value, _ := strings.Cut(c, "=")
		s.Data[key] = []byte(value)
	}
	return s
}

func TestBootstrapTokens(t *testing.T) {
	deleted := bootstrapSecret()
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	opaque := bootstrapSecret()
	opaque.Type = corev1.SecretTypeOpaque
	at := func(d time.Duration) string { return "expiration=" + time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, tt := range []struct {
		name, token string
		secret      *corev1.Secret
		groups      string // empty if it is refused
	}{
		{"a token", "abcdef.0123456789abcdef", bootstrapSecret(), "system:bootstrappers system:authenticated"},
		{"with time left", "abcdef.0123456789abcdef", bootstrapSecret(at(time.Hour)), "system:bootstrappers system:authenticated"},
		{"with groups", "abcdef.0123456789abcdef", bootstrapSecret("auth-extra-groups=system:bootstrappers:b,system:bootstrappers:a"), "system:bootstrappers system:bootstrappers:a system:bootstrappers:b system:authenticated"},
		{"another secret part", "abcdef.0123456789abcdee", bootstrapSecret(), ""},
		{"another ID", "abcdee.0123456789abcdef", bootstrapSecret(), ""},
		{"an ID that is not that of the name", "abcdef.0123456789abcdef", bootstrapSecret("token-id=aaaaaa"), ""},
		{"expired", "abcdef.0123456789abcdef", bootstrapSecret(at(-time.Second)), ""},
		{"an expiration that is no time", "abcdef.0123456789abcdef", bootstrapSecret("expiration=never"), ""},
		{"not for authentication", "abcdef.0123456789abcdef", bootstrapSecret("usage-bootstrap-authentication=True"), ""},
		{"a group of administrators", "abcdef.0123456789abcdef", bootstrapSecret("auth-extra-groups=system:masters"), ""},
		{"a group in capitals", "abcdef.0123456789abcdef", bootstrapSecret("auth-extra-groups=system:bootstrappers:A"), ""},
		{"deleted", "abcdef.0123456789abcdef", deleted, ""},
		{"of another type", "abcdef.0123456789abcdef", opaque, ""},
		{"no secret", "abcdef.0123456789abcdef", nil, ""},
		{"an empty secret part", "abcdef.", bootstrapSecret("token-secret="), ""},
		{"a path", "../abc.0123456789abcdef", bootstrapSecret(), ""},
	} {
		o := objects{}
		if tt.secret != nil {
			o["secrets/kube-system/bootstrap-token-abcdef"] = tt.secret
		}
		a := auth.New(auth.Options{Bootstrap: auth.NewBootstrapTokens(o), Tokens: newTokens(t, o)})
		u, err := a.Authenticate(request(nil, "Bearer "+tt.token))
		if tt.groups == "" {
			if err == nil {
				t.Errorf("%s: is %v", tt.name, u)
			}
			continue
		}
		if err != nil || u.Name != "system:bootstrap:abcdef" || strings.Join(u.Groups, " ") != tt.groups {
			t.Errorf("%s: %v, %v", tt.name, u, err)
		}
		r, err := a.ReviewToken(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tt.token, Audiences: []string{"other"}}})
		if err != nil || r.Status.Authenticated {
			t.Errorf("%s: it is good for another audience: %v", tt.name, err)
		}
	}
}

// TestBootstrapTokenOfDeletedSecret checks that nothing remembers a token.
func TestBootstrapTokenOfDeletedSecret(t *testing.T) {
	o := objects{"secrets/kube-system/bootstrap-token-abcdef": bootstrapSecret()}
	a := auth.New(auth.Options{Bootstrap: auth.NewBootstrapTokens(o)})
	use := func() error {
		_, err := a.Authenticate(request(nil, "Bearer abcdef.0123456789abcdef"))
		return err
	}
	if err := use(); err != nil {
		t.Fatal(err)
	}
	clear(o)
	if err := use(); err == nil {
		t.Error("the token is good without its Secret")
	}
}

func TestAnonymousAccess(t *testing.T) {
	for _, tt := range []struct {
		access auth.AnonymousAccess
		want   bool
	}{
		{auth.AnonymousAccess{}, true},
		{auth.AnonymousAccess{Disabled: true}, false},
		{auth.AnonymousAccess{Paths: []string{"/livez", "/api"}}, true},
		{auth.AnonymousAccess{Paths: []string{"/livez", "/api/"}}, false},
	} {
		u, err := auth.New(auth.Options{Anonymous: tt.access}).Authenticate(request(nil, ""))
		if u != nil || (err == nil) != tt.want {
			t.Errorf("%+v: %v, %v", tt.access, u, err)
		}
	}
}

func TestTokenHeaderIsRemoved(t *testing.T) {
	r := request(nil, "Bearer sesame")
	if _, err := auth.New(auth.Options{AdminToken: "sesame"}).Authenticate(r); err != nil || slices.Contains([]string{"Bearer sesame"}, r.Header.Get("Authorization")) {
		t.Errorf("%v; the request has %v", err, r.Header)
	}
}
