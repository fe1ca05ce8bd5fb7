package storage

import (
	"math"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// Bounds of a driver's fields, as the API has them.
const (
	longestDriverName = 63
	leastTokenLife    = 10 * time.Minute
	mostTokenSeconds  = 1 << 32
	leastUpdatePeriod = 10 // seconds between two looks at how many volumes a node can have
)

func csiDrivers() *catalog.Kind {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	flag := func(name, key string, value func(s *storagev1.CSIDriverSpec) *bool, otherwise bool) catalog.Column {
		return catalog.Flag(name, doc[key], func(d *storagev1.CSIDriver) bool {
			if v := value(&d.Spec); v != nil {
				return *v
			}
			return otherwise
		})
	}
	return &catalog.Kind{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("CSIDriver"),
		Resource:         "csidrivers",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Conditional:      true,
		Singular:         "csidriver",
		New:              func() catalog.Object { return &storagev1.CSIDriver{} },
		NewList:          func() runtime.Object { return &storagev1.CSIDriverList{} },
		Default: catalog.Default(func(d *storagev1.CSIDriver) {
			s := &d.Spec
			orSet(&s.AttachRequired, true)
			orSet(&s.PodInfoOnMount, false)
			orSet(&s.StorageCapacity, false)
			orSet(&s.RequiresRepublish, false)
			orSet(&s.SELinuxMount, false)
			orSet(&s.PreventPodSchedulingIfMissing, false)
			orSet(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
			if len(s.VolumeLifecycleModes) == 0 {
				s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
			}
		}),
		Prepare: catalog.Prepare(func(d, old *storagev1.CSIDriver) {
			// As upstream, changes are counted from 0.
			if old != nil && !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
				d.Generation = old.Generation + 1
			}
		}),
		Validate: catalog.Validate(validateDriver),
		Warn: catalog.WarnChange(func(d, old *storagev1.CSIDriver) []string {
			if old != nil && equality.Semantic.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests) {
				return nil
			}
			if len(d.Spec.TokenRequests) > 0 && d.Spec.ServiceAccountTokenInSecrets == nil {
				return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
			}
			return nil
		}),
		Columns: []catalog.Column{
			flag("AttachRequired", "attachRequired", func(s *storagev1.CSIDriverSpec) *bool { return s.AttachRequired }, true),
			flag("PodInfoOnMount", "podInfoOnMount", func(s *storagev1.CSIDriverSpec) *bool { return s.PodInfoOnMount }, false),
			flag("StorageCapacity", "storageCapacity", func(s *storagev1.CSIDriverSpec) *bool { return s.StorageCapacity }, false),
			catalog.Text("TokenRequests", doc["tokenRequests"], func(d *storagev1.CSIDriver) string {
				if d.Spec.TokenRequests == nil {
					return catalog.Unset
				}
				var audiences []string
				for _, t := range d.Spec.TokenRequests {
					audiences = append(audiences, t.Audience)
				}
				return strings.Join(audiences, ",")
			}),
			flag("RequiresRepublish", "requiresRepublish", func(s *storagev1.CSIDriverSpec) *bool { return s.RequiresRepublish }, false),
			catalog.Text("Modes", doc["volumeLifecycleModes"], func(d *storagev1.CSIDriver) string {
				var modes []string
				for _, m := range d.Spec.VolumeLifecycleModes {
					modes = append(modes, string(m))
				}
				return catalog.OrNone(strings.Join(modes, ","))
			}),
			catalog.Age(),
		},
	}
}

func orSet[T any](field **T, v T) {
	if *field == nil {
		*field = &v
	}
}

func validateDriver(d, old *storagev1.CSIDriver) (errs field.ErrorList) {
	at, s := field.NewPath("spec"), &d.Spec
	if p := s.FSGroupPolicy; p != nil {
		known := []storagev1.FSGroupPolicy{storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
		if !slices.Contains(known, *p) {
			errs = append(errs, field.NotSupported(at.Child("fsGroupPolicy"), *p, known))
		}
	}
	errs = append(errs, validateTokens(s.TokenRequests, at.Child("tokenRequests"))...)
	for _, m := range s.VolumeLifecycleModes {
		if m != storagev1.VolumeLifecyclePersistent && m != storagev1.VolumeLifecycleEphemeral {
			errs = append(errs, field.NotSupported(at.Child("volumeLifecycleModes"), m, []storagev1.VolumeLifecycleMode{
				storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral,
			}))
		}
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < leastUpdatePeriod {
		errs = append(errs, field.Invalid(at.Child("nodeAllocatableUpdatePeriodSeconds"), *p, "must be greater than or equal to 10 seconds"))
	}
	if in := s.ServiceAccountTokenInSecrets; in != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(at.Child("serviceAccountTokenInSecrets"), *in, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	if old == nil {
		return errs
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.AttachRequired, old.Spec.AttachRequired, at.Child("attachedRequired"))...)
	return append(errs, apivalidation.ValidateImmutableField(s.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, at.Child("volumeLifecycleModes"))...)
}

func validateTokens(tokens []storagev1.TokenRequest, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, t := range tokens {
		at := at.Index(i)
		if seen[t.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), t.Audience))
			continue
		}
		seen[t.Audience] = true
		switch life := t.ExpirationSeconds; {
		case life == nil:
		case *life < int64(leastTokenLife/time.Second):
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *life, "may not specify a duration less than 10 minutes"))
		case *life > mostTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *life, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

// validateDriverName checks the name by which something refers to a driver.
func validateDriverName(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(name) > longestDriverName {
		errs = append(errs, field.TooLong(at, "", longestDriverName))
	}
	for _, fault := range validation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, field.Invalid(at, name, fault))
	}
	return errs
}

func validateVolumeError(e *storagev1.VolumeError, at *field.Path) (errs field.ErrorList) {
	if e == nil {
		return nil
	}
	if len(e.Message) > longestVolumeError {
		errs = append(errs, field.TooLong(at.Child("message"), "", longestVolumeError))
	}
	if c := e.ErrorCode; c != nil && *c < 0 {
		errs = append(errs, field.Invalid(at.Child("errorCode"), *c, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}
