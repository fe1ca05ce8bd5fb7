package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/clustertest"
)

// notServed are the kinds that kube-scheduler lists before it begins, and that our server
// does not have, by their paths.
var notServed = map[string]string{
	"/apis/resource.k8s.io/v1/resourceclaims":   "ResourceClaim",
	"/apis/resource.k8s.io/v1/resourceslices":   "ResourceSlice",
	"/apis/resource.k8s.io/v1/deviceclasses":    "DeviceClass",
	"/apis/resource.k8s.io/v1/devicetaintrules": "DeviceTaintRule",
}

// TestUpstreamSchedulesOnOurServer has kube-scheduler place pods of a cluster of ours. It
// needs kinds that we do not serve: in front of our server stands one that says of
// these that there are none. When one of them is served, this fails and it is to go.
func TestUpstreamSchedulesOnOurServer(t *testing.T) {
	sampan := program(t, "SAMPAN")
	c := clustertest.New(t, clustertest.Options{Program: sampan, Nodes: 2})
	p := &Plane{t: t, dir: t.TempDir()}
	front := inFrontOf(t, c.Kubeconfig)
	p.write("kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: x
clusters: [{name: x, cluster: {server: %q}}]
contexts: [{name: x, context: {cluster: x}}]
`, front))
	p.write("scheduler.yaml", fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
profiles: [{schedulerName: upstream}]
`, p.file("kubeconfig")))
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

// inFrontOf returns the address of a server that passes on to the cluster what it
// serves, as its administrator, and answers for notServed itself.
func inFrontOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	for path, kind := range notServed {
		resp, err := (&http.Client{Transport: transport}).Get(cfg.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s is served by now, take it out of notServed: %s", kind, resp.Status)
		}
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, // watches
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := notServed[r.URL.Path]
		if kind == "" {
			proxy.ServeHTTP(w, r)
			return
		}
		version := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")
		none(w, r, version[:strings.LastIndex(version, "/")], kind)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// none answers a list or watch of a kind of which there are no objects.
func none(w http.ResponseWriter, r *http.Request, apiVersion, kind string) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, apiVersion, kind+"List")
		return
	}
	end, err := json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
		"resourceVersion": "1", "annotations": map[string]string{"k8s.io/initial-events-end": "true"},
	}})
	if err != nil {
		panic(err) // of these values it cannot be
	}
	_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":`+string(end)+"}\n")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}
