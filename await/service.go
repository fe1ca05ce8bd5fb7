package await

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

var serviceRules = rulesFor(corev1.SchemeGroupVersion.WithKind("Service"), rules[*corev1.Service]{
	judge: judgeService,
	place: func(f *forest, n *node, s *corev1.Service) {
		f.endsOf(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}).service = n
	},
	explain: func(x *explainer, s *corev1.Service) {
		if x.req.For.has(Deleted) || len(s.Spec.Selector) == 0 {
			return
		}
		if x.member.blind = x.many; x.many {
			x.follow(client.EndpointSlices.GroupVersionResource, discoveryv1.LabelServiceName, "")
			return
		}
		x.follow(client.EndpointSlices.GroupVersionResource, discoveryv1.LabelServiceName+"="+s.Name, "")
		x.add(source{
			GroupVersionResource: client.Pods.GroupVersionResource, namespace: s.Namespace,
			labels: labels.SelectorFromSet(s.Spec.Selector).String(), of: s.UID,
		})
	},
})

// judgeService judges a Service. It is ready, and serving, when at least one endpoint is serving and, for the type
// LoadBalancer, it has an address. A Service without a selector, or of the type ExternalName, is ready at once. Its parts
// are the pods that it selects.
func judgeService(d Degree, s *corev1.Service, v *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "Service", Ready, Serving)
	}
	if s.DeletionTimestamp != nil {
		return waiting("it is being deleted"), nil
	}
	if d == Observed {
		return done(), nil
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		return waiting("no load balancer has given it an address").because(v.warning()), nil
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName || len(s.Spec.Selector) == 0 {
		return done(), nil
	}
	e := v.ends[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]
	switch {
	case e != nil && e.serving > 0:
		return done(), nil
	case e != nil && e.all == 1:
		return v.held(waiting("its only endpoint does not serve"), nil), nil
	case e != nil && e.all > 1:
		return v.held(waiting("none of its %d endpoints serves", e.all), nil), nil
	case e != nil && e.portless > 0:
		return v.held(waiting("no endpoint: %s", lackPorts(e.portless, s)), nil), nil
	case v.allPods().live > 0:
		return v.held(waiting("no endpoint yet, %s", counted(int(v.allPods().live), "pod")), nil), nil
	}
	switch {
	case !v.known:
		return waiting("its pods are not known yet"), nil
	case v.blind:
		return waiting("no endpoint yet").because(v.warning()), nil
	}
	// The pods may be created later.
	return failed(Likely, "no pod matches its selector").because(v.warning()), nil
}

// lackPorts returns that so many pods have none of the ports that the Service names.
func lackPorts(pods int, s *corev1.Service) string {
	var named []string
	for _, p := range s.Spec.Ports {
		if name := p.TargetPort.StrVal; name != "" && !slices.Contains(named, strconv.Quote(name)) {
			named = append(named, strconv.Quote(name))
		}
	}
	has := "has"
	if pods > 1 {
		has = "have"
	}
	if len(named) == 0 { // it was changed since
		return fmt.Sprintf("%s %s none of the ports that it names", counted(pods, "pod"), has)
	}
	return fmt.Sprintf("%s %s no port named %s", counted(pods, "pod"), has, strings.Join(named, " or "))
}

// plain reports whether kinds without pods support a degree. For them, serving and old-gone are the same as ready.
func plain(d Degree) bool { return d.isOneOf(Ready, Observed, Serving, OldGone) }
