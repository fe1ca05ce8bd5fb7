package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

func (f *fixture) mate() auth.User { return auth.User{Name: "mate"} }

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

const (
	pods  = "/api/v1/namespaces/default/pods"
	rcs   = "/api/v1/namespaces/default/replicationcontrollers"
	merge = "Content-Type: application/merge-patch+json"
)

func replicationController(name string) *corev1.ReplicationController {
	two := int32(2)
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &two, Selector: map[string]string{"app": name}, Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: pod("x").Spec,
		}},
	}
}

func TestGenerateName(t *testing.T) {
	f := serve(t)
	seen := map[string]bool{}
	for range 20 {
		m := f.create(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}})
		if len(m.Name) != len("web-")+5 || !strings.HasPrefix(m.Name, "web-") || seen[m.Name] {
			t.Errorf("name %q", m.Name)
		}
		seen[m.Name] = true
	}
	long := f.create(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: strings.Repeat("x", 100)}})
	if len(long.Name) != 63 {
		t.Errorf("a long prefix makes a name of %d letters, want 63", len(long.Name))
	}
	f.refused(f.do("POST", configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "A_"}}), 422, metav1.StatusReasonInvalid, "metadata.generateName: Invalid value")
}

// A crowded store has an object of each name that is looked up until so many were.
type crowded struct {
	httpserver.Store
	taken int
}

func (c *crowded) Get(key string) (store.Record, error) {
	if c.taken--; c.taken >= 0 {
		return store.Record{Key: key}, nil
	}
	return c.Store.Get(key)
}

func TestATakenGeneratedNameIsNotUsed(t *testing.T) {
	for taken, left := range map[int]int{0: 0, 2: 0, 1000: 993} {
		c := &crowded{}
		f := serve(t, func(o *apiserver.Options) { c.Store, o.Store = o.Store, c })
		c.taken = taken
		m := f.create(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}})
		if !strings.HasPrefix(m.Name, "web-") || max(c.taken, 0) != left {
			t.Errorf("%d names are taken: name %q, %d lookups left", taken, m.Name, c.taken)
		}
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	w := &watchdog{}
	f := serve(t, func(o *apiserver.Options) { o.Admission = []admission.Plugin{w} })
	f.create(configMaps, configMap("a"))
	w.ends = nil
	before := f.store.Revision()
	made := into[corev1.ConfigMap](f, f.do("POST", configMaps+"?dryRun=All", configMap("b")), 201)
	if made.Name != "b" || made.UID == "" || made.ResourceVersion != "" {
		t.Errorf("created %+v", made)
	}
	f.refused(f.do("POST", configMaps+"?dryRun=All", configMap("a")), 409, metav1.StatusReasonAlreadyExists, "already exists")
	patched := into[corev1.ConfigMap](f, f.do("PATCH", configMaps+"/a?dryRun=All", `{"data":{"x":"y"}}`, merge), 200)
	if patched.Data["x"] != "y" || patched.ResourceVersion != "1" {
		t.Errorf("patched %+v", patched)
	}
	f.do("PUT", configMaps+"/a?dryRun=All", configMap("a", "x=y"))
	f.do("DELETE", configMaps+"/a?dryRun=All", nil)
	f.do("DELETE", configMaps+"/a", `{"dryRun":["All"]}`)
	if got := f.store.Revision(); got != before {
		t.Errorf("revision %d, was %d", got, before)
	}
	if slices.Contains(w.ends, true) || len(w.ends) != 6 {
		t.Errorf("admission got %v, want six times that nothing was written", w.ends)
	}
}

func TestFieldValidation(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	const body = `{"metadata":{"name":"%s","nam":"x"},"dat":{}}`
	tests := []struct {
		method, path, body string
		headers            []string
	}{
		{"POST", configMaps, fmt.Sprintf(body, "b"), nil},
		{"PUT", configMaps + "/a", fmt.Sprintf(body, "a"), nil},
		{"PATCH", configMaps + "/a", `{"metadata":{"nam":"x"},"dat":{}}`, []string{merge}},
	}
	want := []string{`299 - "unknown field \"metadata.nam\""`, `299 - "unknown field \"dat\""`}
	for _, tt := range tests {
		t.Run(tt.method, func(t *testing.T) {
			sub := *f
			sub.T = t
			sub.refused(sub.do(tt.method, tt.path+"?fieldValidation=Strict", tt.body, tt.headers...), 400, metav1.StatusReasonBadRequest, `strict decoding error: unknown field`)
			for _, mode := range []string{"", "?fieldValidation=Warn", "?fieldValidation=Ignore"} {
				a := sub.do(tt.method, tt.path+mode, strings.ReplaceAll(tt.body, `"b"`, `"b`+fmt.Sprint(len(mode))+`"`), tt.headers...)
				got := a.header.Values("Warning")
				slices.Sort(got)
				expect := slices.Sorted(slices.Values(want))
				if strings.HasSuffix(mode, "Ignore") {
					expect = nil
				}
				if diff := cmp.Diff(expect, got); a.code >= 300 || diff != "" {
					t.Errorf("%q: %d %s; warnings (-want +got):\n%s", mode, a.code, a.body, diff)
				}
			}
		})
	}
}

