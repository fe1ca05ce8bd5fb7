package core

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// Limits of the events that the newer recorders write.
const (
	maxEventReason   = 128
	maxEventAction   = 128
	maxEventReporter = 128
	maxEventNote     = 1024
)

func events() *catalog.Kind {
	text := func(f func(e *corev1.Event) string) func(catalog.Object) string { return catalog.Value(f) }
	doc := corev1.Event{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: gvk("Event"),
		Resource:         "events",
		Singular:         "event",
		ShortNames:       []string{"ev"},
		Namespaced:       true,
		Expires:          true,
		Volatile:         func(_, _ catalog.Object) bool { return true },
		New:              func() catalog.Object { return &corev1.Event{} },
		NewList:          func() runtime.Object { return &corev1.EventList{} },
		Validate:         catalog.Validate(validateEvent),
		Columns: []catalog.Column{
			catalog.Timed("Last Seen", doc["lastTimestamp"], func(e *corev1.Event, now time.Time) string {
				return catalog.Since(lastSeen(e), now)
			}),
			catalog.Text("Type", doc["type"], func(e *corev1.Event) string { return e.Type }),
			catalog.Text("Reason", doc["reason"], func(e *corev1.Event) string { return e.Reason }),
			catalog.Text("Object", doc["involvedObject"], eventObject),
			catalog.Text("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], func(e *corev1.Event) string {
				return e.InvolvedObject.FieldPath
			}).Wide(),
			catalog.Text("Source", doc["source"], eventSource).Wide(),
			catalog.Text("Message", doc["message"], func(e *corev1.Event) string { return strings.TrimSpace(e.Message) }),
			catalog.Timed("First Seen", doc["firstTimestamp"], func(e *corev1.Event, now time.Time) string {
				return catalog.Since(orMicro(e.FirstTimestamp, e.EventTime), now)
			}).Wide(),
			catalog.Number("Count", doc["count"], eventCount).Wide(),
			catalog.NameColumn().Wide(),
		},
		Fields: map[string]func(catalog.Object) string{
			"involvedObject.kind":            text(func(e *corev1.Event) string { return e.InvolvedObject.Kind }),
			"involvedObject.namespace":       text(func(e *corev1.Event) string { return e.InvolvedObject.Namespace }),
			"involvedObject.name":            text(func(e *corev1.Event) string { return e.InvolvedObject.Name }),
			"involvedObject.uid":             text(func(e *corev1.Event) string { return string(e.InvolvedObject.UID) }),
			"involvedObject.apiVersion":      text(func(e *corev1.Event) string { return e.InvolvedObject.APIVersion }),
			"involvedObject.resourceVersion": text(func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion }),
			"involvedObject.fieldPath":       text(func(e *corev1.Event) string { return e.InvolvedObject.FieldPath }),
			"reason":                         text(func(e *corev1.Event) string { return e.Reason }),
			"reportingComponent":             text(func(e *corev1.Event) string { return e.ReportingController }),
			"source":                         text(func(e *corev1.Event) string { return cmp.Or(e.Source.Component, e.ReportingController) }),
			"type":                           text(func(e *corev1.Event) string { return e.Type }),
		},
		Indexed: []string{"involvedObject.name", "involvedObject.uid"},
	}
}

func orMicro(t metav1.Time, micro metav1.MicroTime) time.Time {
	if t.IsZero() {
		return micro.Time
	}
	return t.Time
}

func lastSeen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return orMicro(e.LastTimestamp, e.EventTime)
}

func eventObject(e *corev1.Event) string {
	kind := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + e.InvolvedObject.Name
}

func eventSource(e *corev1.Event) string {
	component := cmp.Or(e.Source.Component, e.ReportingController)
	if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
		return component + ", " + host
	}
	return component
}

func eventCount(e *corev1.Event) int64 {
	if e.Series != nil {
		return int64(e.Series.Count)
	}
	// An event that happened once may leave the count out.
	return max(int64(e.Count), 1)
}

func validateEvent(e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	involved := field.NewPath("involvedObject", "namespace")
	switch ns := e.InvolvedObject.Namespace; {
	case ns == "":
		// What has no namespace is reported in the default one, or in kube-system.
		if e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
			errs = append(errs, field.Invalid(involved, ns, "does not match event.namespace"))
		}
	case ns != e.Namespace:
		errs = append(errs, field.Invalid(involved, ns, "does not match event.namespace"))
	}
	errs = append(errs, faults(validation.IsDNS1123Subdomain(e.Namespace), field.NewPath("namespace"), e.Namespace)...)
	if !e.EventTime.IsZero() {
		errs = append(errs, validateNewEvent(e)...)
	}
	if old != nil && !e.EventTime.IsZero() {
		errs = append(errs, validateEventUpdate(e, old)...)
	}
	return errs
}

// validateNewEvent checks events of the newer form, which have an eventTime.
func validateNewEvent(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	limit := func(name, value string, most int) {
		if value == "" {
			errs = append(errs, field.Required(field.NewPath(name), ""))
		} else if len(value) > most {
			errs = append(errs, field.Invalid(field.NewPath(name), "", "can have at most 128 characters"))
		}
	}
	if e.ReportingController == "" {
		errs = append(errs, field.Required(field.NewPath("reportingController"), ""))
	} else {
		errs = append(errs, faults(validation.IsQualifiedName(e.ReportingController), field.NewPath("reportingController"), e.ReportingController)...)
	}
	limit("reportingInstance", e.ReportingInstance, maxEventReporter)
	limit("action", e.Action, maxEventAction)
	limit("reason", e.Reason, maxEventReason)
	if len(e.Message) > maxEventNote {
		errs = append(errs, field.Invalid(field.NewPath("message"), "", "can have at most 1024 characters"))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), e.Type, "has invalid value: "+e.Type))
	}
	if e.Series != nil {
		if e.Series.Count < 2 {
			errs = append(errs, field.Invalid(field.NewPath("series", "count"), e.Series.Count, "should be at least 2"))
		}
		if e.Series.LastObservedTime.IsZero() {
			errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
		}
	}
	return errs
}

// validateEventUpdate lets only the series of an event go on.
func validateEventUpdate(e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name     string
		now, was any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject},
		{"reason", e.Reason, old.Reason},
		{"message", e.Message, old.Message},
		{"source", e.Source, old.Source},
		{"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp},
		{"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count},
		{"type", e.Type, old.Type},
		{"eventTime", e.EventTime, old.EventTime},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		if !equality.Semantic.DeepEqual(f.now, f.was) {
			errs = append(errs, field.Invalid(field.NewPath(f.name), f.now, "field is immutable"))
		}
	}
	return errs
}
