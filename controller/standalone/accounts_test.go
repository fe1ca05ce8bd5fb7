package standalone

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
)

// issuer is the part of an API server that has accounts and issues tokens: one after the other.
type issuer struct {
	client.Interface // nil: other requests panic

	accounts []string
	life     time.Duration
	issued   int
	fault    error
}

func (i *issuer) Create(_ context.Context, gvr schema.GroupVersionResource, _, name string, obj runtime.Object, _ metav1.CreateOptions, subresource string) (runtime.Object, error) {
	if i.fault != nil {
		return nil, i.fault
	}
	if account, ok := obj.(*corev1.ServiceAccount); ok {
		i.accounts = append(i.accounts, account.Namespace+"/"+account.Name)
		return account, nil
	}
	if subresource != "token" || !slices.Contains(i.accounts, "kube-system/"+name) {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	i.issued++
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
		Token: fmt.Sprint("token-", i.issued), ExpirationTimestamp: metav1.NewTime(time.Now().Add(i.life)),
	}}, nil
}

func TestAccountsGetTokensWhenTheyNeedThem(t *testing.T) {
	var got []string
	refused := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") == refused {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	i := &issuer{life: time.Hour}
	a := &accounts{api: i, config: &rest.Config{Host: server.URL}, agent: "test"}
	cook := must[*client.REST](t)(a.client("cook"))
	ask := func(c *client.REST) error {
		resp, err := c.Do(t.Context(), client.RawRequest{Path: "/"})
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	for range 2 {
		if err := ask(cook); err != nil {
			t.Fatal(err)
		}
	}
	refused = "Bearer token-1" // such as after the account was made again
	if err := ask(cook); !apierrors.IsUnauthorized(err) {
		t.Errorf("with a token that is refused: %v", err)
	}
	if err := ask(cook); err != nil {
		t.Error(err)
	}
	if err := ask(must[*client.REST](t)(a.client("mate"))); err != nil {
		t.Error(err)
	}
	want := []string{"Bearer token-1", "Bearer token-1", "Bearer token-1", "Bearer token-2", "Bearer token-3"}
	if !slices.Equal(got, want) {
		t.Errorf("the server got %q, want %q", got, want)
	}
	if !slices.Equal(i.accounts, []string{"kube-system/cook", "kube-system/mate"}) {
		t.Errorf("the accounts are %q", i.accounts)
	}
	i.fault = errors.New("no tokens today")
	if err := ask(must[*client.REST](t)(a.client("boy"))); !errors.Is(err, i.fault) {
		t.Errorf("without a token: %v", err)
	}
	if len(got) != len(want) {
		t.Error("a request was sent without a token")
	}
}

func TestTokensAreReplacedBeforeTheyExpire(t *testing.T) {
	i := &issuer{life: time.Hour, accounts: []string{"kube-system/cook"}}
	token := &accountToken{api: i, account: "cook", turn: make(chan struct{}, 1)}
	first := must[string](t)(token.get(t.Context()))
	if left := time.Until(token.until); left <= 0 || left >= i.life {
		t.Errorf("the token is used for %v of %v", left, i.life)
	}
	token.until = time.Now()
	if next := must[string](t)(token.get(t.Context())); next == first {
		t.Errorf("the token is still %s", next)
	}
}
