package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	c, cfg := simulated(t, 2)
	admin := clientset(t, cfg)

	t.Run("nobody", func(t *testing.T) {
		cs := clientset(t, rest.AnonymousClientConfig(cfg))
		if _, err := cs.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			t.Errorf("List = %v, want 401 or 403", err)
		}
		if _, err := cs.Discovery().ServerVersion(); err != nil {
			t.Errorf("the version is for everybody: %v", err)
		}
	})

	t.Run("a token that is none", func(t *testing.T) {
		own := rest.AnonymousClientConfig(cfg)
		own.BearerToken = "no.such.token"
		_, err := clientset(t, own).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("List = %v, want 401", err)
		}
	})

	t.Run("a service account", func(t *testing.T) {
		token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		own := rest.AnonymousClientConfig(cfg)
		own.BearerToken = token.Status.Token
		cs := clientset(t, own)
		for _, tt := range []struct {
			do   func() error
			want string
		}{
			{
				func() error { _, err := cs.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); return err },
				`pods is forbidden: User "system:serviceaccount:default:default" cannot list resource "pods" in API group "" in the namespace "default"`,
			},
			{
				func() error { _, err := cs.CoreV1().Nodes().Get(ctx, "x", metav1.GetOptions{}); return err },
				`nodes "x" is forbidden: User "system:serviceaccount:default:default" cannot get resource "nodes" in API group "" at the cluster scope`,
			},
			{
				func() error { return cs.BatchV1().Jobs("default").Delete(ctx, "x", metav1.DeleteOptions{}) },
				`jobs.batch "x" is forbidden: User "system:serviceaccount:default:default" cannot delete resource "jobs" in API group "batch" in the namespace "default"`,
			},
			{
				func() error { return cs.RESTClient().Get().AbsPath("/metrics").Do(ctx).Error() },
				`forbidden: User "system:serviceaccount:default:default" cannot get path "/metrics"`,
			},
		} {
			if err := tt.do(); !apierrors.IsForbidden(err) || err.Error() != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		}
		if _, err := cs.Discovery().ServerPreferredResources(); err != nil {
			t.Errorf("discovery is for everybody who is known: %v", err)
		}
	})

	t.Run("a token of an account that is gone", func(t *testing.T) {
		sas := admin.CoreV1().ServiceAccounts("kube-public")
		if _, err := sas.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := sas.CreateToken(ctx, "brief", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		own := rest.AnonymousClientConfig(cfg)
		own.BearerToken = token.Status.Token
		cs := clientset(t, own)
		if _, err := cs.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("List = %v, want 403", err)
		}
		if err := sas.Delete(ctx, "brief", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := cs.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("List after the account is gone = %v, want 401", err)
		}
	})

	t.Run("a node", func(t *testing.T) {
		nodeMay(t, admin, nodeIdentity(t, cfg, filepath.Join(filepath.Dir(c.Kubeconfig), "pki"), c.Nodes[0]), c.Nodes)
	})
}

// nodeIdentity returns the configuration of a client with a node's certificate.
func nodeIdentity(t *testing.T, cfg *rest.Config, pki, node string) *kubernetes.Clientset {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, keyPEM, err := issue(pki, key, subject{name: "system:node:" + node, group: "system:nodes"}, valid)
	if err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(cfg)
	own.CertData, own.KeyData = cert, keyPEM
	return clientset(t, own)
}

// nodeMay checks that the first node touches what is its own and nothing else.
func nodeMay(t *testing.T, admin, node *kubernetes.Clientset, names []string) {
	ctx := soon(t)
	first, second := names[0], names[1]
	for _, name := range []string{"own", "foreign"} {
		if _, err := admin.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName:   map[string]string{"own": first, "foreign": second}[name],
				Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}},
				Containers: []corev1.Container{{Name: "c", Image: "x"}},
			},
		}
		if _, err := admin.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch := []byte(`{"metadata":{"labels":{"example.com/a":"b"}}}`)
	status := []byte(`{"status":{"message":"from the node"}}`)
	lease := func(name string) error {
		_, err := node.CoordinationV1().Leases("kube-node-lease").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	for _, tt := range []struct {
		what string
		may  bool
		do   func() error
	}{
		{"label itself", true, func() error {
			_, err := node.CoreV1().Nodes().Patch(ctx, first, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}},
		{"label another node", false, func() error {
			_, err := node.CoreV1().Nodes().Patch(ctx, second, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}},
		{"delete itself", false, func() error { return node.CoreV1().Nodes().Delete(ctx, first, metav1.DeleteOptions{}) }},
		{"write its Lease", true, func() error { return lease(first) }},
		{"write another's Lease", false, func() error { return lease(second) }},
		{"make a Lease elsewhere", false, func() error {
			_, err := node.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: first}}, metav1.CreateOptions{})
			return err
		}},
		{"read the secret of its pod", true, func() error {
			_, err := node.CoreV1().Secrets("default").Get(ctx, "own", metav1.GetOptions{})
			return err
		}},
		{"read another secret", false, func() error {
			_, err := node.CoreV1().Secrets("default").Get(ctx, "foreign", metav1.GetOptions{})
			return err
		}},
		{"list secrets", false, func() error {
			_, err := node.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"list its pods", true, func() error {
			_, err := node.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + first})
			return err
		}},
		{"list all pods", false, func() error {
			_, err := node.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"report on its pod", true, func() error {
			_, err := node.CoreV1().Pods("default").Patch(ctx, "own", types.MergePatchType, status, metav1.PatchOptions{}, "status")
			return err
		}},
		{"report on another's pod", false, func() error {
			_, err := node.CoreV1().Pods("default").Patch(ctx, "foreign", types.MergePatchType, status, metav1.PatchOptions{}, "status")
			return err
		}},
		{"delete another's pod", false, func() error { return node.CoreV1().Pods("default").Delete(ctx, "foreign", metav1.DeleteOptions{}) }},
		{"make a pod", false, func() error {
			_, err := node.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: corev1.PodSpec{NodeName: second, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			}, metav1.CreateOptions{})
			return err
		}},
		{"make a namespace", false, func() error {
			_, err := node.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
			return err
		}},
	} {
		switch err := tt.do(); {
		case tt.may && err != nil:
			t.Errorf("a node must be able to %s: %v", tt.what, err)
		case !tt.may && apierrors.ReasonForError(err) != metav1.StatusReasonForbidden:
			t.Errorf("a node must not %s: %v, want %d", tt.what, err, http.StatusForbidden)
		}
	}
}