func TestYAMLBody(t *testing.T) {
	f := serve(t)
	a := f.do("POST", configMaps, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n", "Content-Type: application/yaml", "Accept: application/yaml")
	if a.code != 201 || !strings.Contains(string(a.body), "data:\n  k: v\n") {
		t.Errorf("%d %s", a.code, a.body)
	}
}

func TestPatchTypes(t *testing.T) {
	f := serve(t)
	f.create(pods, pod("a"))
	image := func(a answer) string { return into[corev1.Pod](f, a, 200).Spec.Containers[0].Image }
	const strategic, operations = "Content-Type: application/strategic-merge-patch+json", "Content-Type: application/json-patch+json"
	if got := image(f.do("PATCH", pods+"/a", `{"spec":{"containers":[{"name":"c","image":"i:2"}]}}`, strategic)); got != "i:2" {
		t.Errorf("strategic: image %s", got)
	}
	if got := image(f.do("PATCH", pods+"/a", `[{"op":"replace","path":"/spec/containers/0/image","value":"i:3"}]`, operations)); got != "i:3" {
		t.Errorf("operations: image %s", got)
	}
	f.refused(f.do("PATCH", pods+"/a", `[{"op":"test","path":"/spec/containers/0/image","value":"i:2"}]`, operations), 422, metav1.StatusReasonInvalid, "")
	f.refused(f.do("PATCH", pods+"/a", `{"spec":{"containers":[{"name":"c","image":""}]}}`, strategic), 422, metav1.StatusReasonInvalid, `Pod "a" is invalid: spec.containers[0].image: Required value`)
	f.refused(f.do("PATCH", pods+"/x", `{}`, strategic), 404, metav1.StatusReasonNotFound, `pods "x" not found`)
	before := f.store.Revision()
	if f.do("PATCH", pods+"/a", `{"spec":{"containers":[{"name":"c","image":"i:3"}]}}`, strategic); f.store.Revision() != before {
		t.Error("a patch that changes nothing wrote")
	}
}

func TestMetadataIsTheServers(t *testing.T) {
	f := serve(t)
	rc := replicationController("a")
	rc.UID, rc.Generation, rc.SelfLink = "mine", 7, "/x"
	rc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	rc.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	rc.Status.Replicas = 9
	made := into[corev1.ReplicationController](f, f.do("POST", rcs, rc), 201)
	if made.UID == "mine" || made.Generation != 1 || made.SelfLink != "" || made.ManagedFields != nil || made.DeletionTimestamp != nil || made.Status.Replicas != 0 {
		t.Errorf("created %+v", made)
	}
	steps := []struct {
		name, path, patch string
		generation        int64
	}{
		{"labels do not count", "", `{"metadata":{"labels":{"x":"y"}}}`, 1},
		{"the spec counts", "", `{"spec":{"replicas":3}}`, 2},
		{"the status does not, nor does it change here", "", `{"status":{"replicas":3}}`, 2},
		{"the status does not count", "/status", `{"status":{"replicas":3,"observedGeneration":2}}`, 2},
		{"the spec does not change there", "/status", `{"spec":{"replicas":7}}`, 2},
		{"nobody sets it", "", `{"metadata":{"generation":9}}`, 2},
		{"scale counts", "/scale", `{"spec":{"replicas":5}}`, 3},
	}
	for _, s := range steps {
		if a := f.do("PATCH", rcs+"/a"+s.path, s.patch, merge); a.code != 200 {
			t.Fatalf("%s: %s", s.name, a.body)
		}
		if got := into[corev1.ReplicationController](f, f.do("GET", rcs+"/a", nil), 200); got.Generation != s.generation {
			t.Errorf("%s: generation %d, want %d", s.name, got.Generation, s.generation)
		}
	}
	end := into[corev1.ReplicationController](f, f.do("GET", rcs+"/a", nil), 200)
	if *end.Spec.Replicas != 5 || end.Status.Replicas != 3 {
		t.Errorf("%d wanted, %d there; want 5 and 3", *end.Spec.Replicas, end.Status.Replicas)
	}
	same := into[corev1.ReplicationController](f, f.do("PATCH", rcs+"/a", `{"metadata":{"creationTimestamp":"2001-01-01T00:00:00Z"}}`, merge), 200)
	if !same.CreationTimestamp.Equal(&end.CreationTimestamp) {
		t.Errorf("the time of the creation is %v, and was %v", same.CreationTimestamp, end.CreationTimestamp)
	}
}

// TestMetadataThatCounts follows the strategies of upstream's registries: the annotations
// of a Deployment and the labels of an EndpointSlice raise the generation, if changed
// through the object itself.
func TestMetadataThatCounts(t *testing.T) {
	f := serve(t)
	const deployments, eps = "/apis/apps/v1/namespaces/default/deployments", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: pod("a").Spec}
	f.create(deployments, &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	})
	f.create(eps, &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: metav1.ObjectMeta{Name: "a"},
		AddressType: discoveryv1.AddressTypeIPv4,
	})
	for _, s := range []struct {
		name, path, patch string
		generation        int64
	}{
		{"annotations of a deployment", deployments + "/a", `{"metadata":{"annotations":{"x":"y"}}}`, 2},
		{"the same once more", deployments + "/a", `{"metadata":{"annotations":{"x":"y"}}}`, 2},
		{"labels of a deployment", deployments + "/a", `{"metadata":{"labels":{"x":"y"}}}`, 2},
		{"annotations with the status", deployments + "/a/status", `{"metadata":{"annotations":{"x":"z"}}}`, 2},
		{"annotations and the spec", deployments + "/a", `{"metadata":{"annotations":{"x":"a"}},"spec":{"paused":true}}`, 3},
		{"annotations of a slice", eps + "/a", `{"metadata":{"annotations":{"x":"y"}}}`, 1},
		{"labels of a slice", eps + "/a", `{"metadata":{"labels":{"x":"y"}}}`, 2},
	} {
		a := f.do("PATCH", s.path, s.patch, merge)
		if got := into[metav1.PartialObjectMetadata](f, a, 200); got.Generation != s.generation {
			t.Errorf("%s: generation %d, want %d", s.name, got.Generation, s.generation)
		}
	}
}

