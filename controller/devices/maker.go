package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
)

// fieldManager is upstream's name for the writer of status.resourceClaimStatuses.
const fieldManager = "ResourceClaimController"

// maker makes the claims of pods from templates (devices-D1), and reserves claims for pods that did not pass the scheduler
// (devices-D2). Its keys are pods.
type maker struct {
	*objects
	events *client.Recorder
	loop   *controller.Loop
}

func (m *maker) subscribe() {
	m.pods.Subscribe(func(_, after *corev1.Pod) {
		if after != nil {
			m.look(after)
		}
	})
	m.claims.Subscribe(func(before, after *resourcev1.ResourceClaim) {
		key := controller.KeyOfEither(before, after)
		for _, pod := range m.pods.ByIndex(byClaim, key.String()) {
			m.look(pod)
		}
	})
	m.templates.Subscribe(func(_, after *resourcev1.ResourceClaimTemplate) {
		if after == nil {
			return
		}
		for _, pod := range m.pods.ByIndex(byTemplate, controller.KeyOf(after).String()) {
			m.look(pod)
		}
	})
}

// look queues a pod if there is something to do for it.
func (m *maker) look(pod *corev1.Pod) {
	if !over(pod) && m.lacks(pod) {
		m.loop.Add(controller.KeyOf(pod))
	}
}

// over reports whether a pod gets no claims any more. Upstream does not ask whether it has ended; a claim that was deleted
// because its pod has ended would be made again for ever.
func over(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil || done(pod) }

func (m *maker) lacks(pod *corev1.Pod) bool {
	for i := range pod.Spec.ResourceClaims {
		wanted := &pod.Spec.ResourceClaims[i]
		name, owned, err := resourceclaim.Name(pod, wanted)
		switch {
		case err != nil:
			return true
		case name == nil: // no claim is needed
			continue
		}
		c, ok := m.claims.Get(pod.Namespace, *name)
		switch {
		case !ok && wanted.ResourceClaimTemplateName != nil:
			return true
		case !ok || owned && resourceclaim.IsForPod(pod, c, false) != nil:
			continue // the user has to make it, or to delete it
		case unreserved(pod, c):
			return true
		}
	}
	return false
}

// unreserved reports whether a claim is to be reserved for a pod here.
func unreserved(pod *corev1.Pod, c *resourcev1.ResourceClaim) bool {
	return pod.Spec.NodeName != "" && c.Status.Allocation != nil && !resourceclaim.IsReservedForPod(pod, c, false)
}

func (m *maker) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	pod, ok := m.pods.Get(key.Namespace, key.Name)
	if !ok || over(pod) {
		return controller.Result{}, nil
	}
	made := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		wanted := &pod.Spec.ResourceClaims[i]
		name, err := m.provide(ctx, pod, wanted)
		if err != nil {
			m.events.Event(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", wanted.Name, err)
			return controller.Result{}, fmt.Errorf("pod %s, PodResourceClaim %s: %w", key, wanted.Name, err)
		}
		if name != "" {
			made[wanted.Name] = name
		}
	}
	if len(made) > 0 {
		if err := m.publish(ctx, pod, made); err != nil {
			return controller.Result{}, fmt.Errorf("update pod %s ResourceClaimStatuses: %w", key, err)
		}
	}
	if pod.Spec.NodeName == "" {
		return controller.Result{}, nil
	}
	for i := range pod.Spec.ResourceClaims {
		if err := m.reserve(ctx, pod, &pod.Spec.ResourceClaims[i]); err != nil {
			return controller.Result{}, err
		}
	}
	return controller.Result{}, nil
}

