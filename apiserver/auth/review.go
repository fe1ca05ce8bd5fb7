package auth

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// WhoAmI answers as whom the user that ctx carries is known.
func WhoAmI(ctx context.Context, r *authenticationv1.SelfSubjectReview) (*authenticationv1.SelfSubjectReview, error) {
	user, ok := UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	answer := r.DeepCopy()
	answer.Status.UserInfo = authenticationv1.UserInfo{Username: user.Name, UID: user.UID, Groups: user.Groups}
	for key, values := range user.Extra {
		if answer.Status.UserInfo.Extra == nil {
			answer.Status.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
		}
		answer.Status.UserInfo.Extra[key] = values
	}
	return answer, nil
}
