package runtime

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/sampan-io/sampan/runtime/cni"
	"github.com/sampan-io/sampan/runtime/network"
)

// cniPod returns what plug-ins learn about a pod.
func cniPod(r *podRecord, p *pod) cni.Pod {
	m := p.config.GetMetadata()
	out := cni.Pod{ID: r.ID, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(), NetNS: r.Pins.Net, Annotations: p.config.GetAnnotations()}
	for _, port := range p.config.GetPortMappings() {
		if port.GetHostPort() > 0 {
			out.Ports = append(out.Ports, cni.Port{
				HostPort: port.GetHostPort(), ContainerPort: port.GetContainerPort(), Protocol: strings.ToLower(port.GetProtocol().String()), HostIP: port.GetHostIp(),
			})
		}
	}
	if b, err := network.BandwidthOf(out.Annotations); err == nil { // checked when the pod was made
		out.Bandwidth = cni.Bandwidth{IngressRate: b.Ingress, EgressRate: b.Egress}
	}
	return out
}

// attachCNI attaches a pod and records its addresses. Plug-ins are children of this process, so it must not reap others meanwhile.
func (s *Server) attachCNI(ctx context.Context, p *pod) (addresses []netip.Addr, err error) {
	r := p.snapshot()
	err = s.supervisor.Spawning(func() error {
		addresses, err = s.cni.Attach(ctx, cniPod(&r, p))
		return err
	})
	if err != nil {
		return nil, err
	}
	return addresses, p.update(func(r *podRecord) { r.Address, r.Others = addresses[0], addresses[1:] })
}

func (s *Server) detachCNI(ctx context.Context, r *podRecord, p *pod) error {
	if s.cni == nil {
		return errors.New("the pod was connected by CNI plug-ins, and this runtime has none: start it with --cni-conf-dir to stop the pod")
	}
	return s.supervisor.Spawning(func() error { return s.cni.Detach(ctx, cniPod(r, p)) })
}

// settleCNI detaches pods that were lost with the machine. It is called before anything is served.
func (s *Server) settleCNI() {
	_ = s.supervisor.Spawning(func() error {
		s.cni.Settle(context.Background(), func(id string) bool { //nolint:forbidigo // it has a limit of its own
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.pods[id] != nil
		})
		return nil
	})
}
