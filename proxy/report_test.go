package proxy_test

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/applied"
)

// TestAppliedRevisionIsReported changes endpoints, and reads the Lease. Changes without a
// terminating pod are not reported.
func TestAppliedRevisionIsReported(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	api := clienttest.New(t, node)
	if _, err := client.Services.Create(t.Context(), api, service(nil)); err != nil {
		t.Fatal(err)
	}
	stored, err := client.EndpointSlices.Create(t.Context(), api, slice("http", 8080, endpoint("10.1.0.2", "rs"), endpoint("10.1.0.3", "rs")))
	if err != nil {
		t.Fatal(err)
	}
	start(t, api, newKernel(t), proxy.Options{Node: "n1"})

	told := func(want uint64) {
		t.Helper()
		api.Await(t, func() error {
			l := clienttest.Find(api, client.Leases, applied.Namespace, applied.Name("n1"))
			if l == nil {
				return fmt.Errorf("there is no lease")
			}
			if l.Labels[applied.Label] != "true" || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].Name != "n1" {
				t.Fatalf("the lease is %+v", l.ObjectMeta)
			}
			if got := applied.Revision(l); got != want {
				return fmt.Errorf("revision %d is told, want %d", got, want)
			}
			return nil
		})
	}
	change := func(es ...discoveryv1.Endpoint) uint64 {
		t.Helper()
		next := stored.DeepCopy()
		next.Endpoints = es
		if stored, err = client.EndpointSlices.Update(t.Context(), api, next, ""); err != nil {
			t.Fatal(err)
		}
		revision, err := strconv.ParseUint(stored.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	told(0)
	api.Writes()
	change(endpoint("10.1.0.2", "rs"))
	told(change(endpoint("10.1.0.2", "rs"), endpoint("10.1.0.3", "st")))
	told(change(endpoint("10.1.0.2", "rs"), endpoint("10.1.0.3", "st"), endpoint("10.1.0.4", "")))
	change(endpoint("10.1.0.2", "rs"), endpoint("10.1.0.4", ""))
	change(endpoint("10.1.0.2", "rs"), endpoint("10.1.0.4", "rs"))
	told(change(endpoint("10.1.0.2", "rs"), endpoint("10.1.0.4", "st")))
	leases := 0
	for _, w := range api.Writes() {
		if w.Resource == "leases" {
			leases++
		}
	}
	if leases != 3 {
		t.Errorf("the lease was written %d times, want once for each change that somebody waits for: 3", leases)
	}
}
