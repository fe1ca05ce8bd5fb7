package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// probed returns a pod with a probe of that port.
func probed(name string, port intstr.IntOrString) *corev1.Pod {
	p := pod(name)
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}}}
	return p
}

// inProtobuf returns the body of obj as a client of any kind may send it.
func inProtobuf(t testing.TB, obj interface{ Marshal() ([]byte, error) }, apiVersion, kind string) []byte {
	t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	b, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), b...)
}

const sentProtobuf = "Content-Type: application/vnd.kubernetes.protobuf"

func TestProtobufRefusesValuesWithoutJSON(t *testing.T) {
	f := serve(t)
	bad := intstr.IntOrString{Type: 7, IntVal: 80}
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1("{")}}},
			Spec:       pod("a").Spec,
		}},
	}
	surge := deployment.DeepCopy()
	surge.Spec.Template.ManagedFields = nil
	surge.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &bad}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: bad}}}}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: runtime.RawExtension{Raw: []byte("not JSON")}}
	named := pod("a")
	named.Annotations = map[string]string{"note": "\xff"}
	late := pod("a")
	late.DeletionTimestamp = &metav1.Time{Time: time.Unix(math.MaxInt64, 0)}
	tests := []struct {
		name, path, version, kind string
		obj                       interface{ Marshal() ([]byte, error) }
		fault                     string
	}{
		{"a probe", "/api/v1/namespaces/default/pods", "v1", "Pod", probed("a", bad), "spec.containers[0].readinessProbe.httpGet.port: must be an integer (type 0) or a string (type 1), got type 7"},
		{"a service", "/api/v1/namespaces/default/services", "v1", "Service", service, "spec.ports[0].targetPort: must be an integer"},
		{"managed fields", "/apis/apps/v1/namespaces/default/deployments", "apps/v1", "Deployment", deployment, `spec.template.metadata.managedFields[0].fieldsV1: must be JSON, got "{"`},
		{"a share", "/apis/apps/v1/namespaces/default/deployments", "apps/v1", "Deployment", surge, "spec.strategy.rollingUpdate.maxSurge: must be an integer"},
		{"an extension", "/apis/apps/v1/namespaces/default/controllerrevisions", "apps/v1", "ControllerRevision", revision, "data: must be JSON"},
		{"a text", "/api/v1/namespaces/default/pods", "v1", "Pod", named, `metadata.annotations[note]: must be UTF-8, got "\xff"`},
		{"a time", "/api/v1/namespaces/default/pods", "v1", "Pod", late, "metadata.deletionTimestamp: must be a time in the years 0 to 9999"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := f.do("POST", tt.path, inProtobuf(t, tt.obj, tt.version, tt.kind), sentProtobuf)
			f.refused(a, 400, metav1.StatusReasonBadRequest, tt.fault)
			if list := f.do("GET", tt.path, nil); strings.Contains(string(list.body), `"name":"a"`) {
				t.Errorf("something was stored: %s", list.body)
			}
		})
	}
}

func TestLocalRefusesValuesWithoutJSON(t *testing.T) {
	f := serve(t)
	_, err := f.local.Create(t.Context(), pdGVR, "default", "", probed("a", intstr.IntOrString{Type: 7}), metav1.CreateOptions{}, "")
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "readinessProbe.httpGet.port: must be an integer") {
		t.Errorf("Create = %v, want a bad request", err)
	}
	f.create("/api/v1/namespaces/default/pods", pod("a"))
	stored, err := f.local.Get(t.Context(), pdGVR, "default", "a", "")
	if err != nil {
		t.Fatal(err)
	}
	changed := stored.(*corev1.Pod).DeepCopy()
	changed.Status.Message = "\xff"
	_, err = f.local.Update(t.Context(), pdGVR, "default", "a", changed, metav1.UpdateOptions{}, "status")
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `status.message: must be UTF-8`) {
		t.Errorf("Update = %v, want a bad request", err)
	}
}

