package namespaces

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	defaultAccount = "default"
	rootCAName     = "kube-root-ca.crt"
	rootCAKey      = "ca.crt"

	rootCADescription = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// accounts gives every namespace the default account of its pods.
type accounts struct {
	client     client.Interface
	namespaces *cache.Cache[*corev1.Namespace]
	accounts   *cache.Cache[*corev1.ServiceAccount]
}

func newAccounts(opts Options, namespaces *cache.Cache[*corev1.Namespace]) run.Task {
	a := &accounts{
		client:     opts.For("service-account-controller").Client,
		namespaces: namespaces,
		accounts:   cache.Of(opts.Caches, client.ServiceAccounts, nil),
	}
	loop := perNamespace(opts, "accounts", namespaces, a.ensure, a.accounts.Ready())
	a.accounts.Subscribe(func(before, after *corev1.ServiceAccount) {
		if after == nil && before.Name == defaultAccount {
			loop.Add(controller.Key{Name: before.Namespace})
		}
	})
	return loop.Task()
}

// rootCerts gives every namespace the certificate by which its pods trust the API server.
type rootCerts struct {
	client  client.Interface
	configs *cache.Cache[*corev1.ConfigMap]
	rootCA  func() []byte
}

func newRootCerts(opts Options, namespaces *cache.Cache[*corev1.Namespace]) run.Task {
	r := &rootCerts{
		client:  opts.For("root-ca-cert-publisher").Client,
		configs: cache.Of(opts.Caches, client.ConfigMaps, nil),
		rootCA:  func() []byte { return opts.RootCA },
	}
	if opts.Roots != nil {
		r.rootCA = opts.Roots.CertificatePEM
	}
	loop := perNamespace(opts, "root-certificates", namespaces, r.ensure, r.configs.Ready())
	if opts.Roots != nil {
		opts.Roots.OnChange(func() {
			for _, ns := range namespaces.List("") {
				loop.Add(controller.Key{Name: ns.Name})
			}
		})
	}
	r.configs.Subscribe(func(before, after *corev1.ConfigMap) {
		if key := controller.KeyOfEither(before, after); key.Name == rootCAName {
			loop.Add(controller.Key{Name: key.Namespace})
		}
	})
	return loop.Task()
}

// perNamespace returns a loop that calls ensure for each namespace that is not being deleted.
func perNamespace(opts Options, name string, namespaces *cache.Cache[*corev1.Namespace], ensure func(ctx context.Context, namespace string) error, ready <-chan struct{}) *controller.Loop {
	loop := controller.New(controller.Options{
		Name: name, Workers: opts.Workers, Log: opts.Log,
		Needs: []<-chan struct{}{namespaces.Ready(), ready},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			ns, ok := namespaces.Get("", key.Name)
			if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
				return controller.Result{}, nil
			}
			return controller.Result{}, ensure(ctx, ns.Name)
		},
	})
	namespaces.Subscribe(func(_, after *corev1.Namespace) {
		if after != nil {
			loop.Add(controller.Key{Name: after.Name})
		}
	})
	return loop
}

func (a *accounts) ensure(ctx context.Context, namespace string) error {
	if _, ok := a.accounts.Get(namespace, defaultAccount); ok {
		return nil
	}
	made, err := client.ServiceAccounts.Create(ctx, a.client, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultAccount},
	})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return nil // the caches will report it
	case err != nil:
		return fmt.Errorf("create service account %s/%s: %w", namespace, defaultAccount, err)
	}
	return a.accounts.Await(ctx, made.ResourceVersion)
}

func (r *rootCerts) ensure(ctx context.Context, namespace string) error {
	rootCA := string(r.rootCA())
	if rootCA == "" {
		return nil
	}
	old, exists := r.configs.Get(namespace, rootCAName)
	if exists && len(old.Data) == 1 && old.Data[rootCAKey] == rootCA && len(old.BinaryData) == 0 {
		return nil
	}
	fresh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: rootCAName, Annotations: map[string]string{"kubernetes.io/description": rootCADescription},
	}}
	if exists {
		fresh = old.DeepCopy()
	}
	fresh.Data, fresh.BinaryData = map[string]string{rootCAKey: rootCA}, nil
	var now *corev1.ConfigMap
	var err error
	if exists {
		now, err = client.ConfigMaps.Update(ctx, r.client, fresh, "")
	} else {
		now, err = client.ConfigMaps.Create(ctx, r.client, fresh)
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return nil // the caches will report it
	case err != nil:
		return fmt.Errorf("write configmap %s/%s: %w", namespace, rootCAName, err)
	}
	return r.configs.Await(ctx, now.ResourceVersion)
}
