package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// requests is how many requests [TestAnswersAreTheSame] sends to each server, seed what they are. SAMPAN_REQUESTS and SAMPAN_SEED
// replace them, to search for more, and SAMPAN_KIND names the only kind to search.
const (
	requests = 9000
	seed     = 1
)

// TestAnswersAreTheSame sends generated and mutated objects of all kinds that both serve to kube-apiserver and to Sampan, in each way
// to write an object: whether they accept it, the code of the answer and the object with its defaults must be the same. Differences on
// purpose are in the table excuses. Nothing but the objects that the requests start from is stored.
func TestAnswersAreTheSame(t *testing.T) {
	p := startServers(t, Options{Programs: program(t, "UPSTREAM")})
	theirs := p.side(p.url)
	ours := p.side(p.startOurServer(program(t, "SAMPAN")))
	both := []*side{theirs, ours}
	for _, s := range both {
		for _, account := range []string{"default", "builder"} {
			s.do(t, "POST", "/api/v1/namespaces/default/serviceaccounts", "application/json", `{"metadata":{"name":"`+account+`"}}`)
		}
	}
	definition, ferry, _ := strings.Cut(read(t, "testdata/ferries.yaml"), "---\n")
	for _, s := range both {
		s.define(t, definition)
	}
	g := &generator{Rand: rand.New(rand.NewPCG(0, number(t, "SAMPAN_SEED", seed)))}
	kinds := kindsOf(t, theirs)
	maps.DeleteFunc(kinds, func(name string, _ *served) bool { return kindsOf(t, ours)[name] == nil })
	seeds := append(seedsOf(t, kinds), seedOf(t, ferry, kinds))
	if only := os.Getenv("SAMPAN_KIND"); only != "" {
		seeds = slices.DeleteFunc(seeds, func(s *seedObject) bool { return s.kind.kind != only })
	}
	seen := map[string]int{}
	for i, s := range seeds { // what the requests change
		for _, at := range both {
			if s.kind.changes {
				code, _ := at.do(t, "POST", s.kind.path(s.base), "application/json", s.text("seed-"+strconv.Itoa(i)))
				s.exists[at] = code == http.StatusCreated || code == http.StatusConflict
			}
		}
	}
	limit, accepted, differing := int(number(t, "SAMPAN_REQUESTS", requests)), 0, 0
	for n := 0; n < limit; n++ {
		s := seeds[n%len(seeds)]
		way := ways[(n/len(seeds))%len(ways)]
		if way.method != "POST" && (!s.exists[theirs] || !s.exists[ours]) {
			way = ways[0]
		}
		name := s.base["metadata"].(map[string]any)["name"]
		changed := g.change(s)
		if status := g.property(g.resolve(s.kind.schema), "status"); way.name == "status" && status != nil {
			changed["status"] = g.value(status, 3)
		}
		var answers [2]answer
		for i, at := range both {
			if way.method == "PUT" { // a server may have changed the object meanwhile
				_, now := at.do(t, "GET", s.kind.path(s.base)+"/"+s.name, "", "")
				s.version[at], _ = field(now, "metadata", "resourceVersion").(string)
			}
			path, body := way.request(s, changed, at)
			answers[i].code, answers[i].body = at.do(t, way.method, path, way.content, body)
		}
		if answers[0].accepted() && answers[1].accepted() {
			accepted++
		}
		d := compare(answers[0], answers[1])
		if d == "" || excused(s.kind.kind, way.name, &answers[0], &answers[1], d) {
			continue
		}
		differing++
		class := fmt.Sprintf("%s %s: %d and %d: %s", s.kind.kind, way.name, answers[0].code, answers[1].code, anyNumber.ReplaceAllString(d, "N"))
		if seen[class]++; seen[class] == 1 {
			_, body := way.request(s, changed, ours)
			t.Errorf("%s of %s %v: upstream's answer %d, ours %d: %s\n%.6000s", way.name, s.kind.kind, name, answers[0].code, answers[1].code, d, body)
		}
	}
	t.Logf("%d requests, %d accepted by both, %d answers differ in %d ways, %d kinds", limit, accepted, differing, len(seen), len(kinds))
}

var anyNumber = regexp.MustCompile(`[0-9]+`)

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A way is one of those to write an object.
type way struct {
	name, method, content string
	query                 string
}