func TestJSONRefusesValuesThatEncodingsChange(t *testing.T) {
	f := serve(t)
	// It is the year 10000 in UTC, which RFC 3339 cannot write.
	body := `{"metadata":{"name":"a"},"addressType":"IPv4","endpoints":[]}`
	f.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", body)
	made := into[discoveryv1.EndpointSlice](f, f.do("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/a", nil), 200)
	if made.Endpoints != nil {
		t.Errorf("endpoints = %#v, want the nil that they are after a restart", made.Endpoints)
	}
	body = `{"metadata":{"name":"p"},"status":{"startTime":"9999-12-31T23:59:59-10:00"}}`
	f.create("/api/v1/namespaces/default/pods", pod("p"))
	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		a := f.do("PATCH", "/api/v1/namespaces/default/pods/p/status", body, "Content-Type: "+string(kind))
		f.refused(a, 400, metav1.StatusReasonBadRequest, "status.startTime: must be a time in the years 0 to 9999")
	}
}

func TestDecodeRefusesHugeQuantities(t *testing.T) {
	f := serve(t)
	const pods = "/api/v1/namespaces/default/pods"
	with := func(cpu string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"commit":"7e12345"}},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":` + cpu + `}}}]}}`
	}
	const fault = "spec.containers[0].resources.limits[cpu]: the exponent of a quantity must be between -999 and 999"
	for _, cpu := range []string{`"1e-2147483648"`, `"1e2147483647"`, `1e-99999999999999999999`, `"1\u0065-2147483648"`, `" 1E-10000 "`} {
		f.refused(f.do("POST", pods, with(cpu)), 400, metav1.StatusReasonBadRequest, fault)
		if strings.HasPrefix(cpu, `"`) { // a number is a float there, and this one 0
			f.refused(f.do("PATCH", pods+"/a?fieldManager=m", with(cpu), "Content-Type: application/apply-patch+yaml"), 400, metav1.StatusReasonBadRequest, fault)
		}
	}
	f.refused(f.do("POST", pods, with(`"`+strings.Repeat("1", 1000)+`"`)), 400, metav1.StatusReasonBadRequest, "limits[cpu]: a quantity must have at most 999 characters, got 1000")
	f.refused(f.do("POST", pods, strings.ReplaceAll(with(`"1e-2147483648"`), "\t", ""), "Content-Type: application/yaml"), 400, metav1.StatusReasonBadRequest, fault)
	f.create(pods, with(`"1e1"`))
	patch := `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1e-2147483648"}}}]}}`
	a := f.do("PATCH", pods+"/a", patch, "Content-Type: application/strategic-merge-patch+json")
	if a.code != 422 || !strings.Contains(string(a.body), fault) {
		t.Errorf("patch: %d %s", a.code, a.body)
	}
	// In protobuf the text is between other bytes.
	b := inProtobuf(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"7e12345": "7e12345"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("123456789012")}}}},
	}}, "v1", "Pod")
	if n := bytes.Count(b, []byte("123456789012")); n != 1 {
		t.Fatalf("%d quantities in %q", n, b)
	}
	f.refused(f.do("POST", pods, bytes.Replace(b, []byte("123456789012"), []byte("1e-214748364"), 1), sentProtobuf), 400, metav1.StatusReasonBadRequest,
		"spec.containers.resources.limits: the exponent of a quantity must be between -999 and 999")
	if a := f.do("POST", pods, b, sentProtobuf); a.code != 201 {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestHugeQuantitiesAreNotHidden puts a quantity where one reader of a body may see it, and another one may not.
func TestHugeQuantitiesAreNotHidden(t *testing.T) {
	f := serve(t)
	const pods = "/api/v1/namespaces/default/pods"
	const fault = "the exponent of a quantity must be between -999 and 999"
	for _, resources := range []string{
		`"resources":{"limits":{"cpu":"1e-10000000","cpu":"1m"}}`,
		`"resources":{"limits":{"cpu":"1e-10000000"},"limits":{"cpu":"1m"}}`,
		`"resources":{"limits":{"cpu":"1e-10000000"}},"resources":{}`,
		`"x":[{"y":[1,{}]}],"resources":{"x":{"cpu":[]},"limits":{"cpu":"1e-10000000"}},"resources":null`,
	} {
		body := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i",` + resources + `}]}}`
		f.refused(f.do("POST", pods, body), 400, metav1.StatusReasonBadRequest, fault)
	}

	field := func(number protowire.Number, payload []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), payload)
	}
	quantity := field(1, []byte("1e-10000000"))
	entry := slices.Concat(field(1, []byte("cpu")), field(2, quantity))
	group := protowire.AppendTag(protowire.AppendTag(nil, 1000, protowire.StartGroupType), 1000, protowire.EndGroupType)
	// 2^32 more than the number of limits, for a reader of 32 bits.
	farLimits := protowire.AppendBytes(protowire.AppendVarint(nil, (1<<32+1)<<3|2), entry)
	otherType := slices.Concat(field(1, []byte("cpu")), protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.VarintType), quantity))
	for name, container := range map[string][]byte{
		"after a group":        slices.Concat(group, field(8, field(1, entry))),
		"in a far field":       field(8, farLimits),
		"with another type":    field(8, field(1, otherType)),
		"as upstream sends it": field(8, field(1, entry)),
	} {
		container = slices.Concat(field(1, []byte("c")), field(2, []byte("i")), container)
		pod := slices.Concat(field(1, field(1, []byte("b"))), field(2, field(2, container)))
		raw, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: pod}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if a := f.do("POST", pods, append([]byte("k8s\x00"), raw...), sentProtobuf); a.code != 400 {
			t.Errorf("%s: %d %s, want 400", name, a.code, a.body)
		}
	}
}

