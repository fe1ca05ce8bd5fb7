package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
)

const (
	// keepDone is how long a request is kept after it has its certificate, was denied or failed.
	keepDone = time.Hour

	// keepOpen is how long a request is kept that waits for its approval, or for its certificate.
	keepOpen = 24 * time.Hour
)

// deleteAt returns when a request is deleted, and false if time alone does not make it old.
func deleteAt(r *signingRequest) (at time.Time, ok bool) {
	after := func(from time.Time, d time.Duration) {
		if t := from.Add(d); !from.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if len(r.Status.Conditions) == 0 {
		after(r.CreationTimestamp.Time, keepOpen)
	}
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			after(c.LastUpdateTime.Time, keepDone)
		case certificatesv1.CertificateApproved:
			if !issued(r) {
				after(c.LastUpdateTime.Time, keepOpen)
				continue
			}
			after(c.LastUpdateTime.Time, keepDone)
			after(expiry(r.Status.Certificate), 0)
		}
	}
	return at, ok
}

// expiry returns when the first certificate in data ends, or the zero time if there is none.
func expiry(data []byte) time.Time {
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	all, err := x509.ParseCertificates(block.Bytes)
	if err != nil || len(all) == 0 {
		return time.Time{}
	}
	return all[0].NotAfter
}

// clean deletes a request if it is old.
func (c *controllers) clean(ctx context.Context, key controller.Key) (controller.Result, error) {
	r, ok := c.requests.Get("", key.Name)
	if !ok || r.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	at, ok := deleteAt(r)
	if !ok {
		return controller.Result{}, nil
	}
	if left := time.Until(at); left > 0 {
		return controller.Result{After: left}, nil
	}
	c.log.Info("deleting an old certificate signing request", "name", r.Name, "old since", at)
	err := client.CertificateSigningRequests.Delete(ctx, c.client, "", r.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("unable to delete CSR %q: %w", r.Name, err)
	}
	return controller.Result{}, nil
}
