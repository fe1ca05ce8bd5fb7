package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkProbes(ctr *corev1.Container, at where) {
	c.checkProbe(ctr.LivenessProbe, at.child("livenessProbe"))
	c.checkProbe(ctr.ReadinessProbe, at.child("readinessProbe"))
	c.checkProbe(ctr.StartupProbe, at.child("startupProbe"))
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"livenessProbe", ctr.LivenessProbe}, {"startupProbe", ctr.StartupProbe}} {
		// These two stop a container, and it can't be stopped half.
		if p.probe == nil {
			continue
		}
		if p.probe.SuccessThreshold != 1 {
			c.invalid(at.child(p.name, "successThreshold"), p.probe.SuccessThreshold, "must be 1")
		}
		if g := p.probe.TerminationGracePeriodSeconds; g != nil && *g <= 0 {
			c.invalid(at.child(p.name, "terminationGracePeriodSeconds"), *g, "must be greater than 0")
		}
	}
	if p := ctr.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		c.invalid(at.child("readinessProbe", "terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
	}
}

func (c *checker) checkProbe(p *corev1.Probe, at where) {
	if p == nil {
		return
	}
	c.checkHandler(p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil, at)
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		c.add(apivalidation.ValidateNonnegativeField(int64(n.value), at.child(n.name).path)...)
	}
}

func (c *checker) checkLifecycle(l *corev1.Lifecycle, at where) {
	if l == nil {
		return
	}
	if h := l.PostStart; h != nil {
		c.checkHandler(h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, at.child("postStart"))
	}
	if h := l.PreStop; h != nil {
		c.checkHandler(h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, at.child("preStop"))
	}
	if l.StopSignal != nil {
		if c.spec.OS == nil {
			c.forbidden(at.child("stopSignal"), "may not be set for containers with empty `spec.os.name`")
		} else if known := stopSignals[c.spec.OS.Name]; known != nil && !slices.Contains(known, *l.StopSignal) {
			c.add(field.NotSupported(at.child("stopSignal").path, *l.StopSignal, known))
		}
	}
}

// stopSignals has the signals that stop a container, sorted, for each operating system.
var stopSignals = map[corev1.OSName][]corev1.Signal{
	corev1.Windows: {corev1.SIGKILL, corev1.SIGTERM},
	corev1.Linux: {
		corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE, corev1.SIGHUP,
		corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE, corev1.SIGPOLL, corev1.SIGPROF,
		corev1.SIGPWR, corev1.SIGQUIT, corev1.SIGRTMAX, corev1.SIGRTMAXMINUS1, corev1.SIGRTMAXMINUS10, corev1.SIGRTMAXMINUS11,
		corev1.SIGRTMAXMINUS12, corev1.SIGRTMAXMINUS13, corev1.SIGRTMAXMINUS14, corev1.SIGRTMAXMINUS2, corev1.SIGRTMAXMINUS3,
		corev1.SIGRTMAXMINUS4, corev1.SIGRTMAXMINUS5, corev1.SIGRTMAXMINUS6, corev1.SIGRTMAXMINUS7, corev1.SIGRTMAXMINUS8,
		corev1.SIGRTMAXMINUS9, corev1.SIGRTMIN, corev1.SIGRTMINPLUS1, corev1.SIGRTMINPLUS10, corev1.SIGRTMINPLUS11,
		corev1.SIGRTMINPLUS12, corev1.SIGRTMINPLUS13, corev1.SIGRTMINPLUS14, corev1.SIGRTMINPLUS15, corev1.SIGRTMINPLUS2,
		corev1.SIGRTMINPLUS3, corev1.SIGRTMINPLUS4, corev1.SIGRTMINPLUS5, corev1.SIGRTMINPLUS6, corev1.SIGRTMINPLUS7,
		corev1.SIGRTMINPLUS8, corev1.SIGRTMINPLUS9, corev1.SIGSEGV, corev1.SIGSTKFLT, corev1.SIGSTOP, corev1.SIGSYS, corev1.SIGTERM,
		corev1.SIGTRAP, corev1.SIGTSTP, corev1.SIGTTIN, corev1.SIGTTOU, corev1.SIGURG, corev1.SIGUSR1, corev1.SIGUSR2,
		corev1.SIGVTALRM, corev1.SIGWINCH, corev1.SIGXCPU, corev1.SIGXFSZ,
	},
}

// checkHandler checks that exactly one thing is to be done, and that thing.
func (c *checker) checkHandler(exec *corev1.ExecAction, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction, grpc *corev1.GRPCAction, sleep *corev1.SleepAction, at where) {
	n := 0
	one := func(name string, set bool, check func(at where)) {
		if !set {
			return
		}
		if n++; n > 1 {
			c.forbidden(at.child(name), "may not specify more than 1 handler type")
			return
		}
		check(at.child(name))
	}
	one("exec", exec != nil, func(at where) {
		if len(exec.Command) == 0 {
			c.required(at.child("command"))
		}
	})
	one("httpGet", get != nil, func(at where) { c.checkHTTPGet(get, at) })
	one("tcpSocket", tcp != nil, func(at where) { c.checkPort(tcp.Port, at.child("port")) })
	one("grpc", grpc != nil, func(at where) {
		c.each(at.child("port"), grpc.Port, validation.IsValidPortNum(int(grpc.Port)))
	})
	one("sleep", sleep != nil, func(at where) {
		grace := c.spec.TerminationGracePeriodSeconds
		if sleep.Seconds < 0 || grace != nil && sleep.Seconds > *grace {
			c.invalid(at.child("seconds"), sleep.Seconds, "must be non-negative and less than terminationGracePeriodSeconds")
		}
	})
	if n == 0 {
		c.add(field.Required(at.path, "must specify a handler type"))
	}
}

func (c *checker) checkHTTPGet(get *corev1.HTTPGetAction, at where) {
	if get.Path == "" {
		c.required(at.child("path"))
	}
	c.checkPort(get.Port, at.child("port"))
	requiredOf(&c.report, at.child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	for i, h := range get.HTTPHeaders {
		c.each(at.child("httpHeaders").index(i).child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))
	}
}

func (c *checker) checkPort(port intstr.IntOrString, at where) {
	switch port.Type {
	case intstr.Int:
		c.each(at, port.IntVal, validation.IsValidPortNum(int(port.IntVal)))
	case intstr.String:
		c.each(at, port.StrVal, validation.IsValidPortName(port.StrVal))
	default:
		c.add(field.InternalError(at.path, fmt.Errorf("unknown type: %v", port.Type)))
	}
}
