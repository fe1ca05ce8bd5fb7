package resource

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

// Kinds returns the kinds of resource.k8s.io.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{classes(), claims(), templates(), sliceKind(), taintRules()}
}

func classes() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("DeviceClass"),
		Resource:         "deviceclasses",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Singular:         "deviceclass",
		New:              func() catalog.Object { return &resourcev1.DeviceClass{} },
		NewList:          func() runtime.Object { return &resourcev1.DeviceClassList{} },
		Validate:         declared.With(catalog.Validate(validateClass), ""),
		Generation:       true,
		Columns:          []catalog.Column{catalog.Age()},
	}
}

func claims() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
		Resource:         "resourceclaims",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Singular:         "resourceclaim",
		Namespaced:       true,
		New:              func() catalog.Object { return &resourcev1.ResourceClaim{} },
		NewList:          func() runtime.Object { return &resourcev1.ResourceClaimList{} },
		Default: catalog.Default(func(c *resourcev1.ResourceClaim) {
			defaultClaim(&c.Spec)
			if a := c.Status.Allocation; a != nil {
				for i := range a.Devices.Results {
					defaultTolerations(a.Devices.Results[i].Tolerations)
				}
			}
		}),
		Prepare: catalog.Prepare(func(c, old *resourcev1.ResourceClaim) {
			c.Status = resourcev1.ResourceClaimStatus{}
			if old != nil {
				c.Status = old.Status
			}
			dropDerived(&c.Spec)
		}),
		Validate: declared.With(catalog.Validate(validateClaim), ""),
		Columns: []catalog.Column{
			catalog.Text("State", "A summary of the current state (allocated, pending, reserved, etc.).", state),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare:  catalog.Prepare(prepareStatus),
				Keeps:    []string{"metadata"},
				Validate: declared.With(catalog.Validate(validateStatus), "status"),
			},
		}},
	}
}

func templates() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"),
		Resource:         "resourceclaimtemplates",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Singular:         "resourceclaimtemplate",
		Namespaced:       true,
		New:              func() catalog.Object { return &resourcev1.ResourceClaimTemplate{} },
		NewList:          func() runtime.Object { return &resourcev1.ResourceClaimTemplateList{} },
		Default:          catalog.Default(func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) }),
		Prepare:          catalog.Prepare(func(t, _ *resourcev1.ResourceClaimTemplate) { dropDerived(&t.Spec.Spec) }),
		Validate:         declared.With(catalog.Validate(validateTemplate), ""),
		Columns:          []catalog.Column{catalog.Age()},
	}
}

func sliceKind() *catalog.Kind {
	spec, pool := resourcev1.ResourceSliceSpec{}.SwaggerDoc(), resourcev1.ResourcePool{}.SwaggerDoc()
	nodeName := func(s *resourcev1.ResourceSlice) string {
		if s.Spec.NodeName == nil {
			return ""
		}
		return *s.Spec.NodeName
	}
	driver := func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver }
	poolName := func(s *resourcev1.ResourceSlice) string { return s.Spec.Pool.Name }
	return &catalog.Kind{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"),
		Resource:         "resourceslices",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Singular:         "resourceslice",
		New:              func() catalog.Object { return &resourcev1.ResourceSlice{} },
		NewList:          func() runtime.Object { return &resourcev1.ResourceSliceList{} },
		Default: catalog.Default(func(s *resourcev1.ResourceSlice) {
			for i := range s.Spec.Devices {
				for j := range s.Spec.Devices[i].Taints {
					defaultTaint(&s.Spec.Devices[i].Taints[j])
				}
			}
		}),
		Prepare:    catalog.Prepare(func(s, _ *resourcev1.ResourceSlice) { dropClosed(&s.Spec) }),
		Validate:   declared.With(catalog.Validate(validateSlice), ""),
		Generation: true,
		Warn: catalog.Warn(func(s *resourcev1.ResourceSlice) []string {
			if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
				return nil
			}
			return []string{`spec.driver: driver names should be lowercase; "` + s.Spec.Driver + `" contains uppercase characters`}
		}),
		Columns: []catalog.Column{
			catalog.Text("Node", spec["nodeName"], nodeName),
			catalog.Text("Driver", spec["driver"], driver),
			catalog.Text("Pool", pool["name"], poolName),
			catalog.Age(),
		},
		Fields: map[string]func(catalog.Object) string{
			resourcev1.ResourceSliceSelectorNodeName: catalog.Value(nodeName),
			resourcev1.ResourceSliceSelectorDriver:   catalog.Value(driver),
			resourcev1.ResourceSliceSelectorPoolName: catalog.Value(poolName),
		},
		Storing: catalog.Storing{Indexed: []string{resourcev1.ResourceSliceSelectorNodeName}},
	}
}

