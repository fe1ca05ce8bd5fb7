package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sampan-io/sampan/test/session"
)

// widget is an object of the definition that TestEnvtest installs.
func widget(name string, size any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec":     map[string]any{"size": size},
	}}
}

func widgets() *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
			}},
		},
	}
}

// envtestPrograms returns a directory with the program under test under the names that envtest starts.
func envtestPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := session.Link(dir, map[string]string{"kube-apiserver": sampanProgram, "etcd": sampanProgram, "kubectl": kubectlProgram})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startEnvtest starts the programs until the end of the test, and returns a client of an administrator.
func startEnvtest(t *testing.T, env *envtest.Environment) client.WithWatch {
	t.Helper()
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.NewWithWatch(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEnvtest has envtest of controller-runtime start the program in place of kube-apiserver and etcd.
func TestEnvtest(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	env := &envtest.Environment{
		BinaryAssetsDirectory: envtestPrograms(t),
		CRDInstallOptions:     envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{widgets()}},
	}
	c := startEnvtest(t, env)
	if err := c.Create(ctx, widget("one", int64(1))); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, widget("two", "large")); !apierrors.IsInvalid(err) {
		t.Errorf("a widget that its schema refuses: got %v, want Invalid", err)
	}
	// The plug-in ServiceAccount is disabled, and nothing makes default service accounts or runs pods.
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "idle"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
	}
	if err := c.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.ServiceAccountName != "" || pod.Status.Phase != corev1.PodPending {
		t.Errorf("got a pod of service account %q in phase %s, want none and Pending", pod.Spec.ServiceAccountName, pod.Status.Phase)
	}
	userRights(t, env, pod)
	accountToken(t, env, c)

	// Objects outlive the API server, as long as etcd runs.
	if err := errors.Join(env.ControlPlane.APIServer.Stop(), env.ControlPlane.APIServer.Start()); err != nil {
		t.Fatal(err)
	}
	admin, err := env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = client.NewWithWatch(admin.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "one"}, widget("one", nil)); err != nil {
		t.Error(err)
	}
}

// userRights checks that a user has the rights that RBAC gives.
func userRights(t *testing.T, env *envtest.Environment, pod *corev1.Pod) {
	t.Helper()
	user, err := env.AddUser(envtest.User{Name: "ada", Groups: []string{"crew"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(user.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), pod); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights deletes a pod: got %v, want Forbidden", err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(t.Context(), review); err != nil || review.Status.UserInfo.Username != "ada" {
		t.Errorf("got user %q and error %v, want ada", review.Status.UserInfo.Username, err)
	}
}

// accountToken checks that a token of a service account is from the issuer that envtest names, and is accepted.
func accountToken(t *testing.T, env *envtest.Environment, c client.Client) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
	if err := c.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: request.Status.Token}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if got := review.Status.User.Username; got != "system:serviceaccount:default:robot" {
		t.Errorf("the token is of %q: %s", got, review.Status.Error)
	}
	issuer := env.ControlPlane.APIServer.SecureServing.URL("https", "/").String()
	if len(review.Status.Audiences) != 1 || review.Status.Audiences[0] != issuer {
		t.Errorf("got audiences %q, want the issuer %s", review.Status.Audiences, issuer)
	}
}

// TestEnvtestFlags gives the stand-ins what they would not do.
func TestEnvtestFlags(t *testing.T) {
	t.Parallel()
	dir := envtestPrograms(t)
	for _, test := range []struct{ args, want string }{
		{"etcd --quota-backend-bytes=1", "etcd: unknown flag: --quota-backend-bytes\n"},
		{"kube-apiserver --feature-gates=A=true", "kube-apiserver: unknown flag: --feature-gates\n"},
		{"kube-apiserver --allow-privileged --authorization-mode=AlwaysAllow", `--authorization-mode: must be RBAC, or RBAC and Node, got "AlwaysAllow"`},
		{"kube-apiserver --etcd-servers=https://a,https://b", `--etcd-servers: must be one URL such as http://127.0.0.1:2379, got "https://a,https://b"`},
	} {
		name, args, _ := strings.Cut(test.args, " ")
		cmd := exec.CommandContext(soon(t), filepath.Join(dir, name), strings.Fields(args)...)
		cmd.Env = os.Environ()
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: got %v and\n%s\nwant %s", test.args, err, &stderr, test.want)
		}
	}
}

// TestEnvtestWithControllers has envtest start controllers beside the API server, and sees them work: a namespace goes away
// with its objects, and dependents with their owner. Others do not run.
func TestEnvtestWithControllers(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	env := &envtest.Environment{BinaryAssetsDirectory: envtestPrograms(t)}
	env.ControlPlane.GetAPIServer().Configure().Append("controllers", "namespace", "garbage-collector-controller")
	c := startEnvtest(t, env)
	configMap := func(namespace, name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}}
		if err := c.Create(ctx, cm); err != nil {
			t.Fatal(err)
		}
		return cm
	}
	gone := func(obj client.Object, list client.ObjectList) {
		t.Helper()
		w, err := c.Watch(ctx, list, client.InNamespace(obj.GetNamespace()))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); apierrors.IsNotFound(err) {
			return
		}
		for ev := range w.ResultChan() {
			if o, ok := ev.Object.(client.Object); ok && ev.Type == watch.Deleted && o.GetName() == obj.GetName() {
				return
			}
		}
		t.Fatalf("%s is not gone", obj.GetName())
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}
	if err := c.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	inside := configMap("short", "inside")
	if err := c.Delete(ctx, ns); err != nil {
		t.Fatal(err)
	}
	gone(inside, &corev1.ConfigMapList{})
	gone(ns, &corev1.NamespaceList{})
	owner := configMap("default", "owner")
	dependent := configMap("default", "dependent", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
	if err := c.Delete(ctx, owner); err != nil {
		t.Fatal(err)
	}
	gone(dependent, &corev1.ConfigMapList{})
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{}); !apierrors.IsNotFound(err) {
		t.Errorf("the service account of a controller that was not selected: %v", err)
	}
}
