package certificates

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// registerLimit is how long the name of a node is kept for the machine whose client certificate was approved last. It creates
// its Node in that time; from then on the Node keeps the name. A minute is also how long upstream's
// node lifecycle controller waits for the first status of a new Node.
const registerLimit = time.Minute

// A reservation says which request has the name of a node, and when it was approved.
type reservation struct {
	request string
	at      time.Time
}

// reservations are the names of nodes whose client certificates were approved for another user than the node itself, by
// the requests that still exist. The zero value is empty. It is safe for concurrent use.
//
// Two machines that choose one new name at the same time both find no Node of that name. Both of their requests would be
// approved, and each machine could act as the other one. So the first approval reserves the name until the Node
// exists, or for registerLimit. A Node that is deleted ends the reservation: its name is free again.
type reservations struct {
	mu     sync.Mutex
	byName map[string]reservation // guarded by mu
}

// observe records a change of a request. It is a subscriber of the cache of requests.
func (v *reservations) observe(before, after *signingRequest) {
	if after == nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		for name, r := range v.byName { // at most as many as there are requests
			if r.request == before.Name {
				delete(v.byName, name)
			}
		}
		return
	}
	at := approvedAt(after)
	if at.IsZero() || before != nil && !approvedAt(before).IsZero() || after.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return
	}
	request, err := parse(after)
	if err != nil || request.Subject.CommonName == after.Spec.Username {
		return
	}
	name := request.Subject.CommonName[min(len(nodePrefix), len(request.Subject.CommonName)):]
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byName == nil {
		v.byName = map[string]reservation{}
	}
	if at.After(v.byName[name].at) {
		v.byName[name] = reservation{after.Name, at}
	}
}

// release ends the reservation of a name.
func (v *reservations) release(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byName, name)
}

// holder returns the reservation of a name, and whether there is one now.
func (v *reservations) holder(name string, now time.Time) (reservation, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.byName[name]
	return r, ok && now.Before(r.at.Add(registerLimit))
}

// approvedAt returns when a request was approved, or the zero time.
func approvedAt(r *signingRequest) time.Time {
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved {
			return c.LastUpdateTime.Time
		}
	}
	return time.Time{}
}

// refuseName returns why no bootstrap token gets the client certificate of a node with a name, or "": it is not a name of a Node,
// could be that of a server, is that of a Node, or was given to another machine a moment ago (certificates-C5).
func (c *controllers) refuseName(name string, now time.Time) (reason, why string) {
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "InvalidName", fmt.Sprintf("the name of the node is %q, which a Node cannot have: %s", name, errs[0])
	}
	if _, err := netip.ParseAddr(name); err == nil || c.servers.has(name) {
		return "InvalidName", fmt.Sprintf("the name of the node is %q, which could be that of a server", name)
	}
	if node, ok := c.nodes.Get("", name); ok {
		return "NodeExists", fmt.Sprintf("a Node with name %q and status %q already exists in the cluster; delete the existing Node or change the name of the new one", name, readiness(node))
	}
	if r, ok := c.reserved.holder(name, now); ok {
		return "NameReserved", fmt.Sprintf("another machine is joining as node %q: request %s was approved at %s, and that machine has until %s to create its Node; choose another name, or delete that request if its machine has given up",
			name, r.request, r.at.UTC().Format(time.RFC3339), r.at.Add(registerLimit).UTC().Format(time.RFC3339))
	}
	return "", ""
}

// readiness returns the state of a Node as kubectl shows it.
func readiness(node *corev1.Node) string {
	i := slices.IndexFunc(node.Status.Conditions, func(n corev1.NodeCondition) bool { return n.Type == corev1.NodeReady })
	switch {
	case i < 0:
		return "Unknown"
	case node.Status.Conditions[i].Status == corev1.ConditionTrue:
		return "Ready"
	}
	return "NotReady"
}
