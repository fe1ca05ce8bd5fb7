package simulated_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/simulation/simulated"
)

// A ranPod is a pod with a container that has run for so long.
func ranPod(name, ip string, since time.Duration, annotations map[string]string) *corev1.Pod {
	started := metav1.NewTime(time.Now().Add(-since))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &started, PodIPs: []corev1.PodIP{{IP: ip}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", Image: "demo", ImageID: "sha256:1", ContainerID: "simulated://" + name, RestartCount: 2,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
			}},
		},
	}
}

func restored(t *testing.T, pods ...*corev1.Pod) (*simulated.Runtime, map[string]*cri.ContainerStatus) {
	t.Helper()
	r, err := simulated.New(simulated.Options{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/28")}, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	return r, statuses(t, r)
}

// statuses returns the containers by the names of their pods.
func statuses(t *testing.T, r *simulated.Runtime) map[string]*cri.ContainerStatus {
	t.Helper()
	list, err := r.ListContainers(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*cri.ContainerStatus{}
	for _, c := range list {
		s, err := r.ContainerStatus(t.Context(), c.GetId())
		if err != nil {
			t.Fatal(err)
		}
		all[c.GetLabels()["io.kubernetes.pod.name"]] = s
	}
	return all
}

func TestPodGoesOnInNewRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := restored(t, ranPod("a", "10.1.0.5", time.Minute, nil))
		c := all["a"]
		if c.GetId() != "a" || c.GetState() != cri.ContainerState_CONTAINER_RUNNING || c.GetMetadata().GetAttempt() != 2 {
			t.Fatalf("restored container: %v", c)
		}
		boxes, err := r.ListPodSandbox(t.Context(), nil)
		if err != nil || len(boxes) != 1 {
			t.Fatal(boxes, err)
		}
		box, err := r.PodSandboxStatus(t.Context(), boxes[0].GetId())
		if err != nil || box.GetStatus().GetNetwork().GetIp() != "10.1.0.5" || box.GetStatus().GetMetadata().GetUid() != "uid-a" {
			t.Fatal(box, err)
		}
		// No new pod gets its address, or an ID that an earlier process gave.
		for range 11 {
			id, err := r.RunPodSandbox(t.Context(), &cri.PodSandboxConfig{}, "")
			if err != nil {
				t.Fatal(err)
			}
			s, err := r.PodSandboxStatus(t.Context(), id)
			if err != nil || s.GetStatus().GetNetwork().GetIp() == "10.1.0.5" {
				t.Fatal(s, err)
			}
		}
	})
}

// The time that a container runs counts from its start, not from that of the process.
func TestRestoredContainerEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := map[string]string{simulated.RunSeconds: "60", simulated.ExitCode: "3"}
		r, all := restored(t, ranPod("late", "10.1.0.5", time.Hour, ends), ranPod("soon", "10.1.0.6", 50*time.Second, ends))
		if all["soon"].GetState() != cri.ContainerState_CONTAINER_RUNNING {
			t.Error("a container ended too early")
		}
		synctest.Wait()
		if s := statuses(t, r)["late"]; s.GetState() != cri.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 3 {
			t.Errorf("a container that should have ended before: %v", s)
		}
		time.Sleep(11 * time.Second)
		if s := statuses(t, r)["soon"]; s.GetState() != cri.ContainerState_CONTAINER_EXITED {
			t.Errorf("a container whose time is over: %v", s)
		}
	})
}

// A status is written by nodes and users, and may say anything.
func TestPodsAreRestoredFromBadStatuses(t *testing.T) {
	other := ranPod("other", "10.1.0.5", time.Second, nil)
	other.Status.ContainerStatuses[0].ContainerID = "simulated://a" // that of a
	foreign := ranPod("foreign", "192.168.0.1", time.Second, nil)
	foreign.Status.ContainerStatuses[0].ContainerID = "containerd://x"
	ended := ranPod("ended", "10.1.0.7", time.Second, nil)
	ended.Status.Phase = corev1.PodSucceeded
	unknown := ranPod("unknown", "no address", time.Second, nil)
	unknown.Status.ContainerStatuses[0].Name = "none"
	outside := ranPod("outside", "10.1.0.15", time.Second, nil) // the broadcast address
	waits := ranPod("waits", "10.1.0.8", time.Second, nil)
	waits.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	waits.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 7, ContainerID: "simulated://waits"}
	r, all := restored(t, ranPod("a", "10.1.0.5", time.Second, nil), other, foreign, ended, unknown, outside, waits)
	if len(all) != 3 || all["a"] == nil || all["outside"] == nil {
		t.Fatalf("restored %v, want the containers of a, outside and waits", all)
	}
	if s := all["waits"]; s.GetState() != cri.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 7 {
		t.Errorf("a container that waits to be started again: %v", s)
	}
	boxes, err := r.ListPodSandbox(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ips := map[string]bool{}
	for _, b := range boxes {
		s, err := r.PodSandboxStatus(t.Context(), b.GetId())
		ip := s.GetStatus().GetNetwork().GetIp()
		if err != nil || ips[ip] || ip == "10.1.0.15" {
			t.Errorf("%s has the address %s: %v", b.GetMetadata().GetName(), ip, err)
		}
		ips[ip] = true
	}
}
