package bootstrap_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/bootstrap"
	"github.com/sampan-io/sampan/internal/run"
)

// untilData waits until a ConfigMap of kube-system has a value.
func (s *fixture) untilData(name, key, want string) *corev1.ConfigMap {
	s.Helper()
	opts := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	for event, err := range s.api.Watch(s.Context(), resource("configmaps"), "kube-system", opts) {
		if err != nil {
			s.Fatal(err)
		}
		if c, ok := event.Object.(*corev1.ConfigMap); ok && c.Data[key] == want {
			return c
		}
	}
	s.Fatalf("%s has no %s=%s", name, key, want)
	return nil
}

// TestAuthenticationIsPublished checks that the ConfigMap follows the option, and that other clients cannot change it.
func TestAuthenticationIsPublished(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	var ca atomic.Value
	ca.Store("first")
	k, err := bootstrap.New(bootstrap.Options{
		API: s.api, ServiceNetworks: prefixes("10.1.0.0/16"), Port: 6443,
		Authentication: func() map[string]string { return map[string]string{"client-ca-file": ca.Load().(string)} },
	})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { _ = k.Run(ctx) })
	const name = "extension-apiserver-authentication"
	found := s.untilData(name, "client-ca-file", "first").DeepCopy()
	found.Data = map[string]string{"client-ca-file": "forged", "other": "x"}
	if _, err := s.api.Update(t.Context(), resource("configmaps"), "kube-system", name, found, metav1.UpdateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	if c := s.untilData(name, "client-ca-file", "first"); c.Data["other"] != "x" {
		t.Errorf("another key was removed: %v", c.Data)
	}
	ca.Store("second")
	k.Refresh()
	s.untilData(name, "client-ca-file", "second")
	if err := s.api.Delete(t.Context(), resource("configmaps"), "kube-system", name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.untilData(name, "client-ca-file", "second")
}

func TestTokenTrackingBegins(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	s.keep("10.1.0.0/16")
	const name = "kube-apiserver-legacy-service-account-token-tracking"
	today := time.Now().UTC().Format(time.DateOnly)
	found, err := s.api.Get(t.Context(), resource("configmaps"), "kube-system", name, "")
	if err != nil {
		t.Fatal(err)
	}
	c := found.(*corev1.ConfigMap).DeepCopy()
	for _, tt := range []struct{ since, want string }{{"2020-01-01", "2020-01-01"}, {"x", today}} {
		c.Data["since"], c.ResourceVersion = tt.since, ""
		if _, err := s.api.Update(t.Context(), resource("configmaps"), "kube-system", name, c, metav1.UpdateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
		s.untilData(name, "since", tt.want)
	}
}