// planted returns a medium with the records of a server, and bad ones beside them: of each
// kind of namespace "bad", with a finalizer.
func planted(t *testing.T) *backend {
	t.Helper()
	b := &backend{entries: map[string]store.Entry{}}
	s, err := apiserver.New(options(t, onMedium(t, b)))
	if err != nil {
		t.Fatal(err)
	}
	local := s.As(boss)
	for _, name := range []string{"default", "bad"} {
		_, err := local.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("namespaces"), "", "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}, "")
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "z"} {
		if _, err := local.Create(t.Context(), pdGVR, "default", "", pod(name), metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	rev := store.Revision(100)
	put := func(key string, data []byte) {
		rev++
		b.entries[key] = store.Entry{Key: key, Data: data, Created: rev, Revision: rev}
	}
	odd := probed("odd", intstr.IntOrString{Type: 7})
	odd.UID, odd.Finalizers, odd.Labels = "odd-uid", []string{"example.com/hold"}, map[string]string{"app": "web"}
	put("pods/default/odd", inProtobuf(t, odd, "v1", "Pod"))
	put("pods/default/torn", []byte("k8s\x00\x0a"))
	put("pods/bad/torn", []byte("nothing at all"))
	put("configmaps/bad/torn", []byte("k8s\x00\x12\x03\x0a\x08\xff"))
	put("boats.example.com/default/ark", []byte("of another version"))
	put("boats.example.com/default/raft", []byte("of another version"))
	return b
}

func TestRecordsThatCannotBeReadSpoilNothing(t *testing.T) {
	b := planted(t)
	st := onMedium(t, b)
	s, err := apiserver.New(options(t, st))
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewTLSServer(s.Handler())
	t.Cleanup(h.Close)
	f := &fixture{T: t, server: s, store: st, http: h, local: s.As(boss)}
	const pods = "/api/v1/namespaces/default/pods"

	for _, accept := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"} {
		a := f.do("GET", pods, nil, "Accept: "+accept)
		if a.code != 200 || strings.Contains(string(a.body), "odd") {
			t.Errorf("%s: %d %q", accept, a.code, a.body)
		}
		if w := a.header.Get("Warning"); !strings.Contains(w, "2 pods cannot be read from the store and are left out, delete them: default/odd, default/torn") {
			t.Errorf("%s: warning %q", accept, w)
		}
	}
	list := into[corev1.PodList](f, f.do("GET", pods+"?limit=1", nil), 200)
	if len(list.Items) != 1 || list.Items[0].Name != "a" || list.Continue == "" {
		t.Errorf("first page: %+v", list)
	}
	list = into[corev1.PodList](f, f.do("GET", pods+"?limit=1&continue="+list.Continue, nil), 200)
	if len(list.Items) != 1 || list.Items[0].Name != "z" {
		t.Errorf("second page: %+v", list)
	}
	if objs, _, err := f.local.List(t.Context(), pdGVR, "", metav1.ListOptions{}); err != nil || len(objs) != 2 {
		t.Errorf("in process: %v, %v", objs, err)
	}
	if a := f.do("GET", pods+"?until=any:object.metadata.name%20%3D%3D%20%22z%22", nil); a.code != 200 || strings.Contains(string(a.body), "odd") {
		t.Errorf("blocking list: %d %s", a.code, a.body)
	}

	for _, name := range []string{"odd", "torn"} {
		f.refused(f.do("GET", pods+"/"+name, nil), 500, metav1.StatusReasonStoreReadError, fmt.Sprintf(`pods "%s" cannot be read from the store, and can only be deleted`, name))
		f.refused(f.do("PATCH", pods+"/"+name, "{}", "Content-Type: application/merge-patch+json"), 500, metav1.StatusReasonStoreReadError, "can only be deleted")
		f.refused(f.do("POST", pods, pod(name)), 409, metav1.StatusReasonAlreadyExists, "already exists")
	}
	if _, err := f.local.Get(t.Context(), pdGVR, "default", "odd", ""); apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError {
		t.Errorf("Get in process: %v", err)
	}
	if a := f.do("GET", pods+"/torn?until=object.status.phase%20%3D%3D%20%22Running%22", nil); a.code != 500 {
		t.Errorf("blocking read: %d %s", a.code, a.body)
	}

	// A watcher sees the others, and nothing of these.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events []string
	for ev, err := range f.local.Watch(ctx, pdGVR, "default", metav1.ListOptions{AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == watch.Bookmark {
			f.do("DELETE", pods+"/odd?dryRun=All", nil)
			a := f.do("DELETE", pods+"/odd", nil)
			if a.code != 200 || !strings.Contains(a.header.Get("Warning"), "deleted without its finalizers: example.com/hold") {
				t.Errorf("delete: %d %v %s", a.code, a.header, a.body)
			}
			f.create(pods, pod("last"))
			continue
		}
		m := ev.Object.(*corev1.Pod)
		events = append(events, string(ev.Type)+" "+m.Name)
		if m.Name == "last" {
			break
		}
	}
	if want := []string{"ADDED a", "ADDED z", "ADDED last"}; !slices.Equal(events, want) {
		t.Errorf("watched %q, want %q", events, want)
	}
	f.refused(f.do("GET", pods+"/odd", nil), 404, metav1.StatusReasonNotFound, "not found")
	uid := types.UID("other")
	err = f.local.Delete(t.Context(), pdGVR, "default", "torn", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete of another UID: %v", err)
	}
	if a := f.do("DELETE", pods, nil); a.code != 200 {
		t.Errorf("delete of all: %d %s", a.code, a.body)
	}
	f.refused(f.do("GET", pods+"/torn", nil), 404, metav1.StatusReasonNotFound, "not found")

	// A namespace takes them along.
	const namespaces = "/api/v1/namespaces"
	ns := into[corev1.Namespace](f, f.do("DELETE", namespaces+"/bad", nil), 200)
	ns.Spec.Finalizers = nil
	if a := f.do("PUT", namespaces+"/bad/finalize", ns); a.code != 200 {
		t.Fatalf("finalize: %s", a.body)
	}
	left := slices.Sorted(maps.Keys(b.entries))
	if slices.ContainsFunc(left, func(key string) bool { return strings.Contains(key, "bad") }) {
		t.Errorf("left %q", left)
	}
	for _, key := range []string{"boats.example.com/default/ark", "boats.example.com/default/raft"} {
		if string(b.entries[key].Data) != "of another version" {
			t.Errorf("%s = %q", key, b.entries[key].Data)
		}
	}
}

// TestTemplatesOfClaimsKeepTheirKind checks that a set shows after a restart the kind that
// protobuf does not have, as it did before.
func TestTemplatesOfClaimsKeepTheirKind(t *testing.T) {
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}}}}
	set.Name, set.Namespace = "a", "default"
	loaded, err := apiserver.NewLoader(apiservertest.Kinds(t)).Decode("statefulsets.apps/default/a", inProtobuf(t, set, "apps/v1", "StatefulSet"))
	if err != nil {
		t.Fatal(err)
	}
	obj := loaded.(*codec.Item).Object().(*appsv1.StatefulSet)
	if c := obj.Spec.VolumeClaimTemplates[0]; c.Kind != "PersistentVolumeClaim" || c.APIVersion != "v1" {
		t.Errorf("the template is a %s %s", c.APIVersion, c.Kind)
	}
}

