package proxy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sampan-io/sampan/internal/names"
)

// Annotations of a Service that this proxy obeys.
const (
	// ModeAnnotation is "userspace" or "kernel"; the default is the mode of the proxy.
	ModeAnnotation = names.ProxyMode

	// ProxyProtocolAnnotation is "v1" or "v2": the version of the PROXY protocol header on TCP
	// connections to backends.
	ProxyProtocolAnnotation = names.ProxyProtocol

	// KeepClientAnnotation is "true" if connections to backends come from the address of the
	// client.
	KeepClientAnnotation = names.KeepClientAddress

	// MaxConnectionsAnnotation is the largest number of TCP connections at a time to all ports
	// together.
	MaxConnectionsAnnotation = names.MaxConnections
)

// wishes are the values of a Service's annotations.
type wishes struct {
	userspace      bool
	proxyProtocol  int
	transparent    bool
	maxConnections int
}

// mostFaults bounds the faults of one Service: each is a line in the log and an event.
const mostFaults = 10

func (p *planner) fault(reason, format string, args ...any) {
	if len(p.plan.Faults) == mostFaults {
		return
	}
	f := Fault{Reason: reason, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(p.plan.Faults, f) {
		p.plan.Faults = append(p.plan.Faults, f)
	}
}

// readAnnotations returns the values of the annotations. An invalid one is a fault, and ignored.
// All but the mode need the userspace forwarder, and so select it unless the mode is set.
func (p *planner) readAnnotations() wishes {
	w := wishes{userspace: p.here.Userspace}
	wrong := func(name, want string) {
		p.fault("InvalidAnnotation", "annotation %s: must be %s, got %q; it is ignored", name, want, p.svc.Annotations[name])
	}
	var needs []string
	if v, ok := p.svc.Annotations[ProxyProtocolAnnotation]; ok {
		switch v {
		case "v1":
			w.proxyProtocol, needs = 1, append(needs, ProxyProtocolAnnotation)
		case "v2":
			w.proxyProtocol, needs = 2, append(needs, ProxyProtocolAnnotation)
		default:
			wrong(ProxyProtocolAnnotation, `"v1" or "v2"`)
		}
	}
	if v, ok := p.svc.Annotations[KeepClientAnnotation]; ok {
		switch v {
		case "true":
			w.transparent, needs = true, append(needs, KeepClientAnnotation)
		case "false":
		default:
			wrong(KeepClientAnnotation, `"true" or "false"`)
		}
	}
	if v, ok := p.svc.Annotations[MaxConnectionsAnnotation]; ok {
		if n, err := strconv.ParseUint(v, 10, 31); err == nil && n > 0 {
			w.maxConnections, needs = int(n), append(needs, MaxConnectionsAnnotation)
		} else {
			wrong(MaxConnectionsAnnotation, "a number >= 1")
		}
	}
	switch v, ok := p.svc.Annotations[ModeAnnotation]; {
	case ok && v == "userspace":
		w.userspace = true
	case ok && v == "kernel":
		for _, name := range needs {
			p.fault("InvalidAnnotation", "annotation %s needs %s=userspace, and that is %q; it is ignored", name, ModeAnnotation, v)
		}
		return wishes{}
	case ok:
		wrong(ModeAnnotation, `"userspace" or "kernel"`)
		fallthrough
	default:
		w.userspace = w.userspace || len(needs) > 0
	}
	return w
}
