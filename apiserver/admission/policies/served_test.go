package policies_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
)

// served is an API server with the plug-ins of this package.
type served struct {
	testing.TB
	*apiserver.Server
	admin *apiserver.Local
	kinds *catalog.Catalog
	set   *policies.Set
	z     operation.Authorizer
}

func serve(t testing.TB) *served {
	t.Helper()
	f := &served{TB: t}
	f.Server = apiservertest.Open(t, func(o *apiserver.Options) {
		objects := operation.NewReader(o.Catalog, o.Store)
		f.kinds, f.set, f.z = o.Catalog, policies.NewSet(objects, nil), o.Authorizer
		rules := policies.Options{
			Set: f.set, Catalog: o.Catalog, Objects: objects, Authorizer: o.Authorizer,
			Types: openapi.NewTypes(o.Catalog), Metrics: policies.NewMetrics(),
		}
		o.Admission = []admission.Plugin{
			policies.NewMutating(rules), policies.NewValidating(rules), policies.NewParamAccess(o.Catalog, objects, o.Authorizer),
		}
	})
	f.admin = f.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})
	f.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {tier: low}}}`)
	f.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: other}}`)
	return f
}

func (f *served) decode(text string) (*catalog.Kind, catalog.Object) {
	f.Helper()
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		f.Fatalf("%s: %v", text, err)
	}
	kind := f.kinds.Kind(meta.GroupVersionKind())
	if kind == nil {
		f.Fatalf("no kind %v", meta)
	}
	obj := kind.New()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		f.Fatalf("%s: %v", text, err)
	}
	return kind, obj
}

// create creates an object from YAML.
func (f *served) create(as *apiserver.Local, text string) (runtime.Object, error) {
	f.Helper()
	kind, obj := f.decode(text)
	return as.Create(f.Context(), kind.GVR(), obj.GetNamespace(), "", obj, metav1.CreateOptions{}, "")
}

func (f *served) apply(text string) runtime.Object {
	f.Helper()
	obj, err := f.create(f.admin, text)
	if err != nil {
		f.Fatalf("%s: %v", text, err)
	}
	return obj
}

// refused wants that a creation is refused with a status and a message.
func (f *served) refused(text string, code int32, message string) {
	f.Helper()
	_, err := f.create(f.admin, text)
	f.wants(err, code, message)
}

func (f *served) wants(err error, code int32, message string) {
	f.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != code || !strings.Contains(err.Error(), message) {
		f.Errorf("got %v, want %d and %q", err, code, message)
	}
}

// policy returns a validating policy of a few resources of the core group and apps, with a few more fields of its spec.
func policy(name, spec string) string {
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %s}, spec: {
  matchConstraints: {resourceRules: [
    {apiGroups: [""], apiVersions: ["*"], operations: ["*"], resources: [configmaps, "pods/*"]},
    {apiGroups: [apps], apiVersions: ["*"], operations: ["*"], resources: ["deployments/*", deployments]}]}, %s}}`, name, spec)
}

func bindingOf(name, policy, spec string) string {
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s, %s}}`, name, policy, spec)
}

