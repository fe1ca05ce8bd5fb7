package rbac

import (
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/sampan-io/sampan/internal/volumefit"
)

// nodes authorizes the agents of nodes for the objects of their own node. NodeRestriction in
// package admission checks what depends on the content of a write (whose status it is, to which
// node a created pod is bound).
type nodes struct{ objects Lookup }

func (n nodes) decide(ctx context.Context, node string, a *Attributes) Decision {
	switch (schema.GroupResource{Group: a.Group, Resource: a.Resource}) {
	case schema.GroupResource{Resource: "nodes"}:
		return decideNode(node, a)
	case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}:
		return decideLease(node, a)
	case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
		return decideCSINode(node, a)
	case schema.GroupResource{Resource: "pods"}:
		return n.decidePod(ctx, node, a)
	case schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Resource: "configmaps"}:
		return n.decideRead(ctx, node, a)
	case schema.GroupResource{Resource: "persistentvolumeclaims"}, schema.GroupResource{Resource: "persistentvolumes"}:
		return n.decideStorage(ctx, node, a)
	case schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}:
		return n.decideAttachment(ctx, node, a)
	case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}:
		return n.decideResourceClaim(ctx, node, a)
	case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}:
		return n.decideResourceSlice(ctx, node, a)
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return n.decideServiceAccount(ctx, node, a)
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:
		return n.decideCertificateRequest(ctx, node, a)
	}
	return Decision{Allowed: Allow(nodeRules, a)}
}

var read = []string{"get", "list", "watch"}

// nodeRules are the same for every node.
var nodeRules = []rbacv1.PolicyRule{
	{Verbs: read, APIGroups: []string{""}, Resources: []string{"services"}},
	{Verbs: read, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
	{Verbs: []string{"create", "update", "patch"}, APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}},
	{Verbs: read, APIGroups: []string{"node.k8s.io"}, Resources: []string{"runtimeclasses"}},
	{Verbs: read, APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csidrivers"}},
	{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}},
	{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews", "localsubjectaccessreviews"}},
	{Verbs: []string{"create", "get", "list", "watch"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}},
	{Verbs: read, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"clustertrustbundles"}},
}

