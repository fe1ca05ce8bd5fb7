package trace

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/proxy"
)

// APIVersion is the apiVersion of a [Trace] as JSON or YAML.
const APIVersion = "proxy.sampan.dev/v1alpha1"

// A Trace explains how connections of a client to a Service go.
type Trace struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Message    string `json:"message"`           // in one sentence
	Answers    *bool  `json:"answers,omitempty"` // whether something answers; nil if that is not known

	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Type      corev1.ServiceType `json:"type"`
	Client    Client             `json:"client"`
	Node      string             `json:"node"` // the node whose rules apply

	Paths  []PathTrace `json:"paths"`
	AlsoAt []string    `json:"alsoAt,omitempty"` // addresses that were not traced
	Hints  []string    `json:"hints,omitempty"`  // possible faults of the Service and its pods
	Notes  []string    `json:"notes,omitempty"`  // unknown facts, and why

	candidates int
}

// A Client is the source of connections.
type Client struct {
	Node      string       `json:"node"`
	Namespace string       `json:"namespace,omitempty"` // of a pod
	Pod       string       `json:"pod,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`

	// Host is true for a pod in the network of its node.
	Host bool `json:"hostNetwork,omitempty"`
}

// pod reports whether the client has the addresses of a pod.
func (c *Client) pod() bool { return c.Pod != "" && !c.Host }

func (c *Client) String() string {
	if c.Pod != "" {
		return "pod " + c.Namespace + "/" + c.Pod
	}
	return "node " + c.Node
}

// A PathTrace explains how connections to one address and port go.
type PathTrace struct {
	Kind     Kind            `json:"kind"`
	Address  string          `json:"address,omitempty"` // with the port
	Port     string          `json:"port"`              // of the Service
	Protocol corev1.Protocol `json:"protocol"`
	Mode     string          `json:"mode,omitempty"` // kernel or userspace

	Differs   []string        `json:"differs,omitempty"` // differences between the node's state and the plan
	Dropped   string          `json:"dropped,omitempty"` // why the client may not connect
	Policy    string          `json:"policy,omitempty"`  // which endpoints it uses, if not all
	SeenAs    string          `json:"seenAs,omitempty"`  // whose address the server sees
	Affinity  *Affinity       `json:"affinity,omitempty"`
	Endpoints []EndpointTrace `json:"endpoints"`
	Answer    *Answer         `json:"answer,omitempty"`
	Cause     string          `json:"cause,omitempty"` // why nothing answers
}

// Affinity is the session affinity of the client.
type Affinity struct {
	Seconds int64  `json:"seconds"`
	Bound   string `json:"bound,omitempty"`       // the client's endpoint
	Left    int64  `json:"leftSeconds,omitempty"` // the remaining time, if the client does not connect again
}

// An EndpointTrace is the status of an endpoint.
type EndpointTrace struct {
	Address   string               `json:"address"`
	Pod       string               `json:"pod,omitempty"`
	Node      string               `json:"node,omitempty"`
	Status    proxy.EndpointStatus `json:"standing"`
	Candidate bool                 `json:"candidate"`
	Why       string               `json:"why,omitempty"` // why it is not a backend, or does not answer
	Suspect   bool                 `json:"suspect,omitempty"`
	Answer    *Answer              `json:"answer,omitempty"`

	at netip.AddrPort
}

// A World is the input of [Explain].
type World struct {
	Service  *corev1.Service
	Others   []*corev1.Service            // younger Services that want the same address
	Slices   []*discoveryv1.EndpointSlice // of the Service
	Pods     []*corev1.Pod                // of its namespace
	Warnings []*corev1.Event              // of its namespace
	NoPods   string                       // why pods are not known; "" if they are

	Target Target
	Client Client
	Here   proxy.Here  // the node whose rules apply
	Report *NodeReport // the node's report; nil if there is none
	Unseen string      // why there is none

	// Elsewhere is the node that dialled, if the client is on another one.
	Elsewhere string
}

// Answered reports whether something answers or, if that is not known, whether there is an
// endpoint.
func (t *Trace) Answered() bool {
	if t.Answers != nil {
		return *t.Answers
	}
	return t.candidates > 0 || len(t.Paths) == 0
}
