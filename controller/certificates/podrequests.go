package certificates

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// keepPodRequests is how long a PodCertificateRequest is kept. Nodes need them for seconds.
const keepPodRequests = 15 * time.Minute

// newPodRequestCleaner returns the loop that deletes old PodCertificateRequests.
func newPodRequestCleaner(config controller.Config) *controller.Loop {
	requests := cache.Of(config.Caches, client.PodCertificateRequests, nil)
	loop := controller.New(controller.Options{
		Name: "podcertificaterequest-cleaner-controller", Workers: config.Workers, Log: config.Log, Needs: []<-chan struct{}{requests.Ready()},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			r, ok := requests.Get(key.Namespace, key.Name)
			if !ok || r.DeletionTimestamp != nil {
				return controller.Result{}, nil
			}
			if left := time.Until(r.CreationTimestamp.Add(keepPodRequests)); left > 0 {
				return controller.Result{After: left}, nil
			}
			err := client.PodCertificateRequests.Delete(ctx, config.Client, r.Namespace, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return controller.Result{}, fmt.Errorf("unable to delete PodCertificateRequest %q: %w", key, err)
			}
			return controller.Result{}, nil
		},
	})
	requests.Subscribe(func(before, after *certificatesv1.PodCertificateRequest) {
		if before == nil {
			loop.Add(controller.KeyOf(after))
		}
	})
	return loop
}
