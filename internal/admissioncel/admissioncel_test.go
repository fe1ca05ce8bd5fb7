package admissioncel_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apicel "k8s.io/apiserver/pkg/cel"

	"github.com/sampan-io/sampan/internal/admissioncel"
)

// pod is the object of the requests of these tests.
func pod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry/web:v1"}}},
	}
}

type allowGets struct{}

func (allowGets) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "get" && a.GetUser().GetName() == "alice" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no", nil
}

func values() admissioncel.Values {
	v := admissioncel.Values{
		Object:    admissioncel.Value(pod()),
		OldObject: admissioncel.Value((*corev1.Pod)(nil)),
		Request: admissioncel.Value(&admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "default", Name: "web", DryRun: new(false),
			UserInfo: userInfo("alice"),
		}),
		Namespace: admissioncel.Value(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"tier": "low"}}}),
		Params:    admissioncel.Value(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Limit", "max": int64(3)}}),
	}
	return v.Authorize(&user.DefaultInfo{Name: "alice"}, allowGets{}, &admissioncel.RequestResource{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "default", Name: "web",
	})
}

func TestExpressionsSeeTheRequest(t *testing.T) {
	all := admissioncel.Declarations{Params: true, Authorizer: true}
	for _, text := range []string{
		`object.metadata.labels.app == "web" && oldObject == null`,
		`object.spec.containers.all(c, c.image.startsWith("registry/"))`,
		`object.kind == "Pod" && !has(object.spec.nodeName)`,
		`request.operation == "CREATE" && request.userInfo.username == "alice" && !request.dryRun`,
		`namespaceObject.metadata.labels["tier"] == "low"`,
		`params.max == 3`,
		`authorizer.requestResource.check("get").allowed() && !authorizer.requestResource.check("delete").allowed()`,
		`authorizer.group("").resource("pods").namespace("x").check("get").allowed()`,
		`variables.images[0].endsWith("v1") && variables.first == "registry/web:v1"`,
		`quantity("1Gi").isGreaterThan(quantity("1Mi")) && ip.isCanonical("127.0.0.1") && semver("1.2.3").major() == 1`,
	} {
		c := admissioncel.NewPolicyCompiler(admissioncel.New)
		c.Define("images", "object.spec.containers.map(c, c.image)", all)
		c.Define("first", "variables.images[0]", all)
		p := c.Compile(text, all, cel.BoolType)
		if p.Err != nil {
			t.Errorf("%s: %v", text, p.Err)
			continue
		}
		e := admissioncel.NewEvaluation(t.Context(), values(), c.Variables(), admissioncel.Budget)
		r, err := e.Run(&p)
		if err != nil || r.Err != nil || r.Value.Value() != true {
			t.Errorf("%s: got %v, %v, %v", text, r.Value, r.Err, err)
		}
		if e.Budget >= admissioncel.Budget {
			t.Errorf("%s: cost nothing", text)
		}
	}
}

func TestCompilerRefusesExpressions(t *testing.T) {
	for _, test := range []struct {
		text string
		d    admissioncel.Declarations
		want string
	}{
		{`1 + 1`, admissioncel.Declarations{}, "must evaluate to bool but got int"},
		{`object.x ==`, admissioncel.Declarations{}, "compilation failed: ERROR: <input>:1:12: Syntax error"},
		{`params.x == 1`, admissioncel.Declarations{}, "undeclared reference to 'params'"},
		{`authorizer.requestResource.check("get").allowed()`, admissioncel.Declarations{Params: true}, "undeclared reference to 'authorizer'"},
		{`request.object != null`, admissioncel.Declarations{}, "undefined field 'object'"},
		{`variables.later == 1`, admissioncel.Declarations{}, "undefined field 'later'"},
		{strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300), admissioncel.Declarations{}, "recursion limit exceeded"},
		{strings.Repeat("!", 150_000) + "true", admissioncel.Declarations{}, "size exceeds limit"},
	} {
		c := admissioncel.NewPolicyCompiler(admissioncel.New)
		p := c.Compile(test.text, test.d, cel.BoolType)
		if p.Err == nil || !strings.Contains(p.Err.Error(), test.want) {
			t.Errorf("%.40s: got %v, want %s", test.text, p.Err, test.want)
		}
	}
}

