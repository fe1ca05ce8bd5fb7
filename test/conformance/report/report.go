package report

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// A Test is one test and what became of it.
type Test struct {
	Name    string
	Part    string // of the run, "" if no part ran it
	State   string // as ginkgo has it, such as passed, failed or timedout; NotRun
	Seconds float64
	Message string // of the failure
	Where   string // file and line of the failure
}

// States beside those of ginkgo that are failures.
const (
	NotRun  = "not run" // no part ran the test
	Skipped = "skipped" // the test began, and found that the cluster is not made for it
)

const passed = "passed"

// Passed reports whether the test has passed.
func (t Test) Passed() bool { return t.State == passed }

// Cause is the reason of a failure in one line, at most 300 bytes.
func (t Test) Cause() string {
	text := strings.Join(strings.Fields(t.Message), " ")
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if t.Where != "" {
		text += " (" + t.Where + ")"
	}
	return text
}

// A Result is what became of the tests.
type Result struct {
	Tests    []Test   // sorted by name
	Problems []string // of the suite outside of its tests: before, between and after them
}

// Passed returns how many tests have passed.
func (r Result) Passed() (n int) {
	for _, t := range r.Tests {
		if t.Passed() {
			n++
		}
	}
	return n
}

// suite is a part of ginkgo's report in JSON.
type suite struct {
	SpecReports []spec
}

type spec struct {
	ContainerHierarchyTexts  []string
	ContainerHierarchyLabels [][]string
	LeafNodeType             string
	LeafNodeText             string
	LeafNodeLabels           []string
	State                    string
	RunTime                  time.Duration
	Failure                  struct {
		Message  string
		Location struct {
			FileName   string
			LineNumber int
		}
	}
}

func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

func (s spec) labelled(label string) bool {
	return slices.Contains(s.LeafNodeLabels, label) ||
		slices.ContainsFunc(s.ContainerHierarchyLabels, func(of []string) bool { return slices.Contains(of, label) })
}

// ran reports whether the test began.
func (s spec) ran() bool { return s.State != "pending" && (s.State != "skipped" || s.RunTime > 0) }

// where is the place of the failure, without the directory of the module.
func (s spec) where() string {
	at := s.Failure.Location
	if at.FileName == "" {
		return ""
	}
	file := at.FileName
	if _, rest, ok := strings.Cut(file, "/kubernetes@"); ok {
		_, file, _ = strings.Cut(rest, "/")
	}
	return fmt.Sprintf("%s:%d", file, at.LineNumber)
}

// A Part is the report of one run of ginkgo.
type Part struct {
	Name, File string
	Others     bool // it is about tests that are not conformance tests
}

// Read returns the result of some parts of a run. Each of them lists all tests of the suite. A test that more than one has run
// has the result of the last one. A test that is not a conformance test is in the result only if it ran.
func Read(parts []Part) (Result, error) {
	tests := map[string]Test{}
	var r Result
	for _, part := range parts {
		data, err := os.ReadFile(part.File)
		if err != nil {
			return r, err
		}
		var suites []suite
		if err := json.Unmarshal(data, &suites); err != nil {
			return r, fmt.Errorf("%s: %w", part.File, err)
		}
		for _, s := range suites {
			for _, s := range s.SpecReports {
				if s.LeafNodeType != "It" {
					if s.ran() && s.State != passed {
						problem := Test{State: s.State, Message: s.Failure.Message, Where: s.where()}
						r.Problems = append(r.Problems, fmt.Sprintf("%s: %s %s: %s", part.Name, s.LeafNodeType, s.State, problem.Cause()))
					}
					continue
				}
				name := s.name()
				switch _, known := tests[name]; {
				case part.Others == s.labelled("Conformance"):
				case s.ran():
					tests[name] = Test{name, part.Name, s.State, s.RunTime.Seconds(), s.Failure.Message, s.where()}
				case !known && !part.Others: // most of the others are not asked for
					tests[name] = Test{Name: name, State: NotRun}
				}
			}
		}
	}
	for _, t := range tests {
		r.Tests = append(r.Tests, t)
	}
	slices.SortFunc(r.Tests, func(a, b Test) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}
