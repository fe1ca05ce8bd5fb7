package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/proxy"
)

// AgentPath is the path of the tracer below the kubelet API of a node's agent.
const AgentPath = "/sampan/service-trace"

// A Question asks an agent for its state of a Service, and for answers of its servers.
type Question struct {
	Service types.NamespacedName
	Target  Target
	From    types.NamespacedName // the pod from which to dial; zero means from the node
}

// Query returns the question as parameters of a GET.
func (q Question) Query() url.Values {
	v := url.Values{"namespace": {q.Service.Namespace}, "service": {q.Service.Name}, "target": {q.Target.String()}}
	if q.From.Name != "" {
		v.Set("fromNamespace", q.From.Namespace)
		v.Set("fromPod", q.From.Name)
	}
	return v
}

// ParseQuestion is the inverse of Query. Unknown parameters are an error.
func ParseQuestion(v url.Values) (Question, error) {
	var q Question
	fields := map[string]*string{
		"namespace": &q.Service.Namespace, "service": &q.Service.Name, "target": nil,
		"fromNamespace": &q.From.Namespace, "fromPod": &q.From.Name,
	}
	for name, values := range v {
		field, known := fields[name]
		if !known || len(values) != 1 {
			return q, fmt.Errorf("parameter %q: want namespace, service, target, fromNamespace and fromPod, each at most once", name)
		}
		if field != nil {
			*field = values[0]
		}
	}
	if q.Service.Namespace == "" || q.Service.Name == "" {
		return q, fmt.Errorf("the parameters namespace and service are missing")
	}
	if (q.From.Namespace == "") != (q.From.Name == "") {
		return q, fmt.Errorf("want both of fromNamespace and fromPod, or none")
	}
	t, err := Parse(v.Get("target"))
	if err != nil {
		return q, fmt.Errorf("parameter target: %w", err)
	}
	q.Target = t
	return q, nil
}

// A NodeReport is an agent's answer.
type NodeReport struct {
	Node      string         `json:"node"`
	Here      proxy.Here     `json:"here"`
	Known     bool           `json:"known"` // the proxy of the node has the Service
	Frontends []FrontendSeen `json:"frontends"`
}

// A FrontendSeen is the node's state of one of the [Paths], in their order.
type FrontendSeen struct {
	Address  netip.Addr      `json:"address"` // of the rule; none if headless
	Port     uint16          `json:"port"`
	PortName string          `json:"portName"`
	Protocol corev1.Protocol `json:"protocol"`
	IPv6     bool            `json:"ipv6,omitempty"`

	Kernel *proxy.Seen     `json:"kernel,omitempty"` // nil: not looked up
	Pool   *proxy.PoolSeen `json:"pool,omitempty"`   // nil: there is none
	Faults []string        `json:"faults,omitempty"` // failed lookups

	Frontend  *Answer          `json:"frontend,omitempty"` // nil: not dialled
	Endpoints []EndpointAnswer `json:"endpoints,omitempty"`
}

// An EndpointAnswer is the result of dialling an endpoint.
type EndpointAnswer struct {
	At     netip.AddrPort `json:"at"`
	Answer Answer         `json:"answer"`
}

// A Result is the result of dialling.
type Result string

// The results of dialling.
const (
	Answered Result = "Answers"  // a connection was made, or a packet came back
	Silent   Result = "Silent"   // a packet was not refused, which is all that UDP shows
	Refused  Result = "Refused"  // at once
	NoRoute  Result = "NoRoute"  // at once, by this host or one on the path
	TimedOut Result = "TimedOut" // nothing came back
	Closed   Result = "Closed"   // a connection was made and closed at once
	Failed   Result = "Failed"   // it could not be tried
)

// An Answer is the result of dialling one address.
type Answer struct {
	Result  Result  `json:"result"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// OK reports whether a server is there.
func (a *Answer) OK() bool { return a != nil && (a.Result == Answered || a.Result == Silent) }

// maxReport bounds the size of an agent's answer.
const maxReport = 8 << 20

// ReadNodeReport reads an agent's answer.
func ReadNodeReport(r io.Reader) (*NodeReport, error) {
	var s NodeReport
	if err := json.NewDecoder(io.LimitReader(r, maxReport)).Decode(&s); err != nil {
		return nil, fmt.Errorf("the answer of the node's agent is not understood: %w", err)
	}
	return &s, nil
}

// Of returns the state seen of a path, or nil.
func (s *NodeReport) Of(p *Path) *FrontendSeen {
	if s == nil {
		return nil
	}
	for i := range s.Frontends {
		d := &s.Frontends[i]
		if d.Address == p.Rule.Address && d.PortName == p.Port.Name && d.Protocol == protocolOf(p.Port) && d.IPv6 == p.Rule.Pool.IPv6 &&
			cmp.Or(d.Port, p.Rule.Port) == p.Rule.Port {
			return d
		}
	}
	return nil
}
