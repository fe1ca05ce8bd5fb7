package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sampan-io/sampan/internal/run"
)

// counters count questions, with CoreDNS's metric names, which dashboards use, in a separate
// registry.
type counters struct {
	registry *prometheus.Registry
	requests [2][2][2][]prometheus.Counter // by zone, transport, family of addresses and type
	rcodes   [2][]prometheus.Counter       // by zone and code
	duration [2]prometheus.Observer
	asked    [2][2]prometheus.Observer // length of questions, by zone and transport
	answered [2][2]prometheus.Observer // length of answers
	secured  [2]prometheus.Counter     // questions with the DO bit
	closed   prometheus.Counter
}

// kinds are the types of record that are counted separately; clients can't create series.
var kinds = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeCNAME, dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeHTTPS, dns.TypeANY}

const codes = 6 // NOERROR to REFUSED; all others together

func newCounters(s *Server) *counters {
	c := &counters{registry: prometheus.NewRegistry()}
	var families [2]bool // families of the listening addresses
	for _, at := range s.opts.Sockets.Addrs() {
		families[familyOf(at)] = true
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	requests := counters("coredns_dns_requests_total", "Questions by zone, transport, family of addresses (1 is IPv4, 2 is IPv6) and type.", "zone", "proto", "family", "type")
	responses := counters("coredns_dns_responses_total", "Answers by zone and response code.", "zone", "rcode")
	secured := counters("coredns_dns_do_requests_total", "Questions that want the records of DNSSEC as well.", "zone")
	duration := histograms(
		"coredns_dns_request_duration_seconds", "Time from a question to its answer.",
		[]float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}, "zone",
	)
	bytes := []float64{100, 200, 300, 512, 1232, 4096, 16384, 65535}
	asked := histograms("coredns_dns_request_size_bytes", "Length of questions.", bytes, "zone", "proto")
	answered := histograms("coredns_dns_response_size_bytes", "Length of answers.", bytes, "zone", "proto")
	for z, zone := range []string{s.zone.Domain(), "."} {
		for over := range transport(2) {
			for f, used := range families {
				if !used {
					continue
				}
				into := &c.requests[z][over][f]
				for _, k := range kinds {
					*into = append(*into, requests.WithLabelValues(zone, over.String(), strconv.Itoa(f+1), dns.TypeToString[k]))
				}
				*into = append(*into, requests.WithLabelValues(zone, over.String(), strconv.Itoa(f+1), "other"))
			}
			c.asked[z][over] = asked.WithLabelValues(zone, over.String())
			c.answered[z][over] = answered.WithLabelValues(zone, over.String())
		}
		for code := range codes {
			c.rcodes[z] = append(c.rcodes[z], responses.WithLabelValues(zone, dns.RcodeToString[code]))
		}
		c.rcodes[z] = append(c.rcodes[z], responses.WithLabelValues(zone, "other"))
		c.duration[z] = duration.WithLabelValues(zone)
		c.secured[z] = secured.WithLabelValues(zone)
	}
	c.closed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sampan_dns_connections_closed_total", Help: "Connections that were closed to make room for others.",
	})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "coredns_build_info", Help: "The version of this server; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": "sampan " + cmp.Or(s.opts.Version, "unknown"), "goversion": runtime.Version(), "revision": ""},
	})
	build.Set(1)
	services := prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "sampan_dns_services", Help: "Services that have names."},
		func() float64 { return float64(s.zone.Len()) },
	)
	// Dashboards distinguish servers by their listening address.
	here := prometheus.WrapRegistererWith(prometheus.Labels{"server": "dns://" + s.opts.Sockets.Addr().String()}, c.registry)
	here.MustRegister(requests, responses, secured, duration, asked, answered)
	here.MustRegister(s.upstream.Collectors()...)
	c.registry.MustRegister(build, services, c.closed, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return c
}

// familyOf returns 0 for an address of IPv4 and 1 for one of IPv6.
func familyOf(at netip.AddrPort) int {
	if at.Addr().Unmap().Is6() {
		return 1
	}
	return 0
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
	c.requests[zone][w.over][w.family][kind].Inc()
	c.rcodes[zone][min(rcode, codes)].Inc()
	c.duration[zone].Observe(time.Since(w.began).Seconds())
	c.asked[zone][w.over].Observe(float64(w.length))
	c.answered[zone][w.over].Observe(float64(size))
	if opt := w.in.IsEdns0(); opt != nil && opt.Do() {
		c.secured[zone].Inc()
	}
}

// serveWeb serves HTTP until ctx is cancelled.
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
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	group := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer group.Wait()
	ended := make(chan error, len(s.opts.Web))
	for _, l := range s.opts.Web {
		s.opts.Log.InfoContext(ctx, "cluster DNS serves metrics", "address", l.Addr(), "for", "clients that can reach this address")
		group.Go(func(context.Context) { ended <- server.Serve(l) })
	}
	err := <-ended
	_ = server.Close() // the other listeners
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
