package document_test

import (
	"testing"

	"github.com/sampan-io/sampan/internal/document"
)

func TestMergesMayBeOverridden(t *testing.T) {
	tests := []struct{ name, text, want, fault string }{
		{name: "no merge", text: "a: 1\n", want: `{"a":1}`},
		{name: "merge", text: "a: &a {k: 1, m: 2}\nb:\n  <<: *a\n  k: 3\n", want: `{"a":{"k":1,"m":2},"b":{"k":3,"m":2}}`},
		{name: "merge of a merge", text: "a: &a {m: 1}\nb: &b {<<: *a, m: 2}\nc: {<<: *b, m: 3}\n", want: `{"a":{"m":1},"b":{"m":2},"c":{"m":3}}`},
		{name: "merge of two maps", text: "a: &a {m: 1}\nb: &b {m: 2}\nc:\n  <<: [*a, *b]\n  k: 3\n", want: `{"a":{"m":1},"b":{"m":2},"c":{"k":3,"m":1}}`},
		{name: "key twice", text: "a: 1\na: 2\n", fault: "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map"},
		{name: "key twice and a merge", text: "a: &a {m: 1}\nb:\n  <<: *a\n  m: 2\n  m: 3\n", fault: `yaml: line 5: key "m" already set in map`},
		{name: "merge after the key", text: "a: &a {m: 1}\nb:\n  m: 2\n  <<: *a\n", fault: `yaml: line 4: key "m" already set in map`},
		{name: "quoted key", text: "a: &a {m: 1}\nb: {\"<<\": 1, \"<<\": 2}\n", fault: `yaml: line 2: key "<<" already set in map`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := document.ToJSON([]byte(tt.text))
			fault := ""
			if err != nil {
				fault = err.Error()
			}
			if string(got) != tt.want || fault != tt.fault {
				t.Errorf("ToJSON(%q) = %s, %q, want %s, %q", tt.text, got, fault, tt.want, tt.fault)
			}
		})
	}
}
