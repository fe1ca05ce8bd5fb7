package clienttest

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// kind is what the model knows about a served resource.
type kind struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	namespaced bool
	status     bool // has a status subresource
	generation bool
	orphan     bool // a deletion that says nothing orphans the dependents
}

func kindOf[T client.Object](r client.Resource[T]) *kind {
	return &kind{gvr: r.GroupVersionResource, gvk: r.GVK(), namespaced: r.Namespaced}
}

func kinds() []*kind {
	with := func(k *kind, set func(*kind)) *kind { set(k); return k }
	status := func(k *kind) { k.status = true }
	spec := func(k *kind) { k.status, k.generation = true, true }
	old := func(k *kind) { k.status, k.generation, k.orphan = true, true, true }
	return []*kind{
		kindOf(client.ConfigMaps),
		kindOf(client.Endpoints),
		kindOf(client.Events),
		with(kindOf(client.Namespaces), status),
		with(kindOf(client.Nodes), status),
		with(kindOf(client.Pods), spec),
		with(kindOf(client.ReplicationControllers), old),
		kindOf(client.Secrets),
		kindOf(client.ServiceAccounts),
		with(kindOf(client.Services), status),
		with(kindOf(client.Deployments), spec),
		kindOf(client.ControllerRevisions),
		with(kindOf(client.DaemonSets), spec),
		with(kindOf(client.StatefulSets), spec),
		with(kindOf(client.ReplicaSets), spec),
		with(kindOf(client.PodDisruptionBudgets), spec),
		with(kindOf(client.PersistentVolumeClaims), status),
		with(kindOf(client.PersistentVolumes), status),
		kindOf(client.StorageClasses),
		kindOf(client.CSIDrivers),
		kindOf(client.CSINodes),
		kindOf(client.CSIStorageCapacities),
		with(kindOf(client.VolumeAttachments), status),
		kindOf(client.PriorityClasses),
		with(kindOf(client.Jobs), old),
		kindOf(client.Leases),
		with(kindOf(client.ServiceCIDRs), status),
		with(kindOf(client.EndpointSlices), func(k *kind) { k.generation = true }),
	}
}

func (k *kind) new() client.Object {
	obj, err := client.Scheme().New(k.gvk)
	if err != nil {
		panic(err) // every kind of the table is in the scheme
	}
	return obj.(client.Object) // every kind of the table has metadata
}

// copyField sets a field of the struct behind to to what it is behind from, if there
// is such a field.
func copyField(to, from client.Object, name string) {
	if f := reflect.ValueOf(to).Elem().FieldByName(name); f.IsValid() {
		f.Set(reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName(name))
	}
}

func clearField(obj client.Object, name string) {
	if f := reflect.ValueOf(obj).Elem().FieldByName(name); f.IsValid() {
		f.SetZero()
	}
}

// field returns the value that a field selector means by path.
func field(obj client.Object, path string) (string, error) {
	switch path {
	case "metadata.name":
		return obj.GetName(), nil
	case "metadata.namespace":
		return obj.GetNamespace(), nil
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		switch path {
		case "spec.nodeName":
			return o.Spec.NodeName, nil
		case "spec.restartPolicy":
			return string(o.Spec.RestartPolicy), nil
		case "spec.schedulerName":
			return o.Spec.SchedulerName, nil
		case "spec.serviceAccountName":
			return o.Spec.ServiceAccountName, nil
		case "status.phase":
			return string(o.Status.Phase), nil
		case "status.podIP":
			return o.Status.PodIP, nil
		}
	case *corev1.Event:
		i := o.InvolvedObject
		switch path {
		case "involvedObject.kind":
			return i.Kind, nil
		case "involvedObject.namespace":
			return i.Namespace, nil
		case "involvedObject.name":
			return i.Name, nil
		case "involvedObject.uid":
			return string(i.UID), nil
		case "reason":
			return o.Reason, nil
		case "type":
			return o.Type, nil
		}
	case *corev1.Node:
		if path == "spec.unschedulable" {
			return fmt.Sprint(o.Spec.Unschedulable), nil
		}
	case *corev1.Namespace:
		if path == "status.phase" {
			return string(o.Status.Phase), nil
		}
	case *corev1.Secret:
		if path == "type" {
			return string(o.Type), nil
		}
	case *corev1.Service:
		switch path {
		case "spec.clusterIP":
			return o.Spec.ClusterIP, nil
		case "spec.type":
			return string(o.Spec.Type), nil
		}
	}
	return "", fmt.Errorf("field label not supported: %s", path)
}

// protected are the namespaces that every cluster has.
var protected = [...]string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// Resources returns the resources that a [Server] serves.
func Resources() (all []client.Resource[client.Object]) {
	for _, k := range kinds() {
		all = append(all, client.Resource[client.Object]{GroupVersionResource: k.gvr, Kind: k.gvk.Kind, Namespaced: k.namespaced})
	}
	return all
}
