package upstream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// TestOurSchedulerOnAnUpstreamServer has `sampan scheduler` place the pods of upstream's API server and controllers, while
// what can go wrong does.
func TestOurSchedulerOnAnUpstreamServer(t *testing.T) {
	sampan := program(t, "SAMPAN")
	p := Start(t, Options{Programs: program(t, "UPSTREAM"), Scheduler: sampan, Nodes: 2})
	if err := settle(p); err != nil {
		t.Fatal(err)
	}
	c := &commands{sampan: sampan, kubeconfig: p.Kubeconfig, home: p.dir}
	t.Run("the server restarts", func(t *testing.T) {
		c.apply(t, pods("before", 3, ""))
		c.on(t, "wait", "deployment/before", "--for=ready", "--timeout=2m")
		c.apply(t, pod("huge", "cpu: 100k"))
		c.on(t, "wait", "pod/huge", unschedulable, "--timeout=1m")
		p.KillServer()
		p.StartServer()
		c.apply(t, pods("after", 20, ""))
		c.on(t, "wait", "deployment/after", "--for=ready", "--timeout=3m")
		c.once(t)
	})
	t.Run("two of one name", func(t *testing.T) {
		second := p.run("second-scheduler", sampan, "scheduler", "--kubeconfig="+p.file("scheduler.kubeconfig"))
		defer second.end()
		c.apply(t, pods("both", 60, ""))
		c.on(t, "wait", "deployment/both", "--for=ready", "--timeout=3m")
		c.once(t)
	})
	t.Run("an extender hangs", func(t *testing.T) {
		p.scheduler.end()
		var mended atomic.Bool
		var asked atomic.Int64
		extender := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var args struct{ NodeNames []string }
			if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
				t.Error(err)
			}
			if asked.Add(1); !mended.Load() {
				<-r.Context().Done()
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"nodenames": args.NodeNames})
		}))
		defer extender.Close()
		p.write("extended.yaml", fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
extenders: [{urlPrefix: %q, filterVerb: filter, nodeCacheCapable: true, httpTimeout: 3s, managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]}]
`, extender.URL))
		p.scheduler = p.run("extended-scheduler", sampan, "scheduler", "--kubeconfig="+p.file("scheduler.kubeconfig"), "--config="+p.file("extended.yaml"))
		c.apply(t, pod("gpu", `example.com/gpu: "1"`))
		c.on(t, "wait", "pod/gpu", `--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=SchedulerError`, "--timeout=1m")
		c.apply(t, pods("beside", 20, ""))
		c.on(t, "wait", "deployment/beside", "--for=ready", "--timeout=2m")
		if at := c.on(t, "get", "pod", "gpu", "-o", "jsonpath={.spec.nodeName}"); at != "" {
			t.Errorf("gpu is on %q", at)
		}
		mended.Store(true)
		c.on(t, "wait", "pod/gpu", "--for=scheduled", "--timeout=1m")
		c.once(t)
	})
	t.Run("the leader is killed", func(t *testing.T) {
		p.scheduler.end()
		elected := func(name string) *process {
			return p.run(name, sampan, "scheduler", "--kubeconfig="+p.file("scheduler.kubeconfig"), "--leader-elect")
		}
		holder := func() string {
			return c.on(t, "get", "lease", "kube-scheduler", "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")
		}
		first := elected("first-elected")
		c.apply(t, pods("first", 5, ""))
		c.on(t, "wait", "deployment/first", "--for=ready", "--timeout=2m")
		leader := holder()
		next := elected("next-elected")
		defer next.end()
		first.end() // as kill -9 does: it gives nothing back
		c.apply(t, pods("next", 5, ""))
		c.on(t, "wait", "deployment/next", "--for=ready", "--timeout=2m")
		if now := holder(); leader == "" || now == leader {
			t.Errorf("the lease is held by %q, before by %q", now, leader)
		}
		c.once(t)
	})
}

const unschedulable = `--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable`

// pods is a Deployment.
func pods(name string, n int, requests string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: main, image: any, resources: {requests: {%[3]s}}}]}}
`, name, n, requests)
}

func pod(name, amounts string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: main, image: any, resources: {requests: {%[2]s}, limits: {%[2]s}}}]}\n", name, amounts)
}

// commands are those of a user.
type commands struct{ sampan, kubeconfig, home string }

func (c *commands) on(t *testing.T, args ...string) string { t.Helper(); return c.with(t, "", args...) }

func (c *commands) apply(t *testing.T, manifest string) {
	t.Helper()
	c.with(t, manifest, "create", "-f", "-")
}

func (c *commands) with(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.sampan, append(args, "--kubeconfig="+c.kubeconfig)...)
	cmd.Env, cmd.Stdin = append(os.Environ(), "HOME="+c.home), strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("sampan %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// once looks whether each pod was bound once, and whether all that can be are.
func (c *commands) once(t *testing.T) {
	t.Helper()
	bound := map[string]int{}
	for line := range strings.Lines(c.on(t, "get", "events", "--field-selector=reason=Scheduled", "-o", `jsonpath={range .items[*]}{.involvedObject.name}{"\n"}{end}`)) {
		bound[strings.TrimSpace(line)]++
	}
	for name, n := range bound {
		if n > 1 {
			t.Errorf("pod %s was bound %d times", name, n)
		}
	}
	for line := range strings.Lines(c.on(t, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`)) {
		if name, node, _ := strings.Cut(strings.TrimSpace(line), " "); node == "" && name != "huge" {
			t.Errorf("pod %s has no node", name)
		}
	}
}
