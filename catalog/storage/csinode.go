package storage

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// longestNodeID is how long a driver's name of a node may be, in bytes.
const longestNodeID = 256

func csiNodes() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("CSINode"),
		Resource:         "csinodes",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Conditional:      true,
		Singular:         "csinode",
		New:              func() catalog.Object { return &storagev1.CSINode{} },
		NewList:          func() runtime.Object { return &storagev1.CSINodeList{} },
		// How healthy storage is, which is all of the status, stands behind a closed gate in v1.37.
		Prepare:  catalog.Prepare(func(n, _ *storagev1.CSINode) { n.Status = storagev1.CSINodeStatus{} }),
		Validate: catalog.Validate(validateNode),
		Columns: []catalog.Column{
			catalog.Number("Drivers", "Drivers indicates the number of CSI drivers registered on the node", func(n *storagev1.CSINode) int64 {
				return int64(len(n.Spec.Drivers))
			}),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(n, old *storagev1.CSINode) {
					n.Spec, n.Status = old.Spec, storagev1.CSINodeStatus{}
					metav1.ResetObjectMetaForStatus(&n.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps: []string{"metadata"},
			},
		}},
	}
}

func validateNode(n, old *storagev1.CSINode) (errs field.ErrorList) {
	drivers := field.NewPath("spec", "drivers")
	seen := map[string]bool{}
	for i := range n.Spec.Drivers {
		d, at := &n.Spec.Drivers[i], drivers.Index(i)
		errs = append(errs, validateDriverName(d.Name, at.Child("name"))...)
		switch id := at.Child("nodeID"); {
		case d.NodeID == "":
			errs = append(errs, field.Required(id, ""))
		case len(d.NodeID) > longestNodeID:
			errs = append(errs, field.Invalid(id, d.NodeID, fmt.Sprintf("must be %d characters or less", longestNodeID)))
		}
		if a := d.Allocatable; a != nil && a.Count != nil {
			errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*a.Count), at.Child("allocatable", "count"))...)
		}
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen[d.Name] = true
		errs = append(errs, validateTopologyKeys(d.TopologyKeys, at)...)
	}
	if old == nil {
		return errs
	}
	before := map[string]storagev1.CSINodeDriver{}
	for _, d := range old.Spec.Drivers {
		before[d.Name] = d
	}
	for _, d := range n.Spec.Drivers {
		was, ok := before[d.Name]
		d.Allocatable, was.Allocatable = nil, nil // may change: a driver sees how many disks fit
		if ok && !equality.Semantic.DeepEqual(d, was) {
			errs = append(errs, field.Invalid(drivers, d, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return errs
}

func validateTopologyKeys(keys []string, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for _, key := range keys {
		if key == "" {
			errs = append(errs, field.Required(at, ""))
		}
		if seen[key] {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen[key] = true
		for _, fault := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at, key, fault))
		}
	}
	return errs
}
