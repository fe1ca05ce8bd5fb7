package proxy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sampan-io/sampan/internal/names"
)

// Annotations of a Service that this proxy heeds.
const (
	// ModeAnnotation is "userspace" or "kernel"; without it the mode of the proxy holds.
	ModeAnnotation = names.ProxyMode

	// ProxyProtocolAnnotation is "v1" or "v2": connections of TCP begin with that header.
	ProxyProtocolAnnotation = names.ProxyProtocol

	// KeepClientAnnotation is "true" if connections come from the address of the client.
	KeepClientAnnotation = names.KeepClientAddress

	// MaxConnectionsAnnotation is how many connections of TCP there are at a time, to all ports
	// together.
	MaxConnectionsAnnotation = names.MaxConnections
)

// wishes are what annotations ask for.
type wishes struct {
	userspace      bool
	proxyProtocol  int
	transparent    bool
	maxConnections int
}

func (p *planner) fault(reason, format string, args ...any) {
	f := Fault{Reason: reason, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(p.plan.Faults, f) {
		p.plan.Faults = append(p.plan.Faults, f)
	}
}

// readAnnotations returns what the annotations ask for. One that makes no sense is a
// fault, and as if it were not there. All but the mode need the userspace forwarder, and so
// choose it unless the mode says otherwise.
func (p *planner) readAnnotations() wishes {
	w := wishes{userspace: p.here.Userspace}
	wrong := func(name, want string) {
		p.fault("InvalidAnnotation", "annotation %s: %q is no value of it, want %s; it is ignored", name, p.svc.Annotations[name], want)
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
			wrong(MaxConnectionsAnnotation, "a number from 1 on")
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
