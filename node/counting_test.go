package node_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/simulation/simulated"
)

// wantMetrics checks the sums of the samples of metrics with the given labels, as in NAME{LABEL="VALUE"}. That of a histogram is its
// number of observations.
func (r *rig) wantMetrics(want map[string]float64) {
	r.Helper()
	for selector, value := range want {
		name, list, _ := strings.Cut(strings.TrimSuffix(selector, "}"), "{")
		labels := map[string]string{}
		for pair := range strings.SplitSeq(list, ",") {
			if key, quoted, ok := strings.Cut(pair, "="); ok {
				labels[key] = strings.Trim(quoted, `"`)
			}
		}
		if got := r.node.Metric(r.T, name, labels); got != value {
			r.Errorf("%s is %v, want %v", selector, got, value)
		}
	}
}

// TestMetricsFollowThePod follows the counters of a pod that crashes, of one that can't run, and of one that is deleted.
func TestMetricsFollowThePod(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{simulated.RunSeconds: "1", simulated.ExitCode: "3"}
		}))
		r.await("web", "restarted", func(p *corev1.Pod) bool {
			return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 2 && p.Status.ContainerStatuses[0].State.Running != nil
		})
		synctest.Wait()
		r.wantMetrics(map[string]float64{
			`kubelet_started_pods_total`: 1, `kubelet_started_pods_errors_total`: 0, `kubelet_containers_per_pod_count`: 1,
			`kubelet_pod_start_duration_seconds`: 1, `kubelet_pod_start_total_duration_seconds`: 1, `kubelet_pod_start_sli_duration_seconds`: 1,
			`kubelet_pod_worker_start_duration_seconds`: 1, `kubelet_started_containers_total{container_type="container"}`: 3,
			`kubelet_terminated_containers_total{container_type="container",exit_code="3",reason="Error"}`: 2, `kubelet_terminated_containers_total`: 2,
			`kubelet_image_pull_duration_seconds`: 0, `kubelet_working_pods{lifecycle="sync",config="desired",static=""}`: 1, `kubelet_desired_pods{static=""}`: 1,
			`kubelet_image_manager_ensure_image_requests_total{pull_policy="ifnotpresent",present_locally="true",pull_required="false"}`: 3,
			`kubelet_pod_level_resources_admission_total{config_mode="",qos_class="besteffort"}`:                                         1, `kubelet_running_containers{container_state="running"}`: 1,
			`kubelet_evented_pleg_connection_success_count`: 1, `kubelet_evented_pleg_connection_error_count`: 0,
		})
		r.create(webPod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "none"} }))
		r.await("elsewhere", "rejected", inPhase(corev1.PodFailed))
		r.wantMetrics(map[string]float64{
			`kubelet_admission_rejections_total{reason="Other"}`: 1, `kubelet_started_pods_total`: 1, `kubelet_active_pods{static=""}`: 1, `kubelet_desired_pods{static=""}`: 2,
		})
		r.create(webPod("pulls", func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways }))
		r.await("pulls", "ready", isReady)
		r.wantMetrics(map[string]float64{
			`kubelet_image_pull_duration_seconds`: 1, `kubelet_image_manager_ensure_image_requests_total{pull_policy="always",present_locally="unknown",pull_required="true"}`: 1,
		})
		for _, name := range []string{"web", "pulls"} {
			r.remove(name)
			r.await(name, "gone", gone)
		}
		synctest.Wait()
		r.wantMetrics(map[string]float64{`kubelet_desired_pods{static=""}`: 1, `kubelet_running_pods`: 0, `kubelet_working_pods{lifecycle="sync"}`: 0})
	})
}
