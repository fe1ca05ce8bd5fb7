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

// accounts gives every namespace what pods need: the default account, and the
// certificate by which they trust the API server.
type accounts struct {
	client     client.Interface
	namespaces *cache.Cache[*corev1.Namespace]
	accounts   *cache.Cache[*corev1.ServiceAccount]
	configs    *cache.Cache[*corev1.ConfigMap]
	rootCA     string
}

func newAccounts(opts Options, namespaces *cache.Cache[*corev1.Namespace]) run.Task {
	a := &accounts{
		client:     opts.Client,
		namespaces: namespaces,
		accounts:   cache.Of(opts.Caches, client.ServiceAccounts, nil),
		configs:    cache.Of(opts.Caches, client.ConfigMaps, nil),
		rootCA:     string(opts.RootCA),
	}
	loop := controller.New(controller.Options{
		Name: "accounts", Reconcile: a.reconcile, Workers: opts.Workers, Log: opts.Log,
		Needs: []<-chan struct{}{namespaces.Ready(), a.accounts.Ready(), a.configs.Ready()},
	})
	namespaces.Subscribe(func(_, after *corev1.Namespace) {
		if after != nil {
			loop.Add(controller.Key{Name: after.Name})
		}
	})
	// What is deleted or spoiled is put right.
	a.accounts.Subscribe(func(before, after *corev1.ServiceAccount) {
		if after == nil && before.Name == defaultAccount {
			loop.Add(controller.Key{Name: before.Namespace})
		}
	})
	a.configs.Subscribe(func(before, after *corev1.ConfigMap) {
		if key := controller.KeyOfEither(before, after); key.Name == rootCAName {
			loop.Add(controller.Key{Name: key.Namespace})
		}
	})
	return loop.Task()
}

func (a *accounts) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	ns, ok := a.namespaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return controller.Result{}, nil
	}
	if err := a.ensureAccount(ctx, ns.Name); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{}, a.ensureRootCA(ctx, ns.Name)
}

func (a *accounts) ensureAccount(ctx context.Context, namespace string) error {
	if _, ok := a.accounts.Get(namespace, defaultAccount); ok {
		return nil
	}
	made, err := client.ServiceAccounts.Create(ctx, a.client, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultAccount},
	})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return nil // the caches will tell
	case err != nil:
		return fmt.Errorf("create service account %s/%s: %w", namespace, defaultAccount, err)
	}
	return a.accounts.Await(ctx, made.ResourceVersion)
}

func (a *accounts) ensureRootCA(ctx context.Context, namespace string) error {
	if a.rootCA == "" {
		return nil
	}
	old, exists := a.configs.Get(namespace, rootCAName)
	if exists && len(old.Data) == 1 && old.Data[rootCAKey] == a.rootCA && len(old.BinaryData) == 0 {
		return nil
	}
	fresh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: rootCAName, Annotations: map[string]string{"kubernetes.io/description": rootCADescription},
	}}
	if exists {
		fresh = old.DeepCopy()
	}
	fresh.Data, fresh.BinaryData = map[string]string{rootCAKey: a.rootCA}, nil
	var now *corev1.ConfigMap
	var err error
	if exists {
		now, err = client.ConfigMaps.Update(ctx, a.client, fresh, "")
	} else {
		now, err = client.ConfigMaps.Create(ctx, a.client, fresh)
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return nil // the caches will tell
	case err != nil:
		return fmt.Errorf("write configmap %s/%s: %w", namespace, rootCAName, err)
	}
	return a.configs.Await(ctx, now.ResourceVersion)
}