func configMap(name, data string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default}, data: {%s}}`, name, data)
}

const deny = `validationActions: [Deny]`

func TestPolicyDenies(t *testing.T) {
	f := serve(t)
	f.apply(bindingOf("everywhere", "size", deny)) // without its policy it has no effect
	f.apply(configMap("before", "a: b"))
	f.apply(policy("size", `validations: [
  {expression: "!has(object.data) || !has(object.data.x)", message: " no x "},
  {expression: "!has(object.data) || !has(object.data.why)", messageExpression: "'no ' + object.data.why", reason: Forbidden},
  {expression: "!has(object.data) || !has(object.data.z) || int(object.data.z) < 3", reason: RequestEntityTooLarge},
  {expression: "!has(object.data) || !has(object.data.w)", message: fallback, messageExpression: "string(object.data.w)"}]`))
	f.apply(configMap("good", "a: b"))
	f.refused(configMap("x", `x: "1"`), 422, `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'size' with binding 'everywhere' denied request: no x`)
	f.refused(configMap("why", `why: "because"`), 403, `denied request: no because`)
	f.refused(configMap("z", `z: "4"`), 413, `denied request: failed expression: !has(object.data) || !has(object.data.z) || int(object.data.z) < 3`)
	f.refused(configMap("z", `z: many`), 422, `denied request: expression '!has(object.data) || !has(object.data.z) || int(object.data.z) < 3' resulted in error: type conversion error from 'string' to 'int'`)
	f.refused(configMap("w", `w: "`+strings.Repeat("long", 2000)+`"`), 422, "denied request: fallback")
	f.refused(configMap("w", `w: "two\nlines"`), 422, "denied request: fallback")
	_, err := f.create(f.admin, `{apiVersion: v1, kind: ConfigMap, metadata: {generateName: g-, namespace: default}, data: {x: "1"}}`)
	f.wants(err, 422, `configmaps "g-" is forbidden`)

	if err := f.admin.Delete(t.Context(), admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"), "", "everywhere", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.apply(configMap("x", `x: "1"`)) // at once
}

func TestPolicyWarnsAndIgnores(t *testing.T) {
	f := serve(t)
	f.apply(policy("loud", `validations: [{expression: "object == null || object.metadata.name != 'odd'", message: odd}]`))
	f.apply(bindingOf("warn", "loud", `validationActions: [Warn, Audit]`))
	f.apply(configMap("odd", "a: b"))
	f.apply(policy("faulty", `failurePolicy: Ignore, validations: [{expression: "object.data.missing == 'x'"}]`))
	f.apply(bindingOf("faulty", "faulty", deny))
	f.apply(configMap("fine", "a: b"))
	f.refused(configMap("bad", "missing: y"), 422, "ValidatingAdmissionPolicy 'faulty' with binding 'faulty' denied request: failed expression: object.data.missing == 'x'")
}

func TestPolicyMatches(t *testing.T) {
	f := serve(t)
	f.apply(policy("p", `matchConditions: [{name: not-admin, expression: "request.userInfo.username != 'admin' || has(object.data.force)"}], validations: [{expression: "false", message: "no"}]`))
	f.apply(bindingOf("low", "p", deny+`, matchResources: {namespaceSelector: {matchLabels: {tier: low}}, objectSelector: {matchLabels: {check: "yes"}}}`))
	f.apply(configMap("a", "force: x"))
	f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: default, labels: {check: "yes"}}, data: {b: c}}`)
	f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: other, labels: {check: "yes"}}, data: {force: c}}`)
	f.refused(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default, labels: {check: "yes"}}, data: {force: c}}`, 422, "denied request: no")
	f.refused(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default, labels: {check: "yes"}}}`, 422, "no such key: data")
}

func TestPolicySeesSubresources(t *testing.T) {
	f := serve(t)
	f.apply(policy("scale", `validations: [
  {expression: "!has(request.subResource) || request.subResource != 'scale' || object.spec.replicas <= 3", messageExpression: "'at most 3 for ' + request.kind.kind + ', not ' + string(object.spec.replicas)"},
  {expression: "!has(request.subResource) || request.subResource != 'ephemeralcontainers' || object.spec.ephemeralContainers.all(c, c.image != 'bad')", message: "bad image"}]`))
	f.apply(bindingOf("scale", "scale", deny))
	f.apply(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: default}, spec: {replicas: 5, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	_, err := f.admin.Update(t.Context(), deployments, "default", "d", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 4}}, metav1.UpdateOptions{}, "scale")
	f.wants(err, 422, "at most 3 for Scale, not 4")
	if _, err = f.admin.Update(t.Context(), deployments, "default", "d", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 2}}, metav1.UpdateOptions{}, "scale"); err != nil {
		t.Error(err)
	}
	f.apply(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: i}]}}`)
	_, err = f.admin.Patch(t.Context(), corev1.SchemeGroupVersion.WithResource("pods"), "default", "p", types.StrategicMergePatchType,
		[]byte(`{"spec":{"ephemeralContainers":[{"name":"e","image":"bad"}]}}`), metav1.PatchOptions{}, "ephemeralcontainers")
	f.wants(err, 422, "bad image")
}

