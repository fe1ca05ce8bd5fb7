package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// TestReadOnlyEndpoints reads what upstream's kubelet serves under the same paths.
func TestReadOnlyEndpoints(t *testing.T) {
	r := newRig(t)
	ca := newAuthority(t)
	config, err := kubeletconfig.Parse("k", []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\nkubeReserved: {cpu: 1m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.opts.Config, r.opts.SystemLogs = config, t.TempDir()
	r.opts.Metrics = []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "proxy_rules"}, func() float64 { return 3 })}
	if err := os.WriteFile(filepath.Join(r.opts.SystemLogs, "syslog"), []byte("booted"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(r.opts.SystemLogs, "out")); err != nil {
		t.Fatal(err)
	}
	server := r.served(ca).as(ca, ca.issue("kube-apiserver-kubelet-client"))
	r.create(webPod("web", func(p *corev1.Pod) {
		p.Annotations = map[string]string{simulated.CPU: "250m", simulated.Memory: "64Mi"}
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}},
			PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		}
	}))
	r.await("web", "ready", isReady)
	for path, want := range map[string]string{
		"/healthz":             "200 ok",
		"/healthz/ping":        "200 ok",
		"/healthz/log":         "200 ok",
		"/healthz/syncloop":    "200 ok",
		"/logs/syslog":         "200 booted",
		"/logs/out/passwd":     "404 ",
		"/logs/..%2f..%2fx":    "404 ",
		"/logs/none":           "404 ",
		"/stats/none":          "404 ",
		"/debug/pprof/cmdline": "200 ",
	} {
		if code, body, _ := server.do("GET", path); !strings.HasPrefix(codeAnd(code, body), want) {
			t.Errorf("%s is answered with %s, want %s", path, codeAnd(code, body), want)
		}
	}
	for path, wants := range map[string][]string{
		"/logs/": {`<a href="syslog">`},
		"/metrics": {
			`kubelet_node_name{node="n1"} 1`, "\nkubelet_running_pods 1\n", `kubelet_running_containers{container_state="running"} 1`,
			"\nkubelet_pod_start_duration_seconds_count 1\n", `kubelet_pod_worker_duration_seconds_count{operation_type="sync"}`,
			`kubelet_started_containers_total{container_type="container"} 1`, `kubelet_http_requests_total{long_running="false",method="GET",path="healthz",`,
			"\nprocess_start_time_seconds ", "\ngo_goroutines ", "kubernetes_build_info{", "\nproxy_rules 3\n",
		},
		"/metrics/probes": {
			`prober_probe_total{container="web",namespace="default",pod="web",pod_uid="`, `probe_type="Readiness",result="successful"} `,
			`prober_probe_duration_seconds_count{container="web",namespace="default",pod="web",probe_type="Readiness"} `,
		},
		"/metrics/cadvisor": {
			`container_memory_working_set_bytes{container="web",id="/kubepods/`, `,namespace="default",pod="web"} 6.7108864e+07 `,
			`container_memory_working_set_bytes{container="",id="/",image="",name="",namespace="",pod=""} 6.7108864e+07 `,
			`container_cpu_usage_seconds_total{container="web",`, `,cpu="total"} `, "\nmachine_cpu_cores{boot_id=", "\ncontainer_scrape_error 0\n",
			`container_spec_memory_limit_bytes{container="web",`,
		},
		"/runningpods/": {`{"kind":"PodList","apiVersion":"v1"`, `"name":"web","namespace":"default","uid":"`, `"image":"`},
	} {
		code, body, _ := server.do("GET", path)
		for _, want := range wants {
			if code != 200 || !strings.Contains("\n"+body+"\n", want) {
				t.Errorf("%s: no %q in %d %s", path, want, code, body)
			}
		}
	}
	code, body, _ := server.do("GET", "/metrics/slis") // the checks of /healthz, which was read once
	for _, check := range []string{"ping", "log", "syncloop", "runtime"} {
		for _, want := range []string{`kubernetes_healthcheck{name="` + check + `",type="healthz"} 1`, `kubernetes_healthchecks_total{name="` + check + `",status="success",type="healthz"} 1`} {
			if code != 200 || !strings.Contains(body, want) {
				t.Errorf("/metrics/slis: no %q in %d %s", want, code, body)
			}
		}
	}
	if code, body, _ = server.do("DELETE", "/metrics/slis"); codeAnd(code, body) != "200 metrics reset" {
		t.Errorf("DELETE /metrics/slis is answered with %d %q", code, body)
	}
	if _, body, _ = server.do("GET", "/metrics/slis"); strings.Contains(body, "kubernetes_health") {
		t.Errorf("after DELETE /metrics/slis has %s", body)
	}
	_, body, _ = server.do("GET", "/configz")
	var z struct {
		Kubeletconfig kubeletv1beta1.KubeletConfiguration
	}
	if err := json.Unmarshal([]byte(body), &z); err != nil || z.Kubeletconfig.MaxPods != 7 || z.Kubeletconfig.ClusterDomain != "cluster.local" || z.Kubeletconfig.Kind != "KubeletConfiguration" {
		t.Errorf("%s, %v", body, err)
	}
	if z.Kubeletconfig.SerializeImagePulls == nil || *z.Kubeletconfig.SerializeImagePulls || z.Kubeletconfig.MaxParallelImagePulls == nil || *z.Kubeletconfig.MaxParallelImagePulls != 5 {
		t.Errorf("pulls of images in %s, want the five at a time that are in use", body)
	}
	capacity := clienttest.Find(r.api, client.Nodes, "", "n1").Status
	if capacity.Capacity.Pods().Value() != 7 || capacity.Allocatable.Cpu().MilliValue() != capacity.Capacity.Cpu().MilliValue()-1 {
		t.Errorf("capacity %v, allocatable %v", capacity.Capacity, capacity.Allocatable)
	}
}

// TestDebugEndpointsCanBeDisabled has the field enableDebuggingHandlers.
func TestDebugEndpointsCanBeDisabled(t *testing.T) {
	r := newRig(t)
	ca := newAuthority(t)
	config, err := kubeletconfig.Parse("k", []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nenableDebuggingHandlers: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.opts.Config = config
	server := r.served(ca).as(ca, ca.issue("kube-apiserver-kubelet-client"))
	for _, path := range []string{
		"/containerLogs/default/web/web", "/exec/default/web/web?command=ls&output=1", "/attach/default/web/web", "/portForward/default/web",
		"/run/default/web/web?cmd=ls", "/runningpods/", "/logs/", "/debug/pprof/heap",
	} {
		for _, method := range []string{"GET", "POST"} {
			if code, body, _ := server.do(method, path); code != 405 || body != "Debug endpoints are disabled." {
				t.Errorf("%s %s is answered with %d %s", method, path, code, body)
			}
		}
	}
	for _, path := range []string{"/healthz", "/pods", "/stats/summary", "/metrics"} {
		if code, body, _ := server.do("GET", path); code != 200 {
			t.Errorf("%s is answered with %d %s", path, code, body)
		}
	}
}