func TestScale(t *testing.T) {
	f := serve(t)
	f.create(rcs, replicationController("a"))
	scale := into[autoscalingv1.Scale](f, f.do("GET", rcs+"/a/scale", nil), 200)
	if scale.Kind != "Scale" || scale.APIVersion != "autoscaling/v1" || scale.Spec.Replicas != 2 || scale.ResourceVersion != "1" || scale.Status.Selector != "app=a" {
		t.Errorf("scale %+v", scale)
	}
	scale.Spec.Replicas = 4
	if got := into[autoscalingv1.Scale](f, f.do("PUT", rcs+"/a/scale", scale), 200); got.Spec.Replicas != 4 || got.ResourceVersion != "2" {
		t.Errorf("scaled %+v", got)
	}
	f.refused(f.do("PUT", rcs+"/a/scale", scale), 409, metav1.StatusReasonConflict, "the object has been modified")
	f.refused(f.do("PATCH", rcs+"/a/scale", `{"spec":{"replicas":-1}}`, merge), 422, metav1.StatusReasonInvalid, "spec.replicas")
	f.refused(f.do("DELETE", rcs+"/a/scale", nil), 405, metav1.StatusReasonMethodNotAllowed, "")
}

func TestBinding(t *testing.T) {
	f := serve(t)
	for _, name := range []string{"a", "b"} {
		f.create(pods, pod(name))
	}
	binding := func(name, node string) *corev1.Binding {
		return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	}
	for _, a := range []answer{
		f.do("POST", pods+"/a/binding", binding("a", "n1")),
		f.do("POST", "/api/v1/namespaces/default/bindings", binding("b", "n1")),
	} {
		if got := into[metav1.Status](f, a, 201); got.Status != "Success" {
			t.Errorf("bound: %s", a.body)
		}
	}
	for _, name := range []string{"a", "b"} {
		if got := into[corev1.Pod](f, f.do("GET", pods+"/"+name, nil), 200); got.Spec.NodeName != "n1" {
			t.Errorf("%s is on %q", name, got.Spec.NodeName)
		}
	}
	f.refused(f.do("POST", pods+"/a/binding", binding("a", "n2")), 409, metav1.StatusReasonConflict, "already assigned to node")
	f.refused(f.do("POST", pods+"/x/binding", binding("x", "n2")), 404, metav1.StatusReasonNotFound, "not found")
	f.refused(f.do("POST", "/api/v1/namespaces/default/bindings", binding("", "n2")), 422, metav1.StatusReasonInvalid, "metadata.name: Required value: names the pod")
	if names, _ := f.names(pods, "fieldSelector=spec.nodeName=n1"); len(names) != 2 {
		t.Errorf("on n1: %v", names)
	}
	// In process it is the same.
	f.create(pods, pod("c"))
	if _, err := f.local.Create(t.Context(), pdGVR, "default", "c", binding("c", "n1"), metav1.CreateOptions{}, "binding"); err != nil {
		t.Error(err)
	}
}

