package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/nodefeature"
	"github.com/sampan-io/sampan/internal/podfeature"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A Rejection says why a node does not run a pod that is bound to it. Reasons and messages are those of upstream's
// kubelet.
type Rejection struct {
	Reason  string // of the event, and of the pod's status
	Message string // of the event; the status has it behind "Pod was rejected: "
}

// Verdict returns what the rejection makes of the pod.
func (r Rejection) Verdict() Verdict {
	return Verdict{Reason: r.Reason, Message: "Pod was rejected: " + r.Message, Rejected: true}
}

// nodeAffinity is the reason of a pod that selects other nodes.
const nodeAffinity = "NodeAffinity"

// Outdated reports whether an older state of the node's labels may be the cause of the rejection.
func (r Rejection) Outdated() bool { return r.Reason == nodeAffinity }

// Supported returns why the agent of a real node does not run a pod: it would never start or become ready, or it asks for
// isolation that it would not get. It returns nil if there is no such reason. A simulated node runs every pod.
func Supported(pod *corev1.Pod) *Rejection {
	f := podfeature.Rejection(&pod.Spec)
	if f.Effect != podfeature.Rejected {
		return nil
	}
	return &Rejection{f.Reason, f.Message()}
}

// mostContainers is how many containers of one pod an agent runs. They are started one after the other, and each event of one has the
// agent look at all: 20,000 of them would keep a core busy for as long as the pod lives.
// The API server merges lists of up to 2,000 items in a patch, and with patches the agent writes the status of all containers.
const mostContainers = 500

// mostVolumes is how many volumes of one pod an agent makes: each is a directory at least, and often a mount that each
// container gets.
const mostVolumes = 1000

// mostHostPorts is how many ports of the host may lead to one pod: the rules of all pods are written at once, whenever one pod with
// such ports comes or goes.
const mostHostPorts = 1000

// Affordable returns why a pod has more containers, volumes or host ports than an agent can look after. It returns nil if it has
// not.
func Affordable(spec *corev1.PodSpec) *Rejection {
	if n := len(spec.InitContainers) + len(spec.Containers); n > mostContainers {
		return &Rejection{"TooManyContainers", fmt.Sprintf("spec.containers, spec.initContainers: %d containers are more than a node runs in one pod, want at most %d", n, mostContainers)}
	}
	if n := len(spec.Volumes); n > mostVolumes {
		return &Rejection{"TooManyVolumes", fmt.Sprintf("spec.volumes: %d volumes are more than a node has for one pod, want at most %d", n, mostVolumes)}
	}
	if n := hostPorts(spec); n > mostHostPorts {
		return &Rejection{"TooManyHostPorts", fmt.Sprintf("spec.containers, spec.initContainers: %d host ports are more than a node leads to one pod, want at most %d", n, mostHostPorts)}
	}
	return nil
}

// hostPorts counts the ports of the host that lead to a pod. To a pod on the host's network none has to.
func hostPorts(spec *corev1.PodSpec) (n int) {
	if spec.HostNetwork {
		return 0
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, p := range containers[i].Ports {
				if p.HostPort != 0 {
					n++
				}
			}
		}
	}
	return n
}

// Allowed returns why a pod may not have the host ports that it asks for, at whatever address of the host: they are ports
// of the cluster's own servers, such as the API server. It returns nil if it may have them.
func Allowed(pod *plugin.Pod, own reserved.Ports) *Rejection {
	for _, p := range pod.Ports {
		if own.Has(p.Protocol, p.Port) {
			return predicate("NodePorts", fmt.Sprintf("host port %s is a port of the cluster itself", p))
		}
	}
	return nil
}

// Featured returns why a node that declares these features does not run a pod: the pod needs another one. It returns nil if
// there is no such reason.
func Featured(pod *corev1.Pod, declared []string) *Rejection {
	missing := nodefeature.Missing(nodefeature.Required(&pod.Spec), declared)
	if len(missing) == 0 {
		return nil
	}
	return &Rejection{"PodFeatureUnsupported", "Pod requires node features that are not available: " + strings.Join(missing, ", ")}
}

// Admit decides whether a node runs a pod that is bound to it, in addition to the pods that are counted on it: the pods
// that it has admitted before and that have not ended. It returns nil if the node runs the pod, and otherwise the first
// reason why it does not. A scheduler has made most of these checks; they are for pods that are bound without one, and for
// two schedulers that decide at once.
//
// A critical pod is rejected like any other; [Lacking] and [AdmitWithout] are for a node that makes room for it.
func Admit(pod *plugin.Pod, node *plugin.Node) *Rejection {
	return first(pod, node, systemFits, resourcesFit, affinityFits, portsFit, taintsTolerated)
}

