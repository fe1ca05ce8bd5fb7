package quotas

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const countServices = corev1.ResourceName("count/services")

func countsForServices(name corev1.ResourceName) bool {
	switch name {
	case countServices, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

// serviceUsage counts the node ports that a service asks for, because they may not be allocated yet.
func serviceUsage(obj Object, _ time.Time) corev1.ResourceList {
	used := corev1.ResourceList{
		countServices: number(1), corev1.ResourceServices: number(1),
		corev1.ResourceServicesLoadBalancers: number(0), corev1.ResourceServicesNodePorts: number(0),
	}
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return used
	}
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		used[corev1.ResourceServicesNodePorts] = number(len(svc.Spec.Ports))
	case corev1.ServiceTypeLoadBalancer:
		used[corev1.ResourceServicesLoadBalancers] = number(1)
		used[corev1.ResourceServicesNodePorts] = number(len(svc.Spec.Ports))
		if allocate := svc.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			used[corev1.ResourceServicesNodePorts] = number(explicitNodePorts(svc))
		}
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName:
	}
	return used
}

func explicitNodePorts(svc *corev1.Service) (n int) {
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			n++
		}
	}
	return n
}
