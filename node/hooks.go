package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/probe"
)

// maxHookBody is how much of the response to a hook is read.
const maxHookBody = 10 << 10

// errCommandTimedOut is the beginning of the message of a command that did not end in time.
var errCommandTimedOut = errors.New("command timed out")

// exec runs a command in a container, for at most timeout; 0 means until ctx is cancelled. It returns the beginning of its
// output. An [*exitError] says that the command ran and failed.
func (n *Node) exec(ctx context.Context, id string, cmd []string, timeout time.Duration) (string, error) {
	r, err := n.opts.Runtime.ExecSync(ctx, id, cmd, timeout)
	if status.Code(err) == codes.DeadlineExceeded {
		return "", fmt.Errorf("%w: %q timed out after %s", errCommandTimedOut, strings.Join(cmd, " "), timeout)
	}
	if err != nil {
		return "", err
	}
	out := string(r.GetStdout()) + string(r.GetStderr())
	if r.GetExitCode() != 0 {
		return out, &exitError{fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(cmd, " "), r.GetExitCode(), r.GetStderr())}
	}
	return out, nil
}

// An exitError says that a command in a container ended with another code than 0.
type exitError struct{ message string }

func (e *exitError) Error() string { return e.message }

// A prober runs exec probes in the runtime and the others over the network.
type prober struct {
	probe.Network
	n *Node
}

// maxProbeOutput is how much of the output of an exec probe is shown, in bytes, as in Kubernetes.
const maxProbeOutput = 10 << 10

// Probe implements [probe.Prober].
func (p prober) Probe(ctx context.Context, spec *corev1.Probe, c *corev1.Container, id, ip string) error {
	if spec.Exec == nil {
		return p.Network.Probe(ctx, spec, c, id, ip)
	}
	known := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			known[e.Name] = e.Value
		}
	}
	cmd, err := crispec.ExpandAll(spec.Exec.Command, func(name string) (string, bool) { v, ok := known[name]; return v, ok })
	if err != nil {
		return fmt.Errorf("exec.command: %w", err)
	}
	out, err := p.n.exec(ctx, id, cmd, probe.Timeout(spec))
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return errors.New(out[:min(len(out), maxProbeOutput)])
	case err == nil, errors.Is(err, errCommandTimedOut):
		return err
	}
	return &probe.Unknown{Err: err}
}

// A hook is a hook of one container that is about to run.
type hook struct {
	handler   *corev1.LifecycleHandler
	container *corev1.Container
	id, ip    string
}

// hook runs a hook, until ctx is cancelled. Containers of a runtime that answers their probes itself are no programs, and
// their hooks do nothing.
func (w *worker) hook(ctx context.Context, h hook) error {
	if _, simulated := w.n.opts.Runtime.(probe.Prober); simulated {
		return nil
	}
	switch {
	case h.handler.Exec != nil:
		_, err := w.n.exec(ctx, h.id, h.handler.Exec.Command, 0)
		return err
	case h.handler.HTTPGet != nil:
		return w.request(ctx, h)
	case h.handler.Sleep != nil:
		if !run.Pause(ctx, time.Duration(h.handler.Sleep.Seconds)*time.Second) {
			w.n.metrics.Pods.SleepsEnded.Inc()
			return errors.New("container terminated before sleep hook finished")
		}
		return nil
	}
	return errors.New("invalid handler: want exec, httpGet or sleep")
}

// request runs an HTTP hook. As in Kubernetes every response is a success, and a server that does not speak TLS is asked
// again without.
func (w *worker) request(ctx context.Context, h hook) error {
	req, err := probe.Request(ctx, h.container, h.ip, h.handler.HTTPGet, "lifecycle")
	if err != nil {
		return err
	}
	client := probe.Client()
	defer client.CloseIdleConnections()
	err = visit(client, req)
	if err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return err
	}
	req.URL.Scheme = "http"
	req.Header.Del("Authorization")
	if err := visit(client, req); err != nil {
		return err
	}
	w.n.metrics.Pods.HookFallbacks.Inc()
	w.event(corev1.EventTypeWarning, "LifecycleHTTPFallback",
		"request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host)
	return nil
}

func visit(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxHookBody))
	return nil
}

// hookOf returns the input of a hook of a container in the runtime.
func (w *worker) hookOf(handler *corev1.LifecycleHandler, c *corev1.Container, id string) hook {
	h := hook{handler: handler, container: c, id: id}
	for _, s := range w.view.Sandboxes {
		if s.Ready && len(s.IPs) > 0 {
			h.ip = s.IPs[0]
		}
	}
	if w.view.Pod.Spec.HostNetwork && len(w.n.machine.hostIPs) > 0 {
		h.ip = w.n.machine.hostIPs[0]
	}
	return h
}

// postStart runs the postStart hook of a container that has just been started, as part of its start: the next container of
// the pod waits for it. A hook that fails ends the container.
func (w *worker) postStart(h hook, attempt int32) {
	a := lifecycle.Action{Verb: lifecycle.Start, Container: h.container.Name, Attempt: attempt}
	w.begin(a, time.Now(), func(ctx context.Context) func() {
		err := w.hook(ctx, h)
		return func() {
			delete(w.view.Memory.Hooked, h.container.Name)
			if err == nil || ctx.Err() != nil {
				return
			}
			w.log.Info("postStart hook failed", "container", h.container.Name, "err", err)
			// The message may have secrets in it.
			w.containerEvent(h.container.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			w.view.Memory.Unfit[h.id] = lifecycle.BadHook
		}
	})
}

// preStop runs the preStop hook of a container that is about to be stopped, for at most a.Grace.
func (w *worker) preStop(a lifecycle.Action, now time.Time) {
	c, _ := lifecycle.Spec(w.view.Pod, a.Container)
	h := w.hookOf(c.Lifecycle.PreStop, c, a.ID)
	w.begin(a, now, func(ctx context.Context) func() {
		limited, cancel := context.WithTimeout(ctx, a.Grace)
		defer cancel()
		err := w.hook(limited, h)
		if err != nil && limited.Err() == nil {
			w.log.Info("preStop hook failed", "container", a.Container, "err", err)
			w.containerEvent(a.Container, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
		return func() { w.view.Memory.PreStopped[a.ID] = true }
	})
}

// ending records that a container is being stopped, and reports it in one event.
func (w *worker) ending(a lifecycle.Action, now time.Time) {
	m := &w.view.Memory
	if _, begun := m.StopBy[a.ID]; begun {
		return
	}
	m.StopBy[a.ID] = now.Add(a.Grace)
	if a.Replace {
		m.Replaced[a.ID] = true
	}
	w.containerEvent(a.Container, corev1.EventTypeNormal, "Killing", "%s", a.Why)
}

// prune drops what is remembered of containers that the runtime does not have any more.
func prune[V any](m map[string]V, has map[string]bool) {
	for id := range m {
		if !has[id] {
			delete(m, id)
		}
	}
}