func TestCostIsLimited(t *testing.T) {
	const nested = `[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, ` +
		`[0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, [0,1,2,3,4,5,6,7,8,9].all(g, a < 10)))))))`
	c := admissioncel.NewCompiler(admissioncel.New)
	p := c.Compile(nested, admissioncel.Declarations{}, cel.BoolType)
	e := admissioncel.NewEvaluation(t.Context(), values(), c.Variables(), admissioncel.Budget)
	r, err := e.Run(&p)
	if err != nil || r.Err == nil || !strings.Contains(r.Err.Error(), "cost limit exceeded") {
		t.Errorf("got %v, %v; want the limit of a call", r.Err, err)
	}
	cheap := c.Compile(`[1,2,3].all(a, a > 0)`, admissioncel.Declarations{}, cel.BoolType)
	e = admissioncel.NewEvaluation(t.Context(), values(), c.Variables(), 5)
	if _, err := e.Run(&cheap); !errors.Is(err, apicel.ErrOutOfBudget) || !strings.Contains(err.Error(), "running out of cost budget") {
		t.Errorf("got %v, want the end of the budget", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e = admissioncel.NewEvaluation(ctx, values(), c.Variables(), admissioncel.Budget)
	if r, err := e.Run(&p); err == nil && (r.Err == nil || !strings.Contains(r.Err.Error(), "interrupted")) {
		t.Errorf("got %v, %v; want an interruption", r.Err, err)
	}
}

func TestVariablesCountAndFail(t *testing.T) {
	d := admissioncel.Declarations{}
	c := admissioncel.NewPolicyCompiler(admissioncel.Stored)
	c.Define("broken", "object.metadata.nothing.at.all", d)
	c.Define("wrong", "1 +", d)
	c.Define("big", "[1,2,3,4,5,6,7,8,9,10].map(a, a * 2)", d)
	for text, want := range map[string]string{
		`variables.broken == 1`: `composited variable "broken" fails to evaluate: no such key: nothing`,
		`variables.wrong == 1`:  `composited variable "wrong" fails to compile`,
	} {
		p := c.Compile(text, d, cel.BoolType)
		r, err := admissioncel.NewEvaluation(t.Context(), values(), c.Variables(), admissioncel.Budget).Run(&p)
		if err != nil || r.Err == nil || !strings.Contains(r.Err.Error(), want) {
			t.Errorf("%s: got %v, %v; want %s", text, r.Err, err, want)
		}
	}
	p := c.Compile(`variables.big.size() == 10`, d, cel.BoolType)
	e := admissioncel.NewEvaluation(t.Context(), values(), c.Variables(), 40)
	if _, err := e.Run(&p); !errors.Is(err, apicel.ErrOutOfBudget) {
		t.Errorf("got %v, want that a variable counts", err)
	}
}

func TestMatchConditions(t *testing.T) {
	condition := func(name, text string) admissionregistrationv1.MatchCondition {
		return admissionregistrationv1.MatchCondition{Name: name, Expression: text}
	}
	yes, no, fails := condition("yes", "true"), condition("no", "object.kind == 'Node'"), condition("fails", "object.x.y == 1")
	for _, test := range []struct {
		name   string
		list   []admissionregistrationv1.MatchCondition
		holds  bool
		failed string
		err    string
	}{
		{"none", nil, true, "", ""},
		{"all hold", []admissionregistrationv1.MatchCondition{yes, yes}, true, "", ""},
		{"one is false", []admissionregistrationv1.MatchCondition{yes, no}, false, "no", ""},
		{"false wins over an error", []admissionregistrationv1.MatchCondition{fails, no}, false, "no", ""},
		{"an error", []admissionregistrationv1.MatchCondition{fails, yes}, false, "", "expression 'object.x.y == 1' resulted in error: no such key: x"},
	} {
		c := admissioncel.NewCompiler(admissioncel.Stored)
		compiled := c.Conditions(test.list, admissioncel.Declarations{Authorizer: true})
		v, err := compiled.Match(admissioncel.NewEvaluation(t.Context(), values(), c.Variables(), admissioncel.MatchBudget))
		if v.Holds != test.holds || v.Failed != test.failed || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: got %+v, %v", test.name, v, err)
		}
	}
}

func userInfo(name string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name}
}

func TestLargeQuantitiesAreRefused(t *testing.T) {
	c := admissioncel.NewCompiler(admissioncel.New)
	for text, want := range map[string]string{
		`quantity("1e2147483647").isGreaterThan(quantity("1"))`:                       "the exponent of a quantity must have at most 3 digits",
		`quantity("` + strings.Repeat("9", 1_000) + `").isGreaterThan(quantity("1"))`: "a quantity must have at most 64 digits",
		`quantity("two").isGreaterThan(quantity("1"))`:                                "quantities must match the regular expression",
		`quantity("1.5e3").isGreaterThan(quantity("1Ki"))`:                            "",
		`!isQuantity("1e2147483647") && isQuantity("100m")`:                           "",
	} {
		p := c.Compile(text, admissioncel.Declarations{}, cel.BoolType)
		r, err := admissioncel.NewEvaluation(t.Context(), values(), c.Variables(), admissioncel.Budget).Run(&p)
		if err != nil || (r.Err == nil) != (want == "") || r.Err != nil && !strings.Contains(r.Err.Error(), want) || want == "" && r.Value.Value() != true {
			t.Errorf("%.60s: got %v, %v, %v; want %q", text, r.Value, r.Err, err, want)
		}
	}
}
