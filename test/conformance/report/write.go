package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the tests as a table with tabs between the columns: name, result, seconds, cause.
func (r Result) WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("name\tresult\tseconds\tcause\n")
	for _, t := range r.Tests {
		fmt.Fprintf(&b, "%s\t%s\t%.1f\t%s\n", t.Name, t.State, t.Seconds, t.Cause())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JUnit's format.
type junitSuites struct {
	XMLName xml.Name `xml:"testsuites"`
	Suite   junitSuite
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Seconds  string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Status  string        `xml:"status,attr"`
	Seconds string        `xml:"time,attr"`
	Skipped *struct{}     `xml:"skipped"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the tests in JUnit's format, with the names that upstream's runner gives them there.
func (r Result) WriteJUnit(w io.Writer) error {
	const name = "Kubernetes e2e suite"
	s := junitSuite{Name: name, Tests: len(r.Tests)}
	sum := 0.0
	for _, t := range r.Tests {
		c := junitCase{Name: "[It] " + t.Name, Class: name, Status: t.State, Seconds: fmt.Sprintf("%.3f", t.Seconds)}
		switch {
		case t.Passed():
		case t.State == NotRun || t.State == Skipped:
			s.Skipped++
			c.Skipped = &struct{}{}
		default:
			s.Failures++
			c.Failure = &junitFailure{Message: t.Message, Type: t.State, Text: t.Where}
		}
		sum += t.Seconds
		s.Cases = append(s.Cases, c)
	}
	s.Seconds = fmt.Sprintf("%.3f", sum)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suite: s}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// skipped returns how many tests began and found that the cluster is not made for them.
func skipped(tests []Test) (n int) {
	for _, t := range tests {
		if t.State == Skipped {
			n++
		}
	}
	return n
}

// WriteSummary writes the tests that did not pass, the slowest ones, and the number of tests in each part, for people.
func (r Result) WriteSummary(w io.Writer) error {
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "PROBLEM %s\n", p)
	}
	type count struct{ passed, tests int }
	parts := map[string]count{}
	for _, t := range r.Tests {
		c := parts[cmp.Or(t.Part, NotRun)]
		c.tests++
		if t.Passed() {
			c.passed++
		} else if t.State != NotRun {
			fmt.Fprintf(&b, "%s %s\n     %s\n", strings.ToUpper(t.State), t.Name, t.Cause())
		}
		parts[cmp.Or(t.Part, NotRun)] = c
	}
	const slowest = 10
	slow := slices.SortedFunc(slices.Values(r.Tests), func(a, b Test) int { return cmp.Compare(b.Seconds, a.Seconds) })
	b.WriteString("slowest tests:\n")
	for _, t := range slow[:min(slowest, len(slow))] {
		fmt.Fprintf(&b, "  %5.0f s  %s\n", t.Seconds, t.Name)
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0) // two spaces between columns; Flush returns its errors
	_, _ = fmt.Fprintln(table, "PART\tTESTS\tPASSED")
	names := make([]string, 0, len(parts))
	for name := range parts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\n", name, parts[name].tests, parts[name].passed)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "%d of %d tests passed", r.Passed(), len(r.Tests))
	if n := skipped(r.Tests); n > 0 {
		fmt.Fprintf(&b, ", %d not made for this cluster", n)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}
