package trace

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/proxy"
)

// APIVersion is that of a [Trace] as data.
const APIVersion = "proxy.sampan.dev/v1alpha1"

// A Trace is how connections of a client to a Service go.
type Trace struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Message    string `json:"message"`           // in one sentence
	Answers    *bool  `json:"answers,omitempty"` // whether something answers; nil if that is not known

	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Type      corev1.ServiceType `json:"type"`
	Client    Client             `json:"client"`
	Node      string             `json:"node"` // whose rules count

	Paths  []PathTrace `json:"paths"`
	AlsoAt []string    `json:"alsoAt,omitempty"` // addresses that were not traced
	Hints  []string    `json:"hints,omitempty"`  // what may be wrong with the Service and its pods
	Notes  []string    `json:"notes,omitempty"`  // what is not known, and why

	candidates int
}

// A Client is from where connections come.
type Client struct {
	Node      string       `json:"node"`
	Namespace string       `json:"namespace,omitempty"` // of a pod
	Pod       string       `json:"pod,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`

	// Host is a pod in the network of its node.
	Host bool `json:"hostNetwork,omitempty"`
}

// pod reports whether the client has addresses of a pod.
func (c *Client) pod() bool { return c.Pod != "" && !c.Host }

func (c *Client) String() string {
	if c.Pod != "" {
		return "pod " + c.Namespace + "/" + c.Pod
	}
	return "node " + c.Node
}

// A PathTrace is how connections to one address and port go.
type PathTrace struct {
	Kind     Kind            `json:"kind"`
	Address  string          `json:"address,omitempty"` // with the port
	Port     string          `json:"port"`              // of the Service
	Protocol corev1.Protocol `json:"protocol"`
	Mode     string          `json:"mode,omitempty"` // kernel or userspace

	Differs   []string        `json:"differs,omitempty"` // what the node has otherwise than it is planned
	Dropped   string          `json:"dropped,omitempty"` // why the client is not let in
	Policy    string          `json:"policy,omitempty"`  // which endpoints it is about, if not about all
	SeenAs    string          `json:"seenAs,omitempty"`  // whose address the server sees
	Affinity  *Affinity       `json:"affinity,omitempty"`
	Endpoints []EndpointTrace `json:"endpoints"`
	Answer    *Answer         `json:"answer,omitempty"`
	Cause     string          `json:"cause,omitempty"` // why nothing answers
}

// Affinity is that of clients to backends.
type Affinity struct {
	Seconds int64  `json:"seconds"`
	Bound   string `json:"bound,omitempty"`       // where this client goes back to
	Left    int64  `json:"leftSeconds,omitempty"` // for that long more, if it does not come again
}

// An EndpointTrace is what becomes of an endpoint.
type EndpointTrace struct {
	Address   string               `json:"address"`
	Pod       string               `json:"pod,omitempty"`
	Node      string               `json:"node,omitempty"`
	Status    proxy.EndpointStatus `json:"standing"`
	Candidate bool                 `json:"candidate"`
	Why       string               `json:"why,omitempty"` // it is none, or does not answer
	Suspect   bool                 `json:"suspect,omitempty"`
	Answer    *Answer              `json:"answer,omitempty"`

	at netip.AddrPort
}

// A World is what a [Trace] is made from.
type World struct {
	Service  *corev1.Service
	Others   []*corev1.Service            // that want the same address, and are younger
	Slices   []*discoveryv1.EndpointSlice // of the Service
	Pods     []*corev1.Pod                // of its namespace
	Warnings []*corev1.Event              // of its namespace
	NoPods   string                       // why pods are not known; "" if they are

	Target Target
	Client Client
	Here   proxy.Here  // the node whose rules count
	Report *NodeReport // what was seen there; nil: nothing
	Unseen string      // why there is none

	// Elsewhere is the node from which was dialled, if the client is on another one.
	Elsewhere string
}

// Answered reports whether something answers or, where that is not known, there is an
// endpoint to go to.
func (t *Trace) Answered() bool {
	if t.Answers != nil {
		return *t.Answers
	}
	return t.candidates > 0 || len(t.Paths) == 0
}