func TestToken(t *testing.T) {
	f := serve(t)
	f.create("/api/v1/namespaces/default/serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sa"}})
	const token = "/api/v1/namespaces/default/serviceaccounts/%s/token"
	a := f.do("POST", fmt.Sprintf(token, "sa"), `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["x"]}}`)
	if got := into[metav1.PartialObjectMetadata](f, a, 201); got.Kind != "TokenRequest" || got.Name != "sa for boss" {
		t.Errorf("issued %s", a.body)
	}
	f.refused(f.do("POST", fmt.Sprintf(token, "x"), `{}`), 404, metav1.StatusReasonNotFound, `serviceaccounts "x" not found`)
}

func TestDelete(t *testing.T) {
	tests := []struct {
		name       string
		finalizers []string
		options    string // bodies of the DELETEs, one after the other
		want       string // how the object is after each
	}{
		{"at once", nil, `{}`, "gone"},
		{"held by a finalizer", []string{"a/b"}, `{}`, "a/b grace 0"},
		{"asked twice", []string{"a/b"}, `{} {}`, "a/b grace 0, unchanged"},
		{"orphan", nil, `{"propagationPolicy":"Orphan"}`, "orphan grace 0"},
		{"orphan as it was once said", nil, `{"orphanDependents":true}`, "orphan grace 0"},
		{"foreground", []string{"a/b"}, `{"propagationPolicy":"Foreground"}`, "a/b foregroundDeletion grace 0"},
		{"foreground, then in the background", nil, `{"propagationPolicy":"Foreground"} {"propagationPolicy":"Background"}`, "foregroundDeletion grace 0, gone"},
		{"foreground, then nothing said", nil, `{"propagationPolicy":"Foreground"} {}`, "foregroundDeletion grace 0, unchanged"},
		{"the uid is right", nil, `{"preconditions":{"uid":"UID"}}`, "gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t)
			cm := configMap("a")
			cm.Finalizers = tt.finalizers
			made := f.create(configMaps, cm)
			var got []string
			last := ""
			for o := range strings.FieldsSeq(tt.options) {
				a := f.do("DELETE", configMaps+"/a", strings.ReplaceAll(o, "UID", string(made.UID)))
				m := into[metav1.PartialObjectMetadata](f, a, 200)
				switch {
				case m.Kind == "Status":
					got = append(got, "gone")
				case m.ResourceVersion == last:
					got = append(got, "unchanged")
				default:
					got = append(got, fmt.Sprint(strings.Join(m.Finalizers, " "), " grace ", *m.DeletionGracePeriodSeconds))
					if m.DeletionTimestamp == nil {
						t.Error("no deletionTimestamp")
					}
				}
				last = m.ResourceVersion
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheLastFinalizerTakesTheObjectAlong(t *testing.T) {
	f := serve(t)
	cm := configMap("a", "app=web")
	cm.Finalizers = []string{"a/b", "c/d"}
	f.create(configMaps, cm)
	w := f.watch(configMaps + "?watch=1&resourceVersion=1&labelSelector=app%3Dweb")
	f.remove(configMaps + "/a")
	f.refused(f.do("PATCH", configMaps+"/a", `{"metadata":{"finalizers":["a/b","c/d","e/f"]}}`, merge), 422, metav1.StatusReasonInvalid, "no new finalizers can be added if the object is being deleted")
	f.merge(configMaps+"/a", `{"metadata":{"finalizers":["c/d"]}}`)
	f.merge(configMaps+"/a", `{"metadata":{"finalizers":null}}`)
	f.refused(f.do("GET", configMaps+"/a", nil), 404, metav1.StatusReasonNotFound, "")
	w.expect("MODIFIED a@2", "MODIFIED a@3", "DELETED a@4")
}

func TestAPodGoesGracefully(t *testing.T) {
	f := serve(t)
	p := pod("a")
	p.Spec.NodeName = "n1"
	f.create(pods, p)
	first := into[corev1.Pod](f, f.do("DELETE", pods+"/a", nil), 200)
	if first.DeletionGracePeriodSeconds == nil || *first.DeletionGracePeriodSeconds != 30 || first.DeletionTimestamp == nil {
		t.Fatalf("after the first DELETE: %+v", first.ObjectMeta)
	}
	shorter := into[corev1.Pod](f, f.do("DELETE", pods+"/a?gracePeriodSeconds=10", nil), 200)
	if *shorter.DeletionGracePeriodSeconds != 10 || shorter.DeletionTimestamp.Sub(first.DeletionTimestamp.Time) != -20*time.Second {
		t.Errorf("after a shorter grace: %+v", shorter.ObjectMeta)
	}
	longer := into[corev1.Pod](f, f.do("DELETE", pods+"/a?gracePeriodSeconds=20", nil), 200)
	if longer.ResourceVersion != shorter.ResourceVersion {
		t.Errorf("a longer grace changed the pod: %+v", longer.ObjectMeta)
	}
	f.merge(pods+"/a/status", `{"status":{"phase":"Succeeded"}}`) // still there, and can be written
	uid := types.UID("other")
	if err := f.local.Delete(t.Context(), pdGVR, "default", "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); !apierrors.IsConflict(err) {
		t.Errorf("another uid: %v", err)
	}
	zero := int64(0)
	if err := f.local.Delete(t.Context(), pdGVR, "default", "a", metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &first.UID}}); err != nil {
		t.Error(err)
	}
	f.refused(f.do("GET", pods+"/a", nil), 404, metav1.StatusReasonNotFound, "")
	f.create(pods, pod("b")) // not bound to a node: there is no kubelet to wait for
	if p := into[corev1.Pod](f, f.do("DELETE", pods+"/b", nil), 200); p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 0 {
		t.Errorf("an unbound pod: %+v", p.ObjectMeta)
	}
	f.refused(f.do("GET", pods+"/b", nil), 404, metav1.StatusReasonNotFound, "")
}

func TestANamespaceIsFinalized(t *testing.T) {
	f := serve(t)
	const namespaces = "/api/v1/namespaces"
	made := into[corev1.Namespace](f, f.do("POST", namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}), 201)
	if made.Status.Phase != corev1.NamespaceActive || len(made.Spec.Finalizers) != 1 {
		t.Errorf("created %+v", made)
	}
	going := into[corev1.Namespace](f, f.do("DELETE", namespaces+"/x", nil), 200)
	if going.Status.Phase != corev1.NamespaceTerminating || going.DeletionTimestamp == nil {
		t.Errorf("going %+v", going)
	}
	again := into[corev1.Namespace](f, f.do("DELETE", namespaces+"/x", nil), 200)
	if again.ResourceVersion != going.ResourceVersion {
		t.Errorf("asked again: %+v", again)
	}
	going.Spec.Finalizers = nil
	f.do("PUT", namespaces+"/x", going) // not the place to finalize
	if a := f.do("GET", namespaces+"/x", nil); a.code != 200 {
		t.Errorf("an update of the namespace itself: %d", a.code)
	}
	going.ResourceVersion = ""
	if a := f.do("PUT", namespaces+"/x/finalize", going); a.code != 200 {
		t.Errorf("finalize: %s", a.body)
	}
	f.refused(f.do("GET", namespaces+"/x", nil), 404, metav1.StatusReasonNotFound, `namespaces "x" not found`)
}

func TestDeleteCollection(t *testing.T) {
	f := serve(t)
	for n := range 4 {
		f.create(configMaps, configMap(fmt.Sprint("cm-", n), fmt.Sprint("odd=", n%2 == 1)))
	}
	a := f.do("DELETE", configMaps+"?labelSelector=odd%3Dtrue", nil)
	if got := into[corev1.ConfigMapList](f, a, 200); len(got.Items) != 2 {
		t.Errorf("deleted %s", a.body)
	}
	if names, _ := f.names(configMaps); !slices.Equal(names, []string{"cm-0", "cm-2"}) {
		t.Errorf("left %v", names)
	}
}

func TestAdmission(t *testing.T) {
	w := &watchdog{}
	f := serve(t, func(o *apiserver.Options) { o.Admission = []admission.Plugin{w} })
	var seen []string
	w.change = func(a *admission.Attributes) error {
		old := ""
		if a.Old != nil {
			old = " of " + a.Old.GetName()
		}
		seen = append(seen, fmt.Sprintf("%s %s/%s %T%s", a.Operation, a.Kind.Resource, a.Subresource, a.Object, old))
		if a.Object != nil && a.Subresource == "" {
			a.Object.SetAnnotations(map[string]string{"seen": "yes"})
		}
		return nil
	}
	m := f.create(pods, pod("a"))
	if m.Annotations["seen"] != "yes" {
		t.Errorf("what admission changed was not stored: %+v", m)
	}
	f.merge(pods+"/a/status", `{"status":{"phase":"Running"}}`)
	f.do("POST", pods+"/a/binding", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}})
	f.do("GET", pods+"/a/log", nil)
	f.do("DELETE", pods+"/a?gracePeriodSeconds=0", nil)
	want := []string{
		"CREATE pods/ *v1.Pod", "UPDATE pods/status *v1.Pod of a", "CREATE pods/binding *v1.Binding of a",
		"CONNECT pods/log <nil> of a", "DELETE pods/ <nil> of a",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("admission saw (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{true, true, true, false, true}, w.ends); diff != "" {
		t.Errorf("admission got (-want +got):\n%s", diff)
	}

	w.ends, w.change = nil, nil
	f.refused(f.do("POST", configMaps, configMap("A_")), 422, metav1.StatusReasonInvalid, "")
	w.change = func(a *admission.Attributes) error {
		return apierrors.NewForbidden(a.Kind.GR(), a.Name, fmt.Errorf("no more of them"))
	}
	f.refused(f.do("POST", configMaps, configMap("b")), 403, metav1.StatusReasonForbidden, "no more of them")
	if diff := cmp.Diff([]bool{false, false}, w.ends); diff != "" {
		t.Errorf("after refusals admission got (-want +got):\n%s", diff)
	}
}

