package core

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func nodes() *catalog.Kind {
	info := corev1.NodeSystemInfo{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: gvk("Node"),
		Resource:         "nodes",
		Warn:             catalog.Warn(warnOfNode),
		Singular:         "node",
		ShortNames:       []string{"no"},
		New:              func() catalog.Object { return &corev1.Node{} },
		NewList:          func() runtime.Object { return &corev1.NodeList{} },
		Default:          catalog.Default(defaultNode),
		Prepare: catalog.Prepare(func(n, old *corev1.Node) {
			// A node may come with its status: the agent registers itself in one step.
			if old != nil {
				n.Status = old.Status
			} else {
				n.Status.Config = nil
			}
			if old == nil || old.Spec.ConfigSource == nil {
				n.Spec.ConfigSource = nil
			}
			if old == nil || old.Spec.PodPreemptionPolicy == nil {
				n.Spec.PodPreemptionPolicy = nil // a gate that is closed by default in v1.37
			}
		}),
		Validate: catalog.Validate(validateNode),
		Columns: []catalog.Column{
			catalog.Text("Status", "The status of the node", nodeStatus),
			catalog.Text("Roles", "The roles of the node", nodeRoles),
			catalog.Age(),
			catalog.Text("Version", info["kubeletVersion"], func(n *corev1.Node) string { return n.Status.NodeInfo.KubeletVersion }),
			catalog.Text("Internal-IP", corev1.NodeStatus{}.SwaggerDoc()["addresses"], nodeAddress(corev1.NodeInternalIP)).Wide(),
			catalog.Text("External-IP", corev1.NodeStatus{}.SwaggerDoc()["addresses"], nodeAddress(corev1.NodeExternalIP)).Wide(),
			catalog.Text("OS-Image", info["osImage"], func(n *corev1.Node) string { return orUnknown(n.Status.NodeInfo.OSImage) }).Wide(),
			catalog.Text("Kernel-Version", info["kernelVersion"], func(n *corev1.Node) string { return orUnknown(n.Status.NodeInfo.KernelVersion) }).Wide(),
			catalog.Text("Container-Runtime", info["containerRuntimeVersion"], func(n *corev1.Node) string {
				return orUnknown(n.Status.NodeInfo.ContainerRuntimeVersion)
			}).Wide(),
		},
		Fields: map[string]func(catalog.Object) string{
			"spec.unschedulable": catalog.Value(func(n *corev1.Node) string { return yes(n.Spec.Unschedulable) }),
		},
		Storing: catalog.Storing{Sole: soleOfNode},
		Subresources: []catalog.Subresource{
			{
				Name:  "status",
				Verbs: readWrite,
				Shape: catalog.Part{
					Prepare: catalog.Prepare(func(n, old *corev1.Node) {
						n.Spec = old.Spec
						if old.Status.Config == nil {
							n.Status.Config = nil
						}
					}),
					Validate: catalog.Validate(validateNode),
				},
			},
			proxied(catalog.NodeProxy, "NodeProxyOptions", func() runtime.Object { return &corev1.NodeProxyOptions{} }),
		},
	}
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func orUnknown(s string) string {
	if s == "" {
		return catalog.Unknown
	}
	return s
}

func nodeStatus(n *corev1.Node) string {
	word := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			word = "Ready"
		} else {
			word = "NotReady"
		}
	}
	if n.Spec.Unschedulable {
		word += ",SchedulingDisabled"
	}
	return word
}

// nodeRoles returns the roles that the labels of a node give it.
func nodeRoles(n *corev1.Node) string {
	const (
		prefix = "node-role.kubernetes.io/"
		single = "kubernetes.io/role"
	)
	roles := map[string]bool{}
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, prefix); ok && role != "" {
			roles[role] = true
		} else if key == single && value != "" {
			roles[value] = true
		}
	}
	return catalog.OrNone(strings.Join(slices.Sorted(maps.Keys(roles)), ","))
}

func nodeAddress(t corev1.NodeAddressType) func(n *corev1.Node) string {
	return func(n *corev1.Node) string {
		for _, a := range n.Status.Addresses {
			if a.Type == t {
				return a.Address
			}
		}
		return catalog.None
	}
}

