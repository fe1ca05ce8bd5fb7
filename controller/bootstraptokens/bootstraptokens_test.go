package bootstraptokens

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestSign verifies a signature as a node does, with another library.
func TestSign(t *testing.T) {
	const content = "apiVersion: v1\nkind: Config\n"
	got, err := sign(content, "abcdef", []byte("0123456789abcdef"))
	first, signature, ok := strings.Cut(got, "..")
	if err != nil || !ok {
		t.Fatal(got, err)
	}
	if header, err := base64.RawURLEncoding.DecodeString(first); err != nil || string(header) != `{"alg":"HS256","kid":"abcdef"}` { // compared as a text by nodes
		t.Errorf("the header is %q, %v", header, err)
	}
	sum, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		t.Fatal(err)
	}
	if err := jwt.SigningMethodHS256.Verify(first+"."+base64.RawURLEncoding.EncodeToString([]byte(content)), sum, []byte("0123456789abcdef")); err != nil {
		t.Error(err)
	}
}

// secret returns a token for signing, with changes "KEY=VALUE".
func secret(id string, changes ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: secretType,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-signing": []byte("true")},
	}
	for _, c := range changes {
		key, value, _ := strings.Cut(c, "=")
		s.Data[key] = []byte(value)
	}
	return s
}

func expires(in time.Duration) string {
	return "expiration=" + time.Now().Add(in).UTC().Format(time.RFC3339)
}

func controlling(t *testing.T, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
		return Tasks(Options{Config: controller.Config{Caches: caches}, Cleaner: c, Signer: c})
	}
	controllertest.Controlling(t, tasks, f, objs...)
}

func info(data ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{}}
	for _, d := range data {
		key, value, _ := strings.Cut(d, "=")
		m.Data[key] = value
	}
	return m
}

func TestTokensAreDeletedInTime(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		other := secret("cccccc", expires(time.Minute))
		other.Type = corev1.SecretTypeOpaque
		s.Set(t, secret("aaaaaa", expires(time.Hour)), secret("bbbbbb"), other, secret("dddddd", "expiration=soon"))
		for _, step := range []struct {
			after time.Duration
			left  string
		}{{0, "aaaaaa bbbbbb cccccc"}, {time.Hour - 2*time.Second, "aaaaaa bbbbbb cccccc"}, {3 * time.Second, "bbbbbb cccccc"}} {
			time.Sleep(step.after) // of the bubble
			synctest.Wait()
			var left []string
			for _, o := range clienttest.All(s, client.Secrets, "kube-system") {
				left = append(left, strings.TrimPrefix(o.Name, secretPrefix))
			}
			if slices.Sort(left); strings.Join(left, " ") != step.left {
				t.Errorf("after %v: %q, want %q", step.after, left, step.left)
			}
		}
	})
}

func TestClusterInfoIsSigned(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := slices.Sorted(maps.Keys(clienttest.Find(s, client.ConfigMaps, "kube-public", "cluster-info").Data))
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		s.Set(t, secret("aaaaaa", expires(time.Hour)), secret("bbbbbb"), secret("cccccc", "usage-bootstrap-signing=no"), secret("dddddd", "token-id=eeeeee"), secret("eeeeee", "token-secret="))
		check("without a kubeconfig", "jws-kubeconfig-gone", "other")
		s.Set(t, info("kubeconfig=x", "other=y", "jws-kubeconfig-gone=z"))
		check("with one", "jws-kubeconfig-aaaaaa", "jws-kubeconfig-bbbbbb", "kubeconfig", "other")
		before := clienttest.Find(s, client.ConfigMaps, "kube-public", "cluster-info").Data["jws-kubeconfig-bbbbbb"]
		s.Set(t, info("kubeconfig=changed"))
		synctest.Wait()
		if after := clienttest.Find(s, client.ConfigMaps, "kube-public", "cluster-info").Data["jws-kubeconfig-bbbbbb"]; after == before {
			t.Error("another kubeconfig has the same signature")
		}
		time.Sleep(time.Hour + time.Second) // of the bubble
		check("after a token has expired", "jws-kubeconfig-bbbbbb", "kubeconfig")
	}, info("other=y", "jws-kubeconfig-gone=z"))
}
