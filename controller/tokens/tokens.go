package tokens

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// Names of loops.
const (
	TokensLoop  = "serviceaccount-token-controller"
	CleanerLoop = "legacy-serviceaccount-token-cleaner-controller"
)

// A Signer issues tokens for Secrets.
type Signer interface {
	SignLegacy(namespace, account string, uid types.UID, secret string) (string, error)
}

// Roots are the certificates of the API server's authority.
type Roots interface {
	CertificatePEM() []byte
	OnChange(func()) // has a function called after each change
}

// Options configures the controllers. All but the fields of Config are required.
type Options struct {
	controller.Config

	Cleaner client.Interface // as which the cleaner works
	Signer  Signer
	Roots   Roots
}

// Tasks returns the controllers. Their tasks must run together, as one stage.
func Tasks(opts Options) []run.Task {
	config, caches := opts.WithDefaults()
	t := &tokens{
		client: config.Client, signer: opts.Signer, roots: opts.Roots,
		secrets: cache.Of(config.Caches, client.Secrets, nil), accounts: cache.Of(config.Caches, client.ServiceAccounts, nil),
		gone: map[controller.Key]*corev1.Secret{},
	}
	loop := controller.New(controller.Options{
		Name: TokensLoop, Reconcile: t.reconcile, Workers: config.Workers, Log: config.Log,
		Needs: []<-chan struct{}{t.secrets.Ready(), t.accounts.Ready()},
	})
	again := func(namespace, account string) {
		for _, s := range t.secrets.List(namespace) {
			if isToken(s) && (account == "" || s.Annotations[corev1.ServiceAccountNameKey] == account) {
				loop.Add(controller.KeyOf(s))
			}
		}
	}
	t.secrets.Subscribe(func(before, after *corev1.Secret) {
		switch {
		case isToken(after):
			loop.Add(controller.KeyOf(after))
		case after == nil && isToken(before):
			t.deleted(before)
			loop.Add(controller.KeyOf(before))
		}
	})
	t.accounts.Subscribe(func(before, after *corev1.ServiceAccount) {
		if after == nil || before != nil && before.UID != after.UID {
			again(before.Namespace, before.Name)
		}
	})
	opts.Roots.OnChange(func() { again("", "") })
	return append([]run.Task{caches, loop.Task()}, cleanerTask(opts, config, t.secrets, t.accounts))
}

func isToken(s *corev1.Secret) bool {
	return s != nil && s.Type == corev1.SecretTypeServiceAccountToken
}

// tokens fills in Secrets.
type tokens struct {
	client   client.Interface
	signer   Signer
	roots    Roots
	secrets  *cache.Cache[*corev1.Secret]
	accounts *cache.Cache[*corev1.ServiceAccount]

	mu   sync.Mutex
	gone map[controller.Key]*corev1.Secret // guarded by mu; deleted ones, to which an account may still refer
}

func (t *tokens) deleted(s *corev1.Secret) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone[controller.KeyOf(s)] = s
}

func (t *tokens) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	s, ok := t.secrets.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, t.dereference(ctx, key)
	}
	if !isToken(s) || s.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	account, err := t.accountOf(ctx, s)
	if err != nil {
		return controller.Result{}, err
	}
	if account == nil {
		err := client.Secrets.Delete(ctx, t.client, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return controller.Result{}, fmt.Errorf("deleting the token of a service account that does not exist: %w", err)
		}
		return controller.Result{}, nil
	}
	fresh, err := t.filled(s, account)
	if err != nil || fresh == nil {
		return controller.Result{}, err
	}
	now, err := client.Secrets.Update(ctx, t.client, fresh, "")
	switch {
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("writing the token of service account %s/%s: %w", account.Namespace, account.Name, err)
	}
	return controller.Result{}, t.secrets.Await(ctx, now.ResourceVersion)
}

// accountOf returns the service account of a Secret, or nil if it does not exist.
func (t *tokens) accountOf(ctx context.Context, s *corev1.Secret) (*corev1.ServiceAccount, error) {
	name, uid := s.Annotations[corev1.ServiceAccountNameKey], types.UID(s.Annotations[corev1.ServiceAccountUIDKey])
	if name == "" {
		return nil, nil // it has none
	}
	fits := func(a *corev1.ServiceAccount) bool { return uid == "" || a.UID == uid }
	if a, ok := t.accounts.Get(s.Namespace, name); ok && fits(a) {
		return a, nil
	}
	// The cache may not have one that was created just before the Secret.
	a, err := client.ServiceAccounts.Get(ctx, t.client, s.Namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil // it does not exist
	case err != nil:
		return nil, fmt.Errorf("looking up service account %s/%s: %w", s.Namespace, name, err)
	case !fits(a):
		return nil, nil // it is another one
	}
	return a, nil
}

// filled returns a copy of a Secret with all that it needs, or nil if it has that.
func (t *tokens) filled(s *corev1.Secret, a *corev1.ServiceAccount) (*corev1.Secret, error) {
	roots := t.roots.CertificatePEM()
	needsRoots := len(roots) > 0 && !bytes.Equal(s.Data[corev1.ServiceAccountRootCAKey], roots)
	needsNamespace, needsToken := len(s.Data[corev1.ServiceAccountNamespaceKey]) == 0, len(s.Data[corev1.ServiceAccountTokenKey]) == 0
	if !needsRoots && !needsNamespace && !needsToken {
		return nil, nil // nothing to do
	}
	fresh := s.DeepCopy()
	if fresh.Data == nil {
		fresh.Data = map[string][]byte{}
	}
	if needsRoots {
		fresh.Data[corev1.ServiceAccountRootCAKey] = roots
	}
	if needsNamespace {
		fresh.Data[corev1.ServiceAccountNamespaceKey] = []byte(s.Namespace)
	}
	if needsToken {
		token, err := t.signer.SignLegacy(s.Namespace, a.Name, a.UID, s.Name)
		if err != nil {
			return nil, err
		}
		fresh.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	fresh.Annotations[corev1.ServiceAccountNameKey] = a.Name
	fresh.Annotations[corev1.ServiceAccountUIDKey] = string(a.UID)
	return fresh, nil
}

// dereference removes the reference to a deleted Secret from its service account.
func (t *tokens) dereference(ctx context.Context, key controller.Key) error {
	t.mu.Lock()
	s := t.gone[key]
	t.mu.Unlock()
	if s == nil {
		return nil
	}
	if err := t.removeReference(ctx, s); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone[key] == s {
		delete(t.gone, key)
	}
	return nil
}

func (t *tokens) removeReference(ctx context.Context, s *corev1.Secret) error {
	a, ok := t.accounts.Get(s.Namespace, s.Annotations[corev1.ServiceAccountNameKey])
	uid := types.UID(s.Annotations[corev1.ServiceAccountUIDKey])
	if !ok || a.DeletionTimestamp != nil || uid != "" && uid != a.UID {
		return nil
	}
	isGone := func(r corev1.ObjectReference) bool { return r.Name == s.Name }
	if !slices.ContainsFunc(a.Secrets, isGone) {
		return nil
	}
	fresh := a.DeepCopy()
	fresh.Secrets = slices.DeleteFunc(fresh.Secrets, isGone)
	_, err := client.ServiceAccounts.Update(ctx, t.client, fresh, "")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing a reference from service account %s/%s: %w", a.Namespace, a.Name, err)
	}
	return nil
}
