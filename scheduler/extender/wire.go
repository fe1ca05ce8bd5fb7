package extender

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The messages on the wire. The names of the fields are the API's; it has no tags.

type args struct {
	Pod       *corev1.Pod
	Nodes     *corev1.NodeList
	NodeNames *[]string
}

type filterResult struct {
	Nodes                      *corev1.NodeList
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type hostPriority struct {
	Host  string
	Score int64
}

type bindingArgs struct {
	PodName      string
	PodNamespace string
	PodUID       types.UID
	Node         string
}

type bindingResult struct{ Error string }

type preemptionArgs struct {
	Pod                   *corev1.Pod
	NodeNameToVictims     map[string]*victims
	NodeNameToMetaVictims map[string]*metaVictims
}

type preemptionResult struct {
	NodeNameToMetaVictims map[string]*metaVictims
}

type victims struct {
	Pods             []*corev1.Pod
	NumPDBViolations int64
}

type metaVictims struct {
	Pods             []*metaPod
	NumPDBViolations int64
}

type metaPod struct{ UID string }