var ways = []way{
	{"create", "POST", "application/json", ""},
	{"update", "PUT", "application/json", ""},
	{"merge patch", "PATCH", "application/merge-patch+json", ""},
	{"create", "POST", "application/json", ""},
	{"strategic merge patch", "PATCH", "application/strategic-merge-patch+json", ""},
	{"JSON patch", "PATCH", "application/json-patch+json", ""},
	{"apply", "PATCH", "application/apply-patch+yaml", "&fieldManager=m&force=true"},
	{"status", "PUT", "application/json", ""},
	{"first apply", "PATCH", "application/apply-patch+yaml", "&fieldManager=m"},
}

// request returns the path and the body of a dry run.
func (w *way) request(s *seedObject, changed map[string]any, at *side) (path, body string) {
	const dry = "?dryRun=All"
	path = s.kind.path(s.base) + "/" + s.name
	switch {
	case w.method == "POST":
		return s.kind.path(s.base) + dry, encode(changed)
	case w.name == "first apply":
		return s.kind.path(s.base) + "/new-" + s.name + dry + w.query, named(changed, s.original, "new-"+s.name, "")
	case w.name == "status" && s.kind.status:
		path += "/status"
	case w.name == "JSON patch":
		var ops []map[string]any
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			if name != "metadata" && name != "kind" && name != "apiVersion" {
				ops = append(ops, map[string]any{"op": "add", "path": "/" + name, "value": changed[name]})
			}
		}
		return path + dry, encode(ops)
	}
	version := s.version[at]
	if w.method == "PATCH" {
		version = ""
	}
	return path + dry + w.query, named(changed, s.original, s.name, version)
}

// named encodes an object with another name, unless a mutation has changed it.
func named(o map[string]any, from, to, version string) string {
	o = maps.Clone(o)
	if m, ok := o["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		if m["name"] == from {
			m["name"] = to
		}
		if version != "" && m["resourceVersion"] == nil {
			m["resourceVersion"] = version
		}
		o["metadata"] = m
	}
	return encode(o)
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is made of JSON values
	}
	return string(data)
}

