package proxy_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/proxy"
)

// TestRelayReportsFailureOnceAndRecovers has no socket to be had for a while. It is said once, and what is
// missing comes by itself.
func TestRelayReportsFailureOnceAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, k := clienttest.New(t), newKernel(t)
		k.noSocket = true
		before := &cluster{t, nil, api, nil}
		before.create(service(nil), slice("http", 8080, endpoint("10.1.0.2", "rs")))
		h := start(t, api, k, proxy.Options{Userspace: true, Node: "n1"})
		said := func() (all []string) {
			synctest.Wait()
			events, _, err := client.Events.List(t.Context(), api, "default", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.InvolvedObject.Name == "web" {
					all = append(all, e.Reason+": "+e.Message)
				}
			}
			return all
		}
		time.Sleep(10 * time.Minute) // in which it is tried often
		const want = `RelayFailed: Node n1 cannot relay connections: port "http" (TCP): no descriptors; retrying`
		if got := said(); len(got) != 1 || got[0] != want {
			t.Errorf("the events are %q, want\n%s", got, want)
		}
		k.mu.Lock()
		k.noSocket = false
		k.mu.Unlock()
		time.Sleep(time.Minute)
		h.await("10.0.0.1:80/TCP → 10.1.0.1:1")
		if got := said(); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "Relayed: ") }) || len(got) != 2 {
			t.Errorf("the events are %q, want that it is relayed again", got)
		}
	})
}
