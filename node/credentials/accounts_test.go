package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// harbour has the service accounts of the tests. A token says for whom it is, and its number.
type harbour struct {
	accounts map[string]*corev1.ServiceAccount
	tokens   int
	until    time.Time
}

func (h *harbour) Account(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if a := h.accounts[name]; a != nil && a.Namespace == namespace {
		return a, nil
	}
	return nil, errors.New("not found")
}

func (h *harbour) Token(_ context.Context, pod Pod, account types.UID, audience string) (string, time.Time, error) {
	h.tokens++
	return fmt.Sprintf("%s-%s-%s-%d", audience, account, pod.Name, h.tokens), h.until, nil
}

func account(name, uid string, annotations map[string]string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name, UID: types.UID(uid), Annotations: annotations}}
}

const attributes = settings + `  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/identity]
    optionalServiceAccountAnnotationKeys: [example.com/region]
`

// echo answers with the request as the name of the user.
const echo = `request=$(tr -d '"{}' )
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"registry.example":{"username":"'$request'","password":"p"}}}'`

func TestPluginGetsTokenAndAnnotations(t *testing.T) {
	p, file, err := plugins(t, echo, attributes)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p.list[0].now = func() time.Time { return now }
	h := &harbour{until: now.Add(time.Hour), accounts: map[string]*corev1.ServiceAccount{
		"cook":    account("cook", "1", map[string]string{"example.com/identity": "galley", "example.com/region": "aft", "other": "x"}),
		"captain": account("captain", "2", map[string]string{"example.com/identity": "bridge"}),
		"guest":   account("guest", "3", nil),
	}}
	ask := func(pod, account string) []Credential {
		return lookup(t.Context(), p, "registry.example/a", "registry.example/a", Pod{"ship", pod, types.UID(pod), account}, h)
	}
	got := ask("a", "cook")
	if len(got) != 1 || got[0].ServiceAccount != (Source{"1", "ship", "cook"}) || got[0].Secret != (Source{}) {
		t.Fatalf("credentials %+v", got)
	}
	const want = "kind:CredentialProviderRequest,apiVersion:credentialprovider.kubelet.k8s.io/v1,image:registry.example/a," +
		"serviceAccountToken:registry-1-a-1,serviceAccountAnnotations:example.com/identity:galley,example.com/region:aft"
	if got[0].Username != want {
		t.Errorf("the plug-in got %s, want %s", got[0].Username, want)
	}
	if again := ask("b", "cook"); !slices.Equal(again, got) || runs(t, file) != 1 {
		t.Errorf("another pod with the account: %+v, %d runs", again, runs(t, file))
	}
	if other := ask("c", "captain"); len(other) != 1 || !strings.Contains(other[0].Username, "bridge") || runs(t, file) != 2 {
		t.Errorf("another account: %+v, %d runs", other, runs(t, file))
	}
	for _, name := range []string{"guest", "", "missing"} {
		if none := ask("d", name); len(none) > 0 || runs(t, file) != 2 {
			t.Errorf("%q: %+v, %d runs", name, none, runs(t, file))
		}
	}
	h.accounts["cook"].Annotations["example.com/identity"] = "mess"
	if changed := ask("a", "cook"); len(changed) != 1 || !strings.Contains(changed[0].Username, "mess") || h.tokens != 3 {
		t.Errorf("a changed annotation: %+v, %d tokens", changed, h.tokens)
	}
	now = now.Add(2 * time.Hour)
	if late := ask("a", "cook"); len(late) != 1 || !strings.Contains(late[0].Username, "registry-1-a-4") {
		t.Errorf("after the token has aged: %+v", late)
	}
}

func TestAnswersForTokensAreForOnePod(t *testing.T) {
	p, file, err := plugins(t, echo, strings.Replace(attributes, "cacheType: ServiceAccount", "cacheType: Token", 1))
	if err != nil {
		t.Fatal(err)
	}
	h := &harbour{until: time.Now().Add(time.Hour), accounts: map[string]*corev1.ServiceAccount{
		"cook": account("cook", "1", map[string]string{"example.com/identity": "galley"}),
	}}
	for i, pod := range []string{"a", "a", "b"} {
		lookup(t.Context(), p, "registry.example/a", "registry.example/a", Pod{"ship", pod, types.UID(pod), "cook"}, h)
		if want := []int{1, 1, 2}[i]; runs(t, file) != want || h.tokens != want {
			t.Errorf("%d runs and %d tokens, want %d", runs(t, file), h.tokens, want)
		}
	}
}