func TestPolicyParams(t *testing.T) {
	f := serve(t)
	f.apply(policy("limit", `paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params == null || object.metadata.name.size() <= int(params.data.max)", messageExpression: "params.kind + ' says ' + params.data.max"}]`))
	limits := func(namespace, name, max string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {use: limit}}, data: {max: %q}}`, name, namespace, max)
	}
	f.apply(limits("other", "six", "6"))
	f.apply(bindingOf("one", "limit", deny+`, paramRef: {name: six, namespace: other, parameterNotFoundAction: Deny}`))
	f.apply(configMap("short", "a: b"))
	f.refused(configMap("longer-than", "a: b"), 422, "ValidatingAdmissionPolicy 'limit' with binding 'one' denied request: ConfigMap says 6")

	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	bindings := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings")
	remove := func(resource, namespace, name string) {
		gvr := maps
		if resource != "configmaps" {
			gvr = bindings
		}
		if err := f.admin.Delete(t.Context(), gvr, namespace, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove("bindings", "", "one")
	remove("configmaps", "other", "six")
	f.apply(bindingOf("one", "limit", deny+`, paramRef: {name: six, namespace: other, parameterNotFoundAction: Deny}`))
	f.refused(configMap("any", "a: b"), 422, "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction")
	remove("bindings", "", "one")

	f.apply(limits("default", "a8", "8"))
	f.apply(limits("default", "a4", "4"))
	f.apply(limits("other", "a1", "1"))
	f.apply(bindingOf("some", "limit", deny+`, paramRef: {selector: {matchLabels: {use: limit}}, parameterNotFoundAction: Allow}`))
	f.apply(configMap("four", "a: b"))
	f.refused(configMap("fiver", "a: b"), 422, "ConfigMap says 4")
	remove("bindings", "", "some")
	f.apply(bindingOf("without", "limit", deny)) // without paramRef params is null
	f.apply(configMap("as-long-as-you-like", "a: b"))

	f.apply(policy("unknown", `paramKind: {apiVersion: rules.example.com/v1, kind: Limit}, validations: [{expression: "params == null"}]`))
	f.apply(bindingOf("unknown", "unknown", deny+`, paramRef: {name: x, parameterNotFoundAction: Allow}`))
	f.refused(configMap("never", "a: b"), 422, "ValidatingAdmissionPolicy 'unknown' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'rules.example.com/v1, Kind=Limit'")
	remove("bindings", "", "unknown") // the configuration itself is exempt
	f.apply(configMap("again", "a: b"))

	f.apply(policy("cluster", `paramKind: {apiVersion: v1, kind: Namespace}, validations: [{expression: "params.metadata.labels.tier == 'low'"}]`))
	f.apply(bindingOf("cluster", "cluster", deny+`, paramRef: {name: default, parameterNotFoundAction: Deny}`))
	f.apply(configMap("fine", "a: b"))
	f.apply(bindingOf("wrong", "cluster", deny+`, paramRef: {name: default, namespace: default, parameterNotFoundAction: Deny}`))
	f.refused(configMap("wrong", "a: b"), 422, "paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
}

func TestPolicyAsksAuthorizer(t *testing.T) {
	f := serve(t)
	f.apply(policy("can", `variables: [{name: may, expression: "authorizer.group('apps').resource('deployments').namespace(request.namespace).check('create').allowed()"}],
  validations: [{expression: "variables.may", messageExpression: "request.userInfo.username + ' may not in ' + namespaceObject.metadata.labels['tier']"}]`))
	f.apply(bindingOf("can", "can", deny))
	f.apply(configMap("admin", "a: b"))
	plain := f.As(auth.User{Name: "system:serviceaccount:default:plain", Groups: []string{auth.GroupAuthenticated}})
	_, err := f.create(plain, configMap("plain", "a: b"))
	f.wants(err, 403, "cannot create resource") // by roles
	// The root CA publisher may write ConfigMaps, and no Deployments.
	publisher := f.As(auth.User{Name: "system:serviceaccount:kube-system:root-ca-cert-publisher", Groups: []string{auth.GroupAuthenticated}})
	_, err = f.create(publisher, configMap("publisher", "a: b"))
	f.wants(err, 422, "denied request: system:serviceaccount:kube-system:root-ca-cert-publisher may not in low")
}

func TestAdministratorIsNeverLockedOut(t *testing.T) {
	f := serve(t)
	f.apply(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: wall}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}, validations: [{expression: "false", message: "no"}]}}`)
	f.apply(bindingOf("wall", "wall", deny))
	f.refused(configMap("x", "a: b"), 422, "denied request: no")
	f.apply(bindingOf("second", "wall", deny))
	f.apply(policy("more", `validations: [{expression: "true"}]`))
	gvr := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	if _, err := f.admin.Patch(t.Context(), gvr, "", "wall", types.MergePatchType, []byte(`{"spec":{"validations":[{"expression":"true"}]}}`), metav1.PatchOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	f.apply(configMap("x", "a: b"))
}

