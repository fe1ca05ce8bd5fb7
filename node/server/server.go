package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/records"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/logs"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/stats"
	"github.com/sampan-io/sampan/node/unread"
	"github.com/sampan-io/sampan/node/volumes"
)

// ExitCodeHeader carries the exit code of a command that POST /run executed.
const ExitCodeHeader = "X-Sampan-Exit-Code"

// StdoutLengthHeader says how many bytes of the answer to POST /run the command wrote to
// its standard output. They come first; the rest is its standard error.
const StdoutLengthHeader = "X-Sampan-Stdout-Length"

// OutputLimitHeader lists the streams, "stdout" and "stderr", that reached the limit
// for captured output, so that more may have been written than the answer has.
const OutputLimitHeader = "X-Sampan-Output-Limit-Reached"

// outputLimit is where CRI makes a runtime truncate each stream of a command.
const outputLimit = 16 << 20

const (
	execLimit    = 10 * time.Minute // of one command
	headerLimit  = 10 * time.Second
	idleLimit    = 2 * time.Minute // of a connection without a request
	closingPause = time.Second     // for answers that are under way when the agent stops
)

// A Pod is a pod of the node, as its worker last read it.
type Pod interface {
	// Status returns the state of the pod, and a channel that is closed when that has changed.
	Status() (lifecycle.Observed, <-chan struct{})
	// TurnBegan returns when its worker began its current turn; the zero time if it has nothing to do.
	TurnBegan() time.Time
}

// Options configures a [Server].
type Options struct {
	Name      string
	Listeners []net.Listener
	Local     *inprocess.Listener // for the API server if that is in the same process; may be nil
	TLS       *tls.Config
	ClientCAs func() *x509.CertPool
	Handlers  map[string]http.Handler // further parts of the API, by patterns

	Client     client.Interface
	Runtime    criclient.Runtime
	RootDir    string
	LogDir     string
	SystemLogs string
	Version    string
	Owner      string // of the pods in a runtime of others; empty: the runtime is the node's alone

	Config   *kubeletconfig.Config
	Reported func() kubelet.KubeletConfiguration // as /configz shows it
	Files    *volumes.Files
	Metrics  *metrics.Metrics
	Log      *slog.Logger

	Pods    iter.Seq[Pod]                                     // all pods that have workers
	Pod     func(namespace, name string) (Pod, bool)          // the pod of a name
	Logs    func(pod *corev1.Pod) string                      // the directory of a pod's logs
	Health  func() (known bool, fault string)                 // of the runtime; "" means that it is well
	Machine func() (info corev1.NodeSystemInfo, memory int64) // memory is in bytes
}

// Server serves the API of kubelets: logs, streams, metrics, and what the node's pods are.
type Server struct {
	opts    Options
	access  access           // to the API
	streams *streamTransport // to those of the runtime
	layers  layers
	rates   stats.Rates
	unread  unread.Tracker // of the output of containers
}

func New(o Options) *Server {
	return &Server{opts: o, streams: newStreamTransport()}
}

// Run serves the kubelet API until ctx is cancelled. It closes the listeners.
func (k *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler: k.counted(k.authorized(k.routes())), ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit,
		// Logs that are being followed end with the agent.
		BaseContext: func(l net.Listener) context.Context {
			if k.opts.Local != nil && l == net.Listener(k.opts.Local) {
				return context.WithValue(ctx, fromAPIServer{}, true)
			}
			return ctx
		},
		ErrorLog: slog.NewLogLogger(k.opts.Log.Handler(), slog.LevelDebug),
	}
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	failed := make(chan error, len(k.opts.Listeners)+1)
	for _, l := range k.opts.Listeners {
		k.opts.Log.Info("kubelet API serves clients with permissions for this node", "address", l.Addr().String())
		g.Go(func(context.Context) { failed <- server.Serve(tls.NewListener(records.NewListener(l), k.tls())) })
	}
	if k.opts.Local != nil {
		g.Go(func(context.Context) { failed <- server.Serve(k.opts.Local) })
	}
	defer g.Wait()
	select {
	case err := <-failed:
		_ = server.Close() // the others
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingPause)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close()
	}
	return nil
}

// tls requests client certificates and verifies them with the current authorities.
func (k *Server) tls() *tls.Config {
	c := k.opts.TLS.Clone()
	c.MinVersion = tls.VersionTLS13
	c.NextProtos = []string{"http/1.1"}
	c.ClientAuth = tls.RequestClientCert
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil // it needs a token
		}
		between := x509.NewCertPool()
		for _, cert := range s.PeerCertificates[1:] {
			between.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: k.opts.ClientCAs(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		return err
	}
	return c
}

