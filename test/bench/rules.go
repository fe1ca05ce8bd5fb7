package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// threshold is the rate that upstream asks of itself for pods with rules, in pods per second: from 24 to 60.
const threshold = 60

// ruled prints a rate beside upstream's threshold.
func (b *bench) ruled(what string, seen bindings, goal string) {
	rate := seen.perSecond()
	b.row("scheduling, "+what, fmt.Sprintf("%.0f pods/s", rate), fmt.Sprintf("upstream's threshold %d pods/s", threshold), fmt.Sprintf("%.1f times", rate/threshold), goal)
}

// rules measures how the rate falls with the number of nodes, and with rules about other pods.
func (b *bench) rules(ctx context.Context) error {
	api, err := b.fast()
	if err != nil {
		return err
	}
	const few = manyNodes / 10
	if err := bareNodes(ctx, api, 0, few); err != nil {
		return err
	}
	small, err := b.waited(ctx, api, "few-nodes", manyPods, nil)
	if err != nil {
		return err
	}
	// So that only the number of nodes differs.
	if err := api.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{LabelSelector: crowdLabel + "=few-nodes"}); err != nil {
		return err
	}
	if err := bareNodes(ctx, api, few, manyNodes); err != nil {
		return err
	}
	large, err := b.waited(ctx, api, "many-nodes", manyPods, nil)
	if err != nil {
		return err
	}
	per, floor := float64(large.perPod().Nanoseconds())/1e3, float64(small.perPod().Nanoseconds())/1e3
	b.row(fmt.Sprintf("scheduling, time per pod on %d nodes, and on %d", manyNodes, few), fmt.Sprintf("%.0f µs", per), fmt.Sprintf("%.0f µs", floor),
		fmt.Sprintf("%.2f", per/floor), "<= 1.5 times")
	apart, err := b.waited(ctx, api, "apart", manyPods/2, func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
		}}}}
	})
	if err != nil {
		return err
	}
	b.ruled(fmt.Sprintf("%d pods, one on a node by anti-affinity, %d nodes", manyPods/2, manyNodes), apart, ">= 1500/s")
	spread, err := b.waited(ctx, api, "spread", manyPods, func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
		}}
	})
	if err != nil {
		return err
	}
	b.ruled(fmt.Sprintf("%d pods spread over 100 zones, %d nodes", manyPods, manyNodes), spread, ">= 1500/s")
	return nil
}

// preemption measures how fast important pods get room on full nodes, from the first binding to the last: each has another
// pod end.
func (b *bench) preemption(ctx context.Context) error {
	api, err := b.fast()
	if err != nil {
		return err
	}
	const important = 1000
	if err := bareNodes(ctx, api, 0, manyNodes); err != nil {
		return err
	}
	if _, err := api.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "important"}, Value: 1000}, metav1.CreateOptions{}); err != nil {
		return err
	}
	err = inParallel(manyNodes, func(i int) error {
		p := pendingPod("full", i, corev1.DefaultSchedulerName)
		p.Spec.NodeName = bareNode(i).Name
		p.Spec.TerminationGracePeriodSeconds = new(int64(0)) // there are no agents that could see to their end
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("4")
		_, err := api.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	bound, err := b.waited(ctx, api, "important", important, func(p *corev1.Pod) {
		p.Spec.PriorityClassName = "important"
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("3")
		p.Spec.NodeSelector = map[string]string{bareLabel: "yes"}
	})
	if err != nil {
		return err
	}
	left, err := api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: crowdLabel + "=full"})
	if err != nil {
		return err
	}
	if ended := manyNodes - len(left.Items); ended != important {
		return fmt.Errorf("%d pods made room for %d", ended, important)
	}
	b.ruled(fmt.Sprintf("%d pods for which others have to end, %d nodes", important, manyNodes), bound, ">= 500/s")
	return nil
}
