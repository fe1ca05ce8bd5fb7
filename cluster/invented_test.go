package cluster

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/cluster/local"
)

// storedNodes are the stored nodes.
type storedNodes []catalog.Object

func (storedNodes) Get(context.Context, schema.GroupVersionResource, string, string) (catalog.Object, error) {
	return nil, nil
}

func (n storedNodes) List(context.Context, schema.GroupVersionResource, string, fields.Set) ([]catalog.Object, error) {
	return n, nil
}

func TestInventedAddressesAreRefused(t *testing.T) {
	node := func(name, runtime, pods string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{pods}},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{ContainerRuntimeVersion: runtime}},
		}
	}
	stored := storedNodes{node("sim", "simulated://1", "10.244.0.0/24"), node("kubelet", "containerd://2.1.4", "10.244.9.0/24")}
	settings := local.Settings{Networks: local.Networks{Pods: pair("10.244.0.0/16")}}
	if c := (&cluster{Options: Options{Settings: settings}}); c.inventedAddresses(stored) != nil {
		t.Error("a cluster without simulated nodes refuses addresses")
	}
	settings.SimulatedNodes = 1
	refuse := (&cluster{Options: Options{Settings: settings}}).inventedAddresses(stored)
	for address, refused := range map[string]bool{
		"10.244.0.5": true,  // a simulated pod
		"10.244.7.5": true,  // no node has it
		"10.244.9.5": false, // a pod of a kubelet
		"192.0.2.1":  false, // no pod
	} {
		err := refuse(t.Context(), netip.MustParseAddr(address))
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), address+" is the address of a pod on a simulated node") {
			t.Errorf("%s: %v, want refused=%t", address, err, refused)
		}
	}
}
