package apiregistration

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sampan-io/sampan/catalog"
)

type service = registrationv1.APIService

// Upstream's bounds of the priorities.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

const defaultPort = 443

// Kinds returns the kinds of apiregistration.k8s.io.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{{
		GroupVersionKind: registrationv1.SchemeGroupVersion.WithKind("APIService"),
		Resource:         "apiservices",
		Singular:         "apiservice",
		Categories:       []string{"api-extensions"},
		Conditional:      true,
		New:              func() catalog.Object { return &service{} },
		NewList:          func() runtime.Object { return &registrationv1.APIServiceList{} },
		Default: catalog.Default(func(s *service) {
			if ref := s.Spec.Service; ref != nil && ref.Port == nil {
				fresh := *ref
				fresh.Port = new(int32(defaultPort))
				s.Spec.Service = &fresh
			}
		}),
		Prepare: catalog.Prepare(func(s, old *service) {
			switch {
			case old != nil:
				s.Status = old.Status
			case s.Spec.Service == nil:
				s.Status = registrationv1.APIServiceStatus{Conditions: []registrationv1.APIServiceCondition{Local()}}
			default:
				s.Status = registrationv1.APIServiceStatus{}
			}
		}),
		Validate:     catalog.Validate(func(s, _ *service) field.ErrorList { return validate(s) }),
		ValidateName: func(name string, _ bool) []string { return content.IsPathSegmentName(name) },
		Columns: []catalog.Column{
			catalog.Text("Service", "The reference to the service that hosts this API endpoint.", server),
			catalog.Text("Available", "Whether this service is available.", availability),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(s, old *service) {
					s.Spec = old.Spec
					metav1.ResetObjectMetaForStatus(&s.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps:    []string{"metadata"},
				Validate: catalog.Validate(func(s, _ *service) field.ErrorList { return validateStatus(s) }),
			},
		}},
	}}
}

// Local is the condition of versions that the API server serves itself.
func Local() registrationv1.APIServiceCondition {
	return registrationv1.APIServiceCondition{
		Type: registrationv1.Available, Status: registrationv1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "Local", Message: "Local APIServices are always available",
	}
}

// Available returns the condition Available, or nil.
func Available(s *registrationv1.APIService) *registrationv1.APIServiceCondition {
	for i := range s.Status.Conditions {
		if s.Status.Conditions[i].Type == registrationv1.Available {
			return &s.Status.Conditions[i]
		}
	}
	return nil
}

func server(s *service) string {
	if s.Spec.Service == nil {
		return "Local"
	}
	return s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
}

func availability(s *service) string {
	switch c := Available(s); {
	case c == nil:
		return string(registrationv1.ConditionUnknown)
	case c.Status != registrationv1.ConditionTrue && c.Reason != "":
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	default:
		return string(c.Status)
	}
}

func validate(s *service) (errs field.ErrorList) {
	// A group that is empty leaves the dot at the end of the name.
	if want := s.Spec.Version + "." + s.Spec.Group; s.Name != want && len(content.IsPathSegmentName(s.Name)) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	spec := field.NewPath("spec")
	if s.Spec.Group == "" && s.Spec.Version != "v1" {
		errs = append(errs, field.Required(spec.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	if s.Spec.Group != "" {
		for _, fault := range validation.IsDNS1123Subdomain(s.Spec.Group) {
			errs = append(errs, field.Invalid(spec.Child("group"), s.Spec.Group, fault))
		}
	}
	for _, fault := range validation.IsDNS1035Label(s.Spec.Version) {
		errs = append(errs, field.Invalid(spec.Child("version"), s.Spec.Version, fault))
	}
	if n := s.Spec.GroupPriorityMinimum; n <= 0 || n > maxGroupPriority {
		errs = append(errs, field.Invalid(spec.Child("groupPriorityMinimum"), n, "must be positive and less than 20000"))
	}
	if n := s.Spec.VersionPriority; n <= 0 || n > maxVersionPriority {
		errs = append(errs, field.Invalid(spec.Child("versionPriority"), n, "must be positive and less than 1000"))
	}
	if s.Spec.Service == nil {
		if n := len(s.Spec.CABundle); n > 0 {
			errs = append(errs, field.Invalid(spec.Child("caBundle"), fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle"))
		}
		if s.Spec.InsecureSkipTLSVerify {
			errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify"))
		}
		return errs
	}
	return append(errs, validateService(s, spec)...)
}

// validateService checks what only a version that another server serves has.
func validateService(s *service, spec *field.Path) (errs field.ErrorList) {
	ref, at := s.Spec.Service, spec.Child("service")
	if ref.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	port := int32(defaultPort)
	if ref.Port != nil {
		port = *ref.Port
	}
	if faults := validation.IsValidPortNum(int(port)); len(faults) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), port, "port is not valid: "+strings.Join(faults, ", ")))
	}
	if s.Spec.InsecureSkipTLSVerify && len(s.Spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateStatus(s *service) (errs field.ErrorList) {
	at := field.NewPath("status", "conditions")
	statuses := []registrationv1.ConditionStatus{registrationv1.ConditionTrue, registrationv1.ConditionFalse, registrationv1.ConditionUnknown}
	for i, c := range s.Status.Conditions {
		switch c.Status {
		case registrationv1.ConditionTrue, registrationv1.ConditionFalse, registrationv1.ConditionUnknown:
		default:
			errs = append(errs, field.NotSupported(at.Index(i).Child("status"), c.Status, statuses))
		}
	}
	return errs
}
