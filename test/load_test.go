package test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/clustertest"
)

const (
	freshClients = 12 // which make a connection for each request
	keptClients  = 4  // which keep theirs as long as the server does

	// loadPause between two requests of a client leaves the machine to the pods.
	loadPause = 8 * time.Millisecond

	// loadRequests is how many are sent at least, and on fresh connections at least
	// half as many.
	loadRequests = 20_000
)

// abruptService is a Service for abruptPods, with a budget.
const abruptService = `
apiVersion: v1
kind: Service
metadata: {name: abrupt}
spec:
  selector: {app: abrupt}
  ports: [{port: 80}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: abrupt}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: abrupt}}
`

// abruptPods do no more than to honour SIGTERM: they close their listener at once, and end
// when what they are at is answered. KIND, NAME and SIZE are to be filled in.
const abruptPods = `
---
apiVersion: apps/v1
kind: KIND
metadata: {name: NAME}
spec:
  SIZE
  selector: {matchLabels: {app: abrupt, of: NAME}}
  template:
    metadata: {labels: {app: abrupt, of: NAME}}
    spec:
      containers:
      - name: web
        image: sampan.local/demo:v1
        env: [{name: DRAIN_SECONDS, value: "0"}]
        readinessProbe: {httpGet: {path: /healthz, port: 80}, periodSeconds: 1}
`

// A disturbance is one kind of change to the pods under load.
type disturbance func(s *shell, version string)

