package trace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// A Target is the subject of a trace: a Service, or an address.
type Target struct {
	Namespace string // "" unless it is part of the name, as in NAME.NAMESPACE.svc
	Name      string // "" for an address
	Address   netip.Addr

	Port     string          // a number or name, or "" for every port
	Protocol corev1.Protocol // "" for all
}

const wanted = "want NAME, NAME:PORT, IP:PORT or NODEIP:NODEPORT, with /UDP or /SCTP behind it where one port has several protocols"

// Parse parses NAME, NAME:PORT, IP or IP:PORT, each optionally with /PROTOCOL. Ports of a name may
// be names. A name may be a DNS name, and may begin with "service/".
func Parse(text string) (Target, error) {
	wrong := func(format string, args ...any) (Target, error) {
		return Target{}, fmt.Errorf("cannot trace %q: %s; %s", text, fmt.Sprintf(format, args...), wanted)
	}
	rest := text
	for _, kind := range []string{"service/", "services/", "svc/"} {
		rest = strings.TrimPrefix(rest, kind)
	}
	var t Target
	rest, protocol, has := strings.Cut(rest, "/")
	if has {
		switch t.Protocol = corev1.Protocol(strings.ToUpper(protocol)); t.Protocol {
		case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			return wrong("want SERVICE/PROTOCOL with a protocol of TCP, UDP or SCTP, got %q/%q", rest, protocol)
		}
	}
	if rest == "" {
		return wrong("it has no name")
	}
	if a, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		t.Address = a
		return t, nil
	}
	if at, err := netip.ParseAddrPort(rest); err == nil {
		if at.Port() == 0 {
			return wrong("the port is 0, want 1 to 65535")
		}
		t.Address, t.Port = at.Addr(), strconv.Itoa(int(at.Port()))
		return t, nil
	}
	name, port, has := strings.Cut(rest, ":")
	if has {
		switch n, err := strconv.ParseUint(port, 10, 64); {
		case strings.Trim(port, "0123456789") == "" && (err != nil || n == 0 || n > 65535):
			return wrong("port %s, want 1 to 65535", port)
		case err != nil && len(content.IsDNS1123Label(port)) > 0:
			return wrong("%q is neither the number nor the name of a port", port)
		}
		t.Port = port
	}
	if looksLikeAddress(name) {
		return wrong("%q is not a valid address", name)
	}
	parts := strings.Split(strings.TrimSuffix(name, "."), ".")
	for i, p := range parts {
		if len(content.IsDNS1123Label(p)) > 0 {
			return wrong("%q is neither an address nor the name of a Service", name)
		}
		if i == 2 && p != "svc" {
			return wrong("a name with dots must be NAME.NAMESPACE.svc")
		}
	}
	if t.Name = parts[0]; len(parts) > 1 {
		t.Namespace = parts[1]
	}
	return t, nil
}

// looksLikeAddress reports whether an invalid name was probably meant to be an address.
func looksLikeAddress(s string) bool {
	return s != "" && strings.Trim(s, "0123456789.") == "" && strings.Contains(s, ".")
}

// String returns the target in the format of Parse.
func (t Target) String() string {
	s := t.Name
	if t.Namespace != "" {
		s += "." + t.Namespace
	}
	if t.Name == "" {
		s = t.Address.String()
		if t.Port != "" && t.Address.Is6() {
			s = "[" + s + "]"
		}
	}
	if t.Port != "" {
		s += ":" + t.Port
	}
	if t.Protocol != "" {
		s += "/" + string(t.Protocol)
	}
	return s
}

// number returns the port as a number, or 0 if it is not one.
func (t Target) number() int32 {
	n, err := strconv.ParseUint(t.Port, 10, 16)
	if err != nil {
		return 0
	}
	return int32(n)
}