func TestHundredFailingPolicies(t *testing.T) {
	f := serve(t)
	for i := range 100 {
		name := fmt.Sprintf("p%02d", i)
		f.apply(policy(name, `validations: [{expression: "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, a * b == 0))", messageExpression: "object.metadata.name + request.operation"}]`))
		f.apply(bindingOf(name, name, deny))
	}
	f.refused(configMap("x", "a: b"), 422, "ValidatingAdmissionPolicy 'p00' with binding 'p00' denied request: xCREATE")
}

func TestCostlyPolicyFails(t *testing.T) {
	f := serve(t)
	const list = `[0,1,2,3,4,5,6,7,8,9]`
	nested := "true"
	for i := range 8 {
		nested = fmt.Sprintf("%s.all(v%d, %s)", list, i, nested)
	}
	f.apply(policy("slow", fmt.Sprintf(`validations: [{expression: "%s"}]`, nested)))
	f.apply(bindingOf("slow", "slow", deny))
	f.refused(configMap("x", "a: b"), 422, "operation cancelled: actual cost limit exceeded")
}

func TestParamAccess(t *testing.T) {
	f := serve(t)
	f.apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: policies}, rules: [{apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: ["*"]}]}`)
	editor := f.As(auth.User{Name: "editor", Groups: []string{"editors"}})
	_, err := f.create(editor, policy("secret", `paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "true"}]`))
	f.wants(err, 403, "cannot create resource")
	access := policies.NewParamAccess(f.kinds, f.Reader(), f.z)
	for _, test := range []struct {
		text, want string
	}{
		{
			policy("secret", `paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "true"}]`),
			`spec.paramKind: Forbidden: user &{editor  [editors] map[]} must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`,
		},
		{policy("none", `validations: [{expression: "true"}]`), ""},
		{
			bindingOf("b", "missing", deny+`, paramRef: {name: a, parameterNotFoundAction: Deny}`),
			`spec.paramRef: Forbidden: unable to get policy missing to determine minimum required permissions and user &{editor  [editors] map[]} does not have "get" permission for all groups, versions and resources`,
		},
		{bindingOf("b", "missing", deny), ""},
	} {
		kind, obj := f.decode(test.text)
		err := access.Validate(t.Context(), &admission.Attributes{Operation: admission.Create, Kind: kind, Name: obj.GetName(), Object: obj, User: &auth.User{Name: "editor", Groups: []string{"editors"}}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", obj.GetName(), err, test.want)
		}
	}
}

// TestManyWarnings has more policies warn than the header of an answer can hold.
func TestManyWarnings(t *testing.T) {
	f := serve(t)
	for i := range 60 {
		name := fmt.Sprintf("p%02d", i)
		f.apply(policy(name, `validations: [{expression: "false", message: "`+strings.Repeat("long ", 200)+`"}]`))
		f.apply(bindingOf(name, name, `validationActions: [Warn]`))
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/default/configmaps", strings.NewReader(`{"metadata":{"name":"x"}}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.HandlerAs(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}}).ServeHTTP(w, r)
	size := 0
	for _, text := range w.Header().Values("Warning") {
		size += len(text)
	}
	if w.Code != http.StatusCreated || size < 3000 || size > 5000 {
		t.Errorf("got %d with %d bytes of warnings", w.Code, size)
	}
}

