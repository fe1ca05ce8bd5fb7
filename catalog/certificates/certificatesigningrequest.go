package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

type request = certificatesv1.CertificateSigningRequest

// Kinds returns the kinds of certificates.k8s.io.
func Kinds() []*catalog.Kind { return []*catalog.Kind{requests(), trustBundles(), podRequests()} }

func requests() *catalog.Kind {
	spec, status := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc(), certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()
	verbs := []string{"get", "patch", "update"}
	return &catalog.Kind{
		GroupVersionKind: certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
		Resource:         "certificatesigningrequests",
		Singular:         "certificatesigningrequest",
		ShortNames:       []string{"csr"},
		New:              func() catalog.Object { return &request{} },
		NewList:          func() runtime.Object { return &certificatesv1.CertificateSigningRequestList{} },
		Prepare:          catalog.Prepare(prepare),
		Keeps:            []string{"spec"},
		Validate:         declared.With(catalog.Validate(validate), ""),
		ValidateName:     func(string, bool) []string { return nil },
		Columns: []catalog.Column{
			catalog.Age(),
			catalog.Text("SignerName", spec["signerName"], func(r *request) string { return catalog.OrNone(r.Spec.SignerName) }),
			catalog.Text("Requestor", spec["request"], func(r *request) string { return r.Spec.Username }),
			catalog.Text("RequestedDuration", spec["expirationSeconds"], func(r *request) string {
				if r.Spec.ExpirationSeconds == nil {
					return catalog.None
				}
				return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
			}),
			catalog.Text("Condition", status["conditions"], state),
		},
		Fields: map[string]func(catalog.Object) string{
			"spec.signerName": catalog.Value(func(r *request) string { return r.Spec.SignerName }),
		},
		Subresources: []catalog.Subresource{
			{
				Name:  "approval",
				Verbs: verbs,
				Shape: catalog.Part{
					Prepare:  catalog.Prepare(prepareApproval),
					Keeps:    []string{"spec", "status.certificate"},
					Validate: declared.With(catalog.Validate(validateApproval), "approval"),
				},
			},
			{
				Name:  "status",
				Verbs: verbs,
				Shape: catalog.Part{
					Prepare:  catalog.Prepare(prepareStatus),
					Keeps:    []string{"status.conditions"},
					Validate: declared.With(catalog.Validate(validateStatus), "status"),
				},
			},
		},
	}
}

// state says how far a request is.
func state(r *request) string {
	text, failed := "Pending", ""
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			text = "Denied"
		case certificatesv1.CertificateApproved:
			if text != "Denied" {
				text = "Approved"
			}
		case certificatesv1.CertificateFailed:
			failed = ",Failed"
		}
	}
	text += failed
	if len(r.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}

// prepare drops the user who asks, which admission sets.
func prepare(r, old *request) {
	if old != nil {
		r.Spec, r.Status = old.Spec, old.Status
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
	r.Status = certificatesv1.CertificateSigningRequestStatus{}
}

// prepareApproval keeps the only change by an approval: the conditions.
func prepareApproval(r, old *request) {
	setTimes(r, old)
	conditions := r.Status.Conditions
	r.Spec, r.Status = old.Spec, old.Status
	r.Status.Conditions = conditions
}

// prepareStatus restores the decision, unless conditions were added or removed: validation refuses that.
func prepareStatus(r, old *request) {
	r.Spec = old.Spec
	for _, t := range decisions {
		had, has := positions(old, t), positions(r, t)
		for i := range had {
			if len(had) == len(has) {
				r.Status.Conditions[has[i]] = old.Status.Conditions[had[i]]
			}
		}
	}
	setTimes(r, old)
}

// positions returns where the conditions of a type are.
func positions(r *request, t certificatesv1.RequestConditionType) (all []int) {
	for i, c := range r.Status.Conditions {
		if c.Type == t {
			all = append(all, i)
		}
	}
	return all
}

// setTimes sets the times that a condition lacks: now, or when it last changed.
func setTimes(r, old *request) {
	now := metav1.NewTime(time.Now())
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, was := range old.Status.Conditions {
			if was.Type == c.Type && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
				c.LastTransitionTime = was.LastTransitionTime
				break
			}
		}
	}
}
