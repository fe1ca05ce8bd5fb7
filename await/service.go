package await

import (
	corev1 "k8s.io/api/core/v1"
)

// judgeService: ready means that at least one endpoint serves, and that a load
// balancer that was asked for has an address. A Service without a selector or
// that is only a name depends on nothing here.
func judgeService(d Degree, s *corev1.Service, v View) (Verdict, error) {
	if d != Ready {
		return Verdict{}, &MisuseError{d, "service", "wait for ready or deleted"}
	}
	if s.DeletionTimestamp != nil {
		return waiting("it is being deleted"), nil
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		return waiting("no load balancer has given it an address"), nil
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName || len(s.Spec.Selector) == 0 {
		return done(), nil
	}
	all, serving := 0, 0
	for _, slice := range v.Slices {
		for _, e := range slice.Endpoints {
			all++
			switch {
			case e.Conditions.Serving != nil && *e.Conditions.Serving,
				e.Conditions.Serving == nil && (e.Conditions.Ready == nil || *e.Conditions.Ready):
				serving++
			}
		}
	}
	switch {
	case serving > 0:
		return done(), nil
	case all > 0:
		return waiting("none of its %d endpoints serves", all), nil
	}
	return waiting("no pod matches its selector"), nil
}
