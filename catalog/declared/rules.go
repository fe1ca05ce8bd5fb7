package declared

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/declared/admissionregistration"
	"github.com/sampan-io/sampan/catalog/declared/apps"
	"github.com/sampan-io/sampan/catalog/declared/autoscaling"
	"github.com/sampan-io/sampan/catalog/declared/autoscaling2"
	"github.com/sampan-io/sampan/catalog/declared/batch"
	"github.com/sampan-io/sampan/catalog/declared/certificates"
	"github.com/sampan-io/sampan/catalog/declared/core"
	"github.com/sampan-io/sampan/catalog/declared/discovery"
	"github.com/sampan-io/sampan/catalog/declared/flowcontrol"
	"github.com/sampan-io/sampan/catalog/declared/networking"
	"github.com/sampan-io/sampan/catalog/declared/node"
	"github.com/sampan-io/sampan/catalog/declared/rbac"
	"github.com/sampan-io/sampan/catalog/declared/resource"
	"github.com/sampan-io/sampan/catalog/declared/storage"
)

// check runs the generated rules for the type of obj. Old is nil, or of the same type. The table has
// the kinds with at least one rule that is enforced: half of all kinds. For the others, which include
// Events and Leases, nothing is spent.
func check(ctx context.Context, op operation.Operation, obj, old runtime.Object) field.ErrorList {
	switch o := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return run(ctx, op, admissionregistration.Validate_ValidatingAdmissionPolicyBinding, o, old)
	case *appsv1.DaemonSet:
		return run(ctx, op, apps.Validate_DaemonSet, o, old)
	case *appsv1.Deployment:
		return run(ctx, op, apps.Validate_Deployment, o, old)
	case *appsv1.ReplicaSet:
		return run(ctx, op, apps.Validate_ReplicaSet, o, old)
	case *appsv1.StatefulSet:
		return run(ctx, op, apps.Validate_StatefulSet, o, old)
	case *autoscalingv1.HorizontalPodAutoscaler:
		return run(ctx, op, autoscaling.Validate_HorizontalPodAutoscaler, o, old)
	case *autoscalingv1.Scale:
		return run(ctx, op, autoscaling.Validate_Scale, o, old)
	case *autoscalingv2.HorizontalPodAutoscaler:
		return run(ctx, op, autoscaling2.Validate_HorizontalPodAutoscaler, o, old)
	case *batchv1.CronJob:
		return run(ctx, op, batch.Validate_CronJob, o, old)
	case *batchv1.Job:
		return run(ctx, op, batch.Validate_Job, o, old)
	case *certificatesv1.CertificateSigningRequest:
		return run(ctx, op, certificates.Validate_CertificateSigningRequest, o, old)
	case *corev1.Node:
		return run(ctx, op, core.Validate_Node, o, old)
	case *corev1.PersistentVolumeClaim:
		return run(ctx, op, core.Validate_PersistentVolumeClaim, o, old)
	case *corev1.Pod:
		return run(ctx, op, core.Validate_Pod, o, old)
	case *corev1.PodTemplate:
		return run(ctx, op, core.Validate_PodTemplate, o, old)
	case *corev1.ReplicationController:
		return run(ctx, op, core.Validate_ReplicationController, o, old)
	case *discoveryv1.EndpointSlice:
		return run(ctx, op, discovery.Validate_EndpointSlice, o, old)
	case *flowcontrolv1.PriorityLevelConfiguration:
		return run(ctx, op, flowcontrol.Validate_PriorityLevelConfiguration, o, old)
	case *networkingv1.IPAddress:
		return run(ctx, op, networking.Validate_IPAddress, o, old)
	case *networkingv1.IngressClass:
		return run(ctx, op, networking.Validate_IngressClass, o, old)
	case *networkingv1.NetworkPolicy:
		return run(ctx, op, networking.Validate_NetworkPolicy, o, old)
	case *nodev1.RuntimeClass:
		return run(ctx, op, node.Validate_RuntimeClass, o, old)
	case *rbacv1.ClusterRole:
		return run(ctx, op, rbac.Validate_ClusterRole, o, old)
	case *rbacv1.ClusterRoleBinding:
		return run(ctx, op, rbac.Validate_ClusterRoleBinding, o, old)
	case *rbacv1.Role:
		return run(ctx, op, rbac.Validate_Role, o, old)
	case *rbacv1.RoleBinding:
		return run(ctx, op, rbac.Validate_RoleBinding, o, old)
	case *resourcev1.DeviceClass:
		return run(ctx, op, resource.Validate_DeviceClass, o, old)
	case *resourcev1.DeviceTaintRule:
		return run(ctx, op, resource.Validate_DeviceTaintRule, o, old)
	case *resourcev1.ResourceClaim:
		// Each is about another allocated device. The generated rules compare them pairwise.
		if n := len(o.Status.Devices); n > resourcev1.AllocationResultsMaxSize {
			return field.ErrorList{field.TooMany(field.NewPath("status", "devices"), n, resourcev1.AllocationResultsMaxSize)}
		}
		return run(ctx, op, resource.Validate_ResourceClaim, o, old)
	case *resourcev1.ResourceClaimTemplate:
		return run(ctx, op, resource.Validate_ResourceClaimTemplate, o, old)
	case *resourcev1.ResourceSlice:
		return run(ctx, op, resource.Validate_ResourceSlice, o, old)
	case *storagev1.StorageClass:
		return run(ctx, op, storage.Validate_StorageClass, o, old)
	case *storagev1.VolumeAttachment:
		return run(ctx, op, storage.Validate_VolumeAttachment, o, old)
	}
	return nil
}

// run calls the generated rules of the type T.
func run[T any](
	ctx context.Context, op operation.Operation,
	rules func(ctx context.Context, op operation.Operation, path *field.Path, obj, old *T) field.ErrorList,
	obj *T, old runtime.Object,
) field.ErrorList {
	was, _ := any(old).(*T)
	return rules(ctx, op, nil, obj, was)
}
