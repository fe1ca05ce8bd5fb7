package runtime

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/network"
)

// hostPorts returns the ports of the host that are to lead to a pod, or every fault in what is asked for. A mapping
// without a port of the host is only information; one without an address of the host, or with an
// empty one, is for all addresses of both IP families.
func hostPorts(c *cri.PodSandboxConfig) ([]network.HostPort, error) {
	var ports []network.HostPort
	var faults []string
	for i, m := range c.GetPortMappings() {
		if m.GetHostPort() == 0 {
			continue
		}
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("port_mappings[%d].%s", i, fmt.Sprintf(format, args...)))
		}
		protocol, known := map[cri.Protocol]uint8{
			cri.Protocol_TCP: unix.IPPROTO_TCP, cri.Protocol_UDP: unix.IPPROTO_UDP, cri.Protocol_SCTP: unix.IPPROTO_SCTP,
		}[m.GetProtocol()]
		if !known {
			fault("protocol: want TCP, UDP or SCTP, got %v", m.GetProtocol())
		}
		for j, p := range []int32{m.GetHostPort(), m.GetContainerPort()} {
			if p < 1 || p > math.MaxUint16 {
				fault("%s: want a port from 1 to %d, got %d", []string{"host_port", "container_port"}[j], math.MaxUint16, p)
			}
		}
		hosts := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		if ip := m.GetHostIp(); ip != "" {
			a, err := netip.ParseAddr(ip)
			if err != nil || a.Zone() != "" {
				fault("host_ip: want an IP address, got %q", ip)
			}
			hosts = []netip.Addr{a.Unmap()}
		}
		for _, a := range hosts {
			ports = append(ports, network.HostPort{
				Protocol: protocol, Host: netip.AddrPortFrom(a, uint16(m.GetHostPort())), Pod: uint16(m.GetContainerPort()),
			})
		}
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	return ports, nil
}

// portsBefore returns the host ports of TCP, at whatever address of the host, of the pods of an earlier server. There may be
// rules for them before the pods are adopted. Records that can't be read are left to adoptPods.
func (s *Server) portsBefore() map[uint16]bool {
	all := map[uint16]bool{}
	entries, _ := os.ReadDir(s.podDir(""))
	for _, e := range entries {
		p, err := s.loadPod(e.Name())
		if err != nil || p.record.HostNet {
			continue
		}
		ports, _ := hostPorts(p.config) // checked when it was made
		for _, port := range ports {
			if port.Protocol == unix.IPPROTO_TCP {
				all[port.Host.Port()] = true
			}
		}
	}
	return all
}

// named adds to a TakenError the name of the pod that has the port, and to an OwnError its code.
func (s *Server) named(err error) error {
	if own, ok := errors.AsType[*network.OwnError](err); ok {
		return status.Error(codes.FailedPrecondition, own.Error())
	}
	taken, ok := errors.AsType[*network.TakenError](err)
	if !ok {
		return err
	}
	by := "sandbox " + taken.Pod
	if p, err := s.findPod(taken.Pod); err == nil {
		m := p.config.GetMetadata()
		by = fmt.Sprintf("pod %s/%s (sandbox %s)", m.GetNamespace(), m.GetName(), taken.Pod)
	}
	return status.Errorf(codes.FailedPrecondition, "host port %v is already used by %s", taken.Port, by)
}
