package apiserver_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/growthtest"
)

// A grower sends objects of which one list or map is large through all that the server does with them.
type grower struct {
	testing.TB
	server *apiserver.Server
	paths  map[*catalog.Kind]string
}

func newGrower(t *testing.T) *grower {
	t.Helper()
	g := &grower{TB: t, paths: map[*catalog.Kind]string{}}
	g.server = apiservertest.Open(t, func(o *apiserver.Options) {
		objects := operation.NewReader(o.Catalog, o.Store)
		security, err := admission.NewPodSecurity(objects)
		if err != nil {
			t.Fatal(err)
		}
		policy := rbac.NewPolicy(bootstrappolicy.All())
		authorizer := rbac.New(rbac.Options{Policy: policy, Objects: objects})
		o.Auth, o.Authorizer = byName{}, authorizer
		o.Admission = []admission.Plugin{
			admission.NewNamespaceLifecycle(objects), admission.NewLimitRanger(objects), admission.NewServiceAccount(objects),
			admission.NewPriority(objects),
			admission.DefaultTolerationSeconds{},
			admission.NewRuntimeClass(objects), admission.NewStorage(objects),
			admission.NewDefaultIngressClass(objects), admission.NewPodTopologyLabels(objects), admission.NewDeviceAccess(objects, authorizer),
			admission.NewNodeDeclaredFeatureValidator(objects), admission.NewPodResizeValidator(objects), admission.NewRoleEscalation(policy, authorizer),
			admission.NewDeviceAdminAccess(objects), security, admission.NewResourceQuota(objects),
		}
	})
	many := resource.MustParse("1000000")
	for _, made := range []struct {
		path string
		obj  any
	}{
		{"/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"pod-security.kubernetes.io/warn": "restricted"}}}},
		{"/api/v1/namespaces/default/serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}},
		{"/api/v1/namespaces/default/resourcequotas", &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"pods": many, "count/configmaps": many, "limits.cpu": many, "limits.memory": resource.MustParse("1000Ti"),
		}}}},
		{"/api/v1/namespaces/default/limitranges", &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"cpu": resource.MustParse("1m"), "memory": resource.MustParse("1Ki")},
		}}}}},
	} {
		body, err := json.Marshal(made.obj)
		if err != nil {
			t.Fatal(err)
		}
		if a := g.do("POST", made.path, codec.TypeJSON, body); a.Code != 201 {
			t.Fatalf("%s: %d %s", made.path, a.Code, a.Body)
		}
	}
	return g
}

// do sends a request on the goroutine of the caller.
func (g *grower) do(method, path, contentType string, body []byte, accept ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(g.Context(), method, path, bytes.NewReader(body))
	r.Header.Set("X-User", "boss")
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", strings.Join(accept, ","))
	w := httptest.NewRecorder()
	g.server.Handler().ServeHTTP(w, r)
	return w
}

// A large object in all encodings.
type large struct {
	kind           *catalog.Kind
	path, name     string
	json, protobuf []byte
}

func (g *grower) make(kind *catalog.Kind, example catalog.Object, f growthtest.Field, n int, how growthtest.Likeness) large {
	obj := example.DeepCopyObject().(catalog.Object)
	f.Grow(obj, n, how)
	obj.SetNamespace("")
	obj.SetName("large")
	obj.SetResourceVersion("")
	obj.SetUID("")
	obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	text, err := json.Marshal(obj)
	if err != nil {
		g.Fatal(err)
	}
	raw, err := obj.(wire).Marshal()
	if err != nil {
		g.Fatal(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}, Raw: raw}
	message, err := u.Marshal()
	if err != nil {
		g.Fatal(err)
	}
	p := prober{TB: g, kind: kind}
	return large{kind: kind, path: p.collection(), name: "large", json: text, protobuf: append([]byte("k8s\x00"), message...)}
}

// A stage is a part of what the server does with an object.
type stage struct {
	name string
	do   func(g *grower, o *large) *httptest.ResponseRecorder
}

const changed = `{"metadata":{"labels":{"changed":"yes"}}}`

var stages = []stage{
	{"create from protobuf", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("POST", o.path+"?dryRun=All", codec.TypeProtobuf, o.protobuf)
	}},
	{"create from YAML", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("POST", o.path+"?dryRun=All", codec.TypeYAML, o.json)
	}},
	{"apply", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("PATCH", o.path+"/large?fieldManager=m&dryRun=All&force=true", string(types.ApplyYAMLPatchType), o.json)
	}},
	{"create", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("POST", o.path+"?fieldValidation=Strict", codec.TypeJSON, o.json)
	}},
	{"get", func(g *grower, o *large) *httptest.ResponseRecorder { return g.do("GET", o.path+"/large", "", nil) }},
	{"table", func(g *grower, o *large) *httptest.ResponseRecorder { return g.do("GET", o.path, "", nil, forms[4]) }},
	{"list by labels and as YAML", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("GET", o.path+"?labelSelector=a!%3Db,c+notin+(d,e)", "", nil, codec.TypeYAML)
	}},
	{"update", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("PUT", o.path+"/large?fieldManager=other&dryRun=All", codec.TypeJSON, o.json)
	}},
	{"merge patch", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("PATCH", o.path+"/large?dryRun=All", string(types.MergePatchType), []byte(changed))
	}},
	{"strategic patch", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("PATCH", o.path+"/large?dryRun=All", string(types.StrategicMergePatchType), []byte(strings.Replace(changed, "yes", "again", 1)))
	}},
	{"JSON patch", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("PATCH", o.path+"/large?dryRun=All", string(types.JSONPatchType), []byte(`[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`))
	}},
	{"status", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("PATCH", o.path+"/large/status?dryRun=All", string(types.MergePatchType), []byte(`{"metadata":{"annotations":{"c":"d"}}}`))
	}},
	{"apply again", func(g *grower, o *large) *httptest.ResponseRecorder {
		return g.do("PATCH", o.path+"/large?fieldManager=m&force=true&dryRun=All", string(types.ApplyYAMLPatchType), o.json)
	}},
}

