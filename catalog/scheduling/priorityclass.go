package scheduling

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

const (
	// highestUserPriority is the most that a class may have that is not the system's.
	highestUserPriority = 1_000_000_000

	// systemPrefix begins the names that are the system's.
	systemPrefix = "system-"
)

// System returns the classes that every cluster has. They are the caller's.
func System() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, description string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: schedulingv1.SchemeGroupVersion.String(), Kind: "PriorityClass"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description,
			PreemptionPolicy: new(corev1.PreemptLowerPriority),
		}
	}
	return []*schedulingv1.PriorityClass{
		class("system-cluster-critical", 2*highestUserPriority, "For pods that the cluster cannot do without, and that can run on any node."),
		class("system-node-critical", 2*highestUserPriority+1000, "For pods that their node cannot do without."),
	}
}

// Kinds returns the kinds of scheduling.k8s.io.
func Kinds() []*catalog.Kind { return []*catalog.Kind{priorityClasses()} }

func priorityClasses() *catalog.Kind {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
		Resource:         "priorityclasses",
		Singular:         "priorityclass",
		ShortNames:       []string{"pc"},
		New:              func() catalog.Object { return &schedulingv1.PriorityClass{} },
		NewList:          func() runtime.Object { return &schedulingv1.PriorityClassList{} },
		Default: catalog.Default(func(c *schedulingv1.PriorityClass) {
			if c.PreemptionPolicy == nil {
				c.PreemptionPolicy = new(corev1.PreemptLowerPriority)
			}
		}),
		Prepare: catalog.Prepare(func(c, old *schedulingv1.PriorityClass) {
			if old == nil {
				c.Generation = 1 // for good: changes are not counted
			}
		}),
		Validate: catalog.Validate(validate),
		Columns: []catalog.Column{
			catalog.Number("Value", doc["value"], func(c *schedulingv1.PriorityClass) int64 { return int64(c.Value) }),
			catalog.Flag("Global-Default", doc["globalDefault"], func(c *schedulingv1.PriorityClass) bool { return c.GlobalDefault }),
			catalog.Age(),
			catalog.Text("PreemptionPolicy", doc["preemptionPolicy"], func(c *schedulingv1.PriorityClass) string {
				if c.PreemptionPolicy == nil {
					return string(corev1.PreemptLowerPriority)
				}
				return string(*c.PreemptionPolicy)
			}),
		},
	}
}

func validate(c, old *schedulingv1.PriorityClass) (errs field.ErrorList) {
	if old != nil {
		if c.Value != old.Value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		return append(errs, apivalidation.ValidateImmutableField(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
	}
	if strings.HasPrefix(c.Name, systemPrefix) {
		if why := notSystem(c); why != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				fmt.Sprintf("priority class names with '%s' prefix are reserved for system use only. error: %s", systemPrefix, why)))
		}
	} else if c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestUserPriority)))
	}
	policies := []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}
	if p := c.PreemptionPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(field.NewPath("preemptionPolicy"), *p, policies))
	}
	return errs
}

// notSystem says why a class is not one of the system's, or "".
func notSystem(c *schedulingv1.PriorityClass) string {
	for _, s := range System() {
		switch {
		case s.Name != c.Name:
		case s.Value != c.Value:
			return fmt.Sprintf("value of %s PriorityClass must be %d", s.Name, s.Value)
		case c.GlobalDefault:
			return fmt.Sprintf("globalDefault of %s PriorityClass must be false", s.Name)
		default:
			return ""
		}
	}
	return c.Name + " is not a known system priority class"
}
