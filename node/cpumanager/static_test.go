package cpumanager

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

// machine returns a topology with sockets of a few cores that have two processors each: core i of all has i and i+cores.
func machine(t *testing.T, sockets, cores int) Topology {
	t.Helper()
	dir, all := t.TempDir(), sockets*cores
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("online", "0-"+strconv.Itoa(2*all-1))
	for cpu := range 2 * all {
		core := cpu % all
		first := core / cores * cores
		socket := cpuset.New()
		for c := first; c < first+cores; c++ {
			socket = socket.Union(cpuset.New(c, c+all))
		}
		topology := "cpu" + strconv.Itoa(cpu) + "/topology/"
		write(topology+"thread_siblings_list", cpuset.New(core, core+all).String())
		write(topology+"core_siblings_list", socket.String())
	}
	m, err := Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// guaranteed returns a pod with containers that request CPU: "i…" are init containers, "s…" sidecars.
func guaranteed(uid string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID = types.UID(uid)
	for _, text := range containers {
		name, cpu, _ := strings.Cut(text, "=")
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
		switch name[0] {
		case 's':
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			fallthrough
		case 'i':
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

func static(t *testing.T, m Topology, o Options) *Static {
	t.Helper()
	s, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func give(t *testing.T, s *Static, pod *corev1.Pod) {
	t.Helper()
	if err := s.Allocate(pod, corev1.PodQOSGuaranteed); err != nil {
		t.Fatalf("pod %s: %v", pod.UID, err)
	}
}

func want(t *testing.T, what string, got cpuset.CPUSet, cpus string) {
	t.Helper()
	if got.String() != cpus {
		t.Errorf("%s: processors %q, want %q", what, got, cpus)
	}
}

// TestWholeCoresComeFirst is about cpumanager-I1.
func TestWholeCoresComeFirst(t *testing.T) {
	s := static(t, machine(t, 2, 4), Options{Amount: 1}) // sockets 0-3,8-11 and 4-7,12-15
	want(t, "shared at first", s.Shared(), "0-15")
	give(t, s, guaranteed("one", "a=1"))
	want(t, "one", s.Exclusive("one", "a"), "8") // beside the reserved one
	give(t, s, guaranteed("two", "a=2"))
	want(t, "two", s.Exclusive("two", "a"), "1,9")
	give(t, s, guaranteed("three", "a=3"))
	want(t, "three", s.Exclusive("three", "a"), "2-3,10")
	give(t, s, guaranteed("large", "a=4"))
	want(t, "large", s.Exclusive("large", "a"), "4-5,12-13")
	give(t, s, guaranteed("half", "a=500m"))
	want(t, "half", s.Exclusive("half", "a"), "")
	want(t, "shared", s.Shared(), "0,6-7,11,14-15")
	if err := s.Allocate(guaranteed("burstable", "a=1"), corev1.PodQOSBurstable); err != nil || s.Pins("burstable") {
		t.Errorf("a burstable pod: %v", err)
	}
	s.Release("two")
	want(t, "shared after the release", s.Shared(), "0-1,6-7,9,11,14-15")
}

// TestPodGetsAllOrNothing is about cpumanager-I2.
func TestPodGetsAllOrNothing(t *testing.T) {
	s := static(t, machine(t, 1, 2), Options{Reserved: cpuset.New(1), Amount: 1})
	err := s.Allocate(guaranteed("p", "a=2", "b=2"), corev1.PodQOSGuaranteed)
	if err == nil || err.Error() != "not enough cpus available to satisfy request: requested=2, available=1" || s.Pins("p") {
		t.Errorf("error %v", err)
	}
	want(t, "shared", s.Shared(), "0-3")
	give(t, s, guaranteed("q", "a=3"))
	want(t, "shared", s.Shared(), "1")
	whole := guaranteed("whole", "a=1")
	whole.Spec.Resources = &corev1.ResourceRequirements{}
	if give(t, s, whole); s.Pins("whole") {
		t.Error("a pod with resources as a whole has processors for itself")
	}
}

func TestInitContainersLeaveTheirProcessors(t *testing.T) {
	s := static(t, machine(t, 1, 4), Options{Amount: 2})
	want(t, "shared", s.Shared(), "0-7") // 0,4 are reserved
	give(t, s, guaranteed("p", "init=4", "sidecar=2", "a=2", "b=1"))
	want(t, "init", s.Exclusive("p", "init"), "1-2,5-6")
	want(t, "sidecar", s.Exclusive("p", "sidecar"), "1,5")
	want(t, "a", s.Exclusive("p", "a"), "2,6")
	want(t, "b", s.Exclusive("p", "b"), "3")
	give(t, s, guaranteed("p", "init=4", "sidecar=2", "a=2", "b=1")) // as after a restart
	want(t, "shared", s.Shared(), "0,4,7")
}

func TestOptionsOfPolicy(t *testing.T) {
	m := machine(t, 1, 4)
	s := static(t, m, Options{Reserved: cpuset.New(0), Amount: 1, WholeCores: true, Strict: true})
	want(t, "shared without the reserved one", s.Shared(), "1-7")
	for cpu, text := range map[string]string{
		"1": "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2",
		"8": "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, CPUs per core = 2",
	} {
		err := s.Allocate(guaranteed("p", "a="+cpu), corev1.PodQOSGuaranteed)
		if aligned := (*AlignmentError)(nil); !errors.As(err, &aligned) || err.Error() != text {
			t.Errorf("%s CPUs: error %v", cpu, err)
		}
	}
	give(t, s, guaranteed("p", "a=6"))
	want(t, "shared", s.Shared(), "4")
	s = static(t, m, Options{Reserved: cpuset.New(0, 4), Amount: 2, Strict: true})
	give(t, s, guaranteed("p", "a=6"))
	want(t, "shared when no others are left", s.Shared(), "0,4")
	for _, amount := range []int{0, 9} {
		if _, err := New(m, Options{Amount: amount}); err == nil {
			t.Errorf("%d reserved processors of 8 are accepted", amount)
		}
	}
}

// TestContainersKeepTheirProcessors is about cpumanager-I3.
func TestContainersKeepTheirProcessors(t *testing.T) {
	s := static(t, machine(t, 1, 4), Options{Reserved: cpuset.New(0), Amount: 1})
	s.Adopt("p", "init", cpuset.New(5, 6))
	s.Adopt("p", "a", cpuset.New(6))
	s.Adopt("p", "a", cpuset.New(7))      // an earlier attempt
	s.Adopt("q", "a", cpuset.New(6))      // another container has it
	s.Adopt("r", "a", cpuset.New(0))      // now reserved
	s.Adopt("r", "b", cpuset.New(2, 100)) // the machine had more
	give(t, s, guaranteed("p", "init=2", "a=1"))
	want(t, "a", s.Exclusive("p", "a"), "6")
	want(t, "init", s.Exclusive("p", "init"), "5-6")
	want(t, "shared", s.Shared(), "0-4,7")
	give(t, s, guaranteed("q", "a=1"))
	want(t, "q", s.Exclusive("q", "a"), "1")
}

func TestDiscoverReadsThisMachine(t *testing.T) {
	m, err := Discover(Directory)
	if err != nil {
		t.Fatal(err)
	}
	if m.Online.IsEmpty() || m.coresOf(m.Online).String() != m.Online.String() || m.threads() < 1 {
		t.Errorf("%+v", m)
	}
	if _, err := Discover(t.TempDir()); err == nil {
		t.Error("a directory without processors is accepted")
	}
}