// decideCertificateRequest lets a node request certificates for its pods, and read these requests.
func (n nodes) decideCertificateRequest(ctx context.Context, node string, a *Attributes) Decision {
	if a.Subresource != "" {
		return no("nodes may not access the status subresource of PodCertificateRequests")
	}
	switch a.Verb {
	case "create": // for which pods: NodeRestriction
		return yes()
	case "get":
		if n.objects != nil {
			o, err := n.objects.Get(ctx, certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests"), a.Namespace, a.Name)
			if r, ok := o.(*certificatesv1.PodCertificateRequest); err == nil && ok && string(r.Spec.NodeName) == node {
				return yes()
			}
		}
		return unrelated(node)
	case "list", "watch":
		if a.Fields != nil {
			if of, ok := a.Fields.RequiresExactMatch("spec.nodeName"); ok && of == node {
				return yes()
			}
		}
		return no("can only list/watch podcertificaterequests with nodeName field selector")
	}
	return no("nodes may not %s podcertificaterequests", a.Verb)
}

func yes() Decision { return Decision{Allowed: true} }

func no(format string, args ...any) Decision {
	return Decision{Reason: fmt.Sprintf(format, args...)}
}

func decideNode(node string, a *Attributes) Decision {
	switch a.Subresource {
	case "":
		switch a.Verb {
		case "create", "update", "patch": // which node: NodeRestriction
			return yes()
		case "get", "list", "watch":
			switch a.Name {
			case node:
				return yes()
			case "":
				return no("node '%s' cannot read all nodes, only its own Node object", node)
			}
			return no("node '%s' cannot read '%s', only its own Node object", node, a.Name)
		}
	case "status":
		if a.Verb == "update" || a.Verb == "patch" { // which node: NodeRestriction
			return yes()
		}
	}
	return Decision{}
}

func decideLease(node string, a *Attributes) Decision {
	if a.Namespace == metav1.NamespaceSystem && slices.Contains(read, a.Verb) {
		return yes() // the state that service proxies have applied
	}
	if a.Namespace == metav1.NamespaceSystem && (a.Verb == "create" || (a.Verb == "update" || a.Verb == "patch") && a.Name == "service-proxy-"+node) {
		return yes() // of its own service proxy; which one is created: NodeRestriction
	}
	switch a.Verb {
	case "get", "create", "update", "patch", "delete":
	default:
		return no("can only get, create, update, patch, or delete a node lease")
	}
	switch {
	case a.Namespace != corev1.NamespaceNodeLease:
		return no("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case a.Verb != "create" && a.Name != node: // the name of a creation: NodeRestriction
		return no("can only access node lease with the same name as the requesting node")
	}
	return yes()
}

func decideCSINode(node string, a *Attributes) Decision {
	if a.Subresource != "" {
		return no("cannot authorize CSINode subresources")
	}
	switch a.Verb {
	case "get", "create", "update", "patch", "delete":
	default:
		return no("can only get, create, update, patch, or delete a CSINode")
	}
	if a.Verb != "create" && a.Name != node { // the name of a creation: NodeRestriction
		return no("can only access CSINode with the same name as the requesting node")
	}
	return yes()
}

func (n nodes) decidePod(ctx context.Context, node string, a *Attributes) Decision {
	switch a.Subresource {
	case "":
		switch a.Verb {
		case "get":
			return n.ownPod(ctx, node, a)
		case "list", "watch":
			if a.Fields != nil {
				if of, ok := a.Fields.RequiresExactMatch("spec.nodeName"); ok && of == node {
					return yes()
				}
			}
			if a.Name != "" {
				return n.ownPod(ctx, node, a)
			}
			return no("can only list/watch pods with spec.nodeName field selector")
		case "create", "delete": // mirror pods, and whose: NodeRestriction
			return yes()
		}
	case "status":
		if a.Verb == "update" || a.Verb == "patch" { // whose: NodeRestriction
			return yes()
		}
	case "eviction":
		if a.Verb == "create" { // whose: NodeRestriction
			return yes()
		}
	}
	return Decision{}
}

func (n nodes) ownPod(ctx context.Context, node string, a *Attributes) Decision {
	if n.objects != nil && a.Namespace != "" && a.Name != "" {
		o, err := n.objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("pods"), a.Namespace, a.Name)
		if pod, ok := o.(*corev1.Pod); err == nil && ok && pod.Spec.NodeName == node {
			return yes()
		}
	}
	return unrelated(node)
}

func unrelated(node string) Decision {
	return no("no relationship found between node '%s' and this object", node)
}

// decideRead lets a node read the secrets and config maps that its pods name.
func (n nodes) decideRead(ctx context.Context, node string, a *Attributes) Decision {
	switch a.Verb {
	case "get", "list", "watch":
	default:
		return no("can only read resources of this type")
	}
	switch {
	case a.Subresource != "":
		return no("cannot read subresource")
	case a.Namespace == "":
		return no("can only read namespaced object of this type")
	case a.Name == "":
		return no("No Object name found")
	}
	if a.Resource == "configmaps" {
		return n.named(ctx, node, a, configMaps)
	}
	if d := n.named(ctx, node, a, secrets); d.Allowed || n.objects == nil {
		return d
	}
	return n.volumeSecret(ctx, node, a)
}

// volumeSecret lets a node read the secrets with which its volumes are mounted.
func (n nodes) volumeSecret(ctx context.Context, node string, a *Attributes) Decision {
	pods, err := n.objects.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), "", fields.Set{"spec.nodeName": node})
	if err != nil {
		return no("the pods of node '%s' cannot be looked up: %v", node, err)
	}
	for _, o := range pods {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName != node {
			continue
		}
		found := false
		claims(pod, func(name string) { found = found || n.needsSecret(ctx, pod.Namespace, name, a.Namespace, a.Name) })
		if found {
			return yes()
		}
	}
	return unrelated(node)
}

// needsSecret reports whether a secret is one with which the volume of a claim is mounted.
func (n nodes) needsSecret(ctx context.Context, namespace, claim, secretNamespace, secret string) bool {
	o, err := n.objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), namespace, claim)
	c, ok := o.(*corev1.PersistentVolumeClaim)
	if err != nil || !ok || c.Spec.VolumeName == "" {
		return false
	}
	o, err = n.objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), "", c.Spec.VolumeName)
	v, ok := o.(*corev1.PersistentVolume)
	if err != nil || !ok || v.Spec.CSI == nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID {
		return false
	}
	for _, ref := range []*corev1.SecretReference{v.Spec.CSI.NodeStageSecretRef, v.Spec.CSI.NodePublishSecretRef, v.Spec.CSI.NodeExpandSecretRef} {
		if ref != nil && ref.Namespace == secretNamespace && ref.Name == secret {
			return true
		}
	}
	return false
}

