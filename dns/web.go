package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// counters count questions, under the names that CoreDNS uses, which dashboards know, in a
// registry of their own.
type counters struct {
	registry *prometheus.Registry
	requests [2][2][]prometheus.Counter // by zone, transport and type
	rcodes   [2][]prometheus.Counter    // by zone and code
	duration [2]prometheus.Observer
	sizes    [2]prometheus.Observer // by transport
}

// kinds are the types of record that are counted apart; clients can't make series.
var kinds = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeCNAME, dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeHTTPS, dns.TypeANY}

const codes = 6 // NOERROR to REFUSED; all others together

func newCounters(s *Server) *counters {
	c := &counters{registry: prometheus.NewRegistry()}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coredns_dns_requests_total", Help: "Questions by zone, transport and type.",
	}, []string{"zone", "proto", "type"})
	responses := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coredns_dns_responses_total", Help: "Answers by zone and response code.",
	}, []string{"zone", "rcode"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "coredns_dns_request_duration_seconds", Help: "Time from a question to its answer.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"zone"})
	sizes := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "coredns_dns_response_size_bytes", Help: "Length of answers.",
		Buckets: []float64{100, 200, 300, 512, 1232, 4096, 16384, 65535},
	}, []string{"proto"})
	for z, zone := range []string{s.zone.Domain(), "."} {
		for over := range transport(2) {
			for _, k := range kinds {
				c.requests[z][over] = append(c.requests[z][over], requests.WithLabelValues(zone, over.String(), dns.TypeToString[k]))
			}
			c.requests[z][over] = append(c.requests[z][over], requests.WithLabelValues(zone, over.String(), "other"))
			c.sizes[over] = sizes.WithLabelValues(over.String())
		}
		for code := range codes {
			c.rcodes[z] = append(c.rcodes[z], responses.WithLabelValues(zone, dns.RcodeToString[code]))
		}
		c.rcodes[z] = append(c.rcodes[z], responses.WithLabelValues(zone, "other"))
		c.duration[z] = duration.WithLabelValues(zone)
	}
	c.registry.MustRegister(requests, responses, duration, sizes)
	c.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "sampan_dns_services", Help: "Services that have names."},
		func() float64 { return float64(s.zone.Len()) },
	))
	c.registry.MustRegister(s.upstream.Collectors()...)
	return c
}

// observe counts an answer.
func (c *counters) observe(w *worker, rcode, size int) {
	zone, kind := 1, len(kinds)
	if w.out.Authoritative {
		zone = 0
	}
	if len(w.out.Question) > 0 {
		for i, k := range kinds {
			if k == w.out.Question[0].Qtype {
				kind = i
			}
		}
	}
	c.requests[zone][w.over][kind].Inc()
	c.rcodes[zone][min(rcode, codes)].Inc()
	c.duration[zone].Observe(time.Since(w.began).Seconds())
	c.sizes[w.over].Observe(float64(size))
}

// serveWeb answers over HTTP until ctx is over.
func (s *Server) serveWeb(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.count.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "OK") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-s.complete:
			_, _ = fmt.Fprint(w, "OK")
		default:
			http.Error(w, "the cluster's names are not known yet: the API server has not been reached", http.StatusServiceUnavailable)
		}
	})
	s.opts.Log.InfoContext(ctx, "cluster DNS serves metrics", "address", s.opts.Web.Addr(), "for", "who can reach that address")
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(s.opts.Web); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
