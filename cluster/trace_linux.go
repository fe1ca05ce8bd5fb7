//go:build !portable

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/proxy/trace/probe"
)

// podNetworks are the networks of pods, as reported by the container runtime.
type podNetworks struct{ runtime cri.RuntimeServiceClient }

func (c *cluster) podNetworks() (podNetworks, error) {
	conn, err := criclient.Dial(c.runtimeEndpoint()) // it connects when it is used
	if err != nil {
		return podNetworks{}, err
	}
	return podNetworks{cri.NewRuntimeServiceClient(conn.Conn())}, nil
}

// restorer returns the function that restores the rules of the pod network. Those of other runtimes are the business of their
// CNI plug-ins.
func (c *cluster) restorer(n podNetworks) func(context.Context) error {
	if c.foreign() {
		return func(context.Context) error { return nil }
	}
	return n.restore
}

// restore has the runtime restore the rules of its network.
func (n podNetworks) restore(ctx context.Context) error {
	_, err := n.runtime.UpdateRuntimeConfig(ctx, &cri.UpdateRuntimeConfigRequest{RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{}}})
	return err
}

// networkNamespace returns the path of a network namespace from the details of a sandbox: Sampan's runtime has it as netns;
// containerd and CRI-O have an OCI specification in a JSON text.
func networkNamespace(info map[string]string) string {
	if path := info["netns"]; path != "" {
		return path
	}
	var details struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if json.Unmarshal([]byte(info["info"]), &details) != nil {
		return ""
	}
	for _, ns := range details.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			return ns.Path
		}
	}
	return ""
}

// of returns the network of a pod that runs.
func (n podNetworks) of(ctx context.Context, name types.NamespacedName) (probe.Pod, error) {
	list, err := n.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{crispec.PodNamespace: name.Namespace, crispec.PodName: name.Name},
	}})
	if err != nil {
		return probe.Pod{}, fmt.Errorf("getting pod %s from the container runtime: %w", name, err)
	}
	if len(list.GetItems()) == 0 {
		return probe.Pod{}, fmt.Errorf("pod %s is not running on this node", name)
	}
	res, err := n.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: list.GetItems()[0].GetId(), Verbose: true})
	if err != nil {
		return probe.Pod{}, fmt.Errorf("getting pod %s from the container runtime: %w", name, err)
	}
	s := res.GetStatus()
	p := probe.Pod{Namespace: networkNamespace(res.GetInfo())}
	if s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_NODE {
		p.Namespace = ""
		return p, nil
	}
	if p.Namespace == "" {
		return probe.Pod{}, errors.New("the container runtime does not report the network namespace of the pod")
	}
	ips := []string{s.GetNetwork().GetIp()}
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			p.Addresses = append(p.Addresses, a)
		}
	}
	return p, nil
}