// decideAttachment lets a node get its volume attachments.
func (n nodes) decideAttachment(ctx context.Context, node string, a *Attributes) Decision {
	if a.Verb != "get" || a.Subresource != "" || a.Name == "" || n.objects == nil {
		return no("can only get individual resources of this type")
	}
	o, err := n.objects.Get(ctx, storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", a.Name)
	if v, ok := o.(*storagev1.VolumeAttachment); err == nil && ok && v.Spec.NodeName == node {
		return yes()
	}
	return unrelated(node)
}

// decideResourceClaim lets a node get the claims of devices that its pods use.
func (n nodes) decideResourceClaim(ctx context.Context, node string, a *Attributes) Decision {
	if a.Verb != "get" || a.Subresource != "" || a.Name == "" {
		return no("can only get individual resources of this type")
	}
	return n.named(ctx, node, a, func(pod *corev1.Pod, found func(string)) {
		for name := range resourceclaim.PodClaims(pod) {
			found(name)
		}
	})
}

// decideResourceSlice lets a node read and write the slices of its own devices.
func (n nodes) decideResourceSlice(ctx context.Context, node string, a *Attributes) Decision {
	if a.Subresource != "" {
		return no("cannot authorize ResourceSlice subresources")
	}
	switch a.Verb {
	case "create": // of which node: NodeRestriction
		return yes()
	case "get", "update", "patch", "delete":
		if n.objects == nil || a.Name == "" {
			return unrelated(node)
		}
		o, err := n.objects.Get(ctx, resourcev1.SchemeGroupVersion.WithResource("resourceslices"), "", a.Name)
		if s, ok := o.(*resourcev1.ResourceSlice); err == nil && ok && s.Spec.NodeName != nil && *s.Spec.NodeName == node {
			return yes()
		}
		return unrelated(node)
	case "watch", "list", "deletecollection":
		if a.Fields != nil {
			if of, ok := a.Fields.RequiresExactMatch(resourcev1.ResourceSliceSelectorNodeName); ok && of == node {
				return yes()
			}
		}
		return no("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return no("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
}

// decideStorage lets a node get the claims that its pods name, and the volumes of these, and write the status of such a claim.
func (n nodes) decideStorage(ctx context.Context, node string, a *Attributes) Decision {
	if a.Resource == "persistentvolumeclaims" && a.Subresource == "status" && a.Name != "" {
		if a.Verb != "update" && a.Verb != "patch" { // which fields: NodeRestriction
			return no("can only get/update/patch this type")
		}
		return n.named(ctx, node, a, claims)
	}
	if a.Verb != "get" || a.Subresource != "" || a.Name == "" || n.objects == nil {
		return no("can only get individual resources of this type")
	}
	if a.Resource == "persistentvolumeclaims" {
		return n.named(ctx, node, a, claims)
	}
	o, err := n.objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), "", a.Name)
	volume, ok := o.(*corev1.PersistentVolume)
	if err != nil || !ok || volume.Spec.ClaimRef == nil {
		return unrelated(node)
	}
	of := *a
	of.Namespace, of.Name = volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name
	return n.named(ctx, node, &of, claims)
}

func claims(pod *corev1.Pod, found func(string)) {
	for i := range pod.Spec.Volumes {
		if name, _ := volumefit.Named(pod, &pod.Spec.Volumes[i]); name != "" {
			found(name)
		}
	}
}

// decideServiceAccount lets a node get tokens for the service accounts that its
// pods run as, and read those.
func (n nodes) decideServiceAccount(ctx context.Context, node string, a *Attributes) Decision {
	read := a.Verb == "get" && a.Subresource == ""
	token := a.Verb == "create" && a.Subresource == "token"
	if !read && !token || a.Name == "" || a.Namespace == "" {
		return no("can only get service accounts, and create tokens for individual service accounts")
	}
	return n.named(ctx, node, a, func(pod *corev1.Pod, found func(string)) { found(pod.Spec.ServiceAccountName) })
}

// named allows objects that one of the node's pods names.
func (n nodes) named(ctx context.Context, node string, a *Attributes, visit func(pod *corev1.Pod, found func(name string))) Decision {
	if n.objects == nil {
		return unrelated(node)
	}
	pods, err := n.objects.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), a.Namespace, fields.Set{"spec.nodeName": node})
	if err != nil {
		return no("the pods of node '%s' cannot be looked up: %v", node, err)
	}
	related, asked := false, a.Name // captured alone, so that a stays on the stack
	for _, o := range pods {
		// The node name is looked at again: the rule must not rest on the index alone.
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName == node {
			visit(pod, func(name string) { related = related || name == asked })
		}
	}
	if !related {
		return unrelated(node)
	}
	return yes()
}
