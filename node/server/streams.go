package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/runtime/api"
)

// Streams of containers are served by the runtime: the agent asks it for a URL, which is good for one connection, and passes the
// client's connection on to it byte by byte. Which protocols there are is a matter of the client and the runtime.

const (
	streamDialLimit = 10 * time.Second // to the runtime, on this machine
	mostPorts       = 1000             // in one request
)

// streamRoutes adds the paths of streams, with and without the UID of the pod.
func (k *Server) streamRoutes(mux *http.ServeMux) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, uid := range []string{"", "/{uid}"} {
			mux.HandleFunc(method+" /exec/{namespace}/{pod}"+uid+"/{container}", k.execStream)
			mux.HandleFunc(method+" /attach/{namespace}/{pod}"+uid+"/{container}", k.attach)
			mux.HandleFunc(method+" /portForward/{namespace}/{pod}"+uid, k.portForward)
		}
	}
}

// streams are the streams of exec or attach that a client wants.
type streams struct{ stdin, stdout, stderr, tty bool }

func streamsOf(q url.Values) (streams, error) {
	on := func(name string) bool { return q.Get(name) == "1" }
	s := streams{stdin: on(corev1.ExecStdinParam), stdout: on(corev1.ExecStdoutParam), stderr: on(corev1.ExecStderrParam), tty: on(corev1.ExecTTYParam)}
	if s.tty { // a terminal has one output
		s.stderr = false
	}
	if !s.stdin && !s.stdout && !s.stderr {
		return s, refuse(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr")
	}
	return s, nil
}

// podOf returns the state of the pod in the request.
func (k *Server) podOf(r *http.Request) (lifecycle.Observed, error) {
	w, ok := k.opts.Pod(r.PathValue("namespace"), r.PathValue("pod"))
	if !ok {
		return lifecycle.Observed{}, refuse(http.StatusNotFound, "pod does not exist")
	}
	state, _ := w.Status()
	if uid := r.PathValue("uid"); uid != "" && uid != string(state.Pod.UID) {
		return lifecycle.Observed{}, refuse(http.StatusNotFound, "pod not found")
	}
	return state, nil
}

// running returns the running container with a name; an empty name means any.
func running(o *lifecycle.Observed, name string) (lifecycle.Container, bool) {
	i := slices.IndexFunc(o.Containers, func(c lifecycle.Container) bool {
		return c.State == lifecycle.Running && (name == "" || c.Name == name)
	})
	if i < 0 {
		return lifecycle.Container{}, false
	}
	return o.Containers[i], true
}

// execStream runs a command in a container.
func (k *Server) execStream(w http.ResponseWriter, r *http.Request) {
	k.stream(w, r, func(ctx context.Context) (string, error) {
		s, err := streamsOf(r.URL.Query())
		if err != nil {
			return "", err
		}
		state, err := k.podOf(r)
		if err != nil {
			return "", err
		}
		name := r.PathValue("container")
		c, ok := running(&state, name)
		if !ok {
			return "", fmt.Errorf("container not found (%q)", name)
		}
		return k.opts.Runtime.Exec(ctx, &cri.ExecRequest{
			ContainerId: c.ID, Cmd: r.URL.Query()["command"], Tty: s.tty, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr,
		})
	})
}

// attach connects to the first process of a container. It has a terminal or not, whatever the client says.
func (k *Server) attach(w http.ResponseWriter, r *http.Request) {
	k.stream(w, r, func(ctx context.Context) (string, error) {
		s, err := streamsOf(r.URL.Query())
		if err != nil {
			return "", err
		}
		state, err := k.podOf(r)
		if err != nil {
			return "", err
		}
		name := r.PathValue("container")
		c, ok := running(&state, name)
		if !ok {
			return "", fmt.Errorf("container %s not found in pod %s_%s", name, state.Pod.Name, state.Pod.Namespace)
		}
		tty, now := hasTTY(&state.Pod.Spec, name), time.Now()
		if since := k.unread.Since(c.ID, c.StartedAt, now); since != nil && s.stdout {
			ctx = metadata.AppendToOutgoingContext(ctx, api.AttachSince, since.UTC().Format(time.RFC3339Nano))
			k.unread.Read(c.ID, now)
		}
		return k.opts.Runtime.Attach(ctx, &cri.AttachRequest{
			ContainerId: c.ID, Tty: tty, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr && !tty,
		})
	})
}

func hasTTY(spec *corev1.PodSpec, name string) bool {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].TTY
			}
		}
	}
	return slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name && c.TTY })
}

