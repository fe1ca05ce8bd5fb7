package cpumanager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

// The options of the policy that have an effect, by the names of cpuManagerPolicyOptions.
const (
	WholeCoresOption = "full-pcpus-only"
	StrictOption     = "strict-cpu-reservation"
)

// Options are those of a [Static].
type Options struct {
	// Reserved are the processors that no container has for itself; if there are none, as many are chosen as Amount says, which is
	// the CPU that is reserved for the system, rounded up. It must be at least 1, so that there are always shared processors.
	Reserved cpuset.CPUSet
	Amount   int
	// WholeCores refuses containers that would share a core with others: [WholeCoresOption].
	WholeCores bool
	// Strict keeps pods off the reserved processors: [StrictOption].
	Strict bool
}

// A Static has the processors of the containers of a node. It is used by one goroutine at a time.
type Static struct {
	topology Topology
	options  Options
	given    map[types.UID]map[string]cpuset.CPUSet // exclusive ones, by pod and container
}

// New returns a policy by which no container has processors for itself. The error is upstream's.
func New(t Topology, o Options) (*Static, error) {
	if o.Reserved.IsEmpty() {
		o.Reserved = t.take(t.Online, min(o.Amount, t.Online.Size()))
	}
	if o.Reserved.Size() != o.Amount || o.Amount < 1 {
		return nil, fmt.Errorf("unable to reserve the required amount of CPUs (size of %s did not equal %d)", o.Reserved, o.Amount)
	}
	return &Static{topology: t, options: o, given: map[types.UID]map[string]cpuset.CPUSet{}}, nil
}

// An AlignmentError refuses a container that would share a core with others.
type AlignmentError struct{ text string }

func (e *AlignmentError) Error() string { return "SMT Alignment Error: " + e.text }

// Allocate gives the containers of a pod their processors, as far as they have none yet. If a container does not get them, the
// pod keeps the ones that it had before. Errors are upstream's. qos is the class of the pod.
func (s *Static) Allocate(pod *corev1.Pod, qos corev1.PodQOSClass) error {
	if qos != corev1.PodQOSGuaranteed || pod.Spec.Resources != nil { // as a whole, a pod has no processors
		return nil
	}
	had, has := s.given[pod.UID], map[string]cpuset.CPUSet{}
	s.given[pod.UID] = has
	for name, cpus := range had {
		has[name] = cpus
	}
	var reusable cpuset.CPUSet // of init containers that have ended by then
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cpus, err := s.allocate(has, c, reusable)
		if err != nil {
			s.restore(pod.UID, had)
			return err
		}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			reusable = reusable.Difference(cpus)
		} else {
			reusable = reusable.Union(cpus)
		}
	}
	for i := range pod.Spec.Containers {
		cpus, err := s.allocate(has, &pod.Spec.Containers[i], reusable)
		if err != nil {
			s.restore(pod.UID, had)
			return err
		}
		reusable = reusable.Difference(cpus)
	}
	s.restore(pod.UID, has)
	return nil
}

// restore sets the processors of the containers of a pod.
func (s *Static) restore(uid types.UID, has map[string]cpuset.CPUSet) {
	if s.given[uid] = has; len(has) == 0 {
		delete(s.given, uid)
	}
}

// allocate returns the processors of a container, of the reusable and the free ones, and adds them to has.
func (s *Static) allocate(has map[string]cpuset.CPUSet, c *corev1.Container, reusable cpuset.CPUSet) (cpuset.CPUSet, error) {
	cpus, known := has[c.Name]
	request := c.Resources.Requests[corev1.ResourceCPU]
	n := int(request.Value())
	if known || n == 0 || request.MilliValue() != int64(n)*1000 {
		return cpus, nil
	}
	free, threads := s.free(), s.topology.threads()
	if s.options.WholeCores {
		free = free.Difference(s.topology.coresOf(s.options.Reserved))
		if n%threads != 0 {
			return cpus, &AlignmentError{fmt.Sprintf("requested %d cpus not multiple cpus per core = %d", n, threads)}
		}
	}
	free = free.Union(reusable)
	if free.Size() < n && s.options.WholeCores {
		return cpus, &AlignmentError{fmt.Sprintf("not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free.Size(), n, threads)}
	}
	if free.Size() < n {
		return cpus, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, free.Size())
	}
	// What its init containers leave comes first: otherwise it would be exclusive to nothing.
	cpus = s.topology.take(reusable, min(n, reusable.Size()))
	cpus = cpus.Union(s.topology.take(free.Difference(reusable), n-cpus.Size()))
	has[c.Name] = cpus
	return cpus, nil
}

// free returns the processors that a container can get for itself.
func (s *Static) free() cpuset.CPUSet {
	free := s.Allocatable()
	for _, pod := range s.given {
		for _, cpus := range pod {
			free = free.Difference(cpus)
		}
	}
	return free
}

// Adopt gives a container the processors that it was created with, by an earlier agent. It changes nothing if the container has
// processors, or if these are not free: with another configuration, others may be exclusive.
func (s *Static) Adopt(uid types.UID, container string, cpus cpuset.CPUSet) {
	free := s.free()
	for _, reusable := range s.given[uid] {
		free = free.Union(reusable)
	}
	if _, has := s.given[uid][container]; has || cpus.IsEmpty() || !cpus.IsSubsetOf(free) {
		return
	}
	if s.given[uid] == nil {
		s.given[uid] = map[string]cpuset.CPUSet{}
	}
	s.given[uid][container] = cpus
}

// Allocatable returns the processors that containers can have for themselves, free or not.
func (s *Static) Allocatable() cpuset.CPUSet { return s.topology.Online.Difference(s.options.Reserved) }

// Free returns how many of the [Static.Allocatable] processors no container has.
func (s *Static) Free() int { return s.free().Size() }

// Release takes the processors of a pod, whose containers have ended.
func (s *Static) Release(uid types.UID) { delete(s.given, uid) }

// Exclusive returns the processors that a container of a pod has for itself; none if it runs on the shared ones.
func (s *Static) Exclusive(uid types.UID, container string) cpuset.CPUSet {
	return s.given[uid][container]
}

// Pins reports whether a container of the pod has processors for itself.
func (s *Static) Pins(uid types.UID) bool { return s.given[uid] != nil }

// Shared returns the processors of all other containers; never none. If strict reservation leaves none, these are the reserved ones.
func (s *Static) Shared() cpuset.CPUSet {
	free := s.free()
	if !s.options.Strict || free.IsEmpty() {
		return free.Union(s.options.Reserved)
	}
	return free
}
