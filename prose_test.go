package sampan_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

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
