package upstream

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/clustertest"
)

// TestUpstreamControlsOurServer has kube-controller-manager and kube-scheduler do all work of a cluster of ours whose own
// scheduler and controllers are disabled, except for that of the status of ResourceQuotas (decision 0031).
func TestUpstreamControlsOurServer(t *testing.T) {
	sampan := program(t, "SAMPAN")
	cluster := clustertest.New(t, clustertest.Options{Program: sampan, Nodes: 2, Args: []string{"--controllers=resourcequota,-scheduler"}})
	p := &Plane{t: t, dir: t.TempDir(), opts: Options{Programs: program(t, "UPSTREAM")}}
	p.impersonate(cluster.Kubeconfig, "manager", "system:kube-controller-manager")
	p.impersonate(cluster.Kubeconfig, "scheduler", "system:kube-scheduler")
	p.run("kube-controller-manager", filepath.Join(p.opts.Programs, "kube-controller-manager"),
		"--kubeconfig="+p.file("manager.kubeconfig"), "--leader-elect=true", "--secure-port=0", "--use-service-account-credentials=true",
		"--controllers=*,-resourcequota", "--root-ca-file="+p.file("ca.pem"), "--kube-api-qps=200", "--kube-api-burst=400")
	p.startScheduler()

	c := &commands{sampan: sampan, kubeconfig: cluster.Kubeconfig, home: p.dir}
	c.on(t, "wait", "serviceaccount/default", "--for=created", "--wait-for-creation", "--timeout=2m")
	c.on(t, "wait", "configmap/kube-root-ca.crt", "--for=created", "--wait-for-creation", "--timeout=2m")
	c.with(t, `apiVersion: v1
kind: ResourceQuota
metadata: {name: most}
spec: {hard: {pods: "20", count/jobs.batch: "2"}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: main, image: any}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: main, image: any}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  suspend: true
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: any}]}}}}
---
`+pods("web", 3, ""), "create", "-f", "-")
	for _, what := range []string{"deployment/web", "statefulset/db", "daemonset/agent", "service/web"} {
		c.on(t, "wait", what, "--for=ready", "--timeout=3m")
	}
	c.on(t, "wait", "pdb/web", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=1m")
	c.on(t, "wait", "resourcequota/most", `--for=jsonpath={.status.used.pods}=7`, "--timeout=1m")
	c.on(t, "scale", "deployment/web", "--replicas=4")
	c.on(t, "wait", "deployment/web", "--for=ready", "--timeout=1m")
	c.on(t, "delete", "deployment/web", "--timeout=2m")
	c.on(t, "wait", "pods", "-l", "app=web", "--for=deleted", "--timeout=2m")

	c.with(t, "{apiVersion: v1, kind: Namespace, metadata: {name: brief}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: brief, finalizers: [example.com/hold]}}\n", "create", "-f", "-")
	c.on(t, "wait", "serviceaccount/default", "-n", "brief", "--for=created", "--wait-for-creation", "--timeout=1m")
	c.on(t, "delete", "namespace/brief", "--wait=false")
	c.on(t, "wait", "namespace/brief", `--for=jsonpath={.status.conditions[?(@.type=="NamespaceFinalizersRemaining")].status}=True`, "--timeout=1m")
	c.with(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: brief}}\n", "replace", "-f", "-")
	c.on(t, "wait", "namespace/brief", "--for=deleted", "--timeout=2m")
	if leases := c.on(t, "get", "lease", "kube-controller-manager", "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}"); leases == "" {
		t.Error("no holder of the lease kube-system/kube-controller-manager")
	}
	if log := string(tail(p.file("kube-controller-manager.log"))); strings.Contains(log, "is forbidden") {
		t.Errorf("the controllers lack permissions:\n%s", log)
	}
}

// impersonate writes ca.pem and NAME.kubeconfig, whose user is the one of the administrator's kubeconfig and acts as another.
func (p *Plane) impersonate(kubeconfig, name, user string) {
	p.t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, a := range config.AuthInfos {
		a.Impersonate = user
	}
	for _, c := range config.Clusters {
		p.write("ca.pem", c.CertificateAuthorityData)
	}
	if err := clientcmd.WriteToFile(*config, p.file(name+".kubeconfig")); err != nil {
		p.t.Fatal(err)
	}
}