func TestTokenIsNoPasswordOfOthers(t *testing.T) {
	const back = `token=$(sed 's/.*"serviceAccountToken":"\([^"]*\)".*/\1/')
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"registry.example":{"username":"u","password":"'$token'"}}}'`
	h := &harbour{until: time.Now().Add(time.Hour), accounts: map[string]*corev1.ServiceAccount{
		"cook": account("cook", "1", map[string]string{"example.com/identity": "galley"}),
	}}
	for kind, want := range map[string]string{"Token": "u:registry-1-a-1", "ServiceAccount": ""} {
		h.tokens = 0
		p, _, err := plugins(t, back, strings.Replace(attributes, "cacheType: ServiceAccount", "cacheType: "+kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		if got := users(lookup(t.Context(), p, "registry.example/a", "registry.example/a", Pod{"ship", "a", "a", "cook"}, h)); got != want {
			t.Errorf("cacheType %s: %q, want %q", kind, got, want)
		}
	}
}

func TestPodsWithoutServiceAccount(t *testing.T) {
	config := strings.Replace(attributes, "requireServiceAccount: true\n    requiredServiceAccountAnnotationKeys: [example.com/identity]", "requireServiceAccount: false", 1)
	p, _, err := plugins(t, echo, config)
	if err != nil {
		t.Fatal(err)
	}
	got := lookup(t.Context(), p, "registry.example/a", "registry.example/a", Pod{"ship", "static", "s", ""}, &harbour{})
	if len(got) != 1 || strings.Contains(got[0].Username, "serviceAccount") || got[0].ServiceAccount != (Source{}) {
		t.Errorf("credentials %+v", got)
	}
}

func TestFaultsOfTokenAttributesNameTheField(t *testing.T) {
	for _, tt := range []struct{ old, with, want string }{
		{"apiVersion: credentialprovider.kubelet.k8s.io/v1", "apiVersion: credentialprovider.kubelet.k8s.io/v1beta1", "providers[0].tokenAttributes: Forbidden: tokenAttributes is only supported for"},
		{"    serviceAccountTokenAudience: registry\n", "", "providers[0].tokenAttributes.serviceAccountTokenAudience: Required value"},
		{"    cacheType: ServiceAccount\n", "", "providers[0].tokenAttributes.cacheType: Required value"},
		{"cacheType: ServiceAccount", "cacheType: Pod", `providers[0].tokenAttributes.cacheType: Unsupported value: "Pod"`},
		{"    requireServiceAccount: true\n", "", "providers[0].tokenAttributes.requireServiceAccount: Required value"},
		{"requireServiceAccount: true", "requireServiceAccount: false", "providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false"},
		{"[example.com/region]", "[example.com/identity]", "providers[0].tokenAttributes.optionalServiceAccountAnnotationKeys[0]: Duplicate value"},
		{"[example.com/region]", "[a b]", `providers[0].tokenAttributes.optionalServiceAccountAnnotationKeys[0]: "a b": name part must consist`},
	} {
		if _, _, err := plugins(t, "", strings.Replace(attributes, tt.old, tt.with, 1)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.want, err)
		}
	}
}

// refusing is an API server that gives no tokens.
type refusing struct{ harbour }

func (*refusing) Token(context.Context, Pod, types.UID, string) (string, time.Time, error) {
	return "", time.Time{}, apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "cook", errors.New("not for this audience"))
}

func TestLookupNamesTheMissingRight(t *testing.T) {
	p, _, err := plugins(t, echo, attributes)
	if err != nil {
		t.Fatal(err)
	}
	h := &refusing{harbour{accounts: map[string]*corev1.ServiceAccount{"cook": account("cook", "1", map[string]string{"example.com/identity": "galley"})}}}
	found, err := p.Lookup(t.Context(), "registry.example/a", "registry.example/a", Pod{"ship", "a", "a", "cook"}, h)
	const want = `failed to get service account token: serviceaccounts "cook" is forbidden: not for this audience; ` +
		"the group system:nodes needs the verb request-serviceaccounts-token-audience for the resource registry in a ClusterRole"
	if len(found) > 0 || err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, %v, want %s", found, err, want)
	}
}