func TestTheLoaderReportsOnceWhatIsNotServed(t *testing.T) {
	b := planted(t)
	loader := apiserver.NewLoader(apiservertest.Kinds(t))
	if _, err := store.Open(t.Context(), b, store.Options{Decode: loader.Decode, Terms: apiserver.Terms(nil)}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	loader.Report(t.Context(), apiservertest.Kinds(t), slog.New(slog.NewTextHandler(&out, nil)))
	for _, want := range []string{"kind=boats.example.com records=2\n", "kind=pods records=3 ", "kind=configmaps records=1 keys=[configmaps/bad/torn]"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

// TestUnknownKindsSurviveCompaction opens a store of a newer version on disk, several times,
// with so many writes that its log is folded.
func TestUnknownKindsSurviveCompaction(t *testing.T) {
	dir := t.TempDir()
	c := apiservertest.Kinds(t)
	session := func(t *testing.T, decode func(string, []byte) (store.Value, error), do func(*store.Store)) {
		b, err := disk.Open(dir, disk.Options{Segment: 4 << 10, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(t.Context(), b, store.Options{Decode: decode})
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) {
			if err := st.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		<-st.Ready()
		do(st)
		g.Stop()
	}
	newer := func(_ string, data []byte) (store.Value, error) { return plainValue(data), nil }
	session(t, newer, func(st *store.Store) {
		for _, key := range []string{"boats.example.com/default/ark", "pods/default/torn"} {
			if _, err := st.Commit(t.Context(), store.Write{Key: key, Value: plainValue("as it was")}); err != nil {
				t.Fatal(err)
			}
		}
	})
	for round := range 3 {
		session(t, apiserver.NewLoader(c).Decode, func(st *store.Store) {
			for n := range 50 {
				key := fmt.Sprintf("configmaps/default/%d-%d", round, n)
				if _, err := st.Commit(t.Context(), store.Write{Key: key, Value: plainValue(strings.Repeat("x", 1<<10))}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	session(t, newer, func(st *store.Store) {
		for _, key := range []string{"boats.example.com/default/ark", "pods/default/torn"} {
			rec, err := st.Get(key)
			if err != nil || string(rec.Value.Bytes()) != "as it was" {
				t.Errorf("%s = %v, %v", key, rec, err)
			}
		}
	})
}

type plainValue []byte

func (v plainValue) Bytes() []byte           { return v }
func (plainValue) Place(_, _ store.Revision) {}

func TestDamagedRecordsAreReportedAndHaveAName(t *testing.T) {
	loader := apiserver.NewLoader(apiservertest.Kinds(t))
	item := loader.Damaged("secrets/default/a", []byte("k8s:enc:x"), errors.New("the value was changed")).(*codec.Item)
	if obj := item.Object(); item.Fault() == nil || obj.GetName() != "a" || obj.GetNamespace() != "default" {
		t.Errorf("fault %v, object %v", item.Fault(), obj)
	}
	var out strings.Builder
	loader.Report(t.Context(), apiservertest.Kinds(t), slog.New(slog.NewTextHandler(&out, nil)))
	if !strings.Contains(out.String(), "kind=secrets records=1 keys=[secrets/default/a]") || !strings.Contains(out.String(), "the value was changed") {
		t.Errorf("reported as %s", out.String())
	}
}
