package test

import (
	"context"
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
	loadClients = 8

	// loadPause between two requests of a client leaves the machine to the pods
	// and ports to the host: a request costs one of 28,000 for a minute.
	loadPause = 12 * time.Millisecond

	// loadRequests is how many are sent at least.
	loadRequests = 20_000
)

// TestNoRequestIsLostWhilePodsComeAndGo sends requests on fresh connections
// through a Service while its pods are replaced and scaled, again and again. Every
// one of them has to be answered.
func TestNoRequestIsLostWhilePodsComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	c := clustertest.New(t, clustertest.Options{Program: sampanProgram, Real: true})
	s := &shell{t: t, kubeconfig: c.Kubeconfig}
	s.sampan("create", "-f", "../examples/web.yaml")
	s.sampan("wait", "rc/web", "--for=ready", "--timeout=60s")
	l := startLoad("http://" + s.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}") + "/")
	defer l.stop()

	rounds := 0
	for sent := 0; sent < loadRequests && !t.Failed(); rounds++ {
		version := []string{"v2", "v1"}[rounds%2]
		s.sampan("rolling-update", "web", "--image=sampan.local/demo:"+version, "--update-period=0s")
		s.sampan("scale", "rc", "web", "--replicas=1")
		s.sampan("wait", "rc/web", "--for=ready", "--timeout=60s")
		s.sampan("scale", "rc", "web", "--replicas=4")
		s.sampan("wait", "rc/web", "--for=ready", "--timeout=60s")
		s.sampan("scale", "rc", "web", "--replicas=2")
		s.sampan("wait", "rc/web", "--for=ready", "--timeout=60s")
		sent = l.count()
	}
	sent, answers, failures := l.stop()
	t.Logf("%d requests during %d rounds: %v", sent, rounds, answers)
	if answers["v1"] == 0 || answers["v2"] == 0 {
		t.Errorf("answers by version: %v, want some of v1 and of v2", answers)
	}
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed, want none; the first:\n%v", len(failures), sent, errors.Join(failures[:min(5, len(failures))]...))
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
	l := startLoad("http://" + s.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}") + "/")
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

// A load is some clients that send requests on fresh connections until it is
// stopped.
type load struct {
	url     string
	over    chan struct{}
	stopped sync.Once
	clients sync.WaitGroup

	mu       sync.Mutex
	sent     int            // guarded by mu
	answers  map[string]int // guarded by mu; by the version that gave them
	failures []error        // guarded by mu
}

func startLoad(url string) *load {
	l := &load{url: url, over: make(chan struct{}), answers: map[string]int{}}
	for range loadClients {
		l.clients.Go(func() {
			pace := time.NewTicker(loadPause)
			defer pace.Stop()
			for {
				select {
				case <-l.over:
					return
				case <-pace.C:
					l.request()
				}
			}
		})
	}
	return l
}

func (l *load) request() {
	began := time.Now()
	version, err := answeredBy(l.url)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s after %v: %w", began.Format(time.StampMilli), time.Since(began), err))
		return
	}
	l.answers[version]++
}

// answeredBy asks the demo server at url, and returns the version that it says it has.
func answeredBy(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := t.RoundTrip(req) // a client would try again on its own
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(body)) // sampan demo v1 pod NAME
	if resp.StatusCode != http.StatusOK || len(words) < 3 {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return words[2], nil
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// stop ends the clients, after their last requests, and returns what they saw.
func (l *load) stop() (sent int, answers map[string]int, failures []error) {
	l.stopped.Do(func() { close(l.over) })
	l.clients.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.answers, l.failures
}