func defaultNode(n *corev1.Node) {
	// What a node has it can give away, unless it says otherwise.
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = maps.Clone(n.Status.Capacity)
	}
	// The old single field and the list say the same; the single field wins, because a client that writes it may not
	// know the list. So validation sees a change of it.
	switch {
	case n.Spec.PodCIDR != "" && (len(n.Spec.PodCIDRs) == 0 || n.Spec.PodCIDR != n.Spec.PodCIDRs[0]):
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	case n.Spec.PodCIDR == "" && len(n.Spec.PodCIDRs) > 0:
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
}

// validateNode reports taints below metadata, as upstream does.
func validateNode(n, old *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	spec, status := field.NewPath("spec"), field.NewPath("status")
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))...)
	errs = append(errs, validatePodCIDRs(n.Spec.PodCIDRs, spec.Child("podCIDRs"))...)
	for _, list := range []struct {
		name string
		r    corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		for _, name := range slices.Sorted(maps.Keys(list.r)) {
			q := list.r[name]
			at := status.Child(list.name, string(name))
			errs = append(errs, podspec.ValidateQuantity(name, q, at)...)
		}
	}
	errs = append(errs, validateFeatures(n.Status.DeclaredFeatures, status.Child("declaredFeatures"))...)
	if old == nil {
		return errs
	}
	seen := sets.New[corev1.NodeAddress]()
	for i, a := range n.Status.Addresses {
		if seen.Has(a) {
			errs = append(errs, field.Duplicate(status.Child("addresses").Index(i), a))
		}
		seen.Insert(a)
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	switch {
	case old.Spec.ProviderID == "" || n.Spec.ProviderID == old.Spec.ProviderID:
	case n.Spec.ProviderID == "":
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be cleared once set"))
	default:
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be modified once set"))
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	if !equality.Semantic.DeepEqual(n.Spec.ConfigSource, old.Spec.ConfigSource) && n.Spec.ConfigSource != nil {
		errs = append(errs, field.Forbidden(spec.Child("configSource"), "configSource is no longer supported"))
	}
	return errs
}

// validateFeatures checks the names of declared features, and that they are sorted.
func validateFeatures(names []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		switch {
		case len(name) > validation.DNS1123SubdomainMaxLength:
			errs = append(errs, field.Invalid(at.Index(i), name,
				fmt.Sprintf("invalid feature name %q: must be no more than %d characters", name, validation.DNS1123SubdomainMaxLength)))
		case !isFeature(name):
			errs = append(errs, field.Invalid(at.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, "+
				"with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", name)))
		}
		switch {
		case i == 0:
		case name == names[i-1]:
			errs = append(errs, field.Duplicate(at.Index(i), name))
		case name < names[i-1]:
			errs = append(errs, field.Invalid(at.Index(i), name, "list must be sorted alphabetically"))
		}
	}
	return errs
}

// isFeature reports whether a name consists of segments of letters and digits that begin with a letter, the first one with a
// capital.
func isFeature(name string) bool {
	if name == "" || name[0] < 'A' || name[0] > 'Z' {
		return false
	}
	letter := func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' }
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || !letter(rune(segment[0])) || strings.ContainsFunc(segment, func(r rune) bool { return !letter(r) && (r < '0' || r > '9') }) {
			return false
		}
	}
	return true
}

// soleOfNode returns the pod networks of a node. Nodes that got one together would give the same addresses to their
// pods.
func soleOfNode(obj catalog.Object) []string {
	var held []string
	for _, text := range obj.(*corev1.Node).Spec.PodCIDRs {
		if network, err := netip.ParsePrefix(text); err == nil {
			held = append(held, "podCIDR="+network.Masked().String())
		}
	}
	return held
}

func validatePodCIDRs(cidrs []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]int{}
	for i, c := range cidrs {
		errs = append(errs, validation.IsValidCIDRForLegacyField(at.Index(i), c, true, nil)...)
		families[strings.Contains(c, ":")]++
	}
	if len(cidrs) > 2 || families[true] > 1 || families[false] > 1 {
		errs = append(errs, field.Invalid(at, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

func validateTaints(taints []corev1.Taint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	type key struct {
		k string
		e corev1.TaintEffect
	}
	seen := map[key]bool{}
	for i, t := range taints {
		at := at.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		errs = append(errs, faults(validation.IsValidLabelValue(t.Value), at.Child("value"), t.Value)...)
		errs = append(errs, podspec.ValidateTaintEffect(t.Effect, false, at.Child("effect"))...)
		k := key{t.Key, t.Effect}
		if seen[k] {
			dup := field.Duplicate(at, t)
			dup.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, dup)
		}
		seen[k] = true
	}
	return errs
}
