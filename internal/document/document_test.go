package document_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/internal/document"
	"github.com/sampan-io/sampan/internal/hangtest"
)

type boat struct {
	Name  string            `json:"name"`
	Masts []mast            `json:"masts"`
	Flags map[string]string `json:"flags"`
	Built metav1.Time       `json:"built"`
	Cargo map[string]hold   `json:"cargo"`
}

type hold struct {
	Inner  `json:",inline"`
	Weight *resource.Quantity `json:"weight"`
}

type Inner struct {
	Port intstr.IntOrString `json:"port"`
}

type mast struct {
	Height int      `json:"height"`
	Sails  []string `json:"sails"`
}

func read(text string) error {
	d, err := document.Parse("boat.yaml", []byte(text))
	if err != nil {
		return err
	}
	return d.Decode(&boat{})
}

func TestFaultsNameTheirPlace(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"well", "name: a\nmasts:\n- height: 3\n", ""},
		{"empty", "# nothing\n", "boat.yaml: is empty"},
		{"not an object", "- a\n", "boat.yaml: line 1: want an object with apiVersion and kind"},
		{"two documents", "name: a\n---\nname: b\n", "boat.yaml: line 2: a second document; want one"},
		{"unknown field", "name: a\nmasts:\n- height: 1\n- heigth: 3\n", "boat.yaml: line 4 column 3: masts[1].heigth: unknown field"},
		{"two unknown fields", "nam: a\nmasts:\n- heigth: 3\n", "boat.yaml: line 1 column 1: nam: unknown field\nboat.yaml: line 3 column 3: masts[0].heigth: unknown field"},
		{"twice", "name: a\nname: b\n", `boat.yaml: line 2: key "name" already set in map`},
		{"a string for a number", "name: a\nmasts:\n- sails: [a, b]\n  height: high\n", "boat.yaml: line 4 column 3: masts[0].height: is a string, want a number"},
		{"an object for a string", "flags:\n  a: {b: c}\n", "boat.yaml: line 2 column 3: flags.a: is an object, want a string"},
		{"a number in a list of strings", "masts:\n- sails: [p, q]\n- sails: [p, 3]\n", "boat.yaml: line 3 column 14: masts[1].sails[1]: is a number, want a string"},
		{"a quantity", "cargo:\n  aft: {weight: 1Gi}\n  fore: {weight: 1GiB}\n", "boat.yaml: line 3 column 10: cargo.fore.weight: " + resource.ErrFormatWrong.Error()},
		{"a time", "name: a\nbuilt: now\n", `boat.yaml: line 2 column 1: built: parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"`},
		{"a field of an embedded struct", "cargo: {fore: {port: 1.5}}\n", "boat.yaml: line 1 column 16: cargo.fore.port: is 1.5, want an integer of 32 bits"},
		{"a fraction for an integer", "masts:\n- height: 1.5\n", "boat.yaml: line 2 column 3: masts[0].height: is 1.5, want an integer of 64 bits"},
		{"broken", "name: [a\n", "boat.yaml: line 1: did not find expected ',' or ']'"},
		{"indentation", "name: a\nmasts:\n  - height: 1\n    sails: []\n   flags: {}\n", "boat.yaml: line 5: did not find expected '-' indicator"},
		{"indentation of a map", "flags:\n  a: b\n c: d\n", "boat.yaml: line 3: did not find expected key"},
		{"two values", "name: a: b\n", "boat.yaml: yaml: mapping values are not allowed in this context"},
		{"two values below", "name: a\nflags: b: c\n", "boat.yaml: line 2: mapping values are not allowed in this context"},
		{"a tab", "name: a\n\tmasts: 3\n", "boat.yaml: line 2: found a tab character that violates indentation"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := read(tt.text); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFaultsOfTheCallerNameTheirPlace(t *testing.T) {
	d, err := document.Parse("boat.yaml", []byte("name: a\nflags:\n  a.b/c: red\n"))
	if err != nil {
		t.Fatal(err)
	}
	err = d.Faults(field.ErrorList{
		field.Invalid(field.NewPath("flags").Key("a.b/c"), "red", "want blue"),
		field.Required(field.NewPath("masts"), "a boat has one"),
	})
	want := "boat.yaml: line 1 column 1: masts: Required value: a boat has one\nboat.yaml: line 3 column 3: flags[a.b/c]: \"red\": want blue"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := d.Faults(nil); err != nil {
		t.Errorf("no faults are %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"name: a\n", "masts:\n- height: x\n", "a: &b [1]\nc: *b\n", "{", "? [a]\n: b\n", "flags: {1: 2}\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer hangtest.Guard(t)()
		_ = read(text) // whatever it is, it is an answer and no panic
	})
}

// TestFirstDocumentIsRead reads texts with more documents and with all line breaks that YAML has.
func TestFirstDocumentIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\n": "", "name: a\n---\n# none\n---\n": "",
		"name: a\n---\nname: b\n":                   "boat.yaml: line 2: a second document, which is ignored",
		"name: a\n---\n---\nname: b\n":              "boat.yaml: line 3: a second document, which is ignored",
		"name: a\r---\rname: b\r":                   "boat.yaml: line 2: a second document, which is ignored",
		"# \u0085# \u2028\nname: a\n---\nname: b\n": "boat.yaml: line 5: a second document, which is ignored",
		"name: a\n---\n- {":                         "boat.yaml: what follows the first document is ignored: yaml: line 3: did not find expected node content",
	} {
		var b boat
		d, ignored, err := document.ParseFirst("boat.yaml", []byte(text))
		if err == nil {
			err = d.Decode(&b)
		}
		if err != nil || b.Name != "a" || ignored != want {
			t.Errorf("%q: name %q, %q, %v, want %q", text, b.Name, ignored, err, want)
		}
	}
}

// TestManyFaultsAreCut reads a text with more faults than are named.
func TestManyFaultsAreCut(t *testing.T) {
	const n = 100_000
	var faults field.ErrorList
	for i := range n {
		faults = append(faults, field.Required(field.NewPath("masts").Index(i).Child("height"), ""))
	}
	d, err := document.Parse("boat.yaml", []byte("masts: ["+strings.Repeat("{},", n)+"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(d.Faults(faults).Error(), "\n")
	if len(lines) != 101 || lines[1] != "boat.yaml: line 1 column 12: masts[1].height: Required value" || lines[100] != "boat.yaml: there are more faults" {
		t.Errorf("%d lines: %q … %q", len(lines), lines[1], lines[len(lines)-1])
	}
}