// TestNoUpdateIsLost is the promise of optimistic concurrency: with a version, and with
// patches that the server tries again. On a medium, writes are accepted before they can
// be read.
func TestNoUpdateIsLost(t *testing.T) {
	for name, durable := range map[string]bool{"in memory": false, "on a medium": true} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, func(o *apiserver.Options) {
				if durable {
					o.Store = onMedium(t, &backend{entries: map[string]store.Entry{}})
				}
			})
			f.noUpdateIsLost()
		})
	}
}

func (f *fixture) noUpdateIsLost() {
	f.create(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"n": "0"}})
	const writers, rounds = 8, 25
	g := run.NewGroup(f.Context(), 0)
	for w := range writers {
		g.Go(func(ctx context.Context) {
			for range rounds {
				if err := f.countUp(ctx); err != nil {
					f.Error(err)
				}
				patch := fmt.Sprintf(`{"data":{"writer-%d":"x"}}`, w)
				if _, err := f.local.Patch(ctx, cmGVR, "default", "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, ""); err != nil {
					f.Error(err)
				}
			}
		})
	}
	g.Wait()
	got := into[corev1.ConfigMap](f, f.do("GET", configMaps+"/a", nil), 200)
	if got.Data["n"] != strconv.Itoa(writers*rounds) || len(got.Data) != 1+writers {
		f.Errorf("counted to %s with %d keys, want %d and %d", got.Data["n"], len(got.Data), writers*rounds, 1+writers)
	}
}

