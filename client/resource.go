package client

import (
	"context"
	"fmt"
	"iter"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// An Object is an API object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// A Resource is a served resource whose objects have the Go type T.
type Resource[T Object] struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

func core[T Object](resource, kind string, namespaced bool) Resource[T] {
	return Resource[T]{corev1.SchemeGroupVersion.WithResource(resource), kind, namespaced}
}

func apps[T Object](resource, kind string) Resource[T] {
	return Resource[T]{appsv1.SchemeGroupVersion.WithResource(resource), kind, true}
}

func device[T Object](resource, kind string, namespaced bool) Resource[T] {
	return Resource[T]{resourcev1.SchemeGroupVersion.WithResource(resource), kind, namespaced}
}

// The resources that parts of this program work with.
var (
	ConfigMaps             = core[*corev1.ConfigMap]("configmaps", "ConfigMap", true)
	Endpoints              = core[*corev1.Endpoints]("endpoints", "Endpoints", true)
	Events                 = core[*corev1.Event]("events", "Event", true)
	Namespaces             = core[*corev1.Namespace]("namespaces", "Namespace", false)
	Nodes                  = core[*corev1.Node]("nodes", "Node", false)
	Pods                   = core[*corev1.Pod]("pods", "Pod", true)
	ReplicationControllers = core[*corev1.ReplicationController]("replicationcontrollers", "ReplicationController", true)
	Secrets                = core[*corev1.Secret]("secrets", "Secret", true)
	ServiceAccounts        = core[*corev1.ServiceAccount]("serviceaccounts", "ServiceAccount", true)
	Services               = core[*corev1.Service]("services", "Service", true)
	Deployments            = apps[*appsv1.Deployment]("deployments", "Deployment")
	ControllerRevisions    = apps[*appsv1.ControllerRevision]("controllerrevisions", "ControllerRevision")
	DaemonSets             = apps[*appsv1.DaemonSet]("daemonsets", "DaemonSet")
	StatefulSets           = apps[*appsv1.StatefulSet]("statefulsets", "StatefulSet")
	ReplicaSets            = apps[*appsv1.ReplicaSet]("replicasets", "ReplicaSet")
	Jobs                   = Resource[*batchv1.Job]{batchv1.SchemeGroupVersion.WithResource("jobs"), "Job", true}
	CronJobs               = Resource[*batchv1.CronJob]{batchv1.SchemeGroupVersion.WithResource("cronjobs"), "CronJob", true}
	PriorityClasses        = Resource[*schedulingv1.PriorityClass]{schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), "PriorityClass", false}
	PodDisruptionBudgets   = Resource[*policyv1.PodDisruptionBudget]{policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), "PodDisruptionBudget", true}
	Leases                 = Resource[*coordinationv1.Lease]{coordinationv1.SchemeGroupVersion.WithResource("leases"), "Lease", true}
	PersistentVolumes      = core[*corev1.PersistentVolume]("persistentvolumes", "PersistentVolume", false)
	RuntimeClasses         = Resource[*nodev1.RuntimeClass]{nodev1.SchemeGroupVersion.WithResource("runtimeclasses"), "RuntimeClass", false}
	StorageClasses         = Resource[*storagev1.StorageClass]{storagev1.SchemeGroupVersion.WithResource("storageclasses"), "StorageClass", false}
	CSIDrivers             = Resource[*storagev1.CSIDriver]{storagev1.SchemeGroupVersion.WithResource("csidrivers"), "CSIDriver", false}
	CSINodes               = Resource[*storagev1.CSINode]{storagev1.SchemeGroupVersion.WithResource("csinodes"), "CSINode", false}
	CSIStorageCapacities   = Resource[*storagev1.CSIStorageCapacity]{storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"), "CSIStorageCapacity", true}
	VolumeAttachments      = Resource[*storagev1.VolumeAttachment]{storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "VolumeAttachment", false}
	PersistentVolumeClaims = Resource[*corev1.PersistentVolumeClaim]{corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "PersistentVolumeClaim", true}
	ServiceCIDRs           = Resource[*networkingv1.ServiceCIDR]{networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), "ServiceCIDR", false}
	IPAddresses            = Resource[*networkingv1.IPAddress]{networkingv1.SchemeGroupVersion.WithResource("ipaddresses"), "IPAddress", false}
	ClusterRoles           = Resource[*rbacv1.ClusterRole]{rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "ClusterRole", false}
	ClusterRoleBindings    = Resource[*rbacv1.ClusterRoleBinding]{rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), "ClusterRoleBinding", false}
	EndpointSlices         = Resource[*discoveryv1.EndpointSlice]{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "EndpointSlice", true}
	ResourceClaims         = device[*resourcev1.ResourceClaim]("resourceclaims", "ResourceClaim", true)
	ResourceClaimTemplates = device[*resourcev1.ResourceClaimTemplate]("resourceclaimtemplates", "ResourceClaimTemplate", true)
	ResourceSlices         = device[*resourcev1.ResourceSlice]("resourceslices", "ResourceSlice", false)
	DeviceClasses          = device[*resourcev1.DeviceClass]("deviceclasses", "DeviceClass", false)
	DeviceTaintRules       = device[*resourcev1.DeviceTaintRule]("devicetaintrules", "DeviceTaintRule", false)

	ClusterTrustBundles        = Resource[*certificatesv1.ClusterTrustBundle]{certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles"), "ClusterTrustBundle", false}
	PodCertificateRequests     = Resource[*certificatesv1.PodCertificateRequest]{certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests"), "PodCertificateRequest", true}
	StorageVersionMigrations   = Resource[*storagemigrationv1.StorageVersionMigration]{storagemigrationv1.SchemeGroupVersion.WithResource("storageversionmigrations"), "StorageVersionMigration", false}
	VolumeAttributesClasses    = Resource[*storagev1.VolumeAttributesClass]{storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses"), "VolumeAttributesClass", false}
	CertificateSigningRequests = Resource[*certificatesv1.CertificateSigningRequest]{certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "CertificateSigningRequest", false}

	HorizontalPodAutoscalers = Resource[*autoscalingv2.HorizontalPodAutoscaler]{autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"), "HorizontalPodAutoscaler", true}
)

// GVK returns the kind of the resource's objects.
func (r Resource[T]) GVK() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

// Get returns the object, which must not be changed (C1).
func (r Resource[T]) Get(ctx context.Context, c Interface, namespace, name string) (T, error) {
	return as[T](c.Get(ctx, r.GroupVersionResource, namespace, name, ""))
}

// List returns the matching objects, which must not be changed (C1), and the
// revision of the list.
func (r Resource[T]) List(ctx context.Context, c Interface, namespace string, opts metav1.ListOptions) ([]T, metav1.ListMeta, error) {
	objs, meta, err := c.List(ctx, r.GroupVersionResource, namespace, opts)
	if err != nil {
		return nil, meta, err
	}
	items := make([]T, len(objs))
	for i, o := range objs {
		if items[i], err = as[T](o, nil); err != nil {
			return nil, meta, err
		}
	}
	return items, meta, nil
}

// Watch yields events as [Interface] does; their objects have type T.
func (r Resource[T]) Watch(ctx context.Context, c Interface, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return c.Watch(ctx, r.GroupVersionResource, namespace, opts)
}

// Create stores a new object and returns it as stored.
func (r Resource[T]) Create(ctx context.Context, c Interface, obj T) (T, error) {
	return as[T](c.Create(ctx, r.GroupVersionResource, obj.GetNamespace(), "", obj, metav1.CreateOptions{}, ""))
}

// Update replaces an object, if its resource version is still the stored one,
// and returns it as stored. The subresource is "" or "status".
func (r Resource[T]) Update(ctx context.Context, c Interface, obj T, subresource string) (T, error) {
	return r.UpdateBy(ctx, c, obj, subresource, "")
}

// UpdateBy is Update with the name of a field manager; empty means that of the client.
func (r Resource[T]) UpdateBy(ctx context.Context, c Interface, obj T, subresource, manager string) (T, error) {
	opts := metav1.UpdateOptions{FieldManager: manager}
	return as[T](c.Update(ctx, r.GroupVersionResource, obj.GetNamespace(), obj.GetName(), obj, opts, subresource))
}

// Patch changes an object and returns it as stored.
func (r Resource[T]) Patch(ctx context.Context, c Interface, namespace, name string, kind types.PatchType, patch []byte, subresource string) (T, error) {
	return as[T](c.Patch(ctx, r.GroupVersionResource, namespace, name, kind, patch, metav1.PatchOptions{}, subresource))
}

// Delete asks for the deletion of an object.
func (r Resource[T]) Delete(ctx context.Context, c Interface, namespace, name string, opts metav1.DeleteOptions) error {
	return c.Delete(ctx, r.GroupVersionResource, namespace, name, opts)
}

func as[T Object](o runtime.Object, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, err
	}
	t, ok := o.(T)
	if !ok {
		return zero, fmt.Errorf("the server answered with a %T, want a %T", o, zero)
	}
	return t, nil
}
