package sampan_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A proseRule is a file of .vale/Sampan: what prose does not say.
type proseRule struct {
	name    string
	pattern *regexp.Regexp
}

// proseRules reads the style that vale checks comments and pages by.
func proseRules(t *testing.T) []proseRule {
	t.Helper()
	files, err := filepath.Glob(".vale/Sampan/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d rules in .vale/Sampan: %v", len(files), err)
	}
	var rules []proseRule
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var style struct {
			Tokens []string          `yaml:"tokens"`
			Swap   map[string]string `yaml:"swap"`
		}
		if err := yaml.Unmarshal(data, &style); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for words := range style.Swap {
			style.Tokens = append(style.Tokens, words)
		}
		for _, words := range style.Tokens {
			words = strings.ReplaceAll(words, "(?! apart)", "") // Go's expressions have no lookahead
			pattern, err := regexp.Compile(`(?i)\b(?:` + words + `)\b`)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			rules = append(rules, proseRule{filepath.Base(file), pattern})
		}
	}
	return rules
}

// TestMessagesArePlain holds the messages in the program (string literals with a
// space in them) to the style that vale holds comments and pages to.
func TestMessagesArePlain(t *testing.T) {
	rules := proseRules(t)
	for _, file := range goFiles(t) {
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || !strings.Contains(text, " ") {
				return true
			}
			for _, rule := range rules {
				if words := rule.pattern.FindString(text); words != "" {
					t.Errorf("%s: %q in a message; see .vale/Sampan/%s", fset.Position(lit.Pos()), words, rule.name)
				}
			}
			return true
		})
	}
}

// A proseLimit is a pattern that prose is being freed of: the number of lines that have it may only fall.
type proseLimit struct {
	name, advice string
	most         int  // lines, as of the last change to this number
	tests        bool // whether test files count, too
	// has reports whether a line of Go has the pattern. comment is the part after "//"; "" without one.
	has func(line, comment string) bool
}

// slack is how far a count may be below its limit until the limit has to be lowered, so that
// changes that are made beside each other do not all touch this file.
const slack = 40

var (
	comment    = regexp.MustCompile(`(?:^|[\t ])//(.*)`)
	nounClause = regexp.MustCompile(`\b[Ww]hat (?:it|they|he|we|you|is|are|was|were|has|have|had|does|do|did|can|may|must|shall|` +
		`a|an|the|its|their|that|this|these|those|other|others|all|both|each|every|one|of|to)\b`)
	whatTest = regexp.MustCompile(`^func (?:Test|Fuzz|Benchmark|Example)\w*What`)
)

var proseLimits = []proseLimit{
	{
		name: "NounClauses", most: 702, // "what it has" in a comment
		advice: "name the thing: the state, the owner, the answer",
		has:    func(_, comment string) bool { return nounClause.MatchString(comment) },
	},
	{
		name: "TestNames", most: 61, tests: true, // TestWhatIsLeft
		advice: "write TestSubjectDoesThing",
		has:    func(line, _ string) bool { return whatTest.MatchString(line) },
	},
	{
		name: "Columns", most: 2180, tests: true, // comments beyond 120 columns
		advice: "wrap them",
		has: func(line, comment string) bool {
			return comment != "" && utf8.RuneCountInString(line) > 120 && !strings.HasPrefix(line, "//go:")
		},
	},
}

// TestProseLimits counts lines with patterns that new prose does not have. With -v it lists them.
func TestProseLimits(t *testing.T) {
	found := make([][]string, len(proseLimits))
	for _, file := range goFilesAndTests(t) {
		if strings.HasSuffix(file, ".pb.go") || strings.HasPrefix(filepath.Base(file), "zz_generated") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		test := strings.HasSuffix(file, "_test.go")
		n := 0
		for line := range strings.Lines(string(data)) {
			n++
			line = strings.TrimRight(line, "\n")
			text := ""
			if m := comment.FindStringSubmatch(line); m != nil {
				text = m[1]
			}
			for i, limit := range proseLimits {
				if (limit.tests || !test) && limit.has(line, text) {
					found[i] = append(found[i], fmt.Sprintf("%s:%d: %s", file, n, strings.TrimSpace(line)))
				}
			}
		}
	}
	for i, limit := range proseLimits {
		t.Run(limit.name, func(t *testing.T) {
			n := len(found[i])
			switch {
			case n > limit.most:
				t.Errorf("found %d lines, the limit is %d: %s (go test -v lists them)", n, limit.most, limit.advice)
			case n < limit.most-slack:
				t.Errorf("found %d lines, fewer than the limit of %d: lower it in prose_test.go", n, limit.most)
			}
			if testing.Verbose() {
				t.Log(strings.Join(found[i], "\n"))
			}
		})
	}
}
