package resource_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/hangtest"
)

// discovery answers raw requests with documents by path, and remembers which were
// asked for.
type discovery struct {
	docs  map[string]string
	asked []string
}

func (d *discovery) Do(_ context.Context, r client.RawRequest) (*http.Response, error) {
	d.asked = append(d.asked, r.Path)
	doc, found := d.docs[r.Path]
	if !found {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, r.Path)
	}
	return &http.Response{Body: io.NopCloser(strings.NewReader(doc))}, nil
}

func cluster() *discovery {
	return &discovery{docs: map[string]string{
		"/api/v1": `{"resources":[
			{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","shortNames":["po"],"categories":["all"],"verbs":["get","list"]},
			{"name":"pods/status","kind":"Pod","namespaced":true},
			{"name":"replicationcontrollers","singularName":"replicationcontroller","namespaced":true,"kind":"ReplicationController","shortNames":["rc"]},
			{"name":"nodes","singularName":"node","kind":"Node"},
			{"name":"events","singularName":"event","namespaced":true,"kind":"Event"}]}`,
		"/apis": `{"kind":"APIGroupList","groups":[
			{"name":"batch","versions":[{"version":"v1beta1"},{"version":"v1"}],"preferredVersion":{"version":"v1"}},
			{"name":"events.k8s.io","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}]}`,
		"/apis/batch/v1":         `{"resources":[{"name":"jobs","singularName":"job","namespaced":true,"kind":"Job","categories":["all"]}]}`,
		"/apis/batch/v1beta1":    `{"resources":[{"name":"cronjobs","singularName":"cronjob","namespaced":true,"kind":"CronJob","shortNames":["cj"]}]}`,
		"/apis/events.k8s.io/v1": `{"resources":[{"name":"events","singularName":"event","namespaced":true,"kind":"Event"}]}`,
	}}
}

func TestMapperFindsWhatIsMeant(t *testing.T) {
	aggregated := cluster()
	aggregated.docs["/apis"] = `{"kind":"APIGroupDiscoveryList","items":[
		{"metadata":{"name":"batch"},"versions":[
			{"version":"v1","resources":[{"resource":"jobs","singularResource":"job","scope":"Namespaced","responseKind":{"kind":"Job"},"categories":["all"]}]},
			{"version":"v1beta1","resources":[{"resource":"cronjobs","singularResource":"cronjob","scope":"Namespaced","responseKind":{"kind":"CronJob"},"shortNames":["cj"]}]}]},
		{"metadata":{"name":"events.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"events","singularResource":"event","scope":"Namespaced","responseKind":{"kind":"Event"}}]}]}]}`
	for _, p := range []string{"/apis/batch/v1", "/apis/batch/v1beta1", "/apis/events.k8s.io/v1"} {
		delete(aggregated.docs, p)
	}
	for name, d := range map[string]*discovery{"one by one": cluster(), "aggregated": aggregated} {
		t.Run(name, func(t *testing.T) {
			m := resource.NewMapper(d)
			for word, want := range map[string]string{
				"rc": "replicationcontrollers/v1", "pod": "pods/v1", "Pods": "pods/v1", "po": "pods/v1", "node": "nodes/v1",
				"job": "jobs/batch/v1", "jobs.batch": "jobs/batch/v1", "job.v1.batch": "jobs/batch/v1", "cj": "cronjobs/batch/v1beta1",
				"events": "events/v1", "pods.v1.": "pods/v1", "event.events.k8s.io": "events/events.k8s.io/v1", "events.v1.events.k8s.io": "events/events.k8s.io/v1",
			} {
				got, err := m.ByName(t.Context(), word)
				if err != nil || got.Resource+"/"+got.GroupVersion().String() != want {
					t.Errorf("ByName(%q) = %v, %v, want %s", word, got.GroupVersionResource, err, want)
				}
			}
			for _, word := range []string{"boats", "pods.batch", "jobs.v2.batch", "", "."} {
				if got, err := m.ByName(t.Context(), word); err == nil {
					t.Errorf("ByName(%q) = %v, want an error", word, got)
				}
			}
			if got, err := m.ByCategory(t.Context(), "all"); err != nil || len(got) != 2 {
				t.Errorf("ByCategory(all) = %v, %v, want pods and jobs", got, err)
			}
		})
	}
}

