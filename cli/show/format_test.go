package show_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/show"
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
