package resource

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

// longestKey is how much of a key is shown: a domain, a slash and an identifier.
const longestKey = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength

// semantic is a version as https://semver.org describes it.
var semantic = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

func validateSlice(slice, old *resourcev1.ResourceSlice) field.ErrorList {
	at, s := field.NewPath("spec"), &slice.Spec
	pool := at.Child("pool")
	errs := validateDriver(s.Driver, at.Child("driver"))
	errs = append(errs, validatePool(s.Pool.Name, pool.Child("name"))...)
	if s.Pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(pool.Child("resourceSliceCount"), s.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	if s.Pool.Generation < 0 {
		errs = append(errs, field.Invalid(pool.Child("generation"), s.Pool.Generation, "must be greater than or equal to zero"))
	}
	was := map[string]*resourcev1.Device{}
	if old != nil {
		o := &old.Spec
		errs = append(errs, apivalidation.ValidateImmutableField(s.Pool.Name, o.Pool.Name, pool.Child("name"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.Driver, o.Driver, at.Child("driver"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.NodeName, o.NodeName, at.Child("nodeName"))...)
		for i := range o.Devices {
			was[o.Devices[i].Name] = &o.Devices[i]
		}
	}
	errs = append(errs, validateSliceNodes(s, at)...)
	if s.SharedCounters != nil && s.Devices != nil {
		errs = append(errs, field.Invalid(at, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, each(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, at.Child("sharedCounters"), func(c *resourcev1.CounterSet, at *field.Path) field.ErrorList {
		return validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at.Child("counters"))
	})...)

	devices, most := at.Child("devices"), resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices, func(d resourcev1.Device) bool { return len(d.Taints)+len(d.ConsumesCounters) > 0 }) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	if len(s.Devices) > most {
		return append(errs, field.TooMany(devices, len(s.Devices), most))
	}
	seen := map[string]bool{}
	for i := range s.Devices {
		d := &s.Devices[i]
		errs = append(errs, validateDevice(d, was[d.Name], s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection, devices.Index(i))...)
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(devices.Index(i), d.Name))
		}
		seen[d.Name] = true
	}
	return errs
}

func validateCounters(counters map[string]resourcev1.Counter, most int, at *field.Path) field.ErrorList {
	if len(counters) > most {
		return field.ErrorList{field.TooMany(at, len(counters), most)}
	}
	return nil
}

// places says where the devices of a slice, or a device, can be used.
type places struct {
	name     *string
	selector *corev1.NodeSelector
	all      *bool
	given    []string // the fields that say so
}

// validate checks the fields. Empty is the fault of an empty name of a node.
func (p *places) validate(empty string, at *field.Path) (errs field.ErrorList) {
	switch name := at.Child("nodeName"); {
	case p.name == nil:
	case *p.name == "":
		errs = append(errs, field.Invalid(name, "", empty))
	default:
		p.given = append(p.given, "`nodeName`")
		errs = append(errs, faults(name, *p.name, validation.IsDNS1123Subdomain(*p.name))...)
	}
	if p.selector != nil {
		p.given = append(p.given, "`nodeSelector`")
		errs = append(errs, podspec.ValidateNodeSelector(p.selector, at.Child("nodeSelector"))...)
	}
	return append(errs, p.flag("allNodes", p.all, at)...)
}

func (p *places) flag(name string, v *bool, at *field.Path) field.ErrorList {
	switch {
	case v == nil:
		return nil
	case !*v:
		return field.ErrorList{field.Invalid(at.Child(name), false, "must be either unset or set to true")}
	}
	p.given = append(p.given, "`"+name+"`")
	return nil
}

// one requires one of the fields.
func (p *places) one(wanted, butMany string, at *field.Path) field.ErrorList {
	switch len(p.given) {
	case 0:
		return field.ErrorList{field.Required(at, wanted)}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(at, "{"+strings.Join(p.given, ", ")+"}", wanted+butMany)}
}

func validateSliceNodes(s *resourcev1.ResourceSliceSpec, at *field.Path) field.ErrorList {
	p := places{name: s.NodeName, selector: s.NodeSelector, all: s.AllNodes}
	errs := p.validate("must be either unset or set to a non-empty string", at)
	if s.NodeSelector != nil && len(s.NodeSelector.NodeSelectorTerms) != 1 {
		errs = append(errs, field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"), s.NodeSelector.NodeSelectorTerms, "must have exactly one node selector term"))
	}
	errs = append(errs, p.flag("perDeviceNodeSelection", s.PerDeviceNodeSelection, at)...)
	const wanted = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	return append(errs, p.one(wanted, ", but multiple fields are set", at)...)
}

func validateDevice(d, was *resourcev1.Device, places bool, at *field.Path) field.ErrorList {
	errs := faults(at.Child("name"), d.Name, validation.IsDNS1123Label(d.Name))
	if n, most := len(d.Attributes)+len(d.Capacity), resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > most {
		errs = append(errs, field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", most)))
	}
	if n, most := len(d.Attributes), resourcev1.ResourceSliceMaxAttributeValuesPerDevice; n > most {
		errs = append(errs, field.Invalid(at, n, fmt.Sprintf("the total number of attribute values must not exceed %d", most)))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		errs = append(errs, validateQualifiedName(string(name), at.Child("attributes"))...)
		errs = append(errs, validateAttribute(d.Attributes[name], at.Child("attributes").Key(shown(name)))...)
	}
	// Unchanged fields are not checked again.
	if was == nil || !equality.Semantic.DeepEqual(was.Capacity, d.Capacity) {
		shared := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
		for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
			errs = append(errs, validateQualifiedName(string(name), at.Child("capacity"))...)
			errs = append(errs, validateCapacity(d.Capacity[name], shared, at.Child("capacity").Key(shown(name)))...)
		}
	}
	if was == nil || !equality.Semantic.DeepEqual(was.Taints, d.Taints) {
		errs = append(errs, validateTaints(d.Taints, at.Child("taints"))...)
	}
	errs = append(errs, each(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"), func(c *resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
		return validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at.Child("counters"))
	})...)
	errs = append(errs, validateDeviceNodes(d, places, at)...)
	return append(errs, validateBinding(d.BindingConditions, d.BindingFailureConditions, at)...)
}

