package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// This file allocates devices to pods that ask for an extended resource (example.com/gpu) which a DeviceClass provides
// (KEP-5004). Nodes that have the resource among their allocatable ones provide it themselves. For the others the pod gets a
// claim of its own, which exists in memory until PreBind writes it.

// provider returns the class that provides an extended resource, or nil: the newest class with that name, and of equally old
// ones the first by name; or the class that the name deviceclass.resource.kubernetes.io/CLASS names.
func provider(s *plugin.Snapshot, name corev1.ResourceName) *resourcev1.DeviceClass {
	if class, ok := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix); ok {
		c, _ := plugin.Find(s, client.DeviceClasses, "", class)
		return c
	}
	var best *resourcev1.DeviceClass
	plugin.Each(s, client.DeviceClasses, func(c *resourcev1.DeviceClass) {
		if c.Spec.ExtendedResourceName == nil || *c.Spec.ExtendedResourceName != string(name) {
			return
		}
		if best == nil || cmp.Or(best.CreationTimestamp.Compare(c.CreationTimestamp.Time), strings.Compare(c.Name, best.Name)) < 0 {
			best = c
		}
	})
	return best
}

// provided returns the extended resources that a pod asks for and that classes provide, with the classes.
func provided(pod *plugin.Pod, s *plugin.Snapshot) map[corev1.ResourceName]*resourcev1.DeviceClass {
	var out map[corev1.ResourceName]*resourcev1.DeviceClass
	for name, amount := range pod.Requests.Other {
		if amount == 0 || !strings.Contains(string(name), "/") {
			continue
		}
		if class := provider(s, name); class != nil {
			if out == nil {
				out = map[corev1.ResourceName]*resourcev1.DeviceClass{}
			}
			out[name] = class
		}
	}
	return out
}

// extendedClaim returns the claim that was made for the extended resources of a pod by an earlier attempt, or nil.
func extendedClaim(pod *plugin.Pod, s *plugin.Snapshot) *resourcev1.ResourceClaim {
	var found *resourcev1.ResourceClaim
	plugin.Each(s, client.ResourceClaims, func(c *resourcev1.ResourceClaim) {
		if c.Namespace == pod.Namespace && c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" && metav1.IsControlledBy(c, pod.Pod) &&
			(found == nil || c.Name < found.Name) {
			found = c
		}
	})
	return found
}

// inMemory is the UID of the claim for the extended resources of a pod until the server has given it another.
func inMemory(pod types.UID) types.UID { return "extended-resources-of-" + pod }

// forNode returns the claim for the extended resources that a node does not have itself, and which container gets which of
// its requests; or nil if the node has all.
func forNode(pod *plugin.Pod, classes map[corev1.ResourceName]*resourcev1.DeviceClass, node *plugin.Node) (*resourcev1.ResourceClaim, []corev1.ContainerExtendedResourceRequest) {
	var requests []resourcev1.DeviceRequest
	var mappings []corev1.ContainerExtendedResourceRequest
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if node.Allocatable.Amount(name) > 0 {
			continue
		}
		r, m := share(pod.Pod, name, classes[name].Name)
		requests, mappings = append(requests, r...), append(mappings, m...)
	}
	if len(requests) == 0 {
		return nil, nil
	}
	sorting.Slice(requests, func(a, b resourcev1.DeviceRequest) int { return strings.Compare(a.Name, b.Name) })
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: "<extended-resources>", UID: inMemory(pod.UID), GenerateName: pod.Name + "-extended-resources-",
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}, mappings
}

// tooManyRequests returns how many requests the claim for the extended resources of a pod needs at least on a node, if that is more than a
// claim may have; otherwise 0. It is asked before [forNode], whose result is as large as the product of init containers
// and these requests.
func tooManyRequests(pod *plugin.Pod, classes map[corev1.ResourceName]*resourcev1.DeviceClass, node *plugin.Node) (n int) {
	count := func(c *corev1.Container) {
		for name := range c.Resources.Requests {
			if classes[name] != nil && node.Allocatable.Amount(name) == 0 && whole(c, name) > 0 {
				n++
			}
		}
	}
	for i := range pod.Pod.Spec.Containers {
		count(&pod.Pod.Spec.Containers[i])
	}
	for i := range pod.Pod.Spec.InitContainers {
		if c := &pod.Pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			count(c)
		}
	}
	if n <= resourcev1.DeviceRequestsMaxSize {
		return 0
	}
	return n
}