// TestNoRequestIsLostWhilePodsComeAndGo sends requests through a Service, on
// fresh connections and on kept ones, while its pods are replaced and scaled, again
// and again. Every one of them has to be answered.
func TestNoRequestIsLostWhilePodsComeAndGo(t *testing.T) {
	web, err := filepath.Abs("../examples/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := func(kind, size string, more ...string) string {
		file, text := filepath.Join(t.TempDir(), kind+".yaml"), abruptService
		for _, name := range append(more, "abrupt") {
			text += strings.NewReplacer("KIND", kind, "NAME", name, "SIZE", size).Replace(abruptPods)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	abrupt := pods("Deployment", "replicas: 3")
	update := func(s *shell, what, image, strategy string) {
		if strategy != "" {
			s.kubectl("patch", what, "-p", `{"spec":{"updateStrategy":{"rollingUpdate":`+strategy+`}}}`)
		}
		if image != "" {
			s.kubectl("set", "image", what, "web=sampan.local/demo:"+image)
		}
		s.kubectl("rollout", "status", what, "--timeout=60s")
	}
	ready := (*shell).ready
	scale := func(s *shell, what string, replicas ...string) {
		for _, n := range replicas {
			s.sampan("scale", what, "--replicas="+n)
			ready(s, what)
		}
	}
	tests := []struct {
		name, file, service, controller string

		disturb  disturbance
		versions []string // that have to have answered
	}{
		{
			"ReplicationController", web, "web", "rc/web",
			func(s *shell, version string) {
				s.sampan("rolling-update", "web", "--image=sampan.local/demo:"+version, "--update-period=0s")
				scale(s, "rc/web", "1", "4", "2")
			},
			[]string{"v1", "v2"},
		},
		{
			"Deployment", abrupt, "abrupt", "deployment/abrupt",
			func(s *shell, version string) {
				s.kubectl("set", "image", "deployment/abrupt", "web=sampan.local/demo:"+version)
				s.sampan("rollout", "status", "deployment/abrupt", "--timeout=60s")
				s.sampan("rollout", "restart", "deployment/abrupt")
				s.sampan("rollout", "status", "deployment/abrupt", "--timeout=60s")
				scale(s, "deployment/abrupt", "1", "4", "3")
			},
			[]string{"v1", "v2"},
		},
		{
			"StatefulSet", pods("StatefulSet", "replicas: 3\n  serviceName: abrupt"), "abrupt", "statefulset/abrupt",
			func(s *shell, version string) {
				const set = "statefulset/abrupt"
				update(s, set, version, `{"partition":2,"maxUnavailable":1}`) // the last alone is of that version
				update(s, set, "", `{"partition":0}`)
				s.kubectl("rollout", "restart", set)
				update(s, set, "", `{"maxUnavailable":2}`)
				scale(s, set, "1", "4", "3")
			},
			[]string{"v1", "v2"},
		},
		{
			// There is one node, and so there are moments when it has no pod of the set
			// that is updated: that of the other serves.
			"DaemonSets", pods("DaemonSet", "minReadySeconds: 0", "mate"), "abrupt", "daemonset/abrupt",
			func(s *shell, version string) {
				for _, set := range []string{"daemonset/abrupt", "daemonset/mate"} {
					ready(s, set)
					update(s, set, version, `{"maxUnavailable":1,"maxSurge":0}`)
				}
			},
			[]string{"v1", "v2"},
		},
		{
			"DaemonSet that surges", pods("DaemonSet", "minReadySeconds: 0"), "abrupt", "daemonset/abrupt",
			func(s *shell, version string) {
				update(s, "daemonset/abrupt", version, `{"maxUnavailable":0,"maxSurge":1}`)
			},
			[]string{"v1", "v2"},
		},
		{"sampan drain", abrupt, "abrupt", "deployment/abrupt", drainBy(sampanProgram), []string{"v1"}},
		{"kubectl drain", abrupt, "abrupt", "deployment/abrupt", drainBy(kubectlProgram), []string{"v1"}},
		{
			// There is a moment when the only pod has to go and no other is there.
			"the only pod", abrupt, "abrupt", "deployment/abrupt",
			func(s *shell, _ string) {
				scale(s, "deployment/abrupt", "1")
				s.sampan("delete", "pods", "-l", "app=abrupt", "--timeout=60s")
				ready(s, "deployment/abrupt")
			},
			[]string{"v1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := clustertest.New(t, clustertest.Options{Program: sampanProgram, Real: true})
			s := &shell{t: t, kubeconfig: c.Kubeconfig}
			s.sampan("create", "-f", tt.file)
			ready(s, tt.controller)
			l := startLoad(net.JoinHostPort(s.kubectl("get", "service", tt.service, "-o", "jsonpath={.spec.clusterIP}"), "80"))
			defer l.stop()

			rounds := 0
			for sent, fresh := 0, 0; (sent < loadRequests || fresh < loadRequests/2) && !t.Failed(); rounds++ {
				tt.disturb(s, []string{"v2", "v1"}[rounds%2])
				sent, fresh = l.count()
			}
			sent, answers, failures := l.stop()
			t.Logf("%d requests during %d rounds: %v", sent, rounds, answers)
			for _, v := range tt.versions {
				if answers[v] == 0 {
					t.Errorf("answers by version: %v, want some of %s", answers, v)
				}
			}
			if len(failures) > 0 {
				t.Errorf("%d of %d requests failed, want none; the first:\n%v", len(failures), sent, errors.Join(failures[:min(5, len(failures))]...))
			}
		})
	}
}

// drainBy drains the only node with a program, and opens it when the first pod has to
// go, so that others have a place to come to. A pod goes when another has come.
func drainBy(program string) disturbance {
	return func(s *shell, _ string) {
		s.t.Helper()
		node := strings.TrimPrefix(s.kubectl("get", "nodes", "-o", "name"), "node/")
		cmd := exec.CommandContext(s.t.Context(), program, "drain", node, "--timeout=120s")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
		out, err := cmd.StdoutPipe()
		if err != nil {
			s.t.Fatal(err)
		}
		var complaints strings.Builder
		cmd.Stderr = &complaints
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		opened := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !opened && strings.HasPrefix(lines.Text(), "evicting pod ") {
				opened = true
				s.kubectl("uncordon", node)
			}
		}
		if err := cmd.Wait(); err != nil || !opened {
			s.t.Errorf("%s: %v (opened: %v)\n%s", strings.Join(cmd.Args, " "), err, opened, &complaints)
		}
		s.ready("deployment/abrupt")
	}
}

// TestNoRequestIsLostWhileTheRuntimeIsReplaced replaces the container runtime in
// place, as an upgrade does, and kills it, while pods answer requests. They go on,
// and so do their logs.
func TestNoRequestIsLostWhileTheRuntimeIsReplaced(t *testing.T) {
	c := clustertest.New(t, clustertest.Options{Program: sampanProgram, Real: true})
	s := &shell{t: t, kubeconfig: c.Kubeconfig}
	s.sampan("create", "-f", "../examples/web.yaml")
	s.sampan("wait", "rc/web", "--for=ready", "--timeout=60s")
	pods := strings.Fields(s.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}"))
	l := startLoad(net.JoinHostPort(s.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"), "80"))
	defer l.stop()

	replace := map[string]func(pid int) error{
		"replaced": func(pid int) error { return unix.Kill(pid, unix.SIGHUP) },
		"killed":   killAndWait,
	}
	for i, how := range []string{"replaced", "replaced", "killed", "replaced", "killed"} {
		pid, err := processOf(filepath.Join("/run/sampan", c.Name), "runtime.json", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := replace[how](pid); err != nil {
			t.Fatal(err)
		}
		s.runtimeAnswers(pods[0])
		for _, pod := range pods {
			word := fmt.Sprintf("%s-%d", how, i)
			s.sampan("exec", pod, "--", "/bin/demo", "write", "/proc/1/fd/1", word)
			s.sampan("wait", "pod/"+pod, "--for=ready", "--timeout=60s")
			if log := s.kubectl("logs", pod); !strings.Contains(log, word) || !strings.Contains(log, "listens on port") {
				t.Errorf("after the runtime was %s, the log of %s is\n%s\nwant it to hold %s", how, pod, log, word)
			}
		}
	}
	if got := s.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name} {.items[*].status.containerStatuses[0].restartCount}"); got != strings.Join(pods, " ")+" 0 0 0" {
		t.Errorf("pods and their restarts are %s, want %v without any", got, pods)
	}
	sent, _, failures := l.stop()
	t.Logf("%d requests", sent)
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed, want none; the first:\n%v", len(failures), sent, errors.Join(failures[:min(5, len(failures))]...))
	}
}

// runtimeAnswers waits until the container runtime answers the agent of the node that
// a pod is on.
func (s *shell) runtimeAnswers(pod string) {
	s.t.Helper()
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	var out []byte
	for range 600 {
		var err error
		cmd := exec.CommandContext(s.t.Context(), sampanProgram, "exec", pod, "--", "/bin/demo", "id")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
		if out, err = cmd.CombinedOutput(); err == nil {
			return
		}
		<-pace.C
	}
	s.t.Fatalf("the container runtime did not come back:\n%s", out)
}

// A shell runs commands on a cluster; one that fails fails the test.
type shell struct {
	t          *testing.T
	kubeconfig string
}

func (s *shell) sampan(args ...string) string  { return s.run(sampanProgram, args...) }
func (s *shell) kubectl(args ...string) string { return s.run(kubectlProgram, args...) }

// ready waits until an object is.
func (s *shell) ready(what string) { s.sampan("wait", what, "--for=ready", "--timeout=60s") }

func (s *shell) run(program string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// A load is some clients that send requests until it is stopped.
type load struct {
	address string
	over    chan struct{}
	stopped sync.Once
	clients sync.WaitGroup

	mu       sync.Mutex
	sent     int            // guarded by mu
	fresh    int            // guarded by mu; on connections of their own
	answers  map[string]int // guarded by mu; by the version that gave them
	failures []error        // guarded by mu
}

func startLoad(address string) *load {
	l := &load{address: address, over: make(chan struct{}), answers: map[string]int{}}
	for i := range freshClients + keptClients {
		l.clients.Go(func() {
			pace := time.NewTicker(loadPause)
			defer pace.Stop()
			c := &loadClient{address: address, keep: i >= freshClients}
			defer c.close()
			for {
				select {
				case <-l.over:
					return
				case <-pace.C:
					l.request(c)
				}
			}
		})
	}
	return l
}

func (l *load) request(c *loadClient) {
	began := time.Now()
	version, err := c.ask()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if !c.keep {
		l.fresh++
	}
	if err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s after %v: %w", began.Format(time.StampMilli), time.Since(began), err))
		return
	}
	l.answers[version]++
}

// A loadClient asks the demo server. It does no more than has to be done, so that
// many of them leave the machine to what is tested.
type loadClient struct {
	address string
	keep    bool

	conn net.Conn // kept from the last request, or nil
	text *bufio.Reader
}

func (c *loadClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ask returns the version that the server says it has.
func (c *loadClient) ask() (string, error) {
	used := c.conn != nil
	version, begun, err := c.try()
	// A server may close an idle connection while a request is on its way: HTTP requires
	// the client to send it again, on a new connection.
	if err != nil && used && !begun {
		version, _, err = c.try()
	}
	return version, err
}

// try sends one request. begun says whether any of an answer came.
func (c *loadClient) try() (version string, begun bool, err error) {
	defer func() {
		if err != nil || !c.keep {
			c.close()
		}
	}()
	if c.conn == nil {
		if c.conn, err = (&net.Dialer{Timeout: loadPatience}).Dial("tcp", c.address); err != nil {
			return "", false, err
		}
		c.text = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(loadPatience)); err != nil {
		return "", false, err
	}
	header := "Connection: close\r\n"
	if c.keep {
		header = ""
	}
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: web\r\n"+header+"\r\n"); err != nil {
		return "", false, err
	}
	if _, err := c.text.Peek(1); err != nil {
		return "", false, err
	}
	resp, err := http.ReadResponse(c.text, nil)
	if err != nil {
		return "", true, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", true, err
	}
	if resp.Close {
		c.close()
	}
	words := strings.Fields(string(body)) // sampan demo v1 pod NAME
	if resp.StatusCode != http.StatusOK || len(words) < 3 {
		return "", true, fmt.Errorf("%s: %s", resp.Status, body)
	}
	return words[2], true, nil
}

// loadPatience is how long an answer may take.
const loadPatience = 30 * time.Second

func (l *load) count() (sent, fresh int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.fresh
}

// stop ends the clients, after their last requests, and returns what they saw.
func (l *load) stop() (sent int, answers map[string]int, failures []error) {
	l.stopped.Do(func() { close(l.over) })
	l.clients.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.answers, l.failures
}
