package node_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/node/volumes"
)

// answer gives the only request that waits the answer of its signer.
func (r *rig) answer(kind, text string, refresh time.Time) *certificatesv1.PodCertificateRequest {
	r.Helper()
	synctest.Wait()
	all, _, err := client.PodCertificateRequests.List(r.Context(), r.api, "default", metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(p *certificatesv1.PodCertificateRequest) bool { return len(p.Status.Conditions) > 0 })
	if len(all) != 1 {
		r.Fatalf("%d requests wait for their signer, want 1", len(all))
	}
	made := all[0].DeepCopy()
	made.Status = certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", Message: "a test"}},
		CertificateChain: text, BeginRefreshAt: &metav1.Time{Time: refresh}, NotAfter: &metav1.Time{Time: refresh.Add(time.Hour)},
	}
	if _, err := client.PodCertificateRequests.Update(r.Context(), r.api, made, "status"); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
	return made
}

// withFiles runs a test of a node with a directory for the files of pods.
func withFiles(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		test(t, r)
	})
}

// certifiedPod returns a pod with a certificate in a volume.
func certifiedPod(name string) *corev1.Pod {
	seconds := int32(7200)
	return webPod(name, func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "robot"
		p.Spec.Volumes = []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{PodCertificate: &corev1.PodCertificateProjection{
				SignerName: "example.com/signer", KeyType: "ED25519", MaxExpirationSeconds: &seconds,
				CredentialBundlePath: "bundle", KeyPath: "key", CertificateChainPath: "chain", UserAnnotations: map[string]string{"example.com/a": "b"},
			}},
		}}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tls", MountPath: "/tls"}}
	})
}

func TestPodCertificateIsIssuedAndRenewed(t *testing.T) {
	withFiles(t, func(t *testing.T, r *rig) {
		r.api.Set(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", UID: "robot-1"}})
		stop := r.start()
		<-r.node.Ready()
		r.create(certifiedPod("web"))

		block := func(text string) string {
			return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
		}
		request := r.answer(certificatesv1.PodCertificateRequestConditionTypeIssued, "a comment\n"+block("one"), time.Now().Add(time.Hour))
		pod := r.pod("web")
		if s := request.Spec; s.SignerName != "example.com/signer" || s.PodName != "web" || s.PodUID != pod.UID || s.NodeName != "n1" || s.NodeUID == "" ||
			s.ServiceAccountName != "robot" || s.ServiceAccountUID != "robot-1" || *s.MaxExpirationSeconds != 7200 || s.UnverifiedUserAnnotations["example.com/a"] != "b" {
			t.Errorf("the request is %+v", s)
		}
		proof, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
		if err != nil || proof.CheckSignature() != nil || proof.PublicKeyAlgorithm != x509.Ed25519 {
			t.Errorf("the proof of the key is %v, %v", proof, err)
		}
		r.await("web", "ready", isReady)
		dir := r.mountOf("web", "/tls").GetHostPath()
		key := r.read(dir + "/key")
		if got := r.read(dir + "/chain"); got != block("one") || r.read(dir+"/bundle") != key+got || !strings.HasPrefix(key, "-----BEGIN PRIVATE KEY-----") {
			t.Errorf("the chain is %s", got)
		}

		// A restarted agent keeps the certificate, and requests a new one in its time.
		stop()
		stop = r.start()
		defer stop()
		<-r.node.Ready()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if got := r.read(dir + "/chain"); got != block("one") {
			t.Errorf("the chain is %s", got)
		}
		time.Sleep(7 * time.Minute)
		again := r.answer(certificatesv1.PodCertificateRequestConditionTypeIssued, block("two"), time.Now().Add(time.Hour))
		if got := r.read(dir + "/chain"); again.Name == request.Name || got != block("two") || r.read(dir+"/key") == key {
			t.Errorf("after the renewal the chain is %s", got)
		}
	})
}

func TestRefusedPodCertificateIsNotRequestedAgain(t *testing.T) {
	withFiles(t, func(t *testing.T, r *rig) {
		r.api.Set(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", UID: "robot-1"}})
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		r.create(certifiedPod("web"))
		r.answer(certificatesv1.PodCertificateRequestConditionTypeDenied, "", time.Time{})
		time.Sleep(time.Hour)
		synctest.Wait()
		all, _, err := client.PodCertificateRequests.List(t.Context(), r.api, "default", metav1.ListOptions{})
		r.awaitEvent("PodCertificateRequest default/" + all[0].Name + ` was denied, reason="Test", message="a test"`)
		if p := r.pod("web"); err != nil || len(all) != 1 || isReady(p) {
			t.Errorf("there are %d requests (%v), and the pod is %s", len(all), err, p.Status.Phase)
		}
	})
}

// TestPodCertificateThatIsNotRenewedIsReported lets a signer be silent when it is asked for another certificate.
func TestPodCertificateThatIsNotRenewedIsReported(t *testing.T) {
	withFiles(t, func(t *testing.T, r *rig) {
		r.api.Set(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", UID: "robot-1"}})
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		pod := certifiedPod("web")
		uid := int64(os.Getuid())
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &uid}
		r.create(pod)
		chain := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("one")}))
		r.answer(certificatesv1.PodCertificateRequestConditionTypeIssued, chain, time.Now().Add(time.Hour))
		r.await("web", "ready", isReady)
		for _, name := range []string{"key", "bundle"} {
			info, err := os.Stat(r.mountOf("web", "/tls").GetHostPath() + "/" + name)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		reported := func() (reasons []string) {
			for _, e := range r.events() {
				if strings.HasPrefix(e.Reason, "Certificate") {
					reasons = append(reasons, e.Reason)
				}
			}
			return reasons
		}
		for _, step := range []struct {
			pause time.Duration
			want  []string
		}{
			{time.Hour + 9*time.Minute, nil},
			{7 * time.Minute, []string{"CertificateOverdueForRefresh"}},
			{time.Hour, []string{"CertificateOverdueForRefresh", "CertificateExpired"}},
			{24 * time.Hour, []string{"CertificateOverdueForRefresh", "CertificateExpired"}},
		} {
			time.Sleep(step.pause)
			synctest.Wait()
			if got := reported(); !slices.Equal(got, step.want) {
				t.Errorf("after %v: events %q, want %q", step.pause, got, step.want)
			}
		}
	})
}