// countUp adds one in a read-modify-write, again and again until it loses no race.
func (f *fixture) countUp(ctx context.Context) error {
	for {
		obj, err := f.local.Get(ctx, cmGVR, "default", "a", "")
		if err != nil {
			return err
		}
		cm := obj.DeepCopyObject().(*corev1.ConfigMap)
		n, err := strconv.Atoi(cm.Data["n"])
		if err != nil {
			return err
		}
		cm.Data["n"] = strconv.Itoa(n + 1)
		if _, err = f.local.Update(ctx, cmGVR, "default", "a", cm, metav1.UpdateOptions{}, ""); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// onMedium returns a store over b that works until the test ends.
func onMedium(t testing.TB, b store.Backend) *store.Store {
	t.Helper()
	c := apiservertest.Kinds(t)
	st, err := store.Open(t.Context(), b, store.Options{Decode: apiserver.NewLoader(c).Decode, Terms: apiserver.Terms(c)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g := run.NewGroup(ctx, 0)
	g.Go(func(ctx context.Context) {
		if err := st.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); g.Wait() })
	<-st.Ready()
	return st
}

// counting counts the writes to a medium.
type counting struct {
	store.Backend
	writes atomic.Int32
}

func (c *counting) Commit(ctx context.Context, batch store.Batch) error {
	c.writes.Add(1)
	return c.Backend.Commit(ctx, batch)
}

func (c *counting) Reserve(ctx context.Context, ceiling store.Revision) error {
	c.writes.Add(1)
	return c.Backend.Reserve(ctx, ceiling)
}

// An idle cluster renews leases all the time, which must not wear its disk.
func TestRenewalsAndEventsAreNotWrittenToDisk(t *testing.T) {
	b := &counting{Backend: &backend{entries: map[string]store.Entry{}}}
	f := serve(t, func(o *apiserver.Options) { o.Store = onMedium(t, b) })
	const leases, events = "/apis/coordination.k8s.io/v1/namespaces/default/leases", "/api/v1/namespaces/default/events"
	f.create(leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	f.create(events, &corev1.Event{ // the first volatile write reserves revisions
		ObjectMeta: metav1.ObjectMeta{Name: "first"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	})
	before := b.writes.Load()
	for range 3 {
		l := into[coordinationv1.Lease](f, f.do("GET", leases+"/n1", nil), 200)
		now := metav1.NowMicro()
		l.Spec.RenewTime = &now
		into[coordinationv1.Lease](f, f.do("PUT", leases+"/n1", &l), 200)
		into[coordinationv1.Lease](f, f.do("PATCH", leases+"/n1", []byte(`{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`), merge), 200)
		f.create(events, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "a-"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "a"}, Reason: "Pulled", Type: "Normal",
		})
	}
	if n := b.writes.Load() - before; n != 0 {
		t.Errorf("the medium was written to %d times", n)
	}
	f.create(configMaps, configMap("a"))
	if n := b.writes.Load() - before; n == 0 {
		t.Error("what must not be lost was not written to the medium")
	}
}

func TestObjectsComeBackFromTheMedium(t *testing.T) {
	b := &backend{entries: map[string]store.Entry{}}
	local := func(t *testing.T) *apiserver.Local {
		s, err := apiserver.New(options(t, onMedium(t, b)))
		if err != nil {
			t.Fatal(err)
		}
		return s.As(boss)
	}
	var made runtime.Object
	t.Run("before", func(t *testing.T) {
		p := pod("a")
		p.Labels = map[string]string{"app": "web"}
		var err error
		if made, err = local(t).Create(t.Context(), pdGVR, "default", "", p, metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("after", func(t *testing.T) {
		objs, _, err := local(t).List(t.Context(), pdGVR, "default", metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "spec.nodeName="})
		if err != nil || len(objs) != 1 {
			t.Fatalf("List = %v, %v", objs, err)
		}
		if diff := cmp.Diff(made, objs[0]); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

// backend is a medium that lives as long as the test.
type backend struct{ entries map[string]store.Entry }

func (b *backend) Load(_ context.Context, each func(store.Entry) error) (store.Revision, error) {
	var last store.Revision
	for _, e := range b.entries {
		last = max(last, e.Revision)
		if err := each(e); err != nil {
			return 0, err
		}
	}
	return last, nil
}

func (b *backend) Commit(_ context.Context, batch store.Batch) error {
	for _, e := range batch.Entries {
		if e.Data == nil {
			delete(b.entries, e.Key)
		} else {
			b.entries[e.Key] = e
		}
	}
	return nil
}

func (*backend) Reserve(context.Context, store.Revision) error { return nil }
func (*backend) Close() error                                  { return nil }
