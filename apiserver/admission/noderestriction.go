package admission

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// NodeRestriction checks a node's writes of itself and its pods, where the
// content decides and not only the name. It is the other half of the node rules in
// package rbac.
type NodeRestriction struct {
	reader     Reader
	authorizer Authorizer
}

// NewNodeRestriction returns the plug-in. The authorizer is asked about the verb request-serviceaccounts-token-audience.
func NewNodeRestriction(r Reader, z Authorizer) *NodeRestriction { return &NodeRestriction{r, z} }

// Name implements [Plugin].
func (*NodeRestriction) Name() string { return "NodeRestriction" }

// Admit implements [Mutator].
func (p *NodeRestriction) Admit(ctx context.Context, a *Attributes) error {
	if a.User == nil {
		return nil
	}
	node, ok := a.User.Node()
	if !ok {
		return nil
	}
	if err := boundedForNodes(a); err != nil {
		return err
	}
	switch {
	case a.is("pods", ""):
		return p.pod(ctx, node, a)
	case a.is("pods", "status"):
		return podStatus(node, a)
	case a.is("pods", "eviction"):
		return p.ownPod(ctx, node, a, "evict")
	case a.is("pods", a.Subresource):
		return refuse(a, "unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource)
	case a.is("persistentvolumeclaims", "status"):
		return claimStatus(node, a)
	case a.is("nodes", a.Subresource):
		return p.nodeObject(ctx, node, a)
	case a.is("serviceaccounts", "token"):
		return p.token(ctx, node, a)
	case a.Kind.Group == "coordination.k8s.io" && a.Kind.Resource == "leases":
		return lease(node, a)
	case a.Kind.Group == certificatesv1.GroupName && a.Kind.Resource == "certificatesigningrequests" && a.Subresource == "":
		return nodeCertificate(node, a)
	case a.Kind.Group == certificatesv1.GroupName && a.Kind.Resource == "podcertificaterequests" && a.Subresource == "":
		return p.podCertificate(ctx, node, a)
	case a.Kind.Group == "storage.k8s.io" && a.Kind.Resource == "csinodes":
		if nameOf(a) != node {
			return refuse(a, "can only access CSINode with the same name as the requesting node")
		}
	case a.Kind.Group == resourcev1.GroupName && a.Kind.Resource == "resourceslices":
		return resourceSlice(node, a)
	}
	return nil
}

// Bounds on the objects that a node may make without an object of its own: upstream has none for events that have no eventTime,
// and a node that was broken into could fill the store with them. They are in bytes of protobuf.
const (
	largestNodeEvent   = 32 << 10 // messages of runtimes and probes have a few thousand bytes
	largestNodeLease   = 16 << 10
	largestNodeRequest = 64 << 10 // for a certificate
)

// boundedForNodes refuses an object that no node needs as large.
func boundedForNodes(a *Attributes) error {
	limit := 0
	switch a.Object.(type) {
	case *corev1.Event:
		limit = largestNodeEvent
	case *coordinationv1.Lease:
		limit = largestNodeLease
	case *certificatesv1.CertificateSigningRequest, *certificatesv1.PodCertificateRequest:
		limit = largestNodeRequest
	}
	sized, ok := a.Object.(interface{ Size() int })
	if !ok || limit == 0 || a.Operation != Create && a.Operation != Update {
		return nil
	}
	if n := sized.Size(); n > limit {
		return refuse(a, "nodes can only write objects of this resource with at most %d bytes, got %d", limit, n)
	}
	return nil
}

// resourceSlice lets a node create and delete slices of its own devices only. Other writes are checked by the node authorizer,
// which does not see the content of a creation, nor each object of a deletion of many.
func resourceSlice(node string, a *Attributes) error {
	of := func(o any) bool {
		s, ok := o.(*resourcev1.ResourceSlice)
		return ok && s.Spec.NodeName != nil && *s.Spec.NodeName == node
	}
	switch {
	case a.Operation == Create && !of(a.Object):
		return refuse(a, "can only create ResourceSlice with the same NodeName as the requesting node")
	case a.Operation == Delete && !of(a.Old):
		return refuse(a, "can only delete ResourceSlice with the same NodeName as the requesting node")
	}
	return nil
}

// nodeCertificate lets a node request certificates of nodes only for itself. What else such a request may have is decided
// by the signers.
func nodeCertificate(node string, a *Attributes) error {
	r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Operation != Create ||
		r.Spec.SignerName != certificatesv1.KubeletServingSignerName && r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	request, err := parseRequest(r.Spec.Request)
	if err != nil {
		return refuse(a, "unable to parse csr: %w", err)
	}
	if request.Subject.CommonName != "system:node:"+node {
		return refuse(a, "can only create a node CSR with CN=system:node:%s", node)
	}
	return nil
}

// podCertificate lets a node request certificates only for pods that run on it.
func (p *NodeRestriction) podCertificate(ctx context.Context, node string, a *Attributes) error {
	r, ok := a.Object.(*certificatesv1.PodCertificateRequest)
	if !ok || a.Operation != Create {
		return refuse(a, "unexpected operation %q, node %q can only create PodCertificateRequests", a.Operation, node)
	}
	if string(r.Spec.NodeName) != node {
		return refuse(a, "PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", r.Spec.NodeName, node)
	}
	o, err := p.reader.Get(ctx, core("pods"), a.Namespace, r.Spec.PodName)
	if err != nil {
		return err
	}
	pod, ok := o.(*corev1.Pod)
	switch {
	case !ok:
		return refuse(a, "unexpected type %T", o)
	case pod.UID != r.Spec.PodUID:
		return refuse(a, "PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", r.Spec.PodName, r.Spec.PodUID, pod.UID)
	case pod.Spec.NodeName != node:
		return refuse(a, "pod %q is not running on node %q", r.Spec.PodName, node)
	case pod.Spec.ServiceAccountName != r.Spec.ServiceAccountName:
		return refuse(a, "PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", r.Spec.PodName, r.Spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	case pod.Annotations[mirrorAnnotation] != "":
		return refuse(a, "pod %q is a mirror pod", r.Spec.PodName)
	}
	return nil
}

// nameOf returns the name of the object that a is about, which a creation has in its body alone.
func nameOf(a *Attributes) string {
	if a.Operation == Create && a.Object != nil {
		return a.Object.GetName()
	}
	return a.Name
}

func (p *NodeRestriction) pod(ctx context.Context, node string, a *Attributes) error {
	switch a.Operation {
	case Create:
		return p.mirrorPod(ctx, node, a)
	case Delete:
		return p.ownPod(ctx, node, a, "delete")
	case Update, Connect:
	}
	return refuse(a, "unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node)
}

// ownPod refuses unless the pod that a is about is bound to the node.
func (p *NodeRestriction) ownPod(ctx context.Context, node string, a *Attributes, verb string) error {
	pod, ok := a.Old.(*corev1.Pod)
	if !ok {
		o, err := p.reader.Get(ctx, core("pods"), a.Namespace, a.Name)
		if err != nil {
			return err
		}
		if pod, ok = o.(*corev1.Pod); !ok {
			return refuse(a, "unexpected type %T", o)
		}
	}
	if pod.Spec.NodeName != node {
		return refuse(a, "node %q can only %s pods with spec.nodeName set to itself", node, verb)
	}
	return nil
}

// mirrorPod checks a mirror pod that a node creates for a static pod. Such a pod may not refer to
// other objects: otherwise a node could read any of them by naming it in a pod.
func (p *NodeRestriction) mirrorPod(ctx context.Context, node string, a *Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return refuse(a, "unexpected type %T", a.Object)
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; !mirror {
		return refuse(a, "pod does not have %q annotation, node %q can only create mirror pods", mirrorAnnotation, node)
	}
	if pod.Spec.NodeName != node {
		return refuse(a, "node %q can only create pods with spec.nodeName set to itself", node)
	}
	if len(pod.OwnerReferences) != 1 {
		return refuse(a, "node %q can only create pods with a single owner reference set to itself", node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return refuse(a, "node %q can only create pods with an owner reference set to itself", node)
	case owner.Controller == nil || !*owner.Controller:
		return refuse(a, "node %q can only create pods with a controller owner reference set to itself", node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return refuse(a, "node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	self, err := p.reader.Get(ctx, core("nodes"), "", node)
	if err != nil {
		return err
	}
	if owner.UID != self.GetUID() {
		return refuse(a, "node %s UID mismatch: expected %s got %s", node, owner.UID, self.GetUID())
	}
	if what := refersTo(pod); what != "" {
		return refuse(a, "node %q can not create pods that reference %s", node, what)
	}
	return nil
}

// refersTo names a kind of object that the pod refers to, if there is any.
func refersTo(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName != "" {
		return "a service account"
	}
	if len(pod.Spec.ImagePullSecrets) > 0 {
		return "secrets"
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		return "resourceclaims"
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, from := range c.EnvFrom {
			switch {
			case from.SecretRef != nil:
				return "secrets"
			case from.ConfigMapRef != nil:
				return "configmaps"
			}
		}
		for _, e := range c.Env {
			switch {
			case e.ValueFrom == nil:
			case e.ValueFrom.SecretKeyRef != nil:
				return "secrets"
			case e.ValueFrom.ConfigMapKeyRef != nil:
				return "configmaps"
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		// Only what is on the node itself; all other sources can name objects.
		if v.HostPath == nil && v.EmptyDir == nil && v.DownwardAPI == nil {
			return fmt.Sprintf("other objects (volume %q)", v.Name)
		}
	}
	return ""
}

func podStatus(node string, a *Attributes) error {
	if a.Operation != Update {
		return refuse(a, "unexpected operation %q", a.Operation)
	}
	old, ok := a.Old.(*corev1.Pod)
	pod, ok2 := a.Object.(*corev1.Pod)
	switch {
	case !ok || !ok2:
		return refuse(a, "unexpected type %T", a.Object)
	case old.Spec.NodeName != node:
		return refuse(a, "node %q can only update pod status for pods with spec.nodeName set to itself", node)
	case !maps.Equal(old.Labels, pod.Labels):
		return refuse(a, "node %q cannot update labels through pod status", node)
	case !equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return refuse(a, "node %q cannot update resource claim statues", node)
	case !equality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return refuse(a, "node %q cannot update extended resource claim status", node) // it could read the claim then
	case !equality.Semantic.DeepEqual(old.Status.NodeAllocatableResourceClaimStatuses, pod.Status.NodeAllocatableResourceClaimStatuses):
		return refuse(a, "node %q cannot update node allocatable resource claim statuses", node)
	}
	return nil
}

func (p *NodeRestriction) nodeObject(ctx context.Context, node string, a *Attributes) error {
	name := a.Name
	if name == "" && a.Object != nil {
		name = a.Object.GetName()
	}
	if name != node {
		return refuse(a, "node %q is not allowed to modify node %q", node, name)
	}
	fresh, _ := a.Object.(*corev1.Node)
	old, _ := a.Old.(*corev1.Node)
	switch {
	case a.Operation == Create && fresh != nil:
		if fresh.Spec.ConfigSource != nil {
			return refuse(a, "node %q is not allowed to create pods with a non-nil configSource", node)
		}
		if bad := forbiddenLabels(fresh.Labels, nil); len(bad) > 0 {
			return refuse(a, "node %q is not allowed to set the following labels: %s", node, strings.Join(bad, ", "))
		}
	case a.Operation == Update && fresh != nil && old != nil:
		if fresh.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(fresh.Spec.ConfigSource, old.Spec.ConfigSource) {
			return refuse(a, "node %q is not allowed to update configSource to a new non-nil configSource", node)
		}
		if !equality.Semantic.DeepEqual(fresh.Spec.Taints, old.Spec.Taints) {
			return refuse(a, "node %q is not allowed to modify taints", node)
		}
		if !equality.Semantic.DeepEqual(fresh.OwnerReferences, old.OwnerReferences) {
			return refuse(a, "node %q is not allowed to modify ownerReferences", node)
		}
		if bad := forbiddenLabels(fresh.Labels, old.Labels); len(bad) > 0 {
			return refuse(a, "is not allowed to modify labels: %s", strings.Join(bad, ", "))
		}
	}
	if fresh == nil || len(fresh.Spec.PodCIDRs) == 0 || old != nil && slices.Equal(old.Spec.PodCIDRs, fresh.Spec.PodCIDRs) {
		return nil
	}
	return p.podNetworks(ctx, node, fresh, a)
}

// podNetworks refuses networks for the pods of a node that overlap those of another node, whose packets it would get.
func (p *NodeRestriction) podNetworks(ctx context.Context, node string, fresh *corev1.Node, a *Attributes) error {
	all, err := p.reader.List(ctx, core("nodes"), "", nil)
	if err != nil {
		return err
	}
	for _, text := range fresh.Spec.PodCIDRs {
		own, err := netip.ParsePrefix(text)
		if err != nil {
			continue // validation reports the fault
		}
		for _, o := range all {
			other, ok := o.(*corev1.Node)
			if !ok || other.Name == node {
				continue
			}
			for _, text := range other.Spec.PodCIDRs {
				if taken, err := netip.ParsePrefix(text); err == nil && taken.Overlaps(own) {
					return refuse(a, "node %q is not allowed to set the pod network %s, which overlaps %s of node %q", node, own, taken, other.Name)
				}
			}
		}
	}
	return nil
}

// forbiddenLabels returns the labels that differ and that a node may not give
// itself: with them it could draw work to itself that is meant for others.
func forbiddenLabels(fresh, old map[string]string) []string {
	var bad []string
	differ := func(from, to map[string]string) {
		for k, v := range from {
			if w, ok := to[k]; (!ok || v != w) && !nodeMaySet(k) && !slices.Contains(bad, k) {
				bad = append(bad, k)
			}
		}
	}
	differ(fresh, old)
	differ(old, fresh)
	slices.Sort(bad)
	return bad
}

// nodeMaySet reports whether a node may give itself a label.
func nodeMaySet(key string) bool {
	switch key {
	case corev1.LabelHostname,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
		corev1.LabelOSStable, corev1.LabelArchStable,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		corev1.LabelWindowsBuild:
		return true
	}
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return true
	}
	within := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
	switch {
	case within(corev1.LabelNamespaceNodeRestriction):
		return false
	case within("kubelet.kubernetes.io"), within("node.kubernetes.io"):
		return true
	}
	return !within("kubernetes.io") && !within("k8s.io")
}

// token lets a node get tokens only for pods that are bound to it, and for an audience that their volumes ask for, or that the
// node may request for the service account.
func (p *NodeRestriction) token(ctx context.Context, node string, a *Attributes) error {
	if a.Operation != Create {
		return nil
	}
	tr, ok := a.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return refuse(a, "unexpected type %T", a.Object)
	}
	ref := tr.Spec.BoundObjectRef
	switch {
	case ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "":
		return refuse(a, "node requested token not bound to a pod")
	case ref.UID == "":
		return refuse(a, "node requested token with a pod binding without a uid")
	}
	o, err := p.reader.Get(ctx, core("pods"), a.Namespace, ref.Name)
	if err != nil {
		return err
	}
	pod, ok := o.(*corev1.Pod)
	switch {
	case !ok:
		return refuse(a, "unexpected type %T", o)
	case ref.UID != pod.UID:
		return refuse(a, "the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != node:
		return refuse(a, "node requested token bound to a pod scheduled on a different node")
	}
	audience := "" // that of the API server, which a volume has to ask for, too
	switch audiences := tr.Spec.Audiences; len(audiences) {
	case 0:
	case 1:
		audience = audiences[0]
	default:
		return refuse(a, "node may only request 0 or 1 audiences")
	}
	may := rbac.Attributes{
		User: a.User, Verb: "request-serviceaccounts-token-audience", Group: corev1.GroupName, Version: "v1",
		Resource: audience, Namespace: a.Namespace, Name: a.Name,
	}
	if !asksFor(pod, audience) && !p.driverAsksFor(ctx, pod, audience) && !p.authorizer.Authorize(ctx, may).Allowed {
		return refuse(a, "%s is not authorized to request tokens for audience %q", a.User.Name, audience)
	}
	return nil
}

// driverAsksFor reports whether the driver of one of the pod's volumes gets tokens for the audience with its calls.
func (p *NodeRestriction) driverAsksFor(ctx context.Context, pod *corev1.Pod, audience string) bool {
	for i := range pod.Spec.Volumes {
		name := p.driverOf(ctx, pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		o, err := p.reader.Get(ctx, storagev1.SchemeGroupVersion.WithResource("csidrivers"), "", name)
		driver, ok := o.(*storagev1.CSIDriver)
		if err == nil && ok && slices.ContainsFunc(driver.Spec.TokenRequests, func(r storagev1.TokenRequest) bool { return r.Audience == audience }) {
			return true
		}
	}
	return false
}

// driverOf returns the name of the CSI driver of a pod's volume; "" if it has none.
func (p *NodeRestriction) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) string {
	if v.CSI != nil {
		return v.CSI.Driver
	}
	name, _ := volumefit.Named(pod, v)
	if name == "" {
		return ""
	}
	o, err := p.reader.Get(ctx, core("persistentvolumeclaims"), pod.Namespace, name)
	c, ok := o.(*corev1.PersistentVolumeClaim)
	if err != nil || !ok || c.Spec.VolumeName == "" {
		return ""
	}
	o, err = p.reader.Get(ctx, core("persistentvolumes"), "", c.Spec.VolumeName)
	pv, ok := o.(*corev1.PersistentVolume)
	if err != nil || !ok || pv.Spec.CSI == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID {
		return ""
	}
	return pv.Spec.CSI.Driver
}

// claimStatus lets a node write the size of a volume that it has expanded.
func claimStatus(node string, a *Attributes) error {
	old, ok := a.Old.(*corev1.PersistentVolumeClaim)
	if !ok || a.Operation != Update {
		return refuse(a, "unexpected operation %q", a.Operation)
	}
	now, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return refuse(a, "unexpected type %T", a.Object)
	}
	same := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c = c.DeepCopy()
		c.ResourceVersion, c.ManagedFields = "", nil
		c.Status.Capacity, c.Status.Conditions, c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil, nil, nil
		return c
	}
	if !equality.Semantic.DeepEqual(same(old), same(now)) {
		return refuse(a, "node %q is not allowed to update fields other than status.quantity and status.conditions", node)
	}
	return nil
}

// asksFor reports whether a volume of the pod is to hold a token for the audience.
func asksFor(pod *corev1.Pod, audience string) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience {
				return true
			}
		}
	}
	return false
}

func lease(node string, a *Attributes) error {
	switch {
	case a.Namespace == metav1.NamespaceSystem && nameOf(a) == "service-proxy-"+node:
		return nil // its service proxy reports there; see package proxy/applied
	case a.Namespace != corev1.NamespaceNodeLease:
		return refuse(a, "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case nameOf(a) != node:
		return refuse(a, "can only access node lease with the same name as the requesting node")
	}
	return nil
}
