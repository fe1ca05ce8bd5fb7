package core

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// newerEvents is events.k8s.io/v1, which serves the same objects as the events of the core group
// and has stricter rules for its fields.
func newerEvents() catalog.Version {
	return catalog.Version{
		GroupVersion: eventsv1.SchemeGroupVersion,
		New:          func() catalog.Object { return &eventsv1.Event{} },
		NewList:      func() runtime.Object { return &eventsv1.EventList{} },
		ToHub:        catalog.Convert(toCoreEvent),
		FromHub:      catalog.Convert(toNewerEvent),
		Validate:     catalog.Validate(validateNewerEvent),
		Fields: map[string]string{
			"reason":                    "reason",
			"regarding.kind":            "involvedObject.kind",
			"regarding.namespace":       "involvedObject.namespace",
			"regarding.name":            "involvedObject.name",
			"regarding.uid":             "involvedObject.uid",
			"regarding.apiVersion":      "involvedObject.apiVersion",
			"regarding.resourceVersion": "involvedObject.resourceVersion",
			"regarding.fieldPath":       "involvedObject.fieldPath",
			"reportingController":       "reportingComponent",
			"type":                      "type",
		},
	}
}

func toCoreEvent(e *eventsv1.Event) (*corev1.Event, error) {
	return &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Related: e.Related,
		Reason: e.Reason, Message: e.Note, Type: e.Type, Action: e.Action,
		EventTime: e.EventTime, Series: (*corev1.EventSeries)(e.Series),
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Source: e.DeprecatedSource, Count: e.DeprecatedCount,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp,
	}, nil
}

func toNewerEvent(e *corev1.Event) (*eventsv1.Event, error) {
	return &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, Regarding: e.InvolvedObject, Related: e.Related,
		Reason: e.Reason, Note: e.Message, Type: e.Type, Action: e.Action,
		EventTime: e.EventTime, Series: (*eventsv1.EventSeries)(e.Series),
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		DeprecatedSource: e.Source, DeprecatedCount: e.Count,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp,
	}, nil
}

// validateNewerEvent has the rules of events.k8s.io/v1 beside those of the core group: a new event
// has the newer fields alone, and only its series changes later.
func validateNewerEvent(e, old *corev1.Event) field.ErrorList {
	if old != nil {
		return validateEventUpdate(e, old)
	}
	errs := validateSeries(e)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	for _, older := range []struct {
		name  string
		unset bool
	}{
		{"firstTimestamp", e.FirstTimestamp.IsZero()},
		{"lastTimestamp", e.LastTimestamp.IsZero()},
		{"count", e.Count == 0},
		{"source", e.Source == corev1.EventSource{}},
	} {
		if !older.unset {
			errs = append(errs, field.Invalid(field.NewPath(older.name), "", "needs to be unset"))
		}
	}
	return errs
}

func validateSeries(e *corev1.Event) (errs field.ErrorList) {
	if e.Series == nil {
		return nil
	}
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// validateEventUpdate lets only the series of an event go on.
func validateEventUpdate(e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(e.Series, old.Series) {
		errs = validateSeries(e)
	}
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
