package resource_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cli/resource"
)

// tree writes files under a new directory and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func podNamed(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\n"
}

func TestPathsStandForFiles(t *testing.T) {
	dir := tree(t, map[string]string{
		"b.yaml": podNamed("b"), "a.yml": podNamed("a"), "c.json": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"}}`,
		"notes.txt": "nothing", "deep/d.yaml": podNamed("d"), "deep/deeper/e.yaml": podNamed("e"),
		"empty/readme": "", "odd[1].yaml": podNamed("odd"),
	})
	for _, tt := range []struct {
		name string
		r    resource.Request
		want []string
	}{
		{"a directory", resource.Request{Files: []string{dir}}, []string{"pod/a", "pod/b", "pod/c", "pod/odd"}},
		{"and what is below", resource.Request{Files: []string{dir}, Recursive: true}, []string{"pod/a", "pod/b", "pod/c", "pod/d", "pod/e", "pod/odd"}},
		{"a pattern", resource.Request{Files: []string{dir + "/[ab].y*ml"}}, []string{"pod/a", "pod/b"}},
		{"a pattern of directories", resource.Request{Files: []string{dir + "/dee*"}}, []string{"pod/d"}},
		{"a name that looks like a pattern", resource.Request{Files: []string{dir + "/odd[1].yaml"}}, []string{"pod/odd"}},
		{"a directory without objects", resource.Request{Files: []string{dir + "/empty"}}, []string{
			fmt.Sprintf("error: error reading [%s/empty]: recognized file extensions are [.json .yaml .yml]; use -R to read its subdirectories", dir),
		}},
		{"a pattern without matches", resource.Request{Files: []string{dir + "/x*"}}, []string{fmt.Sprintf("error: the path %q does not exist", dir+"/x*")}},
		{"a bad pattern", resource.Request{Files: []string{dir + "/[a"}}, []string{fmt.Sprintf("error: pattern %q is not valid: syntax error in pattern", dir+"/[a")}},
		{"standard input twice", resource.Request{Files: []string{"-", "-"}, In: strings.NewReader(podNamed("in"))}, []string{
			"pod/in", "error: the standard input is named twice with -f",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := read(t, tt.r)
			for i := range got {
				if !strings.HasPrefix(got[i], "error:") {
					got[i], _, _ = strings.Cut(got[i], " ")
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	busy := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pod.yaml":
			_, _ = fmt.Fprint(w, podNamed("a"))
		case "/moved":
			http.Redirect(w, r, "/pod.yaml", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/busy":
			if busy++; busy < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = fmt.Fprint(w, podNamed("busy"))
		case "/large":
			_, _ = fmt.Fprint(w, podNamed("large")+"---\n"+strings.Repeat("# nothing\n", 1000))
		case "/page":
			_, _ = fmt.Fprint(w, "<html>\n<body>Not what you want</body>")
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	for path, want := range map[string][]string{
		"/pod.yaml": {`pod/a in "default" from URL, document 1 (line 1)`},
		"/moved":    {`pod/a in "default" from URL, document 1 (line 1)`},
		"/busy":     {`pod/busy in "default" from URL, document 1 (line 1)`},
		"/circle":   {`error: unable to read URL "URL": stopped after 5 redirects`},
		"/file":     {`error: unable to read URL "URL": redirect to file:///etc/passwd: must be an http or https URL`},
		"/none":     {`error: unable to read URL "URL", server reported 404 Not Found, status code=404`},
		"/page":     {`error: URL, document 1 (line 1): must be an object with apiVersion, kind and metadata, got the text "<html> <body>Not what you want</body>"`},
	} {
		got := read(t, resource.Request{Files: []string{s.URL + path}})
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], s.URL+path, "URL")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", path, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	got := read(t, resource.Request{Files: []string{s.URL + "/large"}, FetchLimit: 1 << 10})
	if len(got) == 0 || !strings.Contains(got[len(got)-1], "larger than") {
		t.Errorf("an answer over the limit: %q", got)
	}
	s.Close()
	got = read(t, resource.Request{Files: []string{s.URL}})
	if len(got) != 1 || !strings.Contains(got[0], "connection refused") {
		t.Errorf("nobody listens: %q", got)
	}
}

func TestAKustomization(t *testing.T) {
	dir := tree(t, map[string]string{
		"base/kustomization.yaml": "resources: [pod.yaml]\nconfigMapGenerator: [{name: conf, literals: [a=b]}]\ngeneratorOptions: {disableNameSuffixHash: true}\n",
		"base/pod.yaml":           podNamed("a"),
		"over/kustomization.yaml": "resources: [../base]\nnamePrefix: my-\nnamespace: two\n",
		"bad/kustomization.yaml":  "resources: [none.yaml]\n",
	})
	d := cluster()
	d.docs["/api/v1"] = strings.Replace(d.docs["/api/v1"], `"resources":[`, `"resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap"},`, 1)
	var got []string
	for info, err := range resource.Stream(t.Context(), resource.NewMapper(d), resource.Request{Kustomize: dir + "/over", Namespace: "default"}) {
		got = append(got, fmt.Sprint(info, " in ", info.Namespace, " ", err))
	}
	slices.Sort(got)
	if want := []string{"configmap/my-conf in two <nil>", "pod/my-a in two <nil>"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, name := range []string{"/bad", "/nowhere"} {
		if got := read(t, resource.Request{Kustomize: dir + name}); len(got) != 1 || !strings.HasPrefix(got[0], "error: kustomize "+dir+name+": ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPositions(t *testing.T) {
	const in = `# a comment
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: a
    labels: {app: x, a.b/c: y}
  spec:
    containers:
    - name: main
      imagge: x
`
	yamlText := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: b,\n  annotations: {x.y: z}}\nspec: {hostname: h}\n"
	jsonText := "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n\t{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"c\"}}, {\"apiVersion\": \"v1\",\n \"kind\": \"Pod\", \"metadata\": {\"name\": \"d\"}}]}"
	for _, tt := range []struct {
		in, object, path string
		line, column     int
	}{
		{in, "pod/a", "spec.containers[0].imagge", 13, 7},
		{in, "pod/a", "spec.containers[0].image", 12, 7}, // the nearest there is
		{in, "pod/a", "spec.containers[3].image", 11, 5},
		{in, "pod/a", "metadata.labels[a.b/c]", 9, 22},
		{in, "pod/a", "metadata.labels.a.b/c", 9, 22},
		{in, "pod/a", "", 5, 3},
		{in + yamlText, "pod/b", "metadata.annotations.x.y", 18, 17},
		{in + yamlText, "pod/b", "spec.hostname", 19, 8},
		{jsonText, "pod/c", "metadata.name", 2, 51},
		{jsonText, "pod/d", "apiVersion", 2, 67},
		{jsonText, "pod/d", "metadata.name", 3, 30},
	} {
		found := false
		for info, err := range resource.Stream(t.Context(), resource.NewMapper(cluster()), resource.Request{Files: []string{"-"}, In: strings.NewReader(tt.in), Namespace: "default"}) {
			if err != nil {
				t.Fatal(err)
			}
			if info.String() != tt.object {
				continue
			}
			found = true
			if line, column, ok := info.Position(tt.path); line != tt.line || column != tt.column || !ok {
				t.Errorf("%s of %s is in line %d column %d (%v), want line %d column %d", tt.path, tt.object, line, column, ok, tt.line, tt.column)
			}
		}
		if !found {
			t.Errorf("there is no %s", tt.object)
		}
	}
}
