package sampan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// indexHead begins the index of decisions.
const indexHead = `# Decisions

Why things are as they are: what a user sees, the numbers, and what was rejected. A page is written for each decision that costs
more than an hour to undo. A later page that changes an earlier one says so, and the earlier one says it, too.

`

// TestDecisionIndex checks docs/decisions/README.md: a line per page, made of its title and its status, and a line about the
// numbers that no page has. With -update it writes the file.
func TestDecisionIndex(t *testing.T) {
	const index = "docs/decisions/README.md"
	pages, err := filepath.Glob("docs/decisions/0*.md")
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	list.WriteString(indexHead)
	var missing []string
	next := 1
	for _, page := range pages {
		name := filepath.Base(page)
		digits, _, _ := strings.Cut(name, "-")
		number, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatal(err)
		}
		for ; next < number; next++ {
			missing = append(missing, fmt.Sprintf("%04d", next))
		}
		if next > number {
			t.Fatalf("%s: another page has the number", page)
		}
		next++
		title, status := headOf(t, page)
		fmt.Fprintf(&list, "- [%s](%s): %s", digits, name, title)
		if status != "" {
			fmt.Fprintf(&list, " *%s*", status)
		}
		list.WriteByte('\n')
	}
	fmt.Fprintf(&list, "\nThe numbers %s were given to work that needed no page.\n", strings.Join(missing, ", "))
	got, err := os.ReadFile(index)
	if err == nil && string(got) == list.String() {
		return
	}
	if !*update {
		t.Fatalf("%s is not the list of the pages: go test -run TestDecisionIndex . -update", index)
	}
	if err := os.WriteFile(index, []byte(list.String()), 0o644); err != nil { // a page of the project
		t.Fatal(err)
	}
}

// headOf returns the title of a page without its number, and its status unless that is only "accepted".
func headOf(t *testing.T, page string) (title, status string) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "\n\n")
	paragraph, _, _ := strings.Cut(rest, "\n\n")
	_, title, ok := strings.Cut(head, ": ")
	status, ok2 := strings.CutPrefix(strings.ReplaceAll(paragraph, "\n", " "), "Status: ")
	if !ok || !ok2 || !strings.HasPrefix(head, "# "+filepath.Base(page)[:4]+": ") {
		t.Fatalf("%s: want a title such as \"# %s: a decision\", and then a paragraph that begins with \"Status: \"", page, filepath.Base(page)[:4])
	}
	for _, usual := range []string{"accepted", ".", ",", ";"} {
		status = strings.TrimSpace(strings.TrimPrefix(status, usual))
	}
	return strings.ToUpper(title[:1]) + title[1:], status
}