// field returns the value at a path, or nil.
func field(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

type answer struct {
	code int
	body map[string]any
}

// message returns that of a failure.
func (a *answer) message() string { s, _ := a.body["message"].(string); return s }

func (a *answer) accepted() bool { return a.code < 300 }

// compare returns the first difference of two answers, or nothing.
func compare(theirs, ours answer) string {
	switch {
	case theirs.code != ours.code:
		return fmt.Sprintf("%s | %s", brief(&theirs), brief(&ours))
	case theirs.accepted():
		return difference("", plain(theirs.body), plain(ours.body))
	}
	return ""
}

func brief(a *answer) string {
	if a.accepted() {
		return "accepted"
	}
	return fmt.Sprintf("%.400s", a.message())
}

// random are the values of metadata and of fields that a server chooses.
var (
	random  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|kube-api-access-\w{5}`)
	chosen  = []string{"uid", "resourceVersion", "managedFields", "clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "creationTimestamp"}
	invents = regexp.MustCompile(`-\w{5}$`)
)

// plain returns an object without what a server chooses.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			if !slices.Contains(chosen, name) {
				out[name] = plain(value)
			}
		}
		if g, ok := out["generateName"].(string); ok && out["name"] != nil {
			out["name"] = invents.ReplaceAllString(out["name"].(string), "") + g
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case string:
		return random.ReplaceAllString(v, "*")
	}
	return v
}

// difference returns the first difference of two JSON values.
func difference(at string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			all := maps.Clone(a)
			maps.Copy(all, b)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if d := difference(at+"."+name, a[name], b[name]); d != "" {
					return d
				}
			}
			return ""
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				if d := difference(fmt.Sprintf("%s[%d]", at, i), a[i], b[i]); d != "" {
					return d
				}
			}
			return ""
		}
	}
	if encode(a) == encode(b) {
		return ""
	}
	return fmt.Sprintf("%s: %.200s | %.200s", at, encode(a), encode(b))
}

// A side is one of the servers.
type side struct {
	url    string
	client *http.Client
}

// side returns a client of a server with the certificates of the plane.
func (p *Plane) side(url string) *side {
	p.t.Helper()
	transport, err := p.transport()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &side{url, &http.Client{Transport: transport}}
}

// do sends a request and returns the answer in JSON.
func (s *side) do(t *testing.T, method, path, content, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", content)
	resp, err := s.client.Do(req)
	if errors.Is(err, io.EOF) { // the handler has panicked
		return 0, map[string]any{"message": "the server closed the connection"}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		out = map[string]any{"message": string(data)}
	}
	return resp.StatusCode, out
}

// A served is a kind that a server serves.
type served struct {
	gv, kind, resource string
	namespace          string // of its objects here; empty if they have none
	changes            bool   // objects are stored
	status             bool
	schema             map[string]any // of OpenAPI v3, of upstream
	all                map[string]any // all schemas of its group
}

// path returns that of the collection of an object.
func (k *served) path(o map[string]any) string {
	at := "/apis/" + k.gv
	if k.gv == "v1" {
		at = "/api/v1"
	}
	if k.namespace != "" {
		at += "/namespaces/" + k.namespace
	}
	return at + "/" + k.resource
}

// kindsOf returns the kinds whose objects can be created, by group, version and name.
func kindsOf(t *testing.T, s *side) map[string]*served {
	t.Helper()
	all := map[string]*served{}
	_, groups := s.do(t, "GET", "/apis", "", "")
	versions := []any{"v1"}
	for _, group := range groups["groups"].([]any) {
		for _, v := range field(group, "versions").([]any) {
			versions = append(versions, field(v, "groupVersion"))
		}
	}
	for _, v := range versions {
		at := "/apis/" + v.(string)
		if v == "v1" {
			at = "/api/v1"
		}
		_, list := s.do(t, "GET", at, "", "")
		_, document := s.do(t, "GET", "/openapi/v3"+at, "", "")
		schemas, _ := field(document, "components", "schemas").(map[string]any)
		resources, _ := list["resources"].([]any)
		for _, r := range resources {
			name, verbs := field(r, "name").(string), fmt.Sprint(field(r, "verbs"))
			if parent, sub, ok := strings.Cut(name, "/"); ok {
				for _, k := range all {
					k.status = k.status || sub == "status" && k.resource == parent && k.gv == v
				}
				continue
			}
			if !strings.Contains(verbs, "create") {
				continue
			}
			k := &served{gv: v.(string), kind: field(r, "kind").(string), resource: name, changes: strings.Contains(verbs, "patch"), all: schemas}
			if field(r, "namespaced") == true {
				k.namespace = "default"
			}
			if name == "resourcequotas" || name == "limitranges" { // that do not bind the others
				k.namespace = "kube-public"
			}
			for _, schema := range schemas {
				marks, _ := field(schema, "x-kubernetes-group-version-kind").([]any)
				if len(marks) == 1 && field(marks[0], "kind") == k.kind {
					k.schema, _ = schema.(map[string]any)
				}
			}
			all[k.gv+" "+k.kind] = k
		}
	}
	return all
}

// A seedObject is an object that requests start from.
type seedObject struct {
	kind           *served
	base           map[string]any
	original, name string // of the base, and of the stored object
	exists         map[*side]bool
	version        map[*side]string
}

// text encodes the base with a name, unless its kind has rules for names.
func (s *seedObject) text(name string) string {
	if slices.Contains([]string{"ipaddresses", "apiservices", "customresourcedefinitions", "clustertrustbundles"}, s.kind.resource) || s.original == "exempt" || s.original == "catch-all" {
		name = s.original
	}
	s.name = name
	return named(s.base, s.original, name, "")
}

// seedsOf returns the objects of ../../catalog/*/testdata/accepted.
func seedsOf(t *testing.T, kinds map[string]*served) []*seedObject {
	t.Helper()
	files, err := filepath.Glob("../../catalog/*/testdata/accepted/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects to start from: %v", err)
	}
	var all []*seedObject
	for _, file := range files {
		if s := seedOf(t, read(t, file), kinds); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// seedOf returns an object in YAML, or nil if clients cannot create it.
func seedOf(t *testing.T, data string, kinds map[string]*served) *seedObject {
	t.Helper()
	var base map[string]any
	if err := yaml.Unmarshal([]byte(data), &base, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		t.Fatal(err)
	}
	k := kinds[fmt.Sprint(base["apiVersion"], " ", base["kind"])]
	if k == nil {
		return nil
	}
	if _, ok := base["metadata"].(map[string]any); !ok {
		base["metadata"] = map[string]any{}
	}
	if k.namespace != "" {
		base["metadata"].(map[string]any)["namespace"] = k.namespace
	}
	name, _ := field(base, "metadata", "name").(string)
	return &seedObject{kind: k, base: base, original: name, exists: map[*side]bool{}, version: map[*side]string{}}
}

// define makes the definition of a custom resource, and waits until the server describes the resource.
func (s *side) define(t *testing.T, definition string) {
	t.Helper()
	if code, body := s.do(t, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", definition); code != http.StatusCreated {
		t.Fatalf("%s: %d %s", s.url, code, body["message"])
	}
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	for {
		if code, _ := s.do(t, "GET", "/openapi/v3/apis/harbor.example.com/v1", "", ""); code == http.StatusOK {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the definition is not served")
		case <-pace.C:
		}
	}
}
