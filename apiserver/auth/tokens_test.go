package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
)

// objects is a store for tests, by "resource/namespace/name".
type objects map[string]catalog.Object

func (o objects) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	if found := o[gvr.Resource+"/"+namespace+"/"+name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

func meta(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
}

func boundObjects() objects {
	return objects{
		"serviceaccounts/ship/cook": &corev1.ServiceAccount{ObjectMeta: meta("ship", "cook", "sa-1")},
		"pods/ship/galley":          &corev1.Pod{ObjectMeta: meta("ship", "galley", "pod-1"), Spec: corev1.PodSpec{ServiceAccountName: "cook", NodeName: "mast"}},
		"pods/ship/bridge":          &corev1.Pod{ObjectMeta: meta("ship", "bridge", "pod-2"), Spec: corev1.PodSpec{ServiceAccountName: "captain"}},
		"secrets/ship/recipe":       &corev1.Secret{ObjectMeta: meta("ship", "recipe", "secret-1")},
		"nodes//mast":               &corev1.Node{ObjectMeta: meta("", "mast", "node-1")},
	}
}

func newTokens(t testing.TB, o objects) *auth.Tokens {
	t.Helper()
	tokens, err := auth.NewTokens(auth.TokensOptions{Key: newKey(t), Objects: o})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func ask(seconds int64, ref *authenticationv1.BoundObjectReference, audiences ...string) *authenticationv1.TokenRequest {
	tr := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, BoundObjectRef: ref}}
	if seconds != 0 {
		tr.Spec.ExpirationSeconds = &seconds
	}
	return tr
}

func to(kind, name, uid string) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(uid)}
}

func issue(t testing.TB, tokens *auth.Tokens, tr *authenticationv1.TokenRequest) string {
	t.Helper()
	granted, err := tokens.Request(context.Background(), "ship", "cook", tr)
	if err != nil {
		t.Fatal(err)
	}
	return granted.Status.Token
}

// of asks for a token, and names the service account.
func of(namespace, name, uid string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{ObjectMeta: meta(namespace, name, uid)}
}

func TestATokenSaysWhoseItIs(t *testing.T) {
	tokens := newTokens(t, boundObjects())
	u, err := tokens.Verify(t.Context(), issue(t, tokens, ask(0, to("Pod", "galley", "pod-1"))))
	if err != nil {
		t.Fatal(err)
	}
	if u.Name != "system:serviceaccount:ship:cook" || u.UID != "sa-1" {
		t.Errorf("user = %q, %q", u.Name, u.UID)
	}
	if want := []string{"system:serviceaccounts", "system:serviceaccounts:ship", "system:authenticated"}; !slices.Equal(u.Groups, want) {
		t.Errorf("groups = %q, want %q", u.Groups, want)
	}
	keys := slices.Sorted(maps.Keys(u.Extra))
	want := []string{
		"authentication.kubernetes.io/credential-id", "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid",
		"authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid",
	}
	if !slices.Equal(keys, want) {
		t.Errorf("extra = %q, want %q", keys, want)
	}
}

