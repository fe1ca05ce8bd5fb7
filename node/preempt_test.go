package node_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// asking is a pod that asks for so much CPU.
func asking(name, cpu string, priority int32) *corev1.Pod {
	return webPod(name, func(p *corev1.Pod) {
		p.Spec.Priority = &priority
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	})
}

func TestCriticalPodPreemptsOthers(t *testing.T) {
	inNodeOf(t, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10")}, func(r *rig) {
		r.create(asking("large", "1200m", 0))
		r.create(asking("small", "600m", 0))
		r.await("large", "ready", isReady)
		r.await("small", "ready", isReady)
		// A pod that is not critical is rejected, even with a higher priority.
		r.create(asking("important", "500m", 1000))
		if s := r.await("important", "rejected", inPhase(corev1.PodFailed)).Status; s.Reason != "OutOfcpu" {
			t.Errorf("a pod that is not critical is %s: %s", s.Reason, s.Message)
		}
		r.create(asking("critical", "700m", 2_000_000_000))
		critical := r.await("critical", "ready", isReady)
		small := r.await("small", "preempted", inPhase(corev1.PodFailed))
		s := small.Status
		if s.Reason != "Preempting" || s.Message != "Preempted in order to admit critical pod" {
			t.Errorf("the victim is %s: %s", s.Reason, s.Message)
		}
		var message string
		for _, c := range s.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Reason == "TerminationByKubelet" {
				message = c.Message
			}
		}
		if message != "Pod was preempted by Kubelet to accommodate a critical pod." {
			t.Errorf("the victim has the conditions %+v", s.Conditions)
		}
		if ended, began := s.ContainerStatuses[0].State.Terminated.FinishedAt, critical.Status.ContainerStatuses[0].State.Running.StartedAt; began.Before(&ended) {
			t.Errorf("the critical pod ran at %v, its victim ended at %v", began, ended)
		}
		if !isReady(r.pod("large")) {
			t.Error("a pod ended that did not have to")
		}
		// Where no end suffices, no pod ends.
		r.create(asking("enormous", "9", 2_000_000_000))
		enormous := r.await("enormous", "rejected", inPhase(corev1.PodFailed)).Status
		if enormous.Reason != "UnexpectedAdmissionError" || !strings.Contains(enormous.Message, "no set of running pods found to reclaim resources: [(res: cpu, q: 8900), ]") {
			t.Errorf("a pod that never fits is %s: %s", enormous.Reason, enormous.Message)
		}
		if !isReady(r.pod("large")) || !isReady(r.pod("critical")) {
			t.Error("a pod ended for one that can't be admitted")
		}
	})
}

// inNodeOf runs f with an agent on a node of a capacity.
func inNodeOf(t *testing.T, capacity corev1.ResourceList, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.Capacity = capacity
		stop := r.start()
		<-r.node.Ready()
		f(r)
		stop()
	})
}
