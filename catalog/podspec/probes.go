package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkProbes(ctr *corev1.Container, at *field.Path) {
	c.checkProbe(ctr.LivenessProbe, at.Child("livenessProbe"))
	c.checkProbe(ctr.ReadinessProbe, at.Child("readinessProbe"))
	c.checkProbe(ctr.StartupProbe, at.Child("startupProbe"))
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"livenessProbe", ctr.LivenessProbe}, {"startupProbe", ctr.StartupProbe}} {
		// These two stop a container, and it can't be stopped half.
		if p.probe == nil {
			continue
		}
		if p.probe.SuccessThreshold != 1 {
			c.invalid(at.Child(p.name, "successThreshold"), p.probe.SuccessThreshold, "must be 1")
		}
		if g := p.probe.TerminationGracePeriodSeconds; g != nil && *g <= 0 {
			c.invalid(at.Child(p.name, "terminationGracePeriodSeconds"), *g, "must be greater than 0")
		}
	}
	if p := ctr.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		c.invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
	}
}

func (c *checker) checkProbe(p *corev1.Probe, at *field.Path) {
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
		c.add(apivalidation.ValidateNonnegativeField(int64(n.value), at.Child(n.name))...)
	}
}

func (c *checker) checkLifecycle(l *corev1.Lifecycle, at *field.Path) {
	if l == nil {
		return
	}
	if h := l.PostStart; h != nil {
		c.checkHandler(h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, at.Child("postStart"))
	}
	if h := l.PreStop; h != nil {
		c.checkHandler(h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, at.Child("preStop"))
	}
	if l.StopSignal != nil {
		if c.spec.OS == nil {
			c.forbidden(at.Child("stopSignal"), "may not be set for containers with empty `spec.os.name`")
		} else if c.spec.OS.Name == corev1.Windows && *l.StopSignal != corev1.SIGTERM && *l.StopSignal != corev1.SIGKILL {
			c.add(field.NotSupported(at.Child("stopSignal"), *l.StopSignal, []corev1.Signal{corev1.SIGKILL, corev1.SIGTERM}))
		}
	}
}

// checkHandler checks that exactly one thing is to be done, and that thing.
func (c *checker) checkHandler(exec *corev1.ExecAction, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction, grpc *corev1.GRPCAction, sleep *corev1.SleepAction, at *field.Path) {
	n := 0
	one := func(name string, set bool, check func(at *field.Path)) {
		if !set {
			return
		}
		if n++; n > 1 {
			c.forbidden(at.Child(name), "may not specify more than 1 handler type")
			return
		}
		check(at.Child(name))
	}
	one("exec", exec != nil, func(at *field.Path) {
		if len(exec.Command) == 0 {
			c.required(at.Child("command"))
		}
	})
	one("httpGet", get != nil, func(at *field.Path) { c.checkHTTPGet(get, at) })
	one("tcpSocket", tcp != nil, func(at *field.Path) { c.checkPort(tcp.Port, at.Child("port")) })
	one("grpc", grpc != nil, func(at *field.Path) {
		c.each(at.Child("port"), grpc.Port, validation.IsValidPortNum(int(grpc.Port)))
	})
	one("sleep", sleep != nil, func(at *field.Path) {
		grace := c.spec.TerminationGracePeriodSeconds
		if sleep.Seconds < 0 || grace != nil && sleep.Seconds > *grace {
			c.invalid(at.Child("seconds"), sleep.Seconds, "must be non-negative and less than terminationGracePeriodSeconds")
		}
	})
	if n == 0 {
		c.add(field.Required(at, "must specify a handler type"))
	}
}

func (c *checker) checkHTTPGet(get *corev1.HTTPGetAction, at *field.Path) {
	if get.Path == "" {
		c.required(at.Child("path"))
	}
	c.checkPort(get.Port, at.Child("port"))
	requiredOf(&c.report, at.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	for i, h := range get.HTTPHeaders {
		c.each(at.Child("httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))
	}
}

func (c *checker) checkPort(port intstr.IntOrString, at *field.Path) {
	if port.Type == intstr.String {
		c.each(at, port.StrVal, validation.IsValidPortName(port.StrVal))
		return
	}
	c.each(at, port.IntVal, validation.IsValidPortNum(int(port.IntVal)))
}
