package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestApply plays the stories in testdata/apply. A line is
//
//	VERB MANAGER[?PARAMETERS] RESOURCE/NAME[/SUBRESOURCE] YAML
//
// and the result: the code, whether the object was written, and then the managed fields, one line
// for each entry. Verbs are apply, force (an apply that takes fields), raw (an apply of YAML as it
// is), create, put, merge and json (patches) and delete. Put reads the object and replaces the
// top-level fields that YAML has. "-" is a manager without a name, known by its User-Agent. YAML of
// apply gets the kind and name of the path unless it has them.
//
//	show RESOURCE/NAME FIELD.FIELD
//
// shows a part of the object.
func TestApply(t *testing.T) {
	storytest.Play(t, "testdata/apply", func(t *testing.T) func(string) []string {
		f := serve(t)
		return func(line string) []string { return tellApply(f, line) }
	})
}

var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

func tellApply(f *fixture, line string) []string {
	words := strings.SplitN(line, " ", 4)
	if line == "" {
		return nil
	}
	if words[0] == "show" {
		obj := read(f, words[1])
		v, _, err := unstructured.NestedFieldNoCopy(obj.Object, strings.Split(words[2], ".")...)
		if err != nil {
			return []string{err.Error()}
		}
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		return []string{string(b)}
	}
	for len(words) < 4 {
		words = append(words, "")
	}
	manager, parameters, _ := strings.Cut(words[1], "?")
	path := words[2]
	before := f.do("GET", urlOf(f, parent(path)), nil)
	var old unstructured.Unstructured
	if before.code == 200 {
		old = into[unstructured.Unstructured](f, before, 200)
	}
	a := send(f, words[0], manager, parameters, path, words[3])
	if a.code >= 300 {
		var s metav1.Status
		if err := json.Unmarshal(a.body, &s); err != nil {
			f.Fatal(err)
		}
		said := []string{fmt.Sprintf("%d %s: %s", a.code, s.Reason, uids.ReplaceAllString(strings.ReplaceAll(s.Message, "\n", " "), "UID"))}
		if d := s.Details; d != nil {
			for _, c := range d.Causes {
				said = append(said, fmt.Sprintf("  %s %s %s", c.Type, c.Field, c.Message))
			}
		}
		return said
	}
	now := unstructured.Unstructured{}
	if got := f.do("GET", urlOf(f, parent(path)), nil); got.code == 200 {
		now = into[unstructured.Unstructured](f, got, 200)
	}
	did := "written"
	if now.GetResourceVersion() == old.GetResourceVersion() {
		did = "unchanged"
	}
	said := []string{fmt.Sprintf("%d %s", a.code, did)}
	for _, w := range a.header.Values("Warning") {
		said = append(said, "  warning: "+w)
	}
	if strings.Contains(parameters, "dryRun") {
		now = into[unstructured.Unstructured](f, a, a.code)
	}
	return append(said, accountOf(f, now.GetManagedFields())...)
}

// accountOf writes an account down.
func accountOf(f *fixture, entries []metav1.ManagedFieldsEntry) (said []string) {
	for _, e := range entries {
		var set fieldpath.Set
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			f.Fatal(err)
		}
		var fields []string
		set.Leaves().Iterate(func(p fieldpath.Path) { fields = append(fields, p.String()) })
		slices.Sort(fields)
		who := e.Manager + " " + string(e.Operation)
		if e.Subresource != "" {
			who += " " + e.Subresource
		}
		if e.Time == nil || e.Time.Nanosecond() != 0 {
			f.Errorf("the entry of %s has the time %v", who, e.Time)
		}
		said = append(said, fmt.Sprintf("  %s %s: %s", who, e.APIVersion, strings.Join(fields, " ")))
	}
	slices.Sort(said) // those of one second come in another order than those of two
	return said
}

func parent(path string) string {
	parts := strings.Split(path, "/")
	return parts[0] + "/" + parts[1]
}

// urlOf returns the URL of RESOURCE[.GROUP]/NAME[/SUBRESOURCE].
func urlOf(f *fixture, path string) string {
	f.Helper()
	resource, name, _ := strings.Cut(path, "/")
	for _, k := range apiservertest.Kinds(f).Kinds() {
		if k.Resource != resource {
			continue
		}
		at := "/api/" + k.Version
		if k.Group != "" {
			at = "/apis/" + k.Group + "/" + k.Version
		}
		if k.Namespaced {
			at += "/namespaces/default"
		}
		return at + "/" + resource + "/" + name
	}
	f.Fatalf("no such resource: %s", path)
	return ""
}