func TestTokenRequests(t *testing.T) {
	long := int64(1) << 33
	tests := []struct {
		name    string
		account string
		tr      *authenticationv1.TokenRequest
		granted int64
		refuse  string
		is      func(error) bool
	}{
		{name: "an hour unless asked", tr: ask(0, nil), granted: 3600},
		{name: "as long as asked", tr: ask(3607, nil), granted: 3607},
		{name: "a day at most", tr: ask(1<<32, nil), granted: 24 * 3600},
		{name: "too short", tr: ask(599, nil), refuse: "may not specify a duration less than 10 minutes", is: apierrors.IsInvalid},
		{name: "too long", tr: ask(long, nil), refuse: "larger than 2^32 seconds", is: apierrors.IsInvalid},
		{name: "an empty audience", tr: ask(0, nil, ""), refuse: "spec.audiences[0]", is: apierrors.IsInvalid},
		{name: "no such account", account: "nobody", tr: ask(0, nil), refuse: "not found", is: apierrors.IsNotFound},
		{name: "of the account itself", tr: of("ship", "cook", "sa-1"), granted: 3600},
		{name: "of an account made anew", tr: of("", "", "sa-0"), refuse: "the UID in the token request (sa-0) does not match the UID of the service account (sa-1)", is: apierrors.IsConflict},
		{name: "of another account", tr: of("", "captain", ""), refuse: `metadata.name: Invalid value: "captain": must match the service account name if specified`, is: apierrors.IsInvalid},
		{name: "of another namespace", tr: of("port", "", ""), refuse: "metadata.namespace", is: apierrors.IsInvalid},
		{name: "to a pod without its UID", tr: ask(0, to("Pod", "galley", "")), granted: 3600},
		{name: "to no such pod", tr: ask(0, to("Pod", "hold", "")), refuse: "not found", is: apierrors.IsNotFound},
		{name: "to the pod of another account", tr: ask(0, to("Pod", "bridge", "pod-2")), refuse: `cannot bind token for serviceaccount "cook" to pod running with serviceaccount "captain"`, is: apierrors.IsBadRequest},
		{name: "to a pod made anew", tr: ask(0, to("Pod", "galley", "pod-0")), refuse: "does not match the UID in record", is: apierrors.IsConflict},
		{name: "to a secret", tr: ask(0, to("Secret", "recipe", "secret-1")), granted: 3600},
		{name: "to a node", tr: ask(0, to("Node", "mast", "node-1")), granted: 3600},
		{name: "to something else", tr: ask(0, to("ConfigMap", "x", "")), refuse: "cannot bind token to object of type", is: apierrors.IsBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.account == "" {
				tt.account = "cook"
			}
			before := tt.tr.DeepCopy()
			granted, err := newTokens(t, boundObjects()).Request(t.Context(), "ship", tt.account, tt.tr)
			if tt.refuse != "" {
				if err == nil || !tt.is(err) || !strings.Contains(err.Error(), tt.refuse) {
					t.Errorf("err = %v, want %q", err, tt.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *granted.Spec.ExpirationSeconds != tt.granted || granted.Status.Token == "" {
				t.Errorf("granted %d seconds, want %d", *granted.Spec.ExpirationSeconds, tt.granted)
			}
			if before.Spec.ExpirationSeconds == nil && tt.tr.Spec.ExpirationSeconds != nil {
				t.Error("the request itself was changed")
			}
		})
	}
}

// TestTokenIsBoundToObjects checks every tie, on a token that was good a
// moment before: nothing may be remembered that is not true any more.
func TestTokenIsBoundToObjects(t *testing.T) {
	gone := metav1.NewTime(time.Now().Add(-2 * time.Minute))
	tests := []struct {
		name   string
		ref    *authenticationv1.BoundObjectReference
		change func(objects)
		refuse string // empty: it stays good
	}{
		{"the account is deleted", nil, func(o objects) { delete(o, "serviceaccounts/ship/cook") }, "no longer exists"},
		{"the account is made anew", nil, func(o objects) {
			o["serviceaccounts/ship/cook"] = &corev1.ServiceAccount{ObjectMeta: meta("ship", "cook", "sa-2")}
		}, "another serviceaccounts"},
		{"the pod is deleted", to("Pod", "galley", ""), func(o objects) { delete(o, "pods/ship/galley") }, `pods "galley"`},
		{"the pod is made anew", to("Pod", "galley", ""), func(o objects) { o["pods/ship/galley"] = &corev1.Pod{ObjectMeta: meta("ship", "galley", "pod-9")} }, "another pods"},
		{"the pod is long due", to("Pod", "galley", ""), func(o objects) {
			p := o["pods/ship/galley"].DeepCopyObject().(*corev1.Pod)
			p.DeletionTimestamp = &gone
			o["pods/ship/galley"] = p
		}, "is deleted"},
		{"the secret is deleted", to("Secret", "recipe", ""), func(o objects) { delete(o, "secrets/ship/recipe") }, "secrets"},
		{"the node is deleted", to("Node", "mast", ""), func(o objects) { delete(o, "nodes//mast") }, "nodes"},
		{"another pod is deleted", to("Pod", "galley", ""), func(o objects) { delete(o, "pods/ship/bridge") }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := boundObjects()
			tokens := newTokens(t, o)
			token := issue(t, tokens, ask(0, tt.ref))
			if _, err := tokens.Verify(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			tt.change(o)
			_, err := tokens.Verify(t.Context(), token)
			switch {
			case tt.refuse == "" && err != nil:
				t.Error(err)
			case tt.refuse != "" && (!apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), tt.refuse)):
				t.Errorf("err = %v, want Unauthorized with %q", err, tt.refuse)
			}
		})
	}
}

func TestATokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(t, boundObjects())
		used, unused := issue(t, tokens, ask(600, nil)), issue(t, tokens, ask(600, nil))
		time.Sleep(599 * time.Second)
		if _, err := tokens.Verify(t.Context(), used); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		time.Sleep(2 * time.Second)
		for _, token := range []string{used, unused} { // remembered and not
			if _, err := tokens.Verify(t.Context(), token); !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "expired at") {
				t.Errorf("err = %v, want that it expired", err)
			}
		}
	})
}

func TestForeignTokensAreRefused(t *testing.T) {
	o := boundObjects()
	ours := newTokens(t, o)
	elsewhere, err := auth.NewTokens(auth.TokensOptions{Key: newKey(t), Objects: o, Issuer: "https://elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	former, err := auth.NewTokens(auth.TokensOptions{Key: key, Objects: o})
	if err != nil {
		t.Fatal(err)
	}
	rotated, err := auth.NewTokens(auth.TokensOptions{Key: newKey(t), Objects: o, Former: []*ecdsa.PublicKey{&key.PublicKey}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		by     *auth.Tokens
		token  string
		refuse string
	}{
		{"of another key", ours, issue(t, newTokens(t, o), ask(0, nil)), "a key that this cluster does not have"},
		{"of another issuer", ours, issue(t, elsewhere, ask(0, nil)), "is not valid"},
		{"for another audience", ours, issue(t, ours, ask(0, nil, "vault")), `for the audiences ["vault"]`},
		{"of a former key", rotated, issue(t, former, ask(0, nil)), ""},
		{"with the other half of its signature", ours, mirrored(t, issue(t, ours, ask(0, nil))), "not in the form that this cluster issues"},
		{"nonsense", ours, "nonsense", "is not valid"},
		{"unsigned", ours, "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.", "is not valid"},
		{"huge", ours, strings.Repeat("x", 1<<20), "too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.by.Verify(t.Context(), tt.token)
			switch {
			case tt.refuse == "" && err != nil:
				t.Error(err)
			case tt.refuse != "" && (!apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), tt.refuse)):
				t.Errorf("err = %v, want Unauthorized with %q", err, tt.refuse)
			}
		})
	}
}

// mirrored returns the token with the signature (r, -s) instead of (r, s), which
// mathematics holds to be as good.
func mirrored(t *testing.T, token string) string {
	t.Helper()
	at := strings.LastIndexByte(token, '.') + 1
	signature, err := base64.RawURLEncoding.DecodeString(token[at:])
	if err != nil {
		t.Fatal(err)
	}
	s := new(big.Int).SetBytes(signature[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(signature[32:])
	return token[:at] + base64.RawURLEncoding.EncodeToString(signature)
}

// FuzzVerify checks that a token is accepted only as it was issued: any change makes it invalid.
func FuzzVerify(f *testing.F) {
	tokens := newTokens(f, boundObjects())
	token := issue(f, tokens, ask(0, to("Pod", "galley", "pod-1")))
	for _, at := range []int{0, 5, 40, len(token) / 2, len(token) - 1} {
		f.Add(at, byte('A'), 1)
		f.Add(at, byte('.'), 0)
	}
	f.Add(0, byte(0), len(token))
	f.Fuzz(func(t *testing.T, at int, with byte, cut int) {
		if at < 0 || at > len(token) || cut < 0 || cut > len(token)-at {
			return
		}
		altered := token[:at] + string([]byte{with}) + token[at+cut:]
		if altered == token {
			return
		}
		if u, err := tokens.Verify(context.Background(), altered); err == nil {
			t.Errorf("an altered token is believed to be of %s: %q", u.Name, altered)
		}
	})
}
