package objects

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/internal/sorting"
)

func sortObjects(objs []*unstructured.Unstructured, mappings []resource.Mapping, order *jsonpath.JSONPath) {
	at := make([]int, len(objs))
	for i := range at {
		at[i] = i
	}
	sorting.Stable(at, func(a, b int) int {
		return compareValues(valueAt(order, objs[a].Object), valueAt(order, objs[b].Object))
	})
	sortedObjs, sortedMappings := slices.Clone(objs), slices.Clone(mappings)
	for to, from := range at {
		objs[to], mappings[to] = sortedObjs[from], sortedMappings[from]
	}
}

func valueAt(path *jsonpath.JSONPath, object map[string]any) string {
	results, err := path.FindResults(object)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return ""
	}
	var text bytes.Buffer
	if err := path.PrintResults(&text, results[0]); err != nil {
		return ""
	}
	return text.String()
}

// compareValues sorts numbers and quantities by value, other texts as such.
func compareValues(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	switch {
	case errX == nil && errY == nil && x < y:
		return -1
	case errX == nil && errY == nil && x > y:
		return 1
	case errX == nil && errY == nil:
		return 0
	}
	p, errP := quantity.ParseQuantity(a)
	q, errQ := quantity.ParseQuantity(b)
	if errP == nil && errQ == nil {
		return p.Cmp(q)
	}
	return strings.Compare(a, b)
}
