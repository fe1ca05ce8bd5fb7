package tokens

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

type signer struct{}

func (signer) SignLegacy(namespace, account string, uid types.UID, secret string) (string, error) {
	return strings.Join([]string{namespace, account, string(uid), secret}, " "), nil
}

type roots struct {
	pem     string
	changed func()
}

func (r *roots) CertificatePEM() []byte { return []byte(r.pem) }
func (r *roots) OnChange(f func())      { r.changed = f }

func controlling(t *testing.T, ca *roots, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
		return Tasks(Options{Config: controller.Config{Client: c, Caches: caches}, Cleaner: c, Signer: signer{}, Roots: ca})
	}
	controllertest.Controlling(t, tasks, f, objs...)
}

func account(name string, secrets ...string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name, UID: types.UID(name + "-1")}}
	for _, s := range secrets {
		a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: s})
	}
	return a
}

func secret(name, account string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name, UID: types.UID(name), Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
}

func find(s *clienttest.Server, name string) *corev1.Secret {
	return clienttest.Find(s, client.Secrets, "ship", name)
}

func TestSecretsGetTokens(t *testing.T) {
	ca := &roots{pem: "first"}
	controlling(t, ca, func(t *testing.T, s *clienttest.Server) {
		opaque := secret("opaque", "cook")
		opaque.Type = corev1.SecretTypeOpaque
		s.Set(t, secret("token", "cook"), opaque, secret("of-nobody", "nobody"))
		synctest.Wait()
		got := find(s, "token")
		if string(got.Data["token"]) != "ship cook cook-1 token" || string(got.Data["namespace"]) != "ship" || string(got.Data["ca.crt"]) != "first" || got.Annotations[corev1.ServiceAccountUIDKey] != "cook-1" {
			t.Errorf("the secret has %q, %v", got.Data, got.Annotations)
		}
		if got := find(s, "opaque"); got == nil || len(got.Data) > 0 {
			t.Errorf("a secret of another type is %v", got)
		}
		if find(s, "of-nobody") != nil {
			t.Error("the token of an account that does not exist is left")
		}
		ca.pem = "second"
		ca.changed()
		synctest.Wait()
		if got := find(s, "token"); string(got.Data["ca.crt"]) != "second" || string(got.Data["token"]) != "ship cook cook-1 token" {
			t.Errorf("after the authority has changed: %q", got.Data)
		}
	}, account("cook"))
}

func TestTokensEndWithTheirAccount(t *testing.T) {
	controlling(t, &roots{pem: "x"}, func(t *testing.T, s *clienttest.Server) {
		if find(s, "token") == nil {
			t.Fatal("no token")
		}
		if err := client.ServiceAccounts.Delete(t.Context(), s, "ship", "cook", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if find(s, "token") != nil {
			t.Error("the token is left without its account")
		}
	}, account("cook"), secret("token", "cook"))
}

func TestReferencesEndWithTheirSecret(t *testing.T) {
	controlling(t, &roots{pem: "x"}, func(t *testing.T, s *clienttest.Server) {
		if err := client.Secrets.Delete(t.Context(), s, "ship", "token", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a := clienttest.Find(s, client.ServiceAccounts, "ship", "cook")
		if len(a.Secrets) != 1 || a.Secrets[0].Name != "other" {
			t.Errorf("the account refers to %v", a.Secrets)
		}
	}, account("cook", "token", "other"), secret("token", "cook"))
}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, since, created, used, marked string
		want                               fate
	}{
		{"recorded for a short time", "2026-01-01", "2020-01-01", "", "", keep{time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)}},
		{"new", "2020-01-01", "2026-01-01", "", "", keep{time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"used", "2020-01-01", "2020-01-01", "2025-06-01", "", keep{time.Date(2026, 6, 2, 0, 0, 0, 0, time.UTC)}},
		{"used long ago", "2020-01-01", "2020-01-01", "2025-05-31", "", invalidate{}},
		{"never used", "2020-01-01", "2020-01-01", "", "", invalidate{}},
		{"used at no time", "2020-01-01", "2020-01-01", "x", "", keep{}},
		{"marked with no time", "2020-01-01", "2020-01-01", "", "x", invalidate{}},
		{"marked", "2020-01-01", "2020-01-01", "", "2026-05-01", keep{time.Date(2027, 5, 2, 0, 0, 0, 0, time.UTC)}},
		{"marked long ago", "2020-01-01", "2020-01-01", "", "2025-05-31", remove{}},
		{"used after it was marked", "2020-01-01", "2020-01-01", "2026-05-01", "2020-05-31", keep{time.Date(2027, 5, 2, 0, 0, 0, 0, time.UTC)}},
		{"not recorded", "", "2020-01-01", "", "", keep{}},
	} {
		created, err := time.Parse(time.DateOnly, tt.created)
		if err != nil {
			t.Fatal(err)
		}
		s := secret("s", "cook")
		s.CreationTimestamp, s.Labels = metav1.NewTime(created), map[string]string{}
		if tt.used != "" {
			s.Labels[lastUsedLabel] = tt.used
		}
		if tt.marked != "" {
			s.Labels[invalidSinceLabel] = tt.marked
		}
		if got := decide(s, tt.since, now); got != tt.want {
			t.Errorf("%s: %#v, want %#v", tt.name, got, tt.want)
		}
	}
}

// TestUnusedTokensAreCleanedUp lets years pass.
func TestUnusedTokensAreCleanedUp(t *testing.T) {
	controlling(t, &roots{pem: "x"}, func(t *testing.T, s *clienttest.Server) {
		now := time.Now()
		mounted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "p"}}
		mounted.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mounted"}}}}
		for _, name := range []string{"auto", "manual", "mounted"} {
			one := secret(name, "cook")
			one.CreationTimestamp = metav1.NewTime(now)
			s.Set(t, one)
		}
		s.Set(t, mounted, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: trackingName}, Data: map[string]string{"since": now.Format(time.DateOnly)}})
		time.Sleep(cleanUpPeriod - day) // of the bubble
		synctest.Wait()
		if find(s, "auto").Labels[invalidSinceLabel] != "" {
			t.Error("marked too early")
		}
		time.Sleep(3 * day)
		synctest.Wait()
		if find(s, "auto").Labels[invalidSinceLabel] == "" || find(s, "manual").Labels[invalidSinceLabel] != "" || find(s, "mounted").Labels[invalidSinceLabel] != "" {
			t.Error("want the token to be marked that was made automatically and is not mounted, and no other")
		}
		time.Sleep(cleanUpPeriod + 2*day)
		synctest.Wait()
		if find(s, "auto") != nil || find(s, "manual") == nil || find(s, "mounted") == nil {
			t.Error("want the marked token to be deleted, and no other")
		}
	}, account("cook", "auto", "mounted"))
}