func (k *Server) routes() http.Handler {
	mux := http.NewServeMux()
	k.readRoutes(mux)
	mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", k.checkpoint)
	if *k.opts.Config.EnableDebuggingHandlers {
		k.debugRoutes(mux)
	} else {
		for _, path := range []string{"run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs", "debug/pprof"} {
			mux.HandleFunc("/"+path+"/", disabled("Debug endpoints are disabled."))
		}
	}
	for pattern, h := range k.opts.Handlers {
		mux.Handle(pattern, h)
	}
	return mux
}

// listPods answers with the pods of this node as their workers see them.
func (k *Server) listPods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for worker := range k.opts.Pods {
		state, _ := worker.Status()
		if state.Pod.Name != "" && !state.Over {
			list.Items = append(list.Items, *state.Pod)
		}
	}
	sorting.Slice(list.Items, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&list)
}

// A refusal is an error with an HTTP code.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code int, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

func answer(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if r := (*refusal)(nil); errors.As(err, &r) {
		code = r.code
	}
	http.Error(w, err.Error(), code)
}

// find returns the worker of the pod in the request, and the container's state.
func (k *Server) find(r *http.Request) (Pod, lifecycle.Observed, *corev1.ContainerStatus, error) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	w, ok := k.opts.Pod(namespace, name)
	if !ok {
		return nil, lifecycle.Observed{}, nil, refuse(http.StatusNotFound, "pod %q does not exist", name)
	}
	state, _ := w.Status()
	for _, list := range [][]corev1.ContainerStatus{state.Pod.Status.ContainerStatuses, state.Pod.Status.InitContainerStatuses, state.Pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return w, state, &list[i], nil
			}
		}
	}
	return nil, lifecycle.Observed{}, nil, refuse(http.StatusNotFound, "container %q not found in pod %q", container, name)
}

// containerLogs prints a log, and follows it if asked to.
func (k *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	worker, state, status, err := k.find(r)
	if err != nil {
		answer(w, err)
		return
	}
	o, previous, err := logOptions(r)
	if err != nil {
		answer(w, err)
		return
	}
	c, err := attempt(state, status, previous)
	if err != nil {
		answer(w, err)
		return
	}
	if k.opts.LogDir == "" {
		answer(w, refuse(http.StatusBadRequest, "node %s keeps no logs", k.opts.Name))
		return
	}
	if r.URL.Query().Get("follow") == "true" {
		o.Follow = func() (bool, <-chan struct{}) { return runs(worker, c.ID) }
	}
	path := filepath.Join(k.opts.Logs(state.Pod), crispec.LogPath(c.Name, c.Attempt))
	k.unread.Read(c.ID, time.Now())
	w.Header().Set("Content-Type", "text/plain")
	out := &flushing{w: w, c: http.NewResponseController(w)}
	err = logs.Read(r.Context(), out, path, o)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		answer(w, refuse(http.StatusNotFound, "the log of container %q in pod %q does not exist", c.Name, state.Pod.Name))
	case !out.begun:
		answer(w, err)
	default:
		panic(http.ErrAbortHandler) // the reader must not take half a log for all of it
	}
}

// flushing sends on what was written when it is asked to.
type flushing struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	begun bool
}

func (f *flushing) Write(p []byte) (int, error) {
	f.begun = true
	return f.w.Write(p)
}

func (f *flushing) Flush() {
	f.begun = true
	_ = f.c.Flush()
}

