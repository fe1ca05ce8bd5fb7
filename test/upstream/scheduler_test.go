package upstream

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/clustertest"
)

// TestUpstreamSchedulesOnOurServer has kube-scheduler place pods of a cluster of ours.
func TestUpstreamSchedulesOnOurServer(t *testing.T) {
	sampan := program(t, "SAMPAN")
	c := clustertest.New(t, clustertest.Options{Program: sampan, Nodes: 2})
	p := &Plane{t: t, dir: t.TempDir()}
	p.write("scheduler.yaml", fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
profiles: [{schedulerName: upstream}]
`, c.Kubeconfig))
	p.run("kube-scheduler", filepath.Join(program(t, "UPSTREAM"), "kube-scheduler"),
		"--config="+p.file("scheduler.yaml"), "--secure-port=0")
	p.write("pods.yaml", []byte(`apiVersion: apps/v1
kind: Deployment
metadata: {name: many}
spec:
  replicas: 20
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec: {schedulerName: upstream, containers: [{name: main, image: any}]}
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec: {schedulerName: upstream, containers: [{name: main, image: any, resources: {requests: {cpu: 100k}}}]}
`))
	on := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), sampan, append(args, "--kubeconfig="+c.Kubeconfig)...)
		cmd.Env = append(os.Environ(), "HOME="+p.dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("sampan %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	on("create", "-f", p.file("pods.yaml"))
	on("wait", "deployment/many", "--for=ready", "--timeout=2m")
	on("wait", "pod/large", `--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable`, "--timeout=1m")
	for _, node := range c.Nodes {
		pods := on("get", "pods", "-l", "app=many", "--field-selector=spec.nodeName="+node, "-o", "name")
		if n := strings.Count(pods, "pod/"); n != 10 {
			t.Errorf("%d pods are on node %s, want 10 on each", n, node)
		}
	}
	if events := on("get", "events"); !strings.Contains(events, "Insufficient cpu") || !strings.Contains(events, "Successfully assigned default/many-") {
		t.Errorf("events:\n%s", events)
	}
}