// portForward connects to ports of a pod.
func (k *Server) portForward(w http.ResponseWriter, r *http.Request) {
	k.stream(w, r, func(ctx context.Context) (string, error) {
		ports, err := portsOf(r)
		if err != nil {
			return "", err
		}
		state, err := k.podOf(r)
		if err != nil {
			return "", err
		}
		sandbox, err := forwarded(&state)
		if err != nil {
			return "", err
		}
		return k.opts.Runtime.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	})
}

// forwarded returns the ID of the sandbox whose ports a client reaches. Like upstream's kubelet it needs no container: a pod with a
// ready sandbox has a network while its images are pulled and between the restarts of its containers. Of a pod that has something
// running, the newest sandbox is meant even if it is not ready; then the runtime refuses.
func forwarded(o *lifecycle.Observed) (string, error) {
	_, runs := running(o, "")
	if !runs && !slices.ContainsFunc(o.Sandboxes, func(s lifecycle.Sandbox) bool { return s.Ready }) {
		return "", fmt.Errorf("pod not found (%q)", o.Pod.Name+"_"+o.Pod.Namespace)
	}
	newest := lifecycle.Newest(o.Sandboxes)
	if newest == nil {
		return "", fmt.Errorf("failed to find sandboxID for pod %s_%s(%s)", o.Pod.Name, o.Pod.Namespace, o.Pod.UID)
	}
	return newest.ID, nil
}

// portsOf returns the ports that a client of the old WebSocket protocols must name in the query. All others name them with each
// stream.
func portsOf(r *http.Request) (ports []int32, err error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		return nil, nil
	}
	lists := r.URL.Query()[corev1.PortHeader]
	if len(lists) == 0 {
		return nil, refuse(http.StatusBadRequest, "query parameter %q is required", corev1.PortHeader)
	}
	for _, list := range lists {
		if list == "" {
			return nil, refuse(http.StatusBadRequest, "query parameter %q cannot be empty", corev1.PortHeader)
		}
		for text := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, refuse(http.StatusBadRequest, "unable to parse %q as a port: %v", list, err)
			}
			if port < 1 {
				return nil, refuse(http.StatusBadRequest, "port %q must be > 0", list)
			}
			if ports = append(ports, int32(port)); len(ports) > mostPorts {
				return nil, refuse(http.StatusBadRequest, "query parameter %q has more than %d ports", corev1.PortHeader, mostPorts)
			}
		}
	}
	return ports, nil
}

// stream passes a connection on to the URL that the runtime returns. It ends with the agent.
func (k *Server) stream(w http.ResponseWriter, r *http.Request, open func(context.Context) (string, error)) {
	if !asksForUpgrade(r) {
		answer(w, refuse(http.StatusBadRequest, "Upgrade request required"))
		return
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		k.opts.Metrics.WebSockets.WithLabelValues(strings.ToLower(bucketOf(r.URL.Path))).Inc()
	}
	text, err := open(r.Context())
	if err != nil {
		answerCRI(w, err)
		return
	}
	to, err := url.Parse(text)
	if err != nil || to.Host == "" {
		answer(w, fmt.Errorf("the container runtime answered with %q, which is not a URL", text))
		return
	}
	k.pass(w, r, to)
}

func asksForUpgrade(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Connection"), func(v string) bool { return strings.Contains(strings.ToLower(v), "upgrade") })
}

// answerCRI answers with an error of the runtime, with the codes and texts of upstream's kubelet.
func answerCRI(w http.ResponseWriter, err error) {
	switch status.Code(err) {
	case codes.NotFound:
		err = refuse(http.StatusNotFound, "%v", err)
	case codes.ResourceExhausted:
		w.Header().Set("Retry-After", "60") // after which unused URLs end
		err = refuse(http.StatusTooManyRequests, "%v", err)
	}
	answer(w, err)
}
