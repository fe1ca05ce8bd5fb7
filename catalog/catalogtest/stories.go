package catalogtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/storytest"
)

// longest is how much of a fault a story repeats.
const longest = 400

// now is when the stories play, an hour after their objects were created.
var now = metav1.Unix(1_700_003_600, 0)

// Stories plays the stories in dir, whose manifests are in examples. A story is a list of commands
// and, under each, the result in lines beginning with ">". With -update the stories are written
// again; then read the difference.
//
//	load FILE        takes a manifest from examples
//	create [PATCH]   creates the manifest, changed by a merge patch in YAML
//	update PATCH     updates the object last created or updated
//	SUB: PATCH       does so through a subresource: "status: {…}", "finalize: {…}"
//	apply SUB BODY   applies a body to the object: "apply binding {…}"
//	delete           marks the object as being deleted
//	show FIELD       prints a field: "show spec.selector"
//	warn             prints the warnings that the creation of the object causes
//	row              prints the cells of the object's row, wide ones after a bar
//
// A refused command changes nothing. Faults are compared without regard to their order.
func Stories(t *testing.T, kinds []*catalog.Kind, dir, examples string) {
	c, err := catalog.New(kinds)
	if err != nil {
		t.Fatal(err)
	}
	storytest.Play(t, dir, func(t *testing.T) func(string) []string {
		s := story{t: t, catalog: c, examples: examples}
		return func(line string) []string {
			if line == "" {
				return nil
			}
			return s.do(line)
		}
	})
}

type story struct {
	t        *testing.T
	catalog  *catalog.Catalog
	examples string

	kind     *catalog.Kind
	manifest catalog.Object // as loaded
	obj      catalog.Object // as created or last updated, in the stored version
}

func (s *story) do(line string) []string {
	s.t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	if verb != "load" && s.kind == nil {
		s.t.Fatalf("%q before load", line)
	}
	if verb != "load" && verb != "create" && s.obj == nil {
		s.t.Fatalf("%q before create", line)
	}
	switch verb {
	case "load":
		s.kind, s.manifest = Load(s.t, s.catalog, filepath.Join(s.examples, rest))
		return nil
	case "create":
		obj, err := s.accepted(s.manifest, rest)
		if err == nil {
			err = Create(s.kind, obj)
		}
		return s.outcome(obj, err)
	case "update":
		obj, err := s.accepted(s.shown(), rest)
		if err == nil {
			err = Update(s.kind, obj, s.obj)
		}
		return s.outcome(obj, err)
	case "apply":
		name, body, _ := strings.Cut(rest, " ")
		return s.apply(name, body)
	case "delete":
		s.obj.SetDeletionTimestamp(&now)
		apply(s.kind.Terminating, s.obj)
		return nil
	case "show":
		return []string{s.show(rest)}
	case "warn":
		if s.kind.Warn == nil {
			return nil
		}
		return s.kind.Warn(s.obj, nil)
	case "row":
		return []string{s.row()}
	}
	if sub, ok := strings.CutSuffix(verb, ":"); ok && s.kind.Subresource(sub) != nil {
		obj, err := s.accepted(s.shown(), rest)
		if err == nil {
			err = UpdateSub(s.kind, sub, obj, s.obj)
		}
		return s.outcome(obj, err)
	}
	s.t.Fatalf("unknown command %q", line)
	return nil
}

// shown returns the object in the version of the story.
func (s *story) shown() catalog.Object {
	s.t.Helper()
	obj, err := s.kind.FromHub(s.obj)
	if err != nil {
		s.t.Fatal(err)
	}
	return obj
}

// accepted returns an object of the story's version with a patch, in the stored version.
func (s *story) accepted(obj catalog.Object, patch string) (catalog.Object, error) {
	s.t.Helper()
	return s.kind.Accept(s.patched(obj, patch))
}

func (s *story) patched(obj catalog.Object, patch string) catalog.Object {
	s.t.Helper()
	if strings.TrimSpace(patch) == "" {
		return clone(obj)
	}
	p, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		s.t.Fatalf("patch %s: %v", patch, err)
	}
	doc, err := json.Marshal(obj)
	if err != nil {
		s.t.Fatal(err)
	}
	doc, err = jsonpatch.MergePatch(doc, p)
	if err != nil {
		s.t.Fatalf("patch %s: %v", patch, err)
	}
	changed := s.kind.New()
	if err := yaml.UnmarshalStrict(doc, changed); err != nil {
		s.t.Fatalf("patch %s: %v", patch, err)
	}
	return changed
}

func (s *story) outcome(obj catalog.Object, err error) []string {
	if err == nil {
		s.obj = obj
		return []string{"ok"}
	}
	all := []error{err}
	if many, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		all = many.Errors()
	}
	var lines []string
	for _, e := range all {
		text := strings.ReplaceAll(e.Error(), "\n", " / ")
		if len(text) > longest {
			text = text[:longest] + "…"
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return lines
}

func (s *story) apply(name, body string) []string {
	s.t.Helper()
	sub := s.kind.Subresource(name)
	if sub == nil || sub.Body() == nil {
		s.t.Fatalf("%s has no subresource %q to apply", s.kind.Kind, name)
	}
	b := sub.Body().New()
	if err := yaml.UnmarshalStrict([]byte(body), b); err != nil {
		s.t.Fatalf("body %s: %v", body, err)
	}
	obj := clone(s.obj)
	var err error
	switch shape := sub.Shape.(type) {
	case catalog.View:
		if err = shape.Apply(obj, b); err == nil && shape.Validate != nil {
			err = shape.Validate(context.Background(), obj, s.obj).ToAggregate()
		}
	case catalog.Action:
		err = shape.Apply(obj, b)
	default:
		s.t.Fatalf("%s/%s is a %T, which cannot be applied", s.kind.Kind, name, shape)
	}
	return s.outcome(obj, err)
}

// show prints a field, without the times that the clock gave it.
func (s *story) show(path string) string {
	s.t.Helper()
	doc, err := json.Marshal(s.shown())
	if err != nil {
		s.t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		s.t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			i := 0
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(at) {
				return "none"
			}
			v = at[i]
		default:
			return "none"
		}
	}
	if v == nil {
		return "none"
	}
	dropTimes(v)
	text, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func dropTimes(v any) {
	switch at := v.(type) {
	case map[string]any:
		delete(at, "lastTransitionTime")
		for _, child := range at {
			dropTimes(child)
		}
	case []any:
		for _, child := range at {
			dropTimes(child)
		}
	}
}

func (s *story) row() string {
	var plain, wide []string
	for _, c := range s.kind.Columns {
		cell := fmt.Sprint(c.Cell(s.obj, now.In(time.UTC)))
		if c.Priority == 0 {
			plain = append(plain, cell)
		} else {
			wide = append(wide, cell)
		}
	}
	return strings.Join(append(append(plain, "|"), wide...), "  ")
}
