package apiextensions

import (
	"fmt"
	"regexp/syntax"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of our own for the schema of a version, far above those of the definitions of well-known projects.
const (
	// maxDepth is how deep schemas are nested. What works on them calls itself, and decoding one in JSON takes a time
	// that grows with size times depth.
	maxDepth = 80

	// maxCompiled is the number of CEL rules that are compiled to check a schema: each one for itself, and once more
	// for each default of a schema that it is in. Compiling one takes about a millisecond.
	maxCompiled = 5_000

	// maxVisited is how many schemas are visited to check them: those in a schema that has rules or a default are
	// visited once more for it.
	maxVisited = 1_000_000

	// maxPattern is the number of instructions that a regular expression compiles to. One takes 40 bytes, and up to
	// so many steps for each letter of a text.
	maxPattern = 100_000

	// maxBranches is how often the path of a column goes to many values at once. Each time multiplies the values: a path
	// with k recursive descents visits the values of an object of n parts up to n^k times.
	maxBranches = 2
)

// tooLarge returns which of the limits of our own a schema exceeds.
func tooLarge(root *schema, at *field.Path) field.ErrorList {
	m := measure{}
	m.visit(root, at, 0)
	if m.deep {
		m.errs = append(m.errs, field.Invalid(at, "", fmt.Sprintf("schemas must be nested at most %d deep", maxDepth)))
	}
	if m.compiled > maxCompiled {
		m.errs = append(m.errs, field.Invalid(at, "", fmt.Sprintf("must have fewer CEL rules, or fewer defaults around them: checking it compiles %d, at most %d are accepted", m.compiled, maxCompiled)))
	}
	if m.visited > maxVisited {
		m.errs = append(m.errs, field.Invalid(at, "", fmt.Sprintf("must be smaller, or have fewer nested defaults and CEL rules: checking it visits %d schemas, at most %d are accepted", m.visited, maxVisited)))
	}
	return m.errs
}

// A measure says what checking a schema takes.
type measure struct {
	deep              bool
	compiled, visited int
	errs              field.ErrorList
}

// visit measures s, and returns how many schemas and rules it and those in it have.
func (m *measure) visit(s *schema, at *field.Path, depth int) (schemas, rules int) {
	if depth > maxDepth {
		m.deep = true
		return 1, 0
	}
	if patternSize(s.Pattern) > maxPattern {
		m.errs = append(m.errs, field.Invalid(at.Child("pattern"), "", fmt.Sprintf("must be a smaller regular expression: it compiles to more than %d instructions", maxPattern)))
	}
	schemas, rules = 1, len(s.XValidations)
	children(s, func(r relation, child *schema) {
		more, moreRules := m.visit(child, r.path(at), depth+1)
		schemas, rules = schemas+more, rules+moreRules
	})
	m.compiled, m.visited = m.compiled+len(s.XValidations), m.visited+1
	if len(s.XValidations) > 0 {
		m.visited += schemas
	}
	if s.Default != nil {
		m.compiled, m.visited = m.compiled+rules, m.visited+schemas
	}
	return schemas, rules
}

// patternSize returns about how many instructions a pattern compiles to, without compiling it. A pattern that is not
// valid has none.
func patternSize(pattern string) int {
	if pattern == "" {
		return 0
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return expressionSize(parsed)
}

func expressionSize(e *syntax.Regexp) int {
	size := 1
	for _, sub := range e.Sub {
		size += expressionSize(sub)
	}
	switch e.Op {
	case syntax.OpLiteral:
		size += len(e.Rune)
	case syntax.OpRepeat:
		size *= max(e.Min, e.Max, 1)
	}
	return min(size, maxPattern+1)
}
