package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Reason is the reason of evicted pods and of the events about them.
const Reason = "Evicted"

// criticalPriority is the priority from which a pod is critical: it is never evicted.
const criticalPriority = 2_000_000_000

// Critical reports whether a pod is never evicted, and admitted even if the node lacks something: it is critical to the
// cluster, or a static pod.
func Critical(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	source := pod.Annotations["kubernetes.io/config.source"]
	return mirror || source != "" && source != "api" || pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}

// Use is what a container uses, in bytes.
type Use struct {
	Memory int64 // its working set
	Disk   int64 // its writable layer and its logs
}

// A Pod is a running pod and what it uses.
type Pod struct {
	*corev1.Pod
	Memory     int64 // bytes
	Processes  int64
	Containers map[string]Use   // by name
	Volumes    map[string]int64 // bytes in each emptyDir on disk, by the name of the volume
	Inodes     int64            // of the emptyDirs and writable layers
}

// disk returns the bytes of local storage that the pod uses.
func (p *Pod) disk() int64 {
	var sum int64
	for _, u := range p.Containers {
		sum += u.Disk
	}
	for _, n := range p.Volumes {
		sum += n
	}
	return sum
}

// use returns how much of a resource the pod uses, and how much it requests.
func (p *Pod) use(name corev1.ResourceName) (used, requested int64) {
	switch name {
	case corev1.ResourceMemory:
		used = p.Memory
	case corev1.ResourceEphemeralStorage:
		used = p.disk()
	case inodes:
		return p.Inodes, 0
	case pids:
		return p.Processes, 0
	}
	if r := p.Spec.Resources; r != nil {
		if q, ok := r.Requests[name]; ok {
			return used, q.Value()
		}
	}
	for i := range p.Spec.Containers {
		q := p.Spec.Containers[i].Resources.Requests[name]
		requested += q.Value()
	}
	return used, requested
}

func priority(p *Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Victim returns the pod to end because of a shortage, and the message for its status. First come the pods that use more than
// they request, then the pods with the lowest priority, then by how much they exceed their requests. Critical pods are left out.
// It returns nil if every pod is critical.
func Victim(s Shortage, pods []Pod) (*Pod, string) {
	order := func(a, b *Pod) int {
		usedA, requestedA := a.use(s.Resource)
		usedB, requestedB := b.use(s.Resource)
		byExcess := 0
		if exceedsA, exceedsB := usedA > requestedA, usedB > requestedB; exceedsA != exceedsB && s.Resource != pids {
			byExcess = 1
			if exceedsA {
				byExcess = -1
			}
		}
		return cmp.Or(byExcess, cmp.Compare(priority(a), priority(b)), cmp.Compare(usedB-requestedB, usedA-requestedA))
	}
	var victim *Pod
	for i := range pods {
		if p := &pods[i]; !Critical(p.Pod) && (victim == nil || order(p, victim) < 0) {
			victim = p
		}
	}
	if victim == nil {
		return nil, ""
	}
	return victim, message(s, victim)
}

// binary prints an amount as Kubernetes does.
func binary(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// message is that of upstream's kubelet, which names the containers that use more than they request, and the pod if it has a request
// of its own.
func message(s Shortage, p *Pod) string {
	threshold, available := s.Numbers()
	text := fmt.Sprintf("The node was low on resource: %v. Threshold quantity: %s, available: %s. ", s.Resource, threshold, available)
	if r := p.Spec.Resources; r != nil && s.Resource == corev1.ResourceMemory {
		if request, ok := r.Requests[s.Resource]; ok {
			text += fmt.Sprintf("Pod %s was using %s, request is %s, has larger consumption of %v. ", p.Name, binary(p.Memory), request.String(), s.Resource)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
		c := container(p.Pod, name)
		if c == nil {
			continue
		}
		var used int64
		switch s.Resource {
		case corev1.ResourceMemory:
			used = p.Containers[name].Memory
		case corev1.ResourceEphemeralStorage:
			used = p.Containers[name].Disk
		}
		if requested := c.Resources.Requests[s.Resource]; used > requested.Value() {
			text += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %v. ", name, binary(used), requested.String(), s.Resource)
		}
	}
	return text
}

func container(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// Limited reports whether a pod has limits of local storage that [Exceeded] checks.
func Limited(p *corev1.Pod) bool {
	for i := range p.Spec.Volumes {
		if sizeLimit(&p.Spec.Volumes[i]) != nil {
			return true
		}
	}
	_, limited := storageLimit(p)
	return limited
}

// sizeLimit returns the limit of an emptyDir on disk; nil if there is none. The kernel enforces those of volumes in memory.
func sizeLimit(v *corev1.Volume) *resource.Quantity {
	e := v.EmptyDir
	if e == nil || e.Medium == corev1.StorageMediumMemory || e.SizeLimit == nil || e.SizeLimit.Sign() <= 0 {
		return nil
	}
	return e.SizeLimit
}

// storageLimit returns the limit of ephemeral storage of the pod as a whole, the sum of the limits of its containers, and
// whether any has one.
func storageLimit(p *corev1.Pod) (sum resource.Quantity, limited bool) {
	var largest resource.Quantity // of the init containers that end
	for i := range p.Spec.Containers {
		q, has := p.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]
		limited = limited || has
		sum.Add(q)
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		q, has := c.Resources.Limits[corev1.ResourceEphemeralStorage]
		limited = limited || has
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sum.Add(q)
		} else if q.Cmp(largest) > 0 {
			largest = q
		}
	}
	if largest.Cmp(sum) > 0 {
		return largest, limited
	}
	return sum, limited
}

// A StorageLimit is a limit of local storage that a pod can exceed, by its name in the metrics of upstream's kubelet.
type StorageLimit string

// The limits of local storage.
const (
	VolumeLimit    StorageLimit = "emptydirfs.limit"           // of an emptyDir volume
	PodLimit       StorageLimit = "ephemeralpodfs.limit"       // of all containers together
	ContainerLimit StorageLimit = "ephemeralcontainerfs.limit" // of a container
)

// Exceeded returns the limit of local storage that a pod exceeds, and the message about it; "" if it exceeds none.
func Exceeded(p *Pod) (exceeded StorageLimit, message string) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if limit := sizeLimit(v); limit != nil && p.Volumes[v.Name] > limit.Value() {
			return VolumeLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String())
		}
	}
	if limit, limited := storageLimit(p.Pod); limited && p.disk() > limit.Value() {
		return PodLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
		c := container(p.Pod, name)
		if c == nil {
			continue
		}
		if limit, has := c.Resources.Limits[corev1.ResourceEphemeralStorage]; has && !limit.IsZero() && p.Containers[name].Disk > limit.Value() {
			return ContainerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", name, limit.String())
		}
	}
	return "", ""
}