// TestSetFollows has a set load, reload and forget what is stored.
func TestSetFollows(t *testing.T) {
	f := serve(t)
	f.apply(policy("p", `validations: [{expression: "false", message: "no"}]`))
	f.apply(bindingOf("p", "p", deny))
	f.apply(policy("unknown", `paramKind: {apiVersion: rules.example.com/v1, kind: Limit}, validations: [{expression: "params == null"}]`))
	f.apply(bindingOf("unknown", "unknown", deny))
	late := policies.NewSet(f.Reader(), nil)
	validating := policies.NewValidating(policies.Options{Set: late, Catalog: f.kinds, Objects: f.Reader(), Authorizer: f.z})
	kind, obj := f.decode(configMap("x", "a: b"))
	validate := func() error {
		return validating.Validate(t.Context(), &admission.Attributes{Operation: admission.Create, Kind: kind, Namespace: "default", Name: "x", Object: obj, User: &auth.User{Name: "admin"}})
	}
	if err := validate(); err != nil {
		t.Errorf("an empty set refuses: %v", err)
	}
	for range 2 {
		if err := late.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.wants(validate(), 422, "denied request: no")
	}
	bindings := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings")
	if err := f.admin.Delete(t.Context(), bindings, "", "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	late.Reload(t.Context(), bindings.Resource, "p")
	f.wants(validate(), 422, "failed to find resource referenced by paramKind")
	if err := f.admin.Delete(t.Context(), bindings, "", "unknown", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := late.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := validate(); err != nil {
		t.Errorf("policies without bindings refuse: %v", err)
	}
}

// damaged is a reader whose objects cannot be read while err is set.
type damaged struct {
	admission.Reader
	err error
}

func (d *damaged) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	if d.err != nil {
		return nil, d.err
	}
	return d.Reader.Get(ctx, gvr, namespace, name)
}

// TestUnreadablePoliciesAreLogged checks that a policy that cannot be read is logged once, until it can be read again.
func TestUnreadablePoliciesAreLogged(t *testing.T) {
	f := serve(t)
	var out strings.Builder
	objects := &damaged{Reader: f.Reader(), err: errors.New("torn")}
	set := policies.NewSet(objects, slog.New(slog.NewTextHandler(&out, nil)))
	reload := func() { set.Reload(t.Context(), "validatingadmissionpolicies", "p") }
	for _, want := range []int{1, 1} {
		reload()
		if got := strings.Count(out.String(), "resource=validatingadmissionpolicies name=p err=torn"); got != want {
			t.Errorf("%d lines, want %d:\n%s", got, want, &out)
		}
	}
	objects.err = nil
	reload()
	objects.err = errors.New("torn")
	reload()
	if got := strings.Count(out.String(), "name=p"); got != 2 {
		t.Errorf("%d lines after another fault, want 2:\n%s", got, &out)
	}
}
