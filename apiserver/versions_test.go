package apiserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	coreEvents  = "/api/v1/namespaces/default/events"
	newerEvents = "/apis/events.k8s.io/v1/namespaces/default/events"
)

func note(name string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		EventTime:  metav1.NowMicro(), ReportingController: "example.com/c", ReportingInstance: "c-1",
		Action: "Looking", Reason: "Looked", Type: "Normal", Note: "looked at it",
		Regarding: corev1.ObjectReference{Kind: "Pod", Name: "web", Namespace: "default"},
	}
}

// TestVersionsOfOneObject writes and reads the same objects in two versions, of two groups.
func TestVersionsOfOneObject(t *testing.T) {
	f := serve(t)
	made := into[eventsv1.Event](f, f.do("POST", newerEvents, note("a")), 201)
	if made.APIVersion != "events.k8s.io/v1" || made.Note != "looked at it" {
		t.Errorf("created %+v", made)
	}
	older := into[corev1.Event](f, f.do("GET", coreEvents+"/a", nil), 200)
	if older.APIVersion != "v1" || older.Message != made.Note || older.ResourceVersion != made.ResourceVersion || older.UID != made.UID {
		t.Errorf("in the core group: %+v", older)
	}
	if again := f.do("POST", coreEvents, &older); again.code != 409 && again.code != 400 {
		t.Errorf("created twice: %d %s", again.code, again.body)
	}

	patched := into[eventsv1.Event](f, f.do("PATCH", newerEvents+"/a", []byte(`{"series":{"count":3,"lastObservedTime":"2024-01-01T00:00:00.000000Z"}}`),
		"Content-Type: "+string(types.MergePatchType)), 200)
	if patched.Series == nil || patched.Series.Count != 3 {
		t.Errorf("patched %+v", patched)
	}
	f.refused(f.do("PATCH", newerEvents+"/a", []byte(`{"note":"other"}`), "Content-Type: "+string(types.MergePatchType)), 422, metav1.StatusReasonInvalid,
		`Event.events.k8s.io "a" is invalid: message: Invalid value: "other": field is immutable`)
	f.refused(f.do("GET", newerEvents+"/none", nil), 404, metav1.StatusReasonNotFound, `events.events.k8s.io "none" not found`)

	list := into[eventsv1.EventList](f, f.do("GET", newerEvents+"?fieldSelector=regarding.name=web", nil), 200)
	if list.Kind != "EventList" || list.APIVersion != "events.k8s.io/v1" || len(list.Items) != 1 || list.Items[0].Note != "looked at it" {
		t.Errorf("list %+v", list)
	}
	protobuf := f.do("GET", newerEvents, nil, "Accept: application/vnd.kubernetes.protobuf")
	if protobuf.code != 200 || !strings.Contains(string(protobuf.body), "events.k8s.io/v1") {
		t.Errorf("protobuf: %d", protobuf.code)
	}
	table := into[metav1.Table](f, f.do("GET", newerEvents+"?includeObject=Object", nil, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"), 200)
	if len(table.Rows) != 1 || table.Rows[0].Cells[4] != "looked at it" && table.Rows[0].Cells[6] != "looked at it" ||
		!strings.Contains(string(table.Rows[0].Object.Raw), `"note":"looked at it"`) {
		t.Errorf("table %+v", table)
	}
	dry := into[eventsv1.Event](f, f.do("POST", newerEvents+"?dryRun=All", note("b")), 201)
	if dry.APIVersion != "events.k8s.io/v1" || dry.Note == "" {
		t.Errorf("dry run %+v", dry)
	}
	f.refused(f.do("GET", newerEvents+"?until=true", nil), 400, metav1.StatusReasonBadRequest, "can be waited for in version v1")
}

// TestWatchOfAnotherVersion watches in one version what is written in another, over HTTP and in process.
func TestWatchOfAnotherVersion(t *testing.T) {
	f := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := f.open(ctx, "GET", newerEvents+"?watch=true", nil)
	defer r.Body.Close()
	f.create(coreEvents, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Message: "seen", InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	})
	var ev struct {
		Type   string
		Object eventsv1.Event
	}
	if err := json.NewDecoder(r.Body).Decode(&ev); err != nil || ev.Object.Note != "seen" || ev.Object.APIVersion != "events.k8s.io/v1" {
		t.Errorf("%+v, %v", ev, err)
	}
	inProcess := f.server.As(boss)
	gvr := eventsv1.SchemeGroupVersion.WithResource("events")
	for ev, err := range inProcess.Watch(ctx, gvr, "default", metav1.ListOptions{}) {
		if got, ok := ev.Object.(*eventsv1.Event); err != nil || !ok || got.Note != "seen" {
			t.Errorf("in process: %+v, %v", ev, err)
		}
		break
	}
	objs, _, err := inProcess.List(ctx, gvr, "default", metav1.ListOptions{})
	if err != nil || len(objs) != 1 || objs[0].(*eventsv1.Event).Note != "seen" {
		t.Errorf("in process: %v, %v", objs, err)
	}
}

// TestApplyInTwoVersions applies the same object in both versions: fields that one manager owns in
// one version are the same fields in the other.
func TestApplyInTwoVersions(t *testing.T) {
	f := serve(t)
	apply := func(path, manager, body string) answer {
		return f.do(http.MethodPatch, path+"/a?fieldManager="+manager, []byte(body), "Content-Type: "+string(types.ApplyYAMLPatchType))
	}
	const newer = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"a"},"note":"one","eventTime":"2024-01-01T00:00:00.000000Z","reportingController":"c",
		"reportingInstance":"c-1","action":"A","reason":"R","type":"Normal","regarding":{"kind":"Pod","name":"web","namespace":"default"}}`
	const older = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"a"},"message":"two","involvedObject":{"kind":"Pod","name":"web","namespace":"default"}}`
	if a := apply(newerEvents, "alice", newer); a.code != 201 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	f.refused(apply(coreEvents, "bob", older), 409, metav1.StatusReasonConflict, `conflict with "alice": .note`)
	a := apply(coreEvents, "bob", strings.Replace(older, "two", "one", 1))
	e := into[corev1.Event](f, a, 200)
	if e.Message != "one" || e.ReportingController != "c" {
		t.Errorf("%+v", e)
	}
	read := into[eventsv1.Event](f, f.do("GET", newerEvents+"/a", nil), 200)
	if len(read.ManagedFields) != 2 {
		t.Errorf("managed fields: %+v", read.ManagedFields)
	}
}