// share turns what containers ask for of one resource into requests. Containers that run together have a request each. An
// init container uses the devices of the containers that start after it, and further devices come from one
// request that all init containers share, because they run one after the other.
func share(pod *corev1.Pod, name corev1.ResourceName, class string) (requests []resourcev1.DeviceRequest, mappings []corev1.ContainerExtendedResourceRequest) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	type request struct {
		container int
		*resourcev1.DeviceRequest
	}
	var lasting []request
	passing := func(i int) bool {
		always := all[i].RestartPolicy != nil && *all[i].RestartPolicy == corev1.ContainerRestartPolicyAlways
		return i < len(pod.Spec.InitContainers) && !always
	}
	use := func(i int, request string) {
		mappings = append(mappings, corev1.ContainerExtendedResourceRequest{ContainerName: all[i].Name, ResourceName: string(name), RequestName: request})
	}
	for i := range all {
		if amount := whole(&all[i], name); amount > 0 && !passing(i) {
			r := deviceRequest(i, &all[i], name, class, amount)
			lasting = append(lasting, request{i, r})
			use(i, r.Name)
		}
	}
	var extra *resourcev1.DeviceRequest
	var sharers []int
	for i := range all {
		amount := whole(&all[i], name)
		if amount == 0 || !passing(i) {
			continue
		}
		for _, r := range lasting {
			if r.container > i && amount > 0 {
				use(i, r.Name)
				amount -= r.Exactly.Count
			}
		}
		if amount <= 0 {
			continue
		}
		if sharers = append(sharers, i); extra == nil || extra.Exactly.Count < amount {
			extra = deviceRequest(i, &all[i], name, class, amount)
		}
	}
	if extra != nil {
		requests = append(requests, *extra)
		for _, i := range sharers {
			use(i, extra.Name)
		}
	}
	for _, r := range lasting {
		requests = append(requests, *r.DeviceRequest)
	}
	return requests, mappings
}

// whole returns how many of a resource a container asks for.
func whole(c *corev1.Container, name corev1.ResourceName) int64 {
	q, ok := c.Resources.Requests[name]
	if !ok {
		return 0
	}
	n, _ := q.AsInt64()
	return max(n, 0)
}

// deviceRequest names the request by the index of the container, and of the resource among those of the container.
func deviceRequest(i int, c *corev1.Container, name corev1.ResourceName, class string, amount int64) *resourcev1.DeviceRequest {
	at := slices.Index(slices.Sorted(maps.Keys(c.Resources.Requests)), name)
	return &resourcev1.DeviceRequest{Name: fmt.Sprintf("container-%d-request-%d", i, at), Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: amount,
	}}
}

// writeExtended writes the claim for the extended resources of a pod, with its allocation, and its name to the pod's status.
func (d *DynamicResources) writeExtended(ctx context.Context, p plugin.Placement, plan *devicePlan) (*resourcev1.ResourceClaim, error) {
	fresh := plan.extended.DeepCopy()
	fresh.Name, fresh.UID = "", ""
	created, err := client.ResourceClaims.Create(ctx, p.Client, fresh)
	if err != nil {
		return nil, fmt.Errorf("create claim for extended resources %s/%s: %w", plan.extended.Namespace, plan.extended.Name, err)
	}
	d.inFlight.rename(plan.extended.UID, created)
	claim, err := d.claim(ctx, p, created, &plan.results[len(plan.results)-1])
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.Pod.UID},
		"status": map[string]any{"extendedResourceClaimStatus": corev1.PodExtendedResourceClaimStatus{
			RequestMappings: plan.mappings, ResourceClaimName: claim.Name,
		}},
	})
	if err != nil {
		return nil, err
	}
	if _, err := client.Pods.Patch(ctx, p.Client, p.Pod.Namespace, p.Pod.Name, types.StrategicMergePatchType, patch, "status"); err != nil {
		return nil, fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", p.Pod.Namespace, p.Pod.Name, err)
	}
	return claim, nil
}

// discardClaim returns a function that deletes the claim of an earlier attempt.
func discardClaim(c *resourcev1.ResourceClaim) func(context.Context, client.Interface) error {
	return func(ctx context.Context, api client.Interface) error {
		if slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			next := c.DeepCopy()
			next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
			if _, err := client.ResourceClaims.Update(ctx, api, next, ""); err != nil {
				return err
			}
		}
		err := client.ResourceClaims.Delete(ctx, api, c.Namespace, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}
