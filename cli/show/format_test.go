package show_test

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/internal/terminal"
)

func TestWhoWroteWhichFieldIsPrintedIfThatIsWanted(t *testing.T) {
	for _, tt := range []struct {
		output        string
		wanted, shown bool
	}{
		{"yaml", false, false},
		{"json", false, false},
		{"yaml", true, true},
		{"json", true, true},
		{"jsonpath={.metadata.managedFields[0].manager}{.items[0].metadata.managedFields[0].manager}", false, true},
	} {
		f, err := show.Parse(tt.output)
		if err != nil {
			t.Fatal(err)
		}
		f.Managers = tt.wanted
		object := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a", "managedFields": []any{map[string]any{"manager": "somebody"}}},
		}}
		for _, single := range []bool{true, false} {
			var text strings.Builder
			if err := f.PrintAll(&text, make([]resource.Mapping, 1), []*unstructured.Unstructured{object}, single, true); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text.String(), "somebody") != tt.shown || !tt.shown && strings.Contains(text.String(), "managedFields") {
				t.Errorf("-o %s, managers wanted: %v, single: %v, prints\n%s", tt.output, tt.wanted, single, &text)
			}
		}
		if len(object.GetManagedFields()) != 1 {
			t.Errorf("-o %s changed the object", tt.output)
		}
	}
}

// TestWideCellDoesNotPadOtherRows prints many rows of which one has a very long cell.
func TestWideCellDoesNotPadOtherRows(t *testing.T) {
	var b strings.Builder
	table := show.NewTable(&b)
	table.Row([]string{"a", strings.Repeat("x", 200_000), "end"})
	for range 1000 {
		table.Row([]string{"b", "y", "end"})
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if most := 2_000_000; b.Len() > most {
		t.Errorf("%d bytes, want at most %d", b.Len(), most)
	}
	if first, _, _ := strings.Cut(b.String(), "\n"); !strings.HasSuffix(first, "x   end") {
		t.Errorf("the first row ends with %q", first[len(first)-20:])
	}
}

// TestDocumentsKeepTheirValues prints marks that change the direction of text, which are escaped for people: what a
// program reads from a file is the same.
func TestDocumentsKeepTheirValues(t *testing.T) {
	const value = "a\u202eb\u2066c\u061c\u2028d\x1b"
	obj := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": value}}}
	for _, kind := range []string{"json", "yaml", "kyaml"} {
		var b bytes.Buffer
		if err := (show.Format{Kind: kind}).Print(terminal.NewWriter(&b), resource.Mapping{}, obj); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := yaml.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v\n%q", kind, err, &b)
		}
		if s, _, _ := unstructured.NestedString(got, "data", "a"); s != value {
			t.Errorf("%s: %q, want %q: %q", kind, s, value, &b)
		}
	}
}
