// Package kinds is the list of all kinds that the API server serves.
package kinds

import (
	"slices"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/admissionregistration"
	"github.com/sampan-io/sampan/catalog/apiextensions"
	"github.com/sampan-io/sampan/catalog/apiregistration"
	"github.com/sampan-io/sampan/catalog/apps"
	"github.com/sampan-io/sampan/catalog/autoscaling"
	"github.com/sampan-io/sampan/catalog/batch"
	"github.com/sampan-io/sampan/catalog/certificates"
	"github.com/sampan-io/sampan/catalog/coordination"
	"github.com/sampan-io/sampan/catalog/core"
	"github.com/sampan-io/sampan/catalog/discovery"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
	"github.com/sampan-io/sampan/catalog/metrics"
	"github.com/sampan-io/sampan/catalog/networking"
	"github.com/sampan-io/sampan/catalog/node"
	"github.com/sampan-io/sampan/catalog/policy"
	"github.com/sampan-io/sampan/catalog/rbac"
	"github.com/sampan-io/sampan/catalog/resource"
	"github.com/sampan-io/sampan/catalog/review"
	"github.com/sampan-io/sampan/catalog/scheduling"
	"github.com/sampan-io/sampan/catalog/storage"
	"github.com/sampan-io/sampan/catalog/storagemigration"
)

// All returns the kinds of all groups. The caller may change the slice.
func All() []*catalog.Kind {
	return slices.Concat(
		core.Kinds(), apiregistration.Kinds(), apps.Kinds(), autoscaling.Kinds(), batch.Kinds(), discovery.Kinds(), coordination.Kinds(), policy.Kinds(),
		scheduling.Kinds(), review.Kinds(), storage.Kinds(), rbac.Kinds(),
		networking.Kinds(), node.Kinds(), flowcontrol.Kinds(), certificates.Kinds(),
		resource.Kinds(), storagemigration.Kinds(), apiextensions.Kinds(), admissionregistration.Kinds(),
		metrics.Kinds(), // last: see there
	)
}
