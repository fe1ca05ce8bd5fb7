package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/stats"
)

// readRoutes adds the endpoints that only read, under the paths of upstream's kubelet.
func (k *Server) readRoutes(mux *http.ServeMux) {
	k.HealthRoutes(mux)
	mux.HandleFunc("GET /pods", k.listPods)
	mux.HandleFunc("GET /pods/", k.listPods)
	mux.HandleFunc("GET /configz", k.configz)
	mux.HandleFunc("GET /metrics/resource", k.resourceMetrics)
	mux.HandleFunc("GET /metrics/cadvisor", k.cadvisorMetrics)
	mux.HandleFunc("GET /stats/summary", k.statsSummary)
	mux.HandleFunc("GET /stats/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "only /stats/summary is served", http.StatusNotFound)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(k.opts.Metrics.Registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /metrics/slis", k.opts.Metrics.Checks)
	mux.Handle("DELETE /metrics/slis", k.opts.Metrics.Checks)
	mux.Handle("GET /metrics/probes", promhttp.HandlerFor(k.opts.Metrics.ProbeRegistry, promhttp.HandlerOpts{}))
}

// debugRoutes adds what the field enableDebuggingHandlers switches off.
func (k *Server) debugRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /runningpods/", k.listRunningPods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.containerLogs)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", k.runCommand)
	k.streamRoutes(mux)
	c := k.opts.Config
	if *c.EnableSystemLogHandler && k.opts.SystemLogs != "" {
		mux.HandleFunc("GET /logs/", k.systemLogs)
	} else {
		mux.HandleFunc("GET /logs/", disabled("logs endpoint is disabled."))
	}
	if *c.EnableProfilingHandler {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	} else {
		mux.HandleFunc("GET /debug/pprof/", disabled("profiling endpoint is disabled."))
	}
}

// Paths returns the paths of the node's API, for /statusz.
func Paths() []string {
	return []string{
		"/attach", "/checkpoint", "/configz", "/containerLogs", "/debug/pprof", "/exec", "/flagz", "/healthz", "/logs", "/metrics", "/metrics/cadvisor",
		"/metrics/probes", "/metrics/resource", "/metrics/slis", "/pods", "/portForward", "/run", "/runningpods", "/stats/summary", "/statusz",
	}
}

// disabled answers that an endpoint is switched off.
func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}

// HealthRoutes adds the health checks.
func (k *Server) HealthRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", k.healthz)
	for _, name := range []string{"ping", "log"} {
		mux.HandleFunc("GET /healthz/"+name, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	}
	mux.HandleFunc("GET /healthz/syncloop", k.syncloop)
}

// maxSilence is how long the workers of pods may be without a turn while there is something to do for them, as in
// upstream's kubelet.
const maxSilence = 2 * time.Minute

// syncloop answers whether the goroutines of the node's pods get their turns: each has to end one within a limit.
func (k *Server) syncloop(w http.ResponseWriter, _ *http.Request) {
	if k.silent() {
		http.Error(w, syncLoopFault, http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

const syncLoopFault = "sync Loop took longer than expected"

// silent reports whether the worker of a pod has not ended its turn within the limit.
func (k *Server) silent() bool {
	for pod := range k.opts.Pods {
		if began := pod.TurnBegan(); !began.IsZero() && time.Since(began) > maxSilence {
			return true
		}
	}
	return false
}

// healthz answers whether all health checks succeed.
func (k *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	_, fault := k.opts.Health()
	silent := k.silent()
	for name, healthy := range map[string]bool{"ping": true, "log": true, "syncloop": !silent, "runtime": fault == ""} {
		k.opts.Metrics.Checks.Observe(name, healthy)
	}
	switch {
	case fault != "":
		http.Error(w, fault, http.StatusInternalServerError)
	case silent:
		http.Error(w, syncLoopFault, http.StatusInternalServerError)
	default:
		_, _ = w.Write([]byte("ok"))
	}
}

// listRunningPods answers with the pods that have containers that run in the runtime, with names and images only.
func (k *Server) listRunningPods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for worker := range k.opts.Pods {
		state, _ := worker.Status()
		if state.Over {
			continue
		}
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: state.Pod.Name, Namespace: state.Pod.Namespace, UID: state.Pod.UID}}
		for _, c := range state.Containers {
			if c.State == lifecycle.Running {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		if len(pod.Spec.Containers) > 0 {
			list.Items = append(list.Items, pod)
		}
	}
	sorting.Slice(list.Items, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	writeJSON(w, &list)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone needs no answer
}

// configz answers with the configuration in use.
func (k *Server) configz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]kubelet.KubeletConfiguration{"kubeletconfig": k.opts.Reported()})
}

