package certificates

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// servingSigner is the signer of the API server's certificate, as pods see it.
const servingSigner = "kubernetes.io/kube-apiserver-serving"

// publisher keeps the ClusterTrustBundle by which pods trust the API server, as the only one of its signer.
type publisher struct {
	client  client.Interface
	bundles *cache.Cache[*certificatesv1.ClusterTrustBundle]
	want    *certificatesv1.ClusterTrustBundle
}

// newPublisher returns the loop that publishes a root certificate in PEM.
func newPublisher(config controller.Config, rootCA []byte) *controller.Loop {
	p := &publisher{
		client:  config.Client,
		bundles: cache.Of(config.Caches, client.ClusterTrustBundles, nil),
		want: &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: bundleName(servingSigner, rootCA)},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: servingSigner, TrustBundle: string(rootCA)},
		},
	}
	key := controller.Key{Name: servingSigner} // there is one, whatever has changed
	loop := controller.New(controller.Options{
		Name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", Reconcile: p.reconcile, Workers: 1, Log: config.Log,
		Needs: []<-chan struct{}{p.bundles.Ready()},
	})
	p.bundles.Subscribe(func(before, after *certificatesv1.ClusterTrustBundle) {
		for _, b := range []*certificatesv1.ClusterTrustBundle{before, after} {
			if b != nil && b.Spec.SignerName == servingSigner {
				loop.Add(key)
			}
		}
	})
	loop.Add(key)
	return loop
}

// bundleName returns the name that upstream gives a bundle: it changes with the content.
func bundleName(signer string, bundle []byte) string {
	sum := sha256.Sum256(bundle)
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), sum[:12])
}

func (p *publisher) reconcile(ctx context.Context, _ controller.Key) (controller.Result, error) {
	var now *certificatesv1.ClusterTrustBundle
	have, exists := p.bundles.Get("", p.want.Name)
	var err error
	switch {
	case !exists:
		now, err = client.ClusterTrustBundles.Create(ctx, p.client, p.want)
	case have.Spec.TrustBundle != p.want.Spec.TrustBundle:
		fixed := have.DeepCopy()
		fixed.Spec.TrustBundle = p.want.Spec.TrustBundle
		now, err = client.ClusterTrustBundles.Update(ctx, p.client, fixed, "")
	}
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return controller.Result{}, nil // the cache will report it
	case err != nil:
		return controller.Result{}, fmt.Errorf("write clustertrustbundle %s: %w", p.want.Name, err)
	case now != nil:
		if err := p.bundles.Await(ctx, now.ResourceVersion); err != nil {
			return controller.Result{}, err
		}
	}
	var errs []error
	for _, b := range p.bundles.List("") {
		if b.Name == p.want.Name || b.Spec.SignerName != servingSigner || b.DeletionTimestamp != nil {
			continue
		}
		if err := client.ClusterTrustBundles.Delete(ctx, p.client, "", b.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.UID))}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete clustertrustbundle %s: %w", b.Name, err))
		}
	}
	return controller.Result{}, errors.Join(errs...)
}
