package volumes

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/volume"
)

// requestToken returns a token of a pod's service account, bound to the pod. An empty audience is that of the API server. seconds are
// the life of the token; nil leaves it to the API server. account is the UID of the service account, if it matters.
func requestToken(
	ctx context.Context, api client.Interface, pod credentials.Pod, audience string, seconds *int64, account types.UID,
) (authenticationv1.TokenRequestStatus, error) {
	request := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: account}, Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	o, err := api.Create(ctx, client.ServiceAccounts.GroupVersionResource, pod.Namespace, pod.ServiceAccount, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return authenticationv1.TokenRequestStatus{}, err
	}
	answer, ok := o.(*authenticationv1.TokenRequest)
	if !ok || answer.Status.Token == "" {
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("the server answered with a %T without a token", o)
	}
	return answer.Status, nil
}

// nextToken returns when a token is due for the next one.
func nextToken(granted authenticationv1.TokenRequestStatus) time.Time {
	if at := volume.Refresh(granted.Token); !at.IsZero() {
		return at
	}
	return time.Now().Add(time.Until(granted.ExpirationTimestamp.Time) * 4 / 5)
}

// Accounts implements [credentials.Accounts]. A request takes at most as long as one for a secret.
type Accounts struct{ Client client.Interface }

func (a Accounts) Account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return client.ServiceAccounts.Get(ctx, a.Client, namespace, name)
}

func (a Accounts) Token(ctx context.Context, pod credentials.Pod, account types.UID, audience string) (string, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	granted, err := requestToken(ctx, a.Client, pod, audience, nil, account)
	if err != nil {
		return "", time.Time{}, err
	}
	return granted.Token, nextToken(granted), nil
}
