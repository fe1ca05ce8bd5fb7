package auth

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ReviewToken answers whose token it is that r has, if it is good for one of the audiences that r names,
// or for this API server if r names none. A token that is not good is no error: the status says why.
func (a *Authenticator) ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	if r.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	answer := r.DeepCopy()
	answer.Status = authenticationv1.TokenReviewStatus{}
	user, audiences, err := a.identify(ctx, r.Spec.Token, r.Spec.Audiences)
	if err != nil {
		answer.Status.Error = err.Error()
		return answer, nil
	}
	answer.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: audiences,
		User: authenticationv1.UserInfo{Username: user.Name, UID: user.UID, Groups: user.Groups, Extra: map[string]authenticationv1.ExtraValue{}},
	}
	for key, values := range user.Extra {
		answer.Status.User.Extra[key] = values
	}
	return answer, nil
}

// VerifyFor returns whose token it is and for which of the wanted audiences, or an Unauthorized status
// error. No wanted audience means those of this API server. Apart from that it is as [Tokens.Verify].
func (t *Tokens) VerifyFor(ctx context.Context, token string, wanted []string) (*User, []string, error) {
	if len(wanted) == 0 {
		wanted = t.opts.Audiences
	}
	known, err := t.verify(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	var good []string
	for _, audience := range wanted {
		if slices.Contains(known.audiences, audience) {
			good = append(good, audience)
		}
	}
	if len(good) == 0 {
		return nil, nil, apierrors.NewUnauthorized(fmt.Sprintf("the bearer token is for the audiences %q and not for %q", known.audiences, wanted))
	}
	return known.user, good, nil
}
