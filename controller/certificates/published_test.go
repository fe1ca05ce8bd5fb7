package certificates

import (
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/run"
)

func publishing(c client.Interface, caches *cache.Shared) []run.Task {
	return Tasks(Options{Config: controllertest.Config(c, caches), Authority: broken{}, RootCA: []byte("PEM")})
}

func TestRootCertificateIsTheOnlyBundleOfItsSigner(t *testing.T) {
	bundle := func(name, signer string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: "old"}}
	}
	const ours, other = "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9", "example.com:signer:x"
	controllertest.Controlling(t, publishing, func(t *testing.T, s *clienttest.Server) {
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			all := clienttest.All(s, client.ClusterTrustBundles, "")
			got := clienttest.Find(s, client.ClusterTrustBundles, "", ours)
			if got == nil || got.Spec.TrustBundle != "PEM" || got.Spec.SignerName != "kubernetes.io/kube-apiserver-serving" || len(all) != 2 || clienttest.Find(s, client.ClusterTrustBundles, "", other) == nil {
				t.Fatalf("%s there are %+v", when, all)
			}
		}
		check("at the start")
		s.Remove(t, clienttest.Find(s, client.ClusterTrustBundles, "", ours))
		check("after the deletion")
		spoiled := clienttest.Find(s, client.ClusterTrustBundles, "", ours).DeepCopy()
		spoiled.Spec.TrustBundle = "other"
		s.Set(t, spoiled)
		check("after a change")
	}, bundle("kubernetes.io:kube-apiserver-serving:old", "kubernetes.io/kube-apiserver-serving"), bundle(other, "example.com/signer"))
}

func TestOldPodCertificateRequestsAreDeleted(t *testing.T) {
	r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r"}}
	controllertest.Controlling(t, publishing, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(14 * time.Minute)
		if clienttest.Find(s, client.PodCertificateRequests, "default", "r") == nil {
			t.Error("the request is gone after 14 minutes")
		}
		time.Sleep(2 * time.Minute)
		if clienttest.Find(s, client.PodCertificateRequests, "default", "r") != nil {
			t.Error("the request is there after 16 minutes")
		}
	}, r)
}
