package crispec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/crispec"
)

func TestPodLevelLimitsHoldForPodAndContainers(t *testing.T) {
	p := pod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b", Resources: resources("", "", "100m", "")}}
		p.Spec.Resources = &corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), "hugepages-2Mi": resource.MustParse("4Mi")},
		}
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	})
	whole := crispec.PodResources(p, corev1.PodQOSBurstable)
	if whole.GetCpuShares() != 256 || whole.GetCpuQuota() != 50000 || whole.GetMemoryLimitInBytes() != 80<<20 {
		t.Errorf("the pod has %v", whole)
	}
	if h := whole.GetHugepageLimits(); len(h) != 1 || h[0].GetPageSize() != "2MB" || h[0].GetLimit() != 4<<20 {
		t.Errorf("the pod's huge pages are %v", h)
	}
	a := crispec.Resources(p, corev1.PodQOSBurstable, &p.Spec.Containers[0], crispec.Capacity{Memory: 1 << 30})
	b := crispec.Resources(p, corev1.PodQOSBurstable, &p.Spec.Containers[1], crispec.Capacity{Memory: 1 << 30})
	if a.GetCpuQuota() != 50000 || a.GetMemoryLimitInBytes() != 64<<20 || b.GetCpuQuota() != 10000 || b.GetMemoryLimitInBytes() != 64<<20 {
		t.Errorf("containers have %v and %v", a, b)
	}
	free := crispec.Resources(p, corev1.PodQOSBurstable, &p.Spec.Containers[0], crispec.Capacity{Memory: 1 << 30, NoQuota: true})
	if free.GetCpuQuota() != 0 || free.GetCpuPeriod() != 0 || free.GetMemoryLimitInBytes() != 64<<20 || free.GetCpuShares() != a.GetCpuShares() {
		t.Errorf("without quota a container has %v", free)
	}
	if r := crispec.PodResources(p, corev1.PodQOSBestEffort); r.GetCpuShares() != 2 || r.GetMemoryLimitInBytes() != 0 {
		t.Errorf("a best-effort pod has %v", r)
	}
}

func TestSandboxHasUsersOfItsOwn(t *testing.T) {
	users := &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: []*cri.IDMapping{{HostId: 65536, Length: 65536}}}
	c := crispec.Sandbox(pod(func(*corev1.Pod) {}), 0, crispec.Place{Users: users})
	if got := c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(); got != users {
		t.Errorf("users are %v", got)
	}
}

func TestLocalhostSeccompProfile(t *testing.T) {
	for path, want := range map[string]string{"a/b.json": "/profiles/a/b.json", "../b.json": "", "": "", "/etc/x": ""} {
		p := pod(func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &path},
			}}}
		})
		c, err := crispec.Attempt{Facts: crispec.Facts{Pod: p}, Container: &p.Spec.Containers[0], Seccomp: crispec.Seccomp{Root: "/profiles"}}.Config()
		if (err == nil) != (want != "") || c.GetLinux().GetSecurityContext().GetSeccomp().GetLocalhostRef() != want {
			t.Errorf("profile %q: %v, %v, want %q", path, c.GetLinux().GetSecurityContext().GetSeccomp(), err, want)
		}
	}
}
