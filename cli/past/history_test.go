package past

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/changes"
)

// TestDescribeKeepsAChangeOnItsLines has names with line breaks, of which a client could make changes of its own.
func TestDescribeKeepsAChangeOnItsLines(t *testing.T) {
	p := &printer{history: &history{}}
	var b bytes.Buffer
	p.describe(&b, changes.Change{Kind: "ConfigMap", Name: "a", Operation: changes.Created, User: "eve\nforged", Agent: "x\x1b[31m"})
	if got := b.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") || !strings.Contains(got, `eve\nforged`) {
		t.Errorf("printed %q", got)
	}
	b.Reset()
	p.describe(&b, changes.Change{Kind: "ConfigMap", Name: "a", Operation: changes.Created, User: "jane", Agent: "kubectl/1"})
	if got := b.String(); !strings.HasSuffix(got, "  jane (kubectl/1)\n") {
		t.Errorf("printed %q", got)
	}
}