// systemLogs serves the files below the directory of system logs. A path that leads out of it, by dots or by symbolic links,
// does not exist.
func (k *Server) systemLogs(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(k.opts.SystemLogs)
	if errors.Is(err, fs.ErrNotExist) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		answer(w, err)
		return
	}
	defer root.Close()
	http.StripPrefix("/logs/", http.FileServerFS(regular{root.FS()})).ServeHTTP(w, r)
}

// regular opens only regular files and directories: to open a pipe or a device can block or have effects.
type regular struct{ fs.FS }

func (f regular) Open(name string) (fs.File, error) {
	info, err := fs.Stat(f.FS, name)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // such as that of a link that leads out
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.FS.Open(name)
}

// cadvisorAge is how old the sizes of writable layers may be in /metrics/cadvisor: runtimes read directories for them.
const cadvisorAge = time.Minute

// runtimeMetrics is a [criclient.Runtime] with metrics of its own.
type runtimeMetrics interface {
	Metrics(ctx context.Context) (stats.RuntimeMetrics, error)
}

// cadvisorMetrics answers with the metrics that cAdvisor has in upstream's kubelet.
func (k *Server) cadvisorMetrics(w http.ResponseWriter, r *http.Request) {
	summary, err := k.measure(r.Context(), true, cadvisorAge)
	if err != nil {
		k.opts.Log.Warn("the usage of resources could not be measured", "err", err)
		summary = nil
	}
	var pods []stats.Pod
	for worker := range k.opts.Pods {
		state, _ := worker.Status()
		pods = append(pods, stats.Pod{Pod: state.Pod})
	}
	info, memory := k.opts.Machine()
	m := stats.Machine{
		Info: info, Processors: runtime.NumCPU(), Memory: uint64(memory), Swap: stats.SwapTotal(), AgentNumber: k.opts.Version,
	}
	m.Sockets, m.PhysicalCores = stats.Sockets()
	w.Header().Set("Content-Type", stats.ContentType)
	_, _ = w.Write(stats.Cadvisor(summary, pods, m, k.moreMetrics(r.Context())))
}

// moreMetrics returns the metrics that the runtime has of its own; none if it has no such calls, which are newer than the others.
func (k *Server) moreMetrics(ctx context.Context) stats.RuntimeMetrics {
	rt, ok := k.opts.Runtime.(runtimeMetrics)
	if !ok {
		return stats.RuntimeMetrics{}
	}
	m, err := rt.Metrics(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
	case status.Code(err) == codes.Unimplemented:
		k.opts.Log.Debug("the container runtime has no metrics", "err", err)
	default:
		k.opts.Log.Warn("the metrics of the container runtime could not be read", "err", err)
	}
	return m
}

// counted measures requests.
func (k *Server) counted(next http.Handler) http.Handler {
	m := k.opts.Metrics
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := bucketOf(r.URL.Path)
		long := path == "exec" || path == "attach" || path == "portForward" || path == "containerLogs" && r.URL.Query().Get("follow") == "true"
		method := r.Method
		if verbOf(method) == "" {
			method = "other"
		}
		labels := prometheus.Labels{"method": method, "path": path, "server_type": "readwrite", "long_running": strconv.FormatBool(long)}
		inflight := m.InFlight.With(labels)
		inflight.Inc()
		began := time.Now()
		defer func() {
			inflight.Dec()
			m.Requests.With(labels).Inc()
			m.RequestDuration.With(labels).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// bucketOf returns the name that metrics have for a path: upstream's.
func bucketOf(path string) string {
	path = strings.Trim(path, "/")
	if sub, ok := strings.CutPrefix(path, "metrics/"); ok && slices.Contains([]string{"cadvisor", "probes", "resource"}, sub) {
		return path
	}
	first, _, _ := strings.Cut(path, "/")
	known := []string{
		"attach", "checkpoint", "configz", "containerLogs", "debug", "exec", "flagz", "healthz", "logs", "metrics", "pods", "portForward", "run",
		"runningpods", "stats", "statusz",
	}
	if slices.Contains(known, first) {
		return first
	}
	return "other"
}
