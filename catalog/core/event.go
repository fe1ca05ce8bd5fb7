package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		CreatedByUpdate:  true,
		Singular:         "event",
		ShortNames:       []string{"ev"},
		Namespaced:       true,
		Storing: catalog.Storing{
			Expires: true, Volatile: func(_, _ catalog.Object) bool { return true },
			Indexed: []string{"involvedObject.name", "involvedObject.uid"},
		},
		New:      func() catalog.Object { return &corev1.Event{} },
		NewList:  func() runtime.Object { return &corev1.EventList{} },
		Validate: catalog.Validate(validateEvent),
		Versions: []catalog.Version{newerEvents()},
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
			catalog.Number("Count", doc["count"], eventCount).Wide().Declared("string", ""),
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

// validateEvent has the rules of the core group. Those for events without an eventTime, which older
// recorders write, are few; an update may change everything.
func validateEvent(e, _ *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	involved := field.NewPath("involvedObject", "namespace")
	if e.EventTime.IsZero() {
		ns := e.InvolvedObject.Namespace
		// An object without a namespace is reported in the default one.
		if ns == "" && e.Namespace != metav1.NamespaceDefault || ns != "" && ns != e.Namespace {
			errs = append(errs, field.Invalid(involved, ns, "does not match event.namespace"))
		}
		return errs
	}
	if e.InvolvedObject.Namespace == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		errs = append(errs, field.Invalid(involved, "", "does not match event.namespace"))
	}
	limit := func(name, value string, most int) {
		if value == "" {
			errs = append(errs, field.Required(field.NewPath(name), ""))
		} else if len(value) > most {
			errs = append(errs, field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", most)))
		}
	}
	reporter := field.NewPath("reportingComponent")
	if e.ReportingController == "" {
		errs = append(errs, field.Required(reporter, ""))
	}
	errs = append(errs, faults(validation.IsQualifiedName(e.ReportingController), reporter, e.ReportingController)...)
	limit("reportingInstance", e.ReportingInstance, maxEventReporter)
	limit("action", e.Action, maxEventAction)
	limit("reason", e.Reason, maxEventReason)
	if len(e.Message) > maxEventNote {
		errs = append(errs, field.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %d characters", maxEventNote)))
	}
	return errs
}