func read(f *fixture, path string) unstructured.Unstructured {
	f.Helper()
	return into[unstructured.Unstructured](f, f.do("GET", urlOf(f, path), nil), 200)
}

// kindOf returns the kind of the bodies of a path.
func kindOf(f *fixture, path string) schema.GroupVersionKind {
	parts := strings.Split(path, "/")
	for _, k := range apiservertest.Kinds(f).Kinds() {
		if k.Resource == parts[0] {
			if len(parts) > 2 {
				if s := k.Subresource(parts[2]); s != nil {
					return k.BodyKind(s)
				}
			}
			return k.GroupVersionKind
		}
	}
	return schema.GroupVersionKind{}
}

func send(f *fixture, verb, manager, parameters, path, text string) answer {
	f.Helper()
	query := "?" + parameters
	var headers []string
	if manager != "-" {
		query += "&fieldManager=" + manager
	}
	url := urlOf(f, path)
	switch verb {
	case "apply", "force":
		if verb == "force" {
			query += "&force=true"
		}
		return f.do("PATCH", url+query, completed(f, path, text), append(headers, "Content-Type: application/apply-patch+yaml")...)
	case "raw":
		return f.do("PATCH", url+query, text, append(headers, "Content-Type: application/apply-patch+yaml")...)
	case "create":
		return f.do("POST", url[:strings.LastIndex(url, "/")]+query, completed(f, path, text), append(headers, "Content-Type: application/yaml")...)
	case "put":
		obj := into[unstructured.Unstructured](f, f.do("GET", url, nil), 200)
		var change map[string]any
		if err := yaml.Unmarshal([]byte(text), &change); err != nil {
			f.Fatal(err)
		}
		maps.Copy(obj.Object, change)
		return f.do("PUT", url+query, obj.Object, headers...)
	case "merge":
		b, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		return f.do("PATCH", url+query, b, append(headers, "Content-Type: application/merge-patch+json")...)
	case "json":
		return f.do("PATCH", url+query, text, append(headers, "Content-Type: application/json-patch+json")...)
	case "delete":
		return f.do("DELETE", url+query, nil, headers...)
	}
	f.Fatalf("no such verb: %s", verb)
	return answer{}
}

// completed adds kind and name to a body that is a mapping, unless they are there.
func completed(f *fixture, path, text string) string {
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil || obj == nil && text != "{}" {
		return text
	}
	if obj == nil {
		obj = map[string]any{}
	}
	kind := kindOf(f, path)
	for key, value := range map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind} {
		if _, there := obj[key]; !there {
			obj[key] = value
		}
	}
	meta, ok := obj["metadata"].(map[string]any)
	if !ok && obj["metadata"] == nil {
		meta = map[string]any{}
		obj["metadata"] = meta
	}
	if meta != nil && meta["name"] == nil {
		meta["name"] = strings.Split(path, "/")[1]
	}
	if meta["name"] == "" {
		delete(meta, "name")
	}
	b, err := yaml.Marshal(obj)
	if err != nil {
		f.Fatal(err)
	}
	return string(b)
}

// TestPartsOfTheProgramAreManagers: what our own parts write in process counts for them,
// in objects that have an account, and costs others none.
func TestPartsOfTheProgramAreManagers(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) { o.Authorizer = allowAll{} })
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	send(f, "apply", "alice", "", "configmaps/a", `{data: {a: "1"}}`)
	send(f, "create", "-", "", "configmaps/b", `{data: {a: "1"}}`)
	for user, name := range map[string]string{
		"system:serviceaccount:kube-system:deployment-controller": "kube-controller-manager",
		"system:kube-scheduler":                                   "kube-scheduler",
		"system:node:n1":                                          "kubelet",
	} {
		l := f.server.As(auth.User{Name: user})
		patch := fmt.Appendf(nil, `{"data":{%q:"1"}}`, name)
		for _, object := range []string{"a", "b"} {
			obj, err := l.Patch(t.Context(), gvr, "default", object, types.MergePatchType, patch, metav1.PatchOptions{}, "")
			if err != nil {
				t.Fatal(err)
			}
			account := obj.(metav1.Object).GetManagedFields()
			noted := slices.Contains(accountOf(f, account), "  "+name+" Update v1: .data."+name)
			if noted != (object == "a") {
				t.Errorf("%s writes %s: %q", user, object, accountOf(f, account))
			}
		}
	}
}

// allowAll authorizes every request.
type allowAll struct{}

func (allowAll) Authorize(context.Context, rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: true}
}
