package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/controller"
)

// servingApprover is part of the name of the loop that approves the serving certificates of nodes.
const servingApprover = "serving-approving"

// has reports whether a name or an address may be that of a server.
func (s Servers) has(name string) bool {
	if slices.ContainsFunc(s.Names, func(other string) bool { return strings.EqualFold(other, name) }) {
		return true
	}
	a, err := netip.ParseAddr(name)
	if err != nil {
		// A name below .svc is a Service's, as which webhooks and aggregated servers are verified.
		lower := strings.ToLower(name)
		return strings.HasSuffix(lower, ".svc") || strings.Contains(lower, ".svc.")
	}
	a = a.Unmap()
	return a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() ||
		slices.ContainsFunc(s.Networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// approveServing approves a node's request for its own serving certificate, if everything in it is that node's
// (certificates-C4). Other requests are left to administrators, as upstream leaves all of them.
func (c *controllers) approveServing(ctx context.Context, key controller.Key) (controller.Result, error) {
	r, ok := c.requests.Get("", key.Name)
	if !ok || r.DeletionTimestamp != nil || !undecided(r) || r.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return controller.Result{}, nil
	}
	request, err := parse(r)
	if err != nil {
		return controller.Result{}, err
	}
	if why := c.refuseServing(r, request); why != "" {
		c.log.InfoContext(ctx, "not approving the request for a serving certificate", "csr", r.Name, "node", r.Spec.Username, "reason", why)
		return controller.Result{}, nil // changes of the node wake it
	}
	approved := r.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved",
		Message: "Auto approving kubelet serving certificate: its names and addresses are those of the node.",
	})
	return controller.Result{}, c.update(ctx, approved, "approval", "error updating approval for csr")
}

// refuseServing returns why a request is not approved, or "".
func (c *controllers) refuseServing(r *signingRequest, request *x509.CertificateRequest) string {
	name, isNode := strings.CutPrefix(r.Spec.Username, nodePrefix)
	switch {
	case !isNode || !slices.Contains(r.Spec.Groups, nodesGroup):
		return "its author is not a node"
	case request.Subject.CommonName != r.Spec.Username:
		return fmt.Sprintf("it is for %s", request.Subject.CommonName)
	}
	if err := forKubeletServing(request, r.Spec.Usages); err != nil {
		return err.Error()
	}
	node, ok := c.nodes.Get("", name)
	if !ok {
		return "there is no such Node"
	}
	return outside(node, request, c.servers, c.nodes.List(""))
}

// outside returns what in a request is not the node's own, or "". The status of a Node is written by the node itself, so an
// address there is the node's only if it is neither that of a server nor that of another Node.
func outside(node *corev1.Node, request *x509.CertificateRequest, taken Servers, all []*corev1.Node) string {
	var wanted []string
	for _, name := range request.DNSNames {
		if name != node.Name {
			return fmt.Sprintf("the name %s is not that of the node", name)
		}
		wanted = append(wanted, name)
	}
	for _, ip := range request.IPAddresses {
		if !hasAddress(node, ip.String(), corev1.NodeInternalIP, corev1.NodeExternalIP) {
			return fmt.Sprintf("the address %s is not in the status of the node", ip)
		}
		wanted = append(wanted, ip.String())
	}
	for _, w := range wanted {
		if taken.has(w) {
			return fmt.Sprintf("%s is that of a server of the cluster", w)
		}
		for _, other := range all {
			if other.Name != node.Name && (other.Name == w || hasAddress(other, w)) {
				return fmt.Sprintf("%s is that of node %s", w, other.Name)
			}
		}
	}
	return ""
}

// hasAddress reports whether the status of a node has an address, of one of the given types if there are any.
func hasAddress(node *corev1.Node, address string, types ...corev1.NodeAddressType) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Address == address && (len(types) == 0 || slices.Contains(types, a.Type))
	})
}
