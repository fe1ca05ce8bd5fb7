package report

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// spec1 is a report of one part: two tests ran, one was left to another part, and one is no conformance test.
const spec1 = `[{"SpecReports": [
{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "ContainerHierarchyLabels": [["sig-node"]], "LeafNodeType": "It", "LeafNodeText": "should run [Conformance]", "LeafNodeLabels": ["Conformance"], "State": "passed", "RunTime": 1500000000},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "should end [Conformance]", "LeafNodeLabels": ["Conformance"], "State": "failed", "RunTime": 2000000000,
 "Failure": {"Message": "got\n\t<1>,  want 2", "Location": {"FileName": "/go/k8s.io/kubernetes@v1.37.2/test/e2e/a.go", "LineNumber": 7}}},
{"ContainerHierarchyTexts": ["[sig-node] Taints [Serial]"], "ContainerHierarchyLabels": [["Serial"]], "LeafNodeType": "It", "LeafNodeText": "should evict [Conformance]", "LeafNodeLabels": ["Conformance"], "State": "skipped"},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "may do this", "State": "passed", "RunTime": 1}
]}]`

// spec2 is the report of the other part, whose end failed.
const spec2 = `[{"SpecReports": [
{"ContainerHierarchyTexts": ["[sig-node] Taints [Serial]"], "ContainerHierarchyLabels": [["Serial"]], "LeafNodeType": "It", "LeafNodeText": "should evict [Conformance]", "LeafNodeLabels": ["Conformance"], "State": "passed", "RunTime": 9000000000},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "should run [Conformance]", "LeafNodeLabels": ["Conformance"], "State": "skipped"},
{"LeafNodeType": "SynchronizedAfterSuite", "State": "failed", "Failure": {"Message": "nodes are missing"}}
]}]`

func read(t *testing.T, reports ...string) Result {
	t.Helper()
	var parts []Part
	for i, text := range reports {
		p := Part{Name: []string{"parallel", "serial"}[i], File: filepath.Join(t.TempDir(), "report.json")}
		if err := os.WriteFile(p.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	r, err := Read(parts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReadMergesParts(t *testing.T) {
	r := read(t, spec1, spec2)
	want := []Test{
		{"[sig-node] Pods should end [Conformance]", "parallel", "failed", 2, "got\n\t<1>,  want 2", "test/e2e/a.go:7"},
		{"[sig-node] Pods should run [Conformance]", "parallel", "passed", 1.5, "", ""},
		{"[sig-node] Taints [Serial] should evict [Conformance]", "serial", "passed", 9, "", ""},
	}
	if !slices.Equal(r.Tests, want) || r.Passed() != 2 {
		t.Errorf("got %+v", r.Tests)
	}
	if want := []string{"serial: SynchronizedAfterSuite failed: nodes are missing"}; !slices.Equal(r.Problems, want) {
		t.Errorf("problems %q", r.Problems)
	}
}

func TestTestsThatNoPartRanAreListed(t *testing.T) {
	r := read(t, spec1)
	if len(r.Tests) != 3 || r.Tests[2].State != NotRun || r.Passed() != 1 {
		t.Errorf("got %+v", r.Tests)
	}
}

func TestOtherTestsThatRanAreListed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	text := `[{"SpecReports": [
{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "should run", "State": "passed", "RunTime": 1000000000},
{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "was not asked for", "State": "skipped"},
{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "needs a cloud", "State": "skipped", "RunTime": 1},
{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "conforms", "LeafNodeLabels": ["Conformance"], "State": "passed", "RunTime": 1}
]}]`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Read([]Part{{Name: "others", File: file, Others: true}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Tests) != 2 || r.Tests[0].State != Skipped || r.Tests[1].Name != "[sig-apps] Job should run" || r.Passed() != 1 {
		t.Errorf("got %+v", r.Tests)
	}
	var summary strings.Builder
	if err := r.WriteSummary(&summary); err != nil || !strings.HasSuffix(summary.String(), "1 of 2 tests passed, 1 not made for this cluster\n") {
		t.Errorf("got %v, %s", err, &summary)
	}
}

func TestReportsAreWritten(t *testing.T) {
	r := read(t, spec1)
	var table, junit, summary bytes.Buffer
	for _, err := range []error{r.WriteTable(&table), r.WriteJUnit(&junit), r.WriteSummary(&summary)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for out, parts := range map[*bytes.Buffer][]string{
		&table: {"[sig-node] Pods should end [Conformance]\tfailed\t2.0\tgot <1>, want 2 (test/e2e/a.go:7)\n"},
		&junit: {
			`<testsuite name="Kubernetes e2e suite" tests="3" failures="1" skipped="1" time="3.500">`,
			`<testcase name="[It] [sig-node] Pods should run [Conformance]" classname="Kubernetes e2e suite" status="passed" time="1.500"></testcase>`,
			`<skipped></skipped>`, `type="failed">test/e2e/a.go:7</failure>`,
		},
		&summary: {"FAILED [sig-node] Pods should end", "parallel  2      1\n", "1 of 3 tests passed\n"},
	} {
		for _, part := range parts {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%q is not in:\n%s", part, out)
			}
		}
	}
}