// provide sees to it that a claim of a pod exists. It returns the name of one that the pod's status does not name yet.
func (m *maker) provide(ctx context.Context, pod *corev1.Pod, wanted *corev1.PodResourceClaim) (string, error) {
	name, owned, err := resourceclaim.Name(pod, wanted)
	switch {
	case err != nil && !errors.Is(err, resourceclaim.ErrClaimNotFound):
		return "", fmt.Errorf("checking for claim before creating it: %w", err)
	case err == nil && (name == nil || wanted.ResourceClaimTemplateName == nil):
		return "", nil
	case err == nil:
		c, err := m.find(ctx, pod.Namespace, *name)
		if err != nil {
			return "", fmt.Errorf("checking claim existence: %w", err)
		}
		if c != nil && (!owned || resourceclaim.IsForPod(pod, c, false) == nil) {
			return "", nil
		}
	}
	for _, c := range m.claims.ByIndex(byOwner, string(pod.UID)) {
		if c.Namespace == pod.Namespace && c.Annotations[resourcev1.PodResourceClaimAnnotation] == wanted.Name {
			return c.Name, nil
		}
	}
	template, err := m.template(ctx, pod.Namespace, *wanted.ResourceClaimTemplateName)
	if err != nil {
		return "", fmt.Errorf("resource claim template %q: %w", *wanted.ResourceClaimTemplateName, err)
	}
	c, err := m.await(ctx)(client.ResourceClaims.Create(ctx, m.client, fromTemplate(pod, wanted.Name, template)))
	if err != nil {
		return "", fmt.Errorf("create ResourceClaim : %w", err) // upstream names it here, before it has a name
	}
	return c.Name, nil
}

// find returns a claim, or nil. The server decides that there is none, because the cache may not have it yet.
func (m *maker) find(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	if c, ok := m.claims.Get(namespace, name); ok {
		return c, nil
	}
	c, err := client.ResourceClaims.Get(ctx, m.client, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return c, err
}

// template returns a template. The server decides that there is none, unless the controller may not get templates, which
// upstream's role for it does not allow: then the cache does.
func (m *maker) template(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaimTemplate, error) {
	if t, ok := m.templates.Get(namespace, name); ok {
		return t, nil
	}
	t, err := client.ResourceClaimTemplates.Get(ctx, m.client, namespace, name)
	if apierrors.IsForbidden(err) {
		err = apierrors.NewNotFound(client.ResourceClaimTemplates.GroupResource(), name)
	}
	return t, err
}

// fromTemplate returns the claim that a pod gets from a template.
func fromTemplate(pod *corev1.Pod, name string, template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	spec := template.Spec.DeepCopy()
	annotations := maps.Clone(spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = name
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: prefix(pod.Name, name), Labels: spec.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
		},
		Spec: spec.Spec,
	}
}

// longestPrefix leaves room for a hyphen and five random characters in a name of 63.
const longestPrefix = 57

// prefix returns the prefix of the name of a claim. If it is too long, both parts are cut in proportion, as upstream does.
func prefix(pod, claim string) string {
	whole := pod + "-" + claim + "-"
	if len(whole) <= longestPrefix {
		return whole
	}
	return pod[:len(pod)*longestPrefix/len(whole)] + "-" + claim[:len(claim)*longestPrefix/len(whole)]
}

// publish writes the names of claims to the status of their pod.
func (m *maker) publish(ctx context.Context, pod *corev1.Pod, made map[string]string) error {
	var statuses []corev1.PodResourceClaimStatus
	for i := range pod.Spec.ResourceClaims { // in a fixed order
		if name, ok := made[pod.Spec.ResourceClaims[i].Name]; ok {
			statuses = append(statuses, corev1.PodResourceClaimStatus{Name: pod.Spec.ResourceClaims[i].Name, ResourceClaimName: &name})
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"resourceClaimStatuses": statuses},
	})
	if err != nil {
		return err
	}
	opts := metav1.PatchOptions{FieldManager: fieldManager}
	obj, err := m.client.Patch(ctx, client.Pods.GroupVersionResource, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, opts, "status")
	if err != nil {
		return err
	}
	after, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("the server answered with a %T, want a pod", obj)
	}
	return m.pods.Await(ctx, after.ResourceVersion)
}

// reserve reserves an allocated claim for a pod that has a node.
func (m *maker) reserve(ctx context.Context, pod *corev1.Pod, wanted *corev1.PodResourceClaim) error {
	name, owned, err := resourceclaim.Name(pod, wanted)
	if err != nil || name == nil {
		return nil // it has just been made: the change of the pod's status queues the pod again
	}
	c, ok := m.claims.Get(pod.Namespace, *name)
	if !ok || !unreserved(pod, c) {
		return nil
	}
	if owned {
		if err := resourceclaim.IsForPod(pod, c, false); err != nil {
			return err
		}
	}
	by, err := resourceclaim.BindTo(pod, nil, wanted)
	if err != nil {
		return err
	}
	c = c.DeepCopy()
	c.Status.ReservedFor = append(c.Status.ReservedFor, by)
	if _, err := m.updateStatus(ctx, c); err != nil {
		return fmt.Errorf("reserve claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