// run runs the stages. If the object can be created, it exists before the stages that change it.
func (g *grower) run(o *large) {
	for _, s := range stages {
		s.do(g, o)
	}
	g.remove(o)
}

func (g *grower) remove(o *large) {
	g.do("PATCH", o.path+"/large", string(types.MergePatchType), []byte(`{"metadata":{"finalizers":null}}`))
	g.do("DELETE", o.path+"/large?gracePeriodSeconds=0&propagationPolicy=Background", "", nil)
}

// largestGrown is how many bytes of JSON the largest objects have.
const largestGrown = 256 << 10

// elements returns how many elements of a field the smallest of the objects has, of which the largest has four times as many.
func (g *grower) elements(kind *catalog.Kind, example catalog.Object, f growthtest.Field) int {
	few, more := g.make(kind, example, f, 8, growthtest.Distinct), g.make(kind, example, f, 72, growthtest.Distinct)
	each := max((len(more.json)-len(few.json))/64, 1)
	most := 1000
	if each < 24 {
		most = 8000 // comparing each with each is cheap if they are strings
	}
	return min(max(largestGrown/4/each, 16), most)
}

// culprits returns the stages of which the cost grows too fast.
func (g *grower) culprits(prepare func(n int) large, n int) (names []string) {
	for i, s := range stages {
		why := growthtest.Steep(n, growthtest.Measure, func(n int) func() {
			o := prepare(n)
			g.remove(&o)
			for _, before := range stages[:i] {
				before.do(g, &o)
			}
			return func() { s.do(g, &o) }
		})
		if why != "" {
			names = append(names, s.name+": "+why)
		}
	}
	return names
}

// templates are the specifications of pods in other kinds, which share the code for those of Pods.
var templates = regexp.MustCompile(`(^|\.)template\.`)

// few are the lists and maps that are grown in each run of the tests.
const few = `^(ConfigMap|Role) |^Pod (metadata\.[a-zA-Z]+|spec\.[a-zA-Z]+)$`

// TestCostsGrowWithObjects grows lists and maps of kinds. It takes a few, unless SAMPAN_GROWTH_ONLY has another pattern of
// "KIND PATH", or SAMPAN_GROWTH is "all": then it takes each one of each kind, with elements that differ, with equal ones and with those of one name.
func TestCostsGrowWithObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	growthtest.SkipRaced(t)
	// The collector is off while the cost is measured, but for memory beyond this.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	all := os.Getenv("SAMPAN_GROWTH") == "all"
	pattern := few
	if all {
		pattern = ""
	}
	only := regexp.MustCompile(cmp.Or(os.Getenv("SAMPAN_GROWTH_ONLY"), pattern))
	byKind := examples(t, apiservertest.Kinds(t))
	kinds := slices.SortedFunc(func(yield func(*catalog.Kind) bool) {
		for k := range byKind {
			if !yield(k) {
				return
			}
		}
	}, func(a, b *catalog.Kind) int {
		return strings.Compare(a.GroupVersionKind.String(), b.GroupVersionKind.String())
	})
	for _, kind := range kinds {
		example := byKind[kind][0]
		var fields []growthtest.Field
		for _, f := range growthtest.Fields(reflect.TypeOf(example)) {
			if only.MatchString(kind.Kind+" "+f.Path) && (all || !templates.MatchString(f.Path) || kind.Kind == "Deployment") {
				fields = append(fields, f)
			}
		}
		if len(fields) > 0 {
			t.Run(kind.Kind, func(t *testing.T) { newGrower(t).linear(kind, example, fields, all) })
		}
	}
}

// linear grows fields of a kind.
func (g *grower) linear(kind *catalog.Kind, example catalog.Object, fields []growthtest.Field, all bool) {
	for _, f := range fields {
		hows := []growthtest.Likeness{growthtest.Distinct, growthtest.Homonymous, growthtest.Equal}
		if !all && strings.HasPrefix(f.Path, "metadata.") {
			hows = hows[:2]
		} else if !all {
			hows = hows[:1]
		}
		probe := example.DeepCopyObject().(catalog.Object)
		f.Grow(probe, 2, growthtest.Distinct)
		if _, err := json.Marshal(probe); err != nil {
			continue // raw JSON, such as defaults in schemas, that the kit cannot make
		}
		n := g.elements(kind, example, f)
		for _, how := range hows {
			prepare := func(n int) large { return g.make(kind, example, f, n, how) }
			why := growthtest.Steep(n, growthtest.Measure, func(n int) func() {
				o := prepare(n)
				return func() { g.run(&o) }
			})
			if why != "" {
				g.Errorf("%s (%d): %s\n\t%s", f.Path, how, why, strings.Join(g.culprits(prepare, n), "\n\t"))
			}
		}
	}
}