func taintRules() *catalog.Kind {
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"),
		Resource:         "devicetaintrules",
		Conditional:      true,
		Singular:         "devicetaintrule",
		New:              func() catalog.Object { return &resourcev1.DeviceTaintRule{} },
		NewList:          func() runtime.Object { return &resourcev1.DeviceTaintRuleList{} },
		Default:          catalog.Default(func(r *resourcev1.DeviceTaintRule) { defaultTaint(&r.Spec.Taint) }),
		Prepare: catalog.Prepare(func(r, old *resourcev1.DeviceTaintRule) {
			r.Status = resourcev1.DeviceTaintRuleStatus{}
			if old == nil {
				return
			}
			r.Status = old.Status
			// Another effect begins now, unless the client says otherwise.
			if was, is := &old.Spec.Taint, &r.Spec.Taint; is.Effect != was.Effect && is.TimeAdded.Equal(was.TimeAdded) {
				is.TimeAdded = thisSecond()
			}
		}),
		Validate:   declared.With(catalog.Validate(validateTaintRule), ""),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("Key", doc["key"], func(r *resourcev1.DeviceTaintRule) string { return r.Spec.Taint.Key }),
			catalog.Text("Value", doc["value"], func(r *resourcev1.DeviceTaintRule) string { return r.Spec.Taint.Value }),
			catalog.Text("Effect", doc["effect"], func(r *resourcev1.DeviceTaintRule) string { return string(r.Spec.Taint.Effect) }),
			catalog.Timed("TimeAdded", doc["timeAdded"], func(r *resourcev1.DeviceTaintRule, now time.Time) string {
				if r.Spec.Taint.TimeAdded == nil {
					return ""
				}
				return catalog.Since(r.Spec.Taint.TimeAdded.Time, now)
			}),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(r, old *resourcev1.DeviceTaintRule) {
					r.Spec = old.Spec
					metav1.ResetObjectMetaForStatus(&r.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps: []string{"metadata"},
				Validate: declared.With(catalog.Validate(func(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
					return validateConditions(r.Status.Conditions, resourcev1.DeviceTaintRuleStatusMaxConditions, field.NewPath("status", "conditions"))
				}), "status"),
			},
		}},
	}
}

// state says how far a claim is.
func state(c *resourcev1.ResourceClaim) string {
	var words []string
	if c.DeletionTimestamp != nil {
		words = append(words, "deleted")
	}
	switch {
	case c.Status.Allocation != nil:
		if words = append(words, "allocated"); len(c.Status.ReservedFor) > 0 {
			words = append(words, "reserved")
		}
	case c.DeletionTimestamp == nil:
		words = append(words, "pending")
	}
	return strings.Join(words, ",")
}

func thisSecond() *metav1.Time { return new(metav1.NewTime(time.Now().Truncate(time.Second))) }

func defaultTaint(t *resourcev1.DeviceTaint) {
	if t.TimeAdded == nil {
		t.TimeAdded = thisSecond()
	}
}

func defaultTolerations(all []resourcev1.DeviceToleration) {
	for i := range all {
		if all[i].Operator == "" {
			all[i].Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}

func defaultClaim(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			defaultCount(&e.AllocationMode, &e.Count)
			defaultTolerations(e.Tolerations)
		}
		for j := range r.FirstAvailable {
			f := &r.FirstAvailable[j]
			defaultCount(&f.AllocationMode, &f.Count)
			defaultTolerations(f.Tolerations)
		}
	}
}

func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

// dropDerived drops the fields whose gate is closed by default in v1.37. No stored claim has them.
func dropDerived(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.DerivedAttributes = nil
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

// dropClosed drops the fields whose gate is closed by default in v1.37. No stored slice has them.
func dropClosed(s *resourcev1.ResourceSliceSpec) {
	s.PartitionTypeAttribute, s.SkipNodeOperations = nil, nil
	for i := range s.Devices {
		d := &s.Devices[i]
		d.NodeAllocatableResources = nil
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CompatibilityGroups = nil
		}
		for name, a := range d.Attributes {
			a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

// prepareStatus drops the status of devices that the claim had and has no longer.
func prepareStatus(c, old *resourcev1.ResourceClaim) {
	c.Spec = old.Spec
	metav1.ResetObjectMetaForStatus(&c.ObjectMeta, &old.ObjectMeta)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			a.Devices.Results[i].SkipNodeOperations = nil // a gate that is closed by default in v1.37
		}
	}
	had, has := allocated(&old.Status), allocated(&c.Status)
	var kept []resourcev1.AllocatedDeviceStatus
	for i := range c.Status.Devices {
		if id := statusID(&c.Status.Devices[i]); !had[id] || has[id] {
			kept = append(kept, c.Status.Devices[i])
		}
	}
	c.Status.Devices = kept
}
