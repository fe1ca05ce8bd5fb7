package plugin

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

const anyIP = "0.0.0.0"

// A HostPort is a port of the node that a pod wants for itself.
type HostPort struct {
	IP       string // "0.0.0.0" means every address
	Protocol corev1.Protocol
	Port     int32
}

// String returns the port as "80/TCP", with the address if there is one.
func (h HostPort) String() string {
	s := strconv.Itoa(int(h.Port)) + "/" + string(h.Protocol)
	if h.IP != anyIP {
		return h.IP + ":" + s
	}
	return s
}

// Collides reports whether two pods cannot both have their port.
func (h HostPort) Collides(other HostPort) bool {
	return h.Port == other.Port && h.Protocol == other.Protocol &&
		(h.IP == other.IP || h.IP == anyIP || other.IP == anyIP)
}

// A PortSet finds out whether ports collide with any of many.
type PortSet struct {
	few []HostPort // all, if they are few
	at  map[HostPort]bool
	// Of each protocol and port: the set has it on some address, and on all addresses.
	some, all map[HostPort]bool
}

// fewPorts is how many ports are compared one by one.
const fewPorts = 16

// NewPortSet returns the set of the ports, which must not change as long as it is in use.
func NewPortSet(ports []HostPort) PortSet {
	if len(ports) <= fewPorts {
		return PortSet{few: ports}
	}
	s := PortSet{at: make(map[HostPort]bool, len(ports)), some: make(map[HostPort]bool, len(ports)), all: map[HostPort]bool{}}
	for _, h := range ports {
		s.at[h], s.some[h.anywhere()] = true, true
		if h.IP == anyIP {
			s.all[h.anywhere()] = true
		}
	}
	return s
}

// anywhere returns the port without its address.
func (h HostPort) anywhere() HostPort { return HostPort{Protocol: h.Protocol, Port: h.Port} }

// Collides reports whether one of the ports collides with one of the set. It does not allocate.
func (s *PortSet) Collides(ports []HostPort) bool {
	for _, h := range ports {
		if s.at != nil && (s.at[h] || s.all[h.anywhere()] || h.IP == anyIP && s.some[h.anywhere()]) {
			return true
		}
		for _, other := range s.few {
			if h.Collides(other) {
				return true
			}
		}
	}
	return false
}

// without returns the ports with those of a pod taken out, each once. It changes the slice.
func without(ports, of []HostPort) []HostPort {
	if len(of) == 0 {
		return ports
	}
	gone := make(map[HostPort]int, len(of))
	for _, h := range of {
		gone[h]++
	}
	return slices.DeleteFunc(ports, func(h HostPort) bool {
		if gone[h] == 0 {
			return false
		}
		gone[h]--
		return true
	})
}
