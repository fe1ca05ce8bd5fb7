package snapshots

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/catalog"
)

// A Change is a difference between a cluster and the one that its snapshot is of.
type Change struct {
	// Nodes says that the nodes are others: those of the snapshot are real, or those of the new cluster are.
	Nodes bool

	// UID is the ID of the new cluster.
	UID types.UID

	// From and To are the service networks of both clusters, the primary family first. Nil means that they are the
	// same. Otherwise those of one place have the same family, and the second one is not smaller.
	From, To []netip.Prefix
}

// dropped are the resources whose objects an independent cluster never has, by the first segment of their keys: its
// components make their own.
var dropped = map[string]bool{
	"events":                     true,
	"events.events.k8s.io":       true,
	"leases.coordination.k8s.io": true, // of nodes and leaders that are not those of this cluster
	"certificatesigningrequests.certificates.k8s.io": true,
}

// ofNodes are the resources whose objects belong to the nodes.
var ofNodes = map[string]bool{
	"nodes":                               true,
	"csinodes.storage.k8s.io":             true,
	"csistoragecapacities.storage.k8s.io": true,
	"volumeattachments.storage.k8s.io":    true,
	"resourceslices.resource.k8s.io":      true,
}

// The resources of the networks of Services. The ServiceCIDR is made again, addresses move with their Services.
const (
	serviceCIDRs = "servicecidrs.networking.k8s.io"
	ipAddresses  = "ipaddresses.networking.k8s.io"
)

// published are ConfigMaps with the keys of the cluster, which each cluster writes itself.
var published = map[string]bool{
	"kube-system/extension-apiserver-authentication": true,
	"kube-public/cluster-info":                       true,
}

// Interest is how much of a record [Change.Apply] has to know.
type Interest int

// The values of Interest.
const (
	Keep   Interest = iota // it stays as it is
	Drop                   // it is left out
	Decide                 // Apply decides by the object
)

// Interest returns what happens to a record, by its key alone as far as that is enough.
func (c Change) Interest(key string) Interest {
	resource, name, _ := strings.Cut(key, "/")
	switch {
	case dropped[resource], c.Nodes && ofNodes[resource], c.To != nil && resource == serviceCIDRs:
		return Drop
	case resource == "configmaps" && (published[name] || strings.HasSuffix(name, "/kube-root-ca.crt")):
		return Drop
	case resource == "secrets", key == kubeSystem:
		return Decide
	case c.Nodes && (resource == "pods" || resource == "persistentvolumes" || resource == "persistentvolumeclaims"):
		return Decide
	case c.To != nil && (resource == "services" || resource == ipAddresses):
		return Decide
	}
	return Keep
}

// kubeSystem is the key of the namespace whose UID is the ID of the cluster.
const kubeSystem = "namespaces/kube-system"

// Apply returns whether a cluster that is made from a snapshot, with keys and nodes of its own, has the object, and
// changes the object for it. The rule is:
//
//   - The objects that users write stay, with their UIDs.
//   - Credentials go: bootstrap tokens, the tokens in Secrets (which are issued again), and published authorities.
//   - Leases, Events and certificate requests go.
//   - With other nodes the objects of nodes go, and a pod is as if it had just been created: not bound, without a
//     status. Pods of DaemonSets, static pods and pods that are being deleted go; finished pods stay.
//   - With other nodes volumes that are directories or devices of a machine go, and their claims are not bound any
//     more. Other volumes stay, and are never deleted with their claims, because the original uses them as well.
//   - In another service network Services and their IPAddresses have the addresses of the same place.
func (c Change) Apply(obj catalog.Object) bool {
	switch o := obj.(type) {
	case *corev1.Namespace:
		if o.Name == "kube-system" {
			o.UID = c.UID
		}
	case *corev1.Secret:
		return c.secret(o)
	case *corev1.Service:
		c.service(o)
	case *networkingv1.IPAddress:
		if addr, err := netip.ParseAddr(o.Name); err == nil {
			o.Name = c.moved(addr).String()
		}
	case *corev1.Pod:
		return !c.Nodes || pod(o)
	case *corev1.PersistentVolume:
		if c.Nodes {
			if ofMachine(o) {
				return false
			}
			o.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}
	}
	return true
}

func (Change) secret(s *corev1.Secret) bool {
	switch s.Type {
	case "bootstrap.kubernetes.io/token":
		return false
	case corev1.SecretTypeServiceAccountToken:
		delete(s.Data, corev1.ServiceAccountTokenKey)
		delete(s.Data, corev1.ServiceAccountRootCAKey)
	}
	return true
}

// pod makes a pod as new, and reports whether it stays.
func pod(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	switch {
	case p.DeletionTimestamp != nil, p.Annotations[corev1.MirrorPodAnnotationKey] != "", owner != nil && owner.Kind == "DaemonSet":
		return false
	case p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
		return true
	}
	p.Spec.NodeName = ""
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: p.Status.QOSClass}
	return true
}

// ofMachine reports whether a volume is a directory or a device of a machine.
func ofMachine(v *corev1.PersistentVolume) bool {
	s := v.Spec.PersistentVolumeSource
	return s.HostPath != nil || s.Local != nil
}

// Unbind makes a claim one that has no volume yet. It is for claims whose volume was dropped.
func Unbind(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName = ""
	for _, name := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", "volume.kubernetes.io/selected-node"} {
		delete(c.Annotations, name)
	}
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
}

// service gives a Service its addresses in the new network.
func (c Change) service(s *corev1.Service) {
	if c.To == nil {
		return
	}
	for i, text := range s.Spec.ClusterIPs {
		if addr, err := netip.ParseAddr(text); err == nil {
			s.Spec.ClusterIPs[i] = c.moved(addr).String()
		}
	}
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
}

// moved returns the address at the same place of the new network; one that is in none of the networks stays.
func (c Change) moved(a netip.Addr) netip.Addr {
	for i, from := range c.From {
		if i < len(c.To) && from.Contains(a) {
			from, to, place := from.Masked().Addr().AsSlice(), c.To[i].Masked().Addr().AsSlice(), a.AsSlice()
			for j := range to {
				to[j] |= place[j] &^ from[j]
			}
			out, _ := netip.AddrFromSlice(to)
			return out
		}
	}
	return a
}
