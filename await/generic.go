package await

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sampan-io/sampan/client"
)

// A condition is one entry of status.conditions, of whatever kind.
type condition struct{ kind, status, reason, message string }

func conditions(object map[string]any) []condition {
	list, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	var all []condition
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string { s, _ := m[key].(string); return s }
		all = append(all, condition{text("type"), text("status"), text("reason"), text("message")})
	}
	return all
}

// judgeGeneric judges a kind that has no file of its own by what the API
// conventions promise: status.observedGeneration, and the conditions Ready,
// Available, Complete, Succeeded, Failed, Stalled and Reconciling. An object
// without any of them is ready by being there.
func judgeGeneric(d Degree, obj client.Object) (Verdict, error) {
	object, err := fields(obj)
	if err != nil {
		return Verdict{}, err
	}
	if obj.GetDeletionTimestamp() != nil {
		return waiting("it is being deleted"), nil
	}
	if observed, found := observedGeneration(object); found && observed < obj.GetGeneration() {
		return waiting("its controller has not seen the latest change yet"), nil
	}
	var (
		verdict Verdict
		said    bool
	)
	for _, c := range conditions(object) {
		text := strings.TrimSuffix(c.kind+"="+c.status+": "+reason(c.reason, c.message), ": ")
		switch {
		case c.kind == "Failed" && c.status == "True":
			return failed(Certain, "%s", text), nil
		case c.kind == "Stalled" && c.status == "True":
			return failed(Likely, "%s", text), nil
		case c.kind == "Reconciling" && c.status == "True":
			return waiting("%s", text), nil
		case d.isOneOf(Finished, Complete) && (c.kind == "Complete" || c.kind == "Succeeded"),
			d.isOneOf(Ready, Running) && (c.kind == "Ready" || c.kind == "Available"):
			if c.status != "True" {
				verdict = waiting("%s", text)
			}
			said = true
		}
	}
	switch {
	case said && verdict.Cause == "":
		return done(), nil
	case said:
		return verdict, nil
	case d == Ready:
		return done(), nil
	}
	return Verdict{}, &MisuseError{d, strings.ToLower(kindOf(obj)), "it has no condition that says so; use ready, condition=NAME or jsonpath=PATH"}
}

func kindOf(obj client.Object) string {
	if k := obj.GetObjectKind().GroupVersionKind().Kind; k != "" {
		return k
	}
	name := fmt.Sprintf("%T", obj)
	return name[strings.LastIndex(name, ".")+1:]
}

func observedGeneration(object map[string]any) (int64, bool) {
	v, found, err := unstructured.NestedFieldNoCopy(object, "status", "observedGeneration")
	if !found || err != nil {
		return 0, false
	}
	switch n := v.(type) {
	case int64:
		return n, true
	case float64: // an object that somebody made by hand
		return int64(n), true
	}
	return 0, false
}

func judgeCondition(d Degree, obj client.Object) (Verdict, error) {
	object, err := fields(obj)
	if err != nil {
		return Verdict{}, err
	}
	if observed, found := observedGeneration(object); found && observed < obj.GetGeneration() {
		return waiting("its controller has not seen the latest change yet"), nil
	}
	for _, c := range conditions(object) {
		if !strings.EqualFold(c.kind, d.arg) {
			continue
		}
		if strings.EqualFold(c.status, d.value) {
			return done(), nil
		}
		return waiting("%s", strings.TrimSuffix(c.kind+"="+c.status+": "+reason(c.reason, c.message), ": ")), nil
	}
	return waiting("it has no condition %s", d.arg), nil
}

func judgePath(d Degree, obj client.Object) (Verdict, error) {
	object, err := fields(obj)
	if err != nil {
		return Verdict{}, err
	}
	path := jsonpath.New("await").AllowMissingKeys(true)
	if err := path.Parse(d.arg); err != nil {
		return Verdict{}, fmt.Errorf("jsonpath %s: %w", d.arg, err)
	}
	results, err := path.FindResults(object)
	if err != nil {
		return waiting("%s: %v", d.arg, err), nil
	}
	if len(results) == 0 || len(results[0]) == 0 {
		return waiting("%s has no value", d.arg), nil
	}
	if len(results) > 1 || len(results[0]) > 1 {
		return Verdict{}, fmt.Errorf("jsonpath %s yields several values, want one", d.arg)
	}
	if d.any {
		return done(), nil
	}
	var text bytes.Buffer
	if err := path.PrintResults(&text, results[0]); err != nil {
		return Verdict{}, fmt.Errorf("jsonpath %s: %w", d.arg, err)
	}
	if text.String() == d.value {
		return done(), nil
	}
	return waiting("%s is %q", d.arg, oneLine(text.String())), nil
}
