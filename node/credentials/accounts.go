package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kubelet/config/v1"
	pluginv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// A Pod needs an image.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	ServiceAccount  string // "" if it has none
}

// Of returns a pod as the owner of tokens.
func Of(pod *corev1.Pod) Pod {
	return Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ServiceAccount: pod.Spec.ServiceAccountName}
}

// Accounts reads service accounts from the API server.
type Accounts interface {
	Account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)

	// Token returns a token of the pod's service account for an audience, bound to the pod, and when the next one is due.
	Token(ctx context.Context, pod Pod, account types.UID, audience string) (token string, next time.Time, err error)
}

// An identity is what a plug-in gets about a pod's service account. The zero identity is none.
type identity struct {
	account     Source
	annotations map[string]string
	token       string
	key         string // for its answers: others get other ones
}

// identify returns what the plug-in gets about a pod's service account, and whether it runs at all (KEP-4412).
func (p *plugin) identify(ctx context.Context, pod Pod, accounts Accounts) (id identity, runs bool, err error) {
	t := p.TokenAttributes
	switch {
	case t == nil:
		return identity{}, true, nil
	case pod.ServiceAccount == "":
		return identity{}, !*t.RequireServiceAccount, nil
	}
	account, err := accounts.Account(ctx, pod.Namespace, pod.ServiceAccount)
	if err != nil {
		return identity{}, false, fmt.Errorf("failed to get service account: %w", err)
	}
	id = identity{account: Source{string(account.UID), account.Namespace, account.Name}, annotations: map[string]string{}}
	for _, key := range t.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[key]
		if !ok {
			return identity{}, false, nil // the account does not take part
		}
		id.annotations[key] = value
	}
	for _, key := range t.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[key]; ok {
			id.annotations[key] = value
		}
	}
	if id.token, err = p.token(ctx, pod, account.UID, accounts); err != nil {
		return identity{}, false, fmt.Errorf("failed to get service account token: %w", err)
	}
	kept := []any{id.account, id.annotations}
	if t.CacheType == configv1.TokenServiceAccountTokenCacheType {
		sum := sha256.Sum256([]byte(id.token))
		kept = append(kept, hex.EncodeToString(sum[:]))
	}
	key, err := json.Marshal(kept)
	id.key = string(key)
	return id, err == nil, err
}

// token returns a token for the plug-in, which the containers of a pod share until the next one is due.
func (p *plugin) token(ctx context.Context, pod Pod, account types.UID, accounts Accounts) (string, error) {
	key := string(pod.UID) + "/" + string(account)
	p.mu.Lock()
	token, ok := p.tokens.get(key, p.now())
	p.mu.Unlock()
	if ok {
		return token, nil
	}
	token, next, err := accounts.Token(ctx, pod, account, p.TokenAttributes.ServiceAccountTokenAudience)
	if apierrors.IsForbidden(err) {
		return "", fmt.Errorf("%w; the group system:nodes needs the verb request-serviceaccounts-token-audience for the resource %s in a ClusterRole",
			err, p.TokenAttributes.ServiceAccountTokenAudience)
	}
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens.put(key, token, p.now(), next)
	return token, nil
}

// echoed returns an error if the answer has the token as a password, although the answer is for other pods with the account, too.
func (p *plugin) echoed(id identity, res *pluginv1.CredentialProviderResponse) error {
	if id.token == "" || p.TokenAttributes.CacheType == configv1.TokenServiceAccountTokenCacheType {
		return nil
	}
	for _, a := range res.Auth {
		if a.Password == id.token {
			return fmt.Errorf("the service account token is returned as the password, which is not allowed when cacheType is not %q", configv1.TokenServiceAccountTokenCacheType)
		}
	}
	return nil
}

// checkTokenAttributes returns the faults of the field tokenAttributes at a path.
func checkTokenAttributes(p *configv1.CredentialProvider, at *field.Path) (faults field.ErrorList) {
	t := p.TokenAttributes
	if t == nil {
		return nil
	}
	if p.APIVersion != group+"/v1" {
		faults = append(faults, field.Forbidden(at, "tokenAttributes is only supported for "+group+"/v1 API version"))
	}
	if t.ServiceAccountTokenAudience == "" {
		faults = append(faults, field.Required(at.Child("serviceAccountTokenAudience"), ""))
	}
	required, optional := at.Child("requiredServiceAccountAnnotationKeys"), at.Child("optionalServiceAccountAnnotationKeys")
	switch {
	case t.RequireServiceAccount == nil:
		faults = append(faults, field.Required(at.Child("requireServiceAccount"), ""))
	case !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0:
		faults = append(faults, field.Forbidden(required, "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set"))
	}
	seen := map[string]bool{}
	faults = append(faults, checkKeys(t.RequiredServiceAccountAnnotationKeys, required, seen)...)
	faults = append(faults, checkKeys(t.OptionalServiceAccountAnnotationKeys, optional, seen)...)
	kinds := []configv1.ServiceAccountTokenCacheType{configv1.ServiceAccountServiceAccountTokenCacheType, configv1.TokenServiceAccountTokenCacheType}
	switch t.CacheType {
	case kinds[0], kinds[1]:
	case "":
		faults = append(faults, field.Required(at.Child("cacheType"), "cacheType is required to be set when tokenAttributes is specified. Supported values are: ServiceAccount, Token"))
	default:
		faults = append(faults, field.NotSupported(at.Child("cacheType"), t.CacheType, kinds))
	}
	return faults
}

// checkKeys returns the faults of keys of annotations. None may be among those seen.
func checkKeys(keys []string, at *field.Path, seen map[string]bool) (faults field.ErrorList) {
	for i, key := range keys {
		for _, fault := range validation.IsQualifiedName(strings.ToLower(key)) {
			faults = append(faults, field.Invalid(at.Index(i), key, fault))
		}
		if seen[key] {
			faults = append(faults, field.Duplicate(at.Index(i), key))
		}
		seen[key] = true
	}
	return faults
}