// attempt returns the attempt at a container whose log is meant.
func attempt(state lifecycle.Observed, status *corev1.ContainerStatus, previous bool) (lifecycle.Container, error) {
	var all []lifecycle.Container
	for _, c := range state.Containers {
		if c.Name == status.Name && c.State != lifecycle.Created {
			all = append(all, c)
		}
	}
	sorting.Slice(all, func(a, b lifecycle.Container) int { return int(b.Attempt - a.Attempt) })
	switch {
	case previous && len(all) > 0 && all[0].State == lifecycle.Exited && status.State.Waiting != nil:
		return all[0], nil // the next one has not begun
	case previous && len(all) > 1:
		return all[1], nil
	case previous:
		return lifecycle.Container{}, refuse(http.StatusBadRequest, "previous terminated container %q in pod %q not found", status.Name, state.Pod.Name)
	case len(all) > 0:
		return all[0], nil
	case status.State.Terminated != nil: // its container was removed; the log may be left
		return lifecycle.Container{Name: status.Name, Attempt: status.RestartCount}, nil
	}
	reason := "ContainerCreating"
	if w := status.State.Waiting; w != nil && w.Reason != "" {
		reason = w.Reason
		if reason == "ErrImagePull" || reason == "ImagePullBackOff" {
			return lifecycle.Container{}, refuse(http.StatusBadRequest, "container %q in pod %q is waiting to start: trying and failing to pull image", status.Name, state.Pod.Name)
		}
	}
	return lifecycle.Container{}, refuse(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", status.Name, state.Pod.Name, reason)
}

// runs reports whether a container runs, and returns a channel that is closed when
// that may have changed.
func runs(w Pod, id string) (bool, <-chan struct{}) {
	state, changed := w.Status()
	if state.Over {
		return false, changed
	}
	return slices.ContainsFunc(state.Containers, func(c lifecycle.Container) bool { return c.ID == id && c.State == lifecycle.Running }), changed
}

func logOptions(r *http.Request) (o logs.Options, previous bool, err error) {
	q := r.URL.Query()
	number := func(name string) *int64 {
		text := q.Get(name)
		if text == "" || err != nil {
			return nil
		}
		v, perr := strconv.ParseInt(text, 10, 64)
		if perr != nil || v < 0 {
			err = refuse(http.StatusBadRequest, "%s=%q: want a number that is not negative", name, text)
			return nil
		}
		return &v
	}
	o.Tail = number("tailLines")
	if v := number("limitBytes"); v != nil {
		o.Limit = *v
	}
	if v := number("sinceSeconds"); v != nil {
		o.Since = time.Now().Add(-time.Duration(min(*v, math.MaxInt32)) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" && err == nil {
		if o.Since, err = time.Parse(time.RFC3339, text); err != nil {
			err = refuse(http.StatusBadRequest, "sinceTime=%q: want a time as in RFC 3339", text)
		}
	}
	switch s := q.Get("stream"); s {
	case "", "All":
	case "Stdout", "Stderr":
		o.Stream = strings.ToLower(s)
	default:
		err = refuse(http.StatusBadRequest, "stream=%q: want All, Stdout or Stderr", s)
	}
	o.Timestamps = q.Get("timestamps") == "true"
	return o, q.Get("previous") == "true", err
}

// runCommand runs a command in a container and answers with its output. The command is word by word in the parameters
// named command, or in one named cmd with spaces between the words, which is the only one that upstream's kubelet reads:
// clients of both kubelets use command only if a word contains a space. More than one cmd are one word each.
func (k *Server) runCommand(w http.ResponseWriter, r *http.Request) {
	_, state, status, err := k.find(r)
	if err != nil {
		answer(w, err)
		return
	}
	cmd := r.URL.Query()["command"]
	if len(cmd) == 0 {
		if cmd = r.URL.Query()["cmd"]; len(cmd) == 1 {
			cmd = strings.Fields(cmd[0])
		}
	}
	if len(cmd) == 0 {
		answer(w, refuse(http.StatusBadRequest, "no command: want it in the query parameters command, one for each word"))
		return
	}
	i := slices.IndexFunc(state.Containers, func(c lifecycle.Container) bool { return c.Name == status.Name && c.State == lifecycle.Running })
	if i < 0 {
		answer(w, refuse(http.StatusBadRequest, "container %q in pod %q is not running", status.Name, state.Pod.Name))
		return
	}
	resp, err := k.opts.Runtime.ExecSync(r.Context(), state.Containers[i].ID, cmd, execLimit)
	if err != nil {
		answer(w, errors.New(criclient.Message(err)))
		return
	}
	w.Header().Set(ExitCodeHeader, strconv.Itoa(int(resp.GetExitCode())))
	w.Header().Set(StdoutLengthHeader, strconv.Itoa(len(resp.GetStdout())))
	var full []string
	if len(resp.GetStdout()) >= outputLimit {
		full = append(full, "stdout")
	}
	if len(resp.GetStderr()) >= outputLimit {
		full = append(full, "stderr")
	}
	if len(full) > 0 {
		w.Header().Set(OutputLimitHeader, strings.Join(full, ", "))
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(resp.GetStdout())
	_, _ = w.Write(resp.GetStderr())
}
