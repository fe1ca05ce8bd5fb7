package await

import (
	networkingv1 "k8s.io/api/networking/v1"
)

var ingressRules = rulesFor(networkingv1.SchemeGroupVersion.WithKind("Ingress"), rules[*networkingv1.Ingress]{judge: judgeIngress})

// judgeIngress judges an Ingress. It is ready when an ingress controller has given it an address, the only field of its
// status.
func judgeIngress(d Degree, i *networkingv1.Ingress, v *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "Ingress", Ready)
	}
	switch {
	case i.DeletionTimestamp != nil:
		return waiting("it is being deleted"), nil
	case d == Observed, len(i.Status.LoadBalancer.Ingress) > 0:
		return done(), nil
	case i.Spec.IngressClassName != nil:
		return waiting("no ingress controller of the class %s has given it an address", *i.Spec.IngressClassName).because(v.warning()), nil
	}
	return waiting("no ingress controller has given it an address").because(v.warning()), nil
}