func validateTaints(all []resourcev1.DeviceTaint, at *field.Path) (errs field.ErrorList) {
	if len(all) > resourcev1.DeviceTaintsMaxLength {
		return field.ErrorList{field.TooMany(at, len(all), resourcev1.DeviceTaintsMaxLength)}
	}
	for i := range all {
		errs = append(errs, validateTaint(&all[i], at.Index(i))...)
	}
	return errs
}

func validateDeviceNodes(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	if !perDevice {
		if d.NodeName == nil && d.NodeSelector == nil && d.AllNodes == nil {
			return nil
		}
		return field.ErrorList{field.Invalid(at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
	}
	p := places{name: d.NodeName, selector: d.NodeSelector, all: d.AllNodes}
	errs := p.validate("must not be empty", at)
	const wanted = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	return append(errs, p.one(wanted, "", at)...)
}

// shown cuts the middle out of a key that is too long.
func shown(name resourcev1.QualifiedName) string {
	const dots = "..."
	if len(name) <= longestKey {
		return string(name)
	}
	rest := longestKey - len(dots)
	return string(name[:(rest+1)/2]) + dots + string(name[len(name)-rest/2:])
}

func validateAttribute(a resourcev1.DeviceAttribute, at *field.Path) (errs field.ErrorList) {
	const most = resourcev1.DeviceAttributeMaxValueLength
	if s := a.StringValue; s != nil && len(*s) > most {
		errs = append(errs, field.TooLong(at.Child("string"), "", most))
	}
	if v := a.VersionValue; v != nil {
		at := at.Child("version")
		if !semantic.MatchString(*v) {
			errs = append(errs, field.Invalid(at, *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(*v) > most {
			errs = append(errs, field.TooLong(at, "", most))
		}
	}
	return errs
}
