package certificates

import (
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

// defaultExpiration is how many seconds a certificate of a pod is valid at most: a day.
const defaultExpiration = 24 * 60 * 60

type podRequest = certificatesv1.PodCertificateRequest

func podRequests() *catalog.Kind {
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	pod := func(r *podRequest) string { return r.Spec.PodName }
	node := func(r *podRequest) string { return string(r.Spec.NodeName) }
	signer := func(r *podRequest) string { return r.Spec.SignerName }
	return &catalog.Kind{
		GroupVersionKind: certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"),
		Resource:         "podcertificaterequests",
		Conditional:      true,
		Singular:         "podcertificaterequest",
		Namespaced:       true,
		New:              func() catalog.Object { return &podRequest{} },
		NewList:          func() runtime.Object { return &certificatesv1.PodCertificateRequestList{} },
		Default: catalog.Default(func(r *podRequest) {
			if r.Spec.MaxExpirationSeconds == nil {
				r.Spec.MaxExpirationSeconds = new(int32(defaultExpiration))
			}
		}),
		Prepare: catalog.Prepare(func(r, old *podRequest) {
			r.Status = certificatesv1.PodCertificateRequestStatus{}
			if old != nil {
				r.Status = old.Status
			}
		}),
		Validate: declared.With(catalog.Validate(validatePodRequest), ""),
		Columns: []catalog.Column{
			catalog.Text("PodName", doc["podName"], pod),
			catalog.Text("ServiceAccountName", doc["serviceAccountName"], func(r *podRequest) string { return r.Spec.ServiceAccountName }),
			catalog.Text("NodeName", doc["nodeName"], node),
			catalog.Text("SignerName", doc["signerName"], signer),
			catalog.Text("State", "Is the request Pending, Issued, Denied, or Failed?", podRequestState),
			catalog.Text("UnverifiedUserAnnotations", doc["unverifiedUserAnnotations"], func(r *podRequest) string {
				return labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)
			}),
		},
		Fields: map[string]func(catalog.Object) string{
			"spec.signerName": catalog.Value(signer), "spec.podName": catalog.Value(pod), "spec.nodeName": catalog.Value(node),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(r, old *podRequest) {
					r.Spec = old.Spec
					metav1.ResetObjectMetaForStatus(&r.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps: []string{"metadata"},
				Validate: declared.With(catalog.Validate(func(r, old *podRequest) field.ErrorList {
					return validatePodRequestStatus(r, old, time.Now())
				}), "status"),
			},
		}},
	}
}

// outcomes are the conditions that end a request. At most one is there.
var outcomes = []string{
	certificatesv1.PodCertificateRequestConditionTypeIssued,
	certificatesv1.PodCertificateRequestConditionTypeDenied,
	certificatesv1.PodCertificateRequestConditionTypeFailed,
}

func podRequestState(r *podRequest) string {
	word := "Pending"
	for _, c := range r.Status.Conditions {
		if slices.Contains(outcomes, c.Type) {
			word = c.Type
		}
	}
	return word
}
