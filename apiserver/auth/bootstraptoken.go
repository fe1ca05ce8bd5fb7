package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Names of bootstrap tokens, as Kubernetes has them.
const (
	GroupBootstrappers = "system:bootstrappers"

	bootstrapUserPrefix   = "system:bootstrap:"
	bootstrapSecretPrefix = "bootstrap-token-"
	bootstrapSecretType   = "bootstrap.kubernetes.io/token"
	bootstrapNamespace    = "kube-system"
)

var (
	bootstrapTokenForm = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapGroupForm = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// BootstrapTokens verifies bootstrap tokens (ID.SECRET), with which new nodes ask for their first certificate. Each is a
// Secret of type bootstrap.kubernetes.io/token in kube-system, which is read at every use: a token is invalid from the
// moment in which its Secret is deleted. It is safe for concurrent use.
type BootstrapTokens struct {
	objects Lookup
}

// NewBootstrapTokens returns the tokens of the Secrets that objects finds.
func NewBootstrapTokens(objects Lookup) *BootstrapTokens { return &BootstrapTokens{objects} }

// errBootstrapToken is the same for every reason, so that a guess does not reveal which Secrets exist.
func errBootstrapToken() error {
	return apierrors.NewUnauthorized("the bootstrap token is unknown to this cluster, expired, or not for authentication")
}

// Verify returns the user of a bootstrap token, or an Unauthorized status error. It returns nil and no error if the text
// does not have the form of one.
func (b *BootstrapTokens) Verify(ctx context.Context, token string, now time.Time) (*User, error) {
	parts := bootstrapTokenForm.FindStringSubmatch(token)
	if parts == nil {
		return nil, nil
	}
	id, secret := parts[1], parts[2]
	o, err := b.objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("secrets"), bootstrapNamespace, bootstrapSecretPrefix+id)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errBootstrapToken()
	case err != nil:
		return nil, fmt.Errorf("looking up a bootstrap token: %w", err)
	}
	s, ok := o.(*corev1.Secret)
	if !ok || s.DeletionTimestamp != nil || s.Type != bootstrapSecretType {
		return nil, errBootstrapToken()
	}
	// Sums are compared, so that the time taken does not depend on the length of the stored secret.
	want, got := sha256.Sum256(s.Data["token-secret"]), sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 || string(s.Data["token-id"]) != id {
		return nil, errBootstrapToken()
	}
	if expiration := string(s.Data["expiration"]); expiration != "" {
		at, err := time.Parse(time.RFC3339, expiration)
		if err != nil || !now.Before(at) {
			return nil, errBootstrapToken()
		}
	}
	groups, err := bootstrapGroups(string(s.Data["auth-extra-groups"]))
	if err != nil || string(s.Data["usage-bootstrap-authentication"]) != "true" {
		return nil, errBootstrapToken()
	}
	return &User{Name: bootstrapUserPrefix + id, Groups: withAuthenticated(groups)}, nil
}

// bootstrapGroups returns the groups of a token with these extra ones, separated by commas.
func bootstrapGroups(extra string) ([]string, error) {
	groups := []string{GroupBootstrappers}
	if extra == "" {
		return groups, nil
	}
	for group := range strings.SplitSeq(extra, ",") {
		if !bootstrapGroupForm.MatchString(group) {
			return nil, fmt.Errorf("bootstrap group %q is invalid (must match %s)", group, bootstrapGroupForm)
		}
		groups = append(groups, group)
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}
