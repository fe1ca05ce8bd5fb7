package apiserver_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metadataOf returns the metadata of the object in an answer.
func metadataOf(t *testing.T, a answer) metav1.ObjectMeta {
	t.Helper()
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return o.ObjectMeta
}

const (
	mergePatch     = "Content-Type: application/merge-patch+json"
	strategicPatch = "Content-Type: application/strategic-merge-patch+json"
)

// TestMetadataOfTheServerIsKept changes what only the server may change. The answers are those of kube-apiserver 1.37.
func TestMetadataOfTheServerIsKept(t *testing.T) {
	f := serve(t)
	made := metadataOf(t, f.do("POST", configMaps, `{"metadata":{"name":"a","generation":5}}`))
	if made.Generation != 5 {
		t.Errorf("the generation of an object whose changes are not counted is %d, want 5", made.Generation)
	}
	if a := f.do("POST", configMaps, `{"metadata":{"name":"b","generation":-1}}`); a.code != 422 || !strings.Contains(string(a.body), `metadata.generation: Invalid value: -1: must be greater than or equal to 0`) {
		t.Errorf("a negative generation: %d %s", a.code, a.body)
	}
	for _, c := range []struct{ patch, refuse string }{
		{`{"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"}}`, ""},
		{`{"metadata":{"creationTimestamp":null}}`, ""},
		{`{"metadata":{"generation":7}}`, ""},
		{`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}`, "metadata.deletionTimestamp: Invalid value"},
		{`{"metadata":{"deletionGracePeriodSeconds":5}}`, "metadata.deletionGracePeriodSeconds: Invalid value"},
		{`{"metadata":{"generateName":"A."}}`, `metadata.generateName: Invalid value: "A."`},
	} {
		a := f.do("PATCH", configMaps+"/a", c.patch, mergePatch)
		switch {
		case c.refuse != "":
			if a.code != 422 || !strings.Contains(strings.ReplaceAll(string(a.body), `\"`, `"`), c.refuse) {
				t.Errorf("%s: %d %s", c.patch, a.code, a.body)
			}
		case a.code != 200:
			t.Errorf("%s: %d %s", c.patch, a.code, a.body)
		default:
			if m := metadataOf(t, a); !m.CreationTimestamp.Equal(&made.CreationTimestamp) || m.Generation != 5 || m.ResourceVersion != made.ResourceVersion {
				t.Errorf("%s: the object is %+v", c.patch, m)
			}
		}
	}
	if a := f.do("PUT", configMaps+"/a", `{"metadata":{"name":"a","creationTimestamp":"2020-01-01T00:00:00Z"}}`); a.code != 200 || metadataOf(t, a).CreationTimestamp != made.CreationTimestamp {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := f.do("PATCH", configMaps+"/a", " null ", strategicPatch); a.code != 200 {
		t.Errorf("a patch of nothing: %d %s", a.code, a.body)
	}
	if a := f.do("PATCH", configMaps+"/a", "[]", strategicPatch); a.code != 400 {
		t.Errorf("a patch that is a list: %d %s", a.code, a.body)
	}
}

func TestDuplicateOwnersAreDropped(t *testing.T) {
	f := serve(t)
	const one, other = `{"apiVersion":"v1","kind":"Node","name":"n","uid":"1"}`, `{"apiVersion":"v1","kind":"Node","name":"n","uid":"1","blockOwnerDeletion":true}`
	const refs = `{"metadata":{"name":"a","ownerReferences":[` + one + `,` + other + `,` + one + `,` + other + `,` + one + `]}}`
	const text = "; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1, 1, 1"
	check := func(what string, a answer, want string) {
		t.Helper()
		if m := metadataOf(t, a); a.code >= 300 || len(m.OwnerReferences) != 2 || m.OwnerReferences[1].BlockOwnerDeletion == nil {
			t.Errorf("%s: %d %s", what, a.code, a.body)
		}
		if w := a.warnings(); !slices.Equal(w, []string{want + text}) {
			t.Errorf("%s: the warnings are %q, want %q", what, w, want+text)
		}
	}
	const said = ".metadata.ownerReferences contains duplicate entries"
	check("POST", f.do("POST", configMaps, refs), said)
	check("PUT", f.do("PUT", configMaps+"/a", refs), said)
	check("PATCH", f.do("PATCH", configMaps+"/a", refs, mergePatch), said+" after mutating admission happens")
}

// TestBodiesOfSubresourcesNameTheObject posts bodies without a name, or with another.
func TestBodiesOfSubresourcesNameTheObject(t *testing.T) {
	f := serve(t)
	f.do("POST", pods, pod("p"))
	f.do("POST", configMaps, configMap("kept"))
	if a := f.do("POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`); a.code != 201 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	for _, c := range []struct{ method, path, body, refuse string }{
		{"POST", pods + "/p/binding", `{"target":{"name":"n"}}`, "name in URL does not match name in Binding object"},
		{"POST", pods + "/p/binding", `{"metadata":{"name":"q"},"target":{"name":"n"}}`, "does not match"},
		{"POST", pods + "/p/eviction", `{}`, "name in URL does not match name in Eviction object"},
		{"PUT", "/apis/apps/v1/namespaces/default/deployments/d/scale", `{"spec":{"replicas":2}}`, "the name of the object (d based on URL) was undeterminable: name must be provided"},
		{"PUT", configMaps + "/kept", `{}`, "the name of the object (kept based on URL) was undeterminable: name must be provided"},
	} {
		if a := f.do(c.method, c.path, c.body); a.code != http.StatusBadRequest || !strings.Contains(string(a.body), c.refuse) {
			t.Errorf("%s %s: %d %s", c.path, c.body, a.code, a.body)
		}
	}
	if a := f.do("PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale", `{"spec":{"replicas":2}}`, mergePatch); a.code != 200 {
		t.Errorf("a patch of the scale: %d %s", a.code, a.body)
	}
}

// TestObjectsAreCompletedAsUpstream creates and changes objects of which upstream drops, adds or counts something.
func TestObjectsAreCompletedAsUpstream(t *testing.T) {
	f := serve(t)
	get := func(a answer, path ...string) string {
		t.Helper()
		var o any
		if err := json.Unmarshal([]byte(a.body), &o); err != nil || a.code >= 300 {
			t.Fatalf("%d %s: %v", a.code, a.body, err)
		}
		for _, p := range path {
			switch v := o.(type) {
			case map[string]any:
				o = v[p]
			case []any:
				o = v[0]
			}
		}
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	a := f.do("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"a"},"secrets":[{"name":"s","namespace":"x","kind":"Secret","uid":"1"}]}`)
	want("secrets", get(a, "secrets"), `[{"name":"s"}]`)

	const classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
	want("a new class", get(f.do("POST", classes, `{"metadata":{"name":"c"},"value":1}`), "metadata", "generation"), "1")
	want("a changed class", get(f.do("PATCH", classes+"/c", `{"description":"x"}`, mergePatch), "metadata", "generation"), "1")

	const drivers = "/apis/storage.k8s.io/v1/csidrivers"
	want("a new driver", get(f.do("POST", drivers, `{"metadata":{"name":"d"},"spec":{}}`), "metadata", "generation"), "null")
	want("a changed driver", get(f.do("PATCH", drivers+"/d", `{"spec":{"podInfoOnMount":true}}`, mergePatch), "metadata", "generation"), "1")

	const slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	a = f.do("POST", slices, `{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"deprecatedTopology":{"kubernetes.io/hostname":"n","-":"-"}}]}`)
	want("an endpoint", get(a, "endpoints", "0"), `{"addresses":["10.0.0.1"],"conditions":{}}`)

	for image, policy := range map[string]string{
		"UPPER": "IfNotPresent", "a:latest": "Always", "a": "Always", "a:1": "IfNotPresent", "UPPER:5000/a/b": "Always", "a//b": "IfNotPresent",
		"registry.example.com/a_b/c--d": "Always", "[::1]:5000/a": "Always", "a/-b": "IfNotPresent", "a:": "IfNotPresent",
		strings.Repeat("a", 64): "IfNotPresent", strings.Repeat("g", 64): "Always", strings.Repeat("a", 64) + ":latest": "Always",
		strings.Repeat("g", 247): "Always", strings.Repeat("g", 248): "IfNotPresent", "a.b/" + strings.Repeat("g", 255): "Always", "a.b/" + strings.Repeat("g", 256): "IfNotPresent",
	} {
		a = f.do("POST", pods+"?dryRun=All", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"`+image+`"}]}}`)
		want(image, get(a, "spec", "containers", "0", "imagePullPolicy"), `"`+policy+`"`)
	}

	a = f.do("POST", pods, `{"metadata":{"name":"gated"},"spec":{"schedulingGates":[{"name":"example.com/wait"}],"containers":[{"name":"c","image":"i"}]}}`)
	if when := get(a, "status", "conditions", "0", "lastTransitionTime"); when == "null" || when == "" {
		t.Errorf("the condition of a gated pod has the time %s", when)
	}

	// Labels are those of the template even if a write of the status has neither.
	const controllers = "/api/v1/namespaces/default/replicationcontrollers"
	f.do("POST", controllers, `{"metadata":{"name":"c"},"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	want("labels", get(f.do("PUT", controllers+"/c/status", `{"metadata":{"name":"c"},"status":{"replicas":1}}`), "metadata", "labels"), `{"a":"b"}`)

	const template = `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	a = f.do("POST", "/apis/apps/v1/namespaces/default/daemonsets", `{"metadata":{"name":"d"},"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":{}},`+template+`}}`)
	want("the strategy", get(a, "spec", "updateStrategy"), `{"rollingUpdate":{"maxSurge":0,"maxUnavailable":0},"type":"OnDelete"}`)

	const rules = "/apis/resource.k8s.io/v1/devicetaintrules"
	if a := f.do("POST", rules, `{"metadata":{"name":"r"},"spec":{"taint":{"key":"k","effect":"NoSchedule"}}}`); a.code == http.StatusCreated {
		if a := f.do("PUT", rules+"/r", `{"metadata":{"name":"r"},"spec":{"taint":{"key":"k","effect":"NoSchedule"}}}`); a.code != 422 || !strings.Contains(string(a.body), "must be specified for an update") {
			t.Errorf("an update without a version: %d %s", a.code, a.body)
		}
	} else {
		t.Errorf("%d %s", a.code, a.body)
	}
}
