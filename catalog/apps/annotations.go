package apps

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/names"
)

// Annotations by which users ask for more than the API has. Package controller/workload describes
// their meaning. They are validated here, because a value that cannot be parsed would have no
// effect without any message.
const (
	autoRollback     = names.AutoRollback
	canaries         = names.Canaries
	promote          = names.Promote
	abort            = names.Abort
	progressDeadline = names.ProgressDeadlineSeconds
)

// validateAnnotations checks those of the annotations that obj has.
func validateAnnotations(obj catalog.Object, known ...string) (errs field.ErrorList) {
	at := field.NewPath("metadata", "annotations")
	annotations := obj.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		if !slices.Contains(known, key) {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 32)
		switch {
		case key == autoRollback && value != "true" && value != "false":
			errs = append(errs, field.Invalid(at.Key(key), value, `must be "true" or "false"`))
		case key != autoRollback && (err != nil || n <= 0):
			errs = append(errs, field.Invalid(at.Key(key), value, "must be a whole number greater than 0"))
		}
	}
	return errs
}

func validateDeploymentWishes(d *appsv1.Deployment) field.ErrorList {
	errs := validateAnnotations(d, autoRollback, canaries, promote, abort)
	if value, ok := d.Annotations[canaries]; ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(canaries), value, "needs strategy type RollingUpdate: with Recreate no old pod runs beside a new one"))
	}
	return errs
}