// AdmitWithout is [Admit] without a look at resources.
func AdmitWithout(pod *plugin.Pod, node *plugin.Node) *Rejection {
	return first(pod, node, systemFits, affinityFits, portsFit, taintsTolerated)
}

func first(pod *plugin.Pod, node *plugin.Node, checks ...func(*plugin.Pod, *plugin.Node) *Rejection) *Rejection {
	for _, check := range checks {
		if r := check(pod, node); r != nil {
			return r
		}
	}
	return nil
}

// systemFits refuses pods with the label of another operating system than that of the agent, which is Linux.
func systemFits(pod *plugin.Pod, _ *plugin.Node) *Rejection {
	if system, asked := pod.Labels[corev1.LabelOSStable]; asked && system != string(corev1.Linux) {
		return &Rejection{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	return nil
}

// resourcesFit refuses pods that request more than is left. Extended resources are left out that the node does not have, because
// they may be those of the cluster, or that the pod gets as devices of a claim, which the scheduler made for them.
func resourcesFit(pod *plugin.Pod, node *plugin.Node) *Rejection {
	lacks := lacking(pod, node)
	if len(lacks) == 0 {
		return nil
	}
	l := lacks[0]
	used := usedOf(node, l)
	return &Rejection{
		"OutOf" + l.What,
		fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", l.What, l.Asked, used, l.Total),
	}
}

func lacking(pod *plugin.Pod, node *plugin.Node) []plugin.Lack {
	return slices.DeleteFunc(builtin.NodeResourcesFit{}.Explain(pod, node), func(l plugin.Lack) bool {
		name := corev1.ResourceName(l.What)
		if _, other := pod.Requests.Other[name]; !other {
			return false
		}
		_, has := node.Allocatable.Other[name]
		return !has && extended(name) || podstate.FromClaim(pod.Pod, name)
	})
}

// usedOf returns how much of a resource the pods of a node request.
func usedOf(node *plugin.Node, l plugin.Lack) int64 {
	if name := corev1.ResourceName(l.What); name != corev1.ResourcePods {
		return node.Requested.Amount(name)
	}
	return int64(len(node.Pods))
}

// Lacking calls add for each resource that a node lacks for a pod, with the amount that is lacking.
func Lacking(pod *plugin.Pod, node *plugin.Node, add func(name corev1.ResourceName, amount int64)) {
	for _, l := range lacking(pod, node) {
		add(corev1.ResourceName(l.What), l.Asked+usedOf(node, l)-l.Total)
	}
}

// Fits returns why a node does not have the resources for a pod in addition to the pods that are counted on it; nil if it
// has them.
func Fits(pod *plugin.Pod, node *plugin.Node) *Rejection { return resourcesFit(pod, node) }

// Pressed returns why a pod is rejected by a node whose given conditions of pressure are True; nil if it is not. Critical pods
// are never rejected for that, and under pressure on memory alone only pods that request nothing are.
func Pressed(pod *corev1.Pod, conditions []corev1.NodeConditionType) *Rejection {
	if len(conditions) == 0 {
		return nil
	}
	if len(conditions) == 1 && conditions[0] == corev1.NodeMemoryPressure {
		taint := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}}
		if QOS(pod) != corev1.PodQOSBestEffort || (builtin.TaintToleration{}).Filter(plugin.NewPod(pod), &plugin.Node{Node: node}).OK() {
			return nil
		}
	}
	return &Rejection{"Evicted", fmt.Sprintf("The node had condition: %v. ", conditions)}
}

// extended reports whether a resource is an extended resource, which Kubernetes does not define.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
}

func affinityFits(pod *plugin.Pod, node *plugin.Node) *Rejection {
	return predicate(nodeAffinity, builtin.NodeAffinity{}.Filter(pod, node).Reason)
}

func portsFit(pod *plugin.Pod, node *plugin.Node) *Rejection {
	return predicate("NodePorts", builtin.NodePorts{}.Filter(pod, node).Reason)
}

// taintsTolerated looks at the taints that end running pods. The others keep only schedulers from choosing the node.
func taintsTolerated(pod *plugin.Pod, node *plugin.Node) *Rejection {
	tainted := *node.Node
	tainted.Spec.Taints = slices.DeleteFunc(slices.Clone(tainted.Spec.Taints), func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectNoExecute })
	if (builtin.TaintToleration{}).Filter(pod, &plugin.Node{Node: &tainted}).OK() {
		return nil
	}
	return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
}

// predicate returns the rejection for a check of the scheduler; an empty reason means that the pod passed it.
func predicate(name, reason string) *Rejection {
	if reason == "" {
		return nil
	}
	return &Rejection{name, fmt.Sprintf("Predicate %s failed: %s", name, reason)}
}
