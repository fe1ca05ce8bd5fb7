package standalone

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
)

const (
	// tokenLife is how long a token of an account is asked for, as upstream does.
	tokenLife = time.Hour

	// leastLife is assumed of a token whose expiration is nearer, because the clocks may differ. Servers issue none that is shorter.
	leastLife = 10 * time.Minute
)

// accounts are the clients of service accounts of kube-system, whose tokens come from the server. The user of api may create
// these accounts and their tokens, as upstream's system:kube-controller-manager may.
type accounts struct {
	api    client.Interface
	config *rest.Config // without credentials
	agent  string
}

// client returns the client of an account. It makes no request.
func (a *accounts) client(name string) (*client.REST, error) {
	t := &accountToken{api: a.api, account: name, turn: make(chan struct{}, 1)}
	config := rest.CopyConfig(a.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearer{t, next} })
	return client.NewREST(config, client.RESTOptions{UserAgent: a.agent})
}

// An accountToken is the token of an account, which is asked for when it is needed.
type accountToken struct {
	api     client.Interface
	account string

	// turn has an element while a goroutine reads or replaces the token.
	turn  chan struct{}
	token string    // guarded by turn
	until time.Time // guarded by turn; then another one is asked for
}

// get returns a token. It blocks until the server has answered or ctx is cancelled.
func (t *accountToken) get(ctx context.Context) (string, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	if t.token != "" && time.Now().Before(t.until) {
		return t.token, nil
	}
	token, life, err := t.request(ctx)
	if err != nil {
		return "", fmt.Errorf("requesting a token of service account %s/%s: %w", metav1.NamespaceSystem, t.account, err)
	}
	t.token, t.until = token, time.Now().Add(life-life/5)
	return token, nil
}

// drop forgets a token that the server has refused.
func (t *accountToken) drop(ctx context.Context, token string) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-t.turn }()
	if t.token == token {
		t.token = ""
	}
}

// request asks the server for a token, and makes the account if there is none.
func (t *accountToken) request(ctx context.Context) (token string, life time.Duration, err error) {
	const namespace = metav1.NamespaceSystem
	ask := func() (*authenticationv1.TokenRequest, error) {
		seconds := int64(tokenLife / time.Second)
		answer, err := t.api.Create(ctx, client.ServiceAccounts.GroupVersionResource, namespace, t.account,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{}, "token")
		if err != nil {
			return nil, err
		}
		r, ok := answer.(*authenticationv1.TokenRequest)
		if !ok || r.Status.Token == "" {
			return nil, fmt.Errorf("the server answered with a %T without a token", answer)
		}
		return r, nil
	}
	r, err := ask()
	if apierrors.IsNotFound(err) {
		_, err = client.ServiceAccounts.Create(ctx, t.api, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.account}})
		if err == nil || apierrors.IsAlreadyExists(err) {
			r, err = ask()
		}
	}
	if err != nil {
		return "", 0, err
	}
	return r.Status.Token, max(leastLife, time.Until(r.Status.ExpirationTimestamp.Time)), nil
}

// bearer sends requests with the token of an account.
type bearer struct {
	token *accountToken
	next  http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.token.get(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := b.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		b.token.drop(r.Context(), token) // the account may have been made again; the controller tries again
	}
	return resp, err
}
