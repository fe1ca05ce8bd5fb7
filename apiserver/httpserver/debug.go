package httpserver

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sampan-io/sampan/apiserver/zpages"
)

// debugPath returns the handler of a path about the server itself, or nil.
func (s *Server) debugPath(path string) http.Handler {
	switch path {
	case "/metrics":
		return s.metrics.handler
	case "/metrics/slis":
		return s.slis.handler()
	case "/statusz":
		return s.component().Statusz()
	case "/flagz":
		return s.component().Flagz()
	case "/configz":
		return http.HandlerFunc(serveConfigz)
	}
	if s.opts.Profiling {
		return profiles(path)
	}
	return nil
}

// profiles returns the handler of a path of net/http/pprof, or nil.
func profiles(path string) http.Handler {
	name, ok := strings.CutPrefix(path, "/debug/pprof/")
	switch {
	case path == "/debug/pprof":
		return http.RedirectHandler("/debug/pprof/", http.StatusFound)
	case !ok:
		return nil
	}
	switch name {
	case "cmdline":
		return http.HandlerFunc(pprof.Cmdline)
	case "profile":
		return http.HandlerFunc(pprof.Profile)
	case "symbol":
		return http.HandlerFunc(pprof.Symbol)
	case "trace":
		return http.HandlerFunc(pprof.Trace)
	}
	return http.HandlerFunc(pprof.Index)
}

func (s *Server) component() zpages.Component {
	version := strings.TrimPrefix(s.opts.Version, "v")
	binary, _, _ := strings.Cut(version, "+")
	binary, _, _ = strings.Cut(binary, "-")
	emulated := binary
	if i := strings.LastIndexByte(binary, '.'); strings.Count(binary, ".") == 2 {
		emulated = binary[:i]
	}
	return zpages.Component{
		Name: component, Started: s.started, GoVersion: runtime.Version(), BinaryVersion: binary, EmulationVersion: emulated,
		Paths: s.paths, Flags: s.opts.Flags,
	}
}

// serveConfigz lists the configuration files of the API server, of which there are none.
func serveConfigz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// slis has the results of health checks, for /metrics/slis. It is made when a check is first made, or the page asked for.
type slis struct {
	once     sync.Once
	registry *prometheus.Registry
	is       *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func (s *slis) open() {
	s.once.Do(func() {
		s.registry = prometheus.NewRegistry()
		s.is = prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "1 if the health check succeeded the last time, otherwise 0.",
		}, []string{"name", "type"})
		s.total = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Results of health checks.",
		}, []string{"name", "status", "type"})
		s.registry.MustRegister(s.is, s.total, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	})
}

func (s *slis) handler() http.Handler {
	s.open()
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{})
}

// observe counts the result of a check of an endpoint.
func (s *slis) observe(endpoint string, c *check) {
	s.open()
	is, status := 1.0, "success"
	if c.err != nil {
		is, status = 0, "error"
	}
	s.is.WithLabelValues(c.name, endpoint).Set(is)
	s.total.WithLabelValues(c.name, status, endpoint).Inc()
}