func TestMapperAsksForNoMoreThanItNeeds(t *testing.T) {
	d := cluster()
	m := resource.NewMapper(d)
	for range 3 {
		if _, err := m.ByName(t.Context(), "rc"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.ByKind(t.Context(), schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"/api/v1", "/apis/batch/v1"}; !slices.Equal(d.asked, want) {
		t.Errorf("it asked for %v, want %v", d.asked, want)
	}
}

// read returns a line per object or error of an input.
func read(t *testing.T, r resource.Request) []string {
	t.Helper()
	if r.Namespace == "" {
		r.Namespace = "default"
	}
	var lines []string
	for info, err := range resource.Stream(t.Context(), resource.NewMapper(cluster()), r) {
		switch {
		case err != nil:
			lines = append(lines, "error: "+err.Error())
		case info.Selection:
			lines = append(lines, fmt.Sprintf("%s in %q with %q", info.Mapping.Resource, info.Namespace, info.Labels))
		case info.Object != nil:
			lines = append(lines, fmt.Sprintf("%s in %q from %s", info, info.Namespace, info.Source))
		default:
			lines = append(lines, fmt.Sprintf("%s in %q", info, info.Namespace))
		}
	}
	return lines
}

func TestInput(t *testing.T) {
	const src = "standard input, document "
	tests := []struct {
		name, in string
		want     []string
	}{
		{"one YAML document", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", []string{`pod/a in "default" from ` + src + "1 (line 1)"}},
		{
			"several, with comments and empty ones",
			"# first\n---\n---\n# still nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n--- # second\napiVersion: batch/v1\nkind: Job\nmetadata: {name: b, namespace: other}\n---\n",
			[]string{`pod/a in "default" from ` + src + "1 (line 5)", `job.batch/b in "other" from ` + src + "2 (line 9)"},
		},
		{
			"JSON values one after the other",
			"\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}\n\n{\"apiVersion\":\"v1\",\n\"kind\":\"Node\",\"metadata\":{\"name\":\"n\"}}\n",
			[]string{`pod/a in "default" from ` + src + "1 (line 2)", `node/n in "" from ` + src + "2 (line 4)"},
		},
		{
			"a List in a List, a PodList, bad items",
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- 7\n- {kind: Pod}\n- apiVersion: v1\n  kind: PodList\n  items: [{metadata: {name: b}}]\n",
			[]string{
				`pod/a in "default" from ` + src + "1 (line 1), item 1",
				"error: " + src + "1 (line 1), item 2: must be an object, got the number 7",
				"error: " + src + "1 (line 1), item 3: apiVersion or kind is not set",
				`pod/b in "default" from ` + src + "1 (line 1), item 4",
			},
		},
		{
			"bad documents do not hide the others",
			"kind: Pod\n---\n- a\n---\nhello\n---\napiVersion: v1\nkind: 3\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: 3}\n---\napiVersion: v1\nkind: Pod\nmetadata: a\n---\na: b: c\n---\na: 1\na: 2\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: good}\n",
			[]string{
				"error: " + src + "1 (line 1): apiVersion is not set: an object needs apiVersion, kind and metadata",
				"error: " + src + "2 (line 2): must be an object with apiVersion, kind and metadata, got a list",
				"error: " + src + `3 (line 4): must be an object with apiVersion, kind and metadata, got the text "hello"`,
				"error: " + src + "4 (line 6): kind is the number 3, want a string",
				"error: " + src + "5 (line 9): metadata.name is the number 3, want a string: put it in quotes",
				"error: " + src + `6 (line 13): metadata is the text "a", want a map`,
				"error: " + src + "7 (line 17): YAML: line 18: mapping values are not allowed in this context",
				"error: " + src + `8 (line 19): YAML: line 21: key "a" already set in map`,
				`pod/good in "default" from ` + src + "9 (line 22)",
			},
		},
		{
			"a key overrides that of a merge",
			"apiVersion: v1\nkind: Pod\nmetadata: &m {name: a}\nspec: {x: {<<: *m, name: b}}\n",
			[]string{`pod/a in "default" from ` + src + "1 (line 1)"},
		},
		{
			"items of a List in JSON, one by one",
			"{\"apiVersion\":\"v1\",\"items\":[\n {\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}},\n 7, {\"kind\":\"Pod\"}\n],\"kind\":\"List\"}\n{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n\"}}",
			[]string{
				`pod/a in "default" from ` + src + "1 (line 1), item 1",
				"error: " + src + "1 (line 1), item 2: must be an object with apiVersion, kind and metadata, got the number 7",
				"error: " + src + "1 (line 1), item 3: apiVersion or kind is not set",
				`node/n in "" from ` + src + "2 (line 5)",
			},
		},
		{
			"a PodList in JSON, its kind first and last", `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]} {"apiVersion":"v1","items":[{"metadata":{"name":"b"}}],"kind":"PodList"}`,
			[]string{`pod/a in "default" from ` + src + "1 (line 1), item 1", `pod/b in "default" from ` + src + "2 (line 1), item 1"},
		},
		{"a List in JSON that breaks off", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}},{"api`, []string{
			`pod/a in "default" from ` + src + "1 (line 1), item 1",
			"error: " + src + "1 (line 1): JSON: the input ends in the middle of an object; a closing brace is missing",
		}},
		{"empty Lists", `{"apiVersion":"v1","kind":"List","items":[]} {"apiVersion":"v1","items":[],"kind":"List"} {"apiVersion":"v1","items":{"a":[1]},"kind":"List"}`, []string{
			"error: " + src + "3 (line 1): items: must be a list, got a map",
		}},
		{"a field twice in JSON", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"b"}}`, []string{
			"error: " + src + `1 (line 1): duplicate field "metadata.name"`,
		}},
		{"a kustomization", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", []string{"error: " + src + "1 (line 1): a Kustomization is a kustomize file, not an API object: pass its directory with -k"}},
		{"an apiVersion that is none", "apiVersion: a/b/c\nkind: Pod\n", []string{"error: " + src + `1 (line 1): apiVersion is "a/b/c", want VERSION or GROUP/VERSION`}},
		{"a kind of another group", "apiVersion: v1\nkind: Job\nmetadata: {name: a}", []string{"error: " + src + `1 (line 1): no matches for kind "Job" in version "v1": the server does not serve it; check both; did you mean Job in batch/v1?`}},
		{"an unknown kind", "apiVersion: sea/v1\nkind: Boat\nmetadata: {name: a}", []string{"error: " + src + `1 (line 1): no matches for kind "Boat" in version "sea/v1": the server does not serve it; check both`}},
		{"half a JSON", `{"apiVersion":"v1","kind":"Pod"`, []string{"error: " + src + "1 (line 1): JSON: the input ends in the middle of an object; a closing brace is missing"}},
		{"nothing", "", []string{}},
		{"null", "null", []string{}},
		{"nulls and comments", "---\n~\n---\n# a comment\n---\nnull # another\n--- ~\n---\n \n---\n", []string{}},
		{
			"nulls around an object", "null\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n~\n",
			[]string{`pod/a in "default" from ` + src + "2 (line 2)"},
		},
		{
			"nulls around an object in JSON", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}} null {"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}} null`,
			[]string{`pod/a in "default" from ` + src + "1 (line 1)", `pod/b in "default" from ` + src + "3 (line 1)"},
		},
		{"a null as text", `"null"`, []string{"error: " + src + `1 (line 1): must be an object with apiVersion, kind and metadata, got the text "null"`}},
		{"an item that is null", "apiVersion: v1\nkind: List\nitems: [null]\n", []string{"error: " + src + "1 (line 1), item 1: must be an object, got empty"}},
		{"an item that is null in JSON", `{"apiVersion":"v1","kind":"PodList","items":[null]}`, []string{
			"error: " + src + "1 (line 1), item 1: must be an object with apiVersion, kind and metadata, got empty",
		}},
		{"JSON documents with separators", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}\n---\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"b\"}}\n--- # third\n\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"c\"}}\n---\n", []string{
			`pod/a in "default" from ` + src + "1 (line 1)", `pod/b in "default" from ` + src + "2 (line 2)", `pod/c in "default" from ` + src + "3 (line 4)",
		}},
		{"comments after JSON", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}} # one\n# two\n", []string{`pod/a in "default" from ` + src + "1 (line 1)"}},
		{"YAML after JSON", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n", []string{`pod/a in "default" from ` + src + "1 (line 1)", `pod/b in "default" from ` + src + "2 (line 2)"}},
		{"a List in JSON and a separator", `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}` + "\n---\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"b\"}}\n", []string{
			`pod/a in "default" from ` + src + "1 (line 1), item 1", `pod/b in "default" from ` + src + "2 (line 2)",
		}},
		{"comments in flow YAML that begins like JSON", "{\"apiVersion\": \"v1\", # a\n \"kind\": Pod, metadata: {name: a}}\n", nil},
		{"broken JSON between separators", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}\n---\n{\"kind\" 1}\n---\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"b\"}}\n", []string{
			`pod/a in "default" from ` + src + "1 (line 1)", "error: " + src + "2 (line 2): JSON: invalid character '1' after object key", `pod/b in "default" from ` + src + "3 (line 4)",
		}},
		{"broken JSON", `{"kind": "a" "b"}`, []string{"error: " + src + "1 (line 1): JSON: invalid character '\"' after object key:value pair"}},
		{"flow YAML that is no JSON", "{apiVersion: v1, kind: Pod, metadata: {name: a}}", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := read(t, resource.Request{Files: []string{"-"}, In: strings.NewReader(tt.in)})
			if tt.want == nil {
				tt.want = []string{`pod/a in "default" from ` + src + "1 (line 1)"}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestHalfAYAMLHasItsPlace(t *testing.T) {
	got := read(t, resource.Request{Files: []string{"-"}, In: strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata:\n  name: \"a\n")})
	if len(got) != 1 || !strings.HasPrefix(got[0], "error: standard input, document 1 (line 1): YAML: line ") {
		t.Errorf("got %q, want one error with a line", got)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: one}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := read(t, resource.Request{Files: []string{dir + "/none", "http://", "", good}})
	want := []string{
		fmt.Sprintf("error: the path %q does not exist", dir+"/none"),
		`error: the URL passed to filename "http://" is not valid: the URL has no host`,
		"error: a file name given with -f is empty",
		fmt.Sprintf("pod/a in \"one\" from %s, document 1 (line 1)", good),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = read(t, resource.Request{Files: []string{good}, Namespace: "two", Enforced: true})
	if len(got) != 1 || !strings.Contains(got[0], "does not match the namespace \"two\"") {
		t.Errorf("a namespace that contradicts: %q", got)
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		r    resource.Request
		want []string
	}{
		{resource.Request{Args: []string{"rc/web", "job/build"}}, []string{`replicationcontroller/web in "default"`, `job.batch/build in "default"`}},
		{resource.Request{Args: []string{"node", "a", "b"}}, []string{`node/a in ""`, `node/b in ""`}},
		{resource.Request{Args: []string{"pods,rc"}, Labels: "app=web"}, []string{`pods in "default" with "app=web"`, `replicationcontrollers in "default" with "app=web"`}},
		{resource.Request{Args: []string{"all"}, All: true, AllNamespaces: true}, []string{`pods in "" with ""`, `jobs in "" with ""`}},
		{resource.Request{Args: []string{"pods"}, Lazy: true}, []string{`pods in "default" with ""`}},
		{resource.Request{Args: []string{"boat/x", "rc/web"}}, []string{`error: the server doesn't have a resource type "boat"`, `replicationcontroller/web in "default"`}},
		{resource.Request{Args: []string{"posd"}, Lazy: true}, []string{`error: the server doesn't have a resource type "posd"; did you mean pods?`}},
		{resource.Request{Args: []string{"jobss.batch/x"}}, []string{`error: the server doesn't have a resource type "jobss.batch"; did you mean jobs.batch?`}},
		{resource.Request{Args: []string{"pods"}, Labels: "a in b"}, []string{`error: the label selector "a in b" is not valid: unable to parse requirement: found 'b' expected: '('`}},
		{resource.Request{Args: []string{"pods"}, Fields: "a"}, []string{`error: the field selector "a" is not valid: invalid selector: 'a'; can't understand 'a'`}},
		{resource.Request{Args: []string{"pods"}, All: true, Labels: "a=b"}, []string{"error: --all and selectors are mutually exclusive"}},
		{resource.Request{Kustomize: "x", Files: []string{"-"}}, []string{"error: only one of -f or -k can be specified"}},
		{resource.Request{Kustomize: "x", Recursive: true}, []string{"error: the -k flag can't be used with -f or -R"}},
		{resource.Request{Args: []string{"rc/web/x"}}, []string{`error: arguments in TYPE/NAME form must have a single type and a single name, found "rc/web/x"`}},
		{resource.Request{Args: []string{"rc/"}}, []string{`error: arguments in TYPE/NAME form must have a single type and a single name, found "rc/"`}},
		{resource.Request{Args: []string{"pod", "a"}, AllNamespaces: true}, []string{"error: a resource cannot be retrieved by name across all namespaces"}},
		{resource.Request{Args: []string{"pod/a"}, Files: []string{"-"}}, []string{"error: resource types and names cannot be used with -f or -k"}},
	} {
		if got := read(t, tt.r); !slices.Equal(got, tt.want) {
			t.Errorf("%+v:\ngot\n%s\nwant\n%s", tt.r, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// endless yields documents without end, as a pipe does, and counts how many were
// taken.
type endless struct {
	rest  []byte
	taken int
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		e.taken++
		e.rest = fmt.Appendf(nil, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: pod-%d, annotations: {a: %q}}\n", e.taken, strings.Repeat("x", 4096))
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

func TestAnEndlessInputIsAStream(t *testing.T) {
	in := &endless{}
	seen := 0
	for _, err := range resource.Stream(t.Context(), resource.NewMapper(cluster()), resource.Request{Files: []string{"-"}, In: in, Namespace: "default"}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 100 {
			break
		}
		if in.taken > seen+64 {
			t.Fatalf("%d documents were read for %d objects", in.taken, seen)
		}
	}
}

// FuzzStream checks that whatever the input is, it is read to its end without a
// panic, and that each object that comes out can be encoded and is read back as
// the same.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{"", "---\n", "a: b", "{", "[1]", "apiVersion: v1\nkind: List\nitems: [{}]", "\xef\xbb\xbf{}", `{"apiVersion":"v1","kind":"Pod"} {"a":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		defer hangtest.Guard(t)()
		m := resource.NewMapper(cluster())
		for info, err := range resource.Stream(t.Context(), m, resource.Request{Files: []string{"-"}, In: bytes.NewReader(in), Namespace: "default"}) {
			if err != nil {
				continue
			}
			if line, column, ok := info.Position("metadata.name"); ok && (line < 1 || column < 1 || line > 1+bytes.Count(in, []byte{'\n'})) {
				t.Fatalf("metadata.name is in line %d column %d of %q", line, column, in)
			}
			text, err := json.Marshal(info.Object.Object)
			if err != nil {
				t.Fatalf("an object that cannot be encoded: %v", err)
			}
			for again, err := range resource.Stream(t.Context(), m, resource.Request{Files: []string{"-"}, In: bytes.NewReader(text), Namespace: "default"}) {
				if err != nil || again.String() != info.String() || again.Namespace != info.Namespace {
					t.Fatalf("%s → %s, %v", text, again, err)
				}
			}
		}
	})
}
