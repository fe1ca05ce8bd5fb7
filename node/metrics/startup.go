package metrics

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Startup say how long it took until a node that is new to the cluster was ready. They stay 0 on a node whose
// Node object was there before the agent started, as in upstream's kubelet. Its methods are called by one goroutine.
type Startup struct {
	before, waiting, registering, registered, total prometheus.Gauge

	began     time.Time // of the agent
	attempted time.Time // the first attempt at registering the node
	made      time.Time // the Node object was made; zero: it was not
	done      bool
}

func newStartupMetrics(m *Metrics) *Startup {
	one := func(name, help string) prometheus.Gauge { return add(m, gauge("node_startup_"+name, help)) }
	return &Startup{
		began:       time.Now(),
		before:      one("pre_kubelet_duration_seconds", "Time from the start of the machine to that of the agent."),
		waiting:     one("pre_registration_duration_seconds", "Time from the start of the agent until it tried to register the node."),
		registering: one("registration_duration_seconds", "Time from the first attempt to register the node until the Node object existed."),
		registered:  one("post_registration_duration_seconds", "Time from the creation of the Node object until the node was ready."),
		total:       one("duration_seconds", "Time from the start of the machine until the node was ready."),
	}
}

// Attempt records an attempt at registering the node.
func (m *Startup) Attempt(now time.Time) {
	if m.attempted.IsZero() {
		m.attempted = now
	}
}

// Create records that the Node object was made.
func (m *Startup) Create(now time.Time) {
	if m.attempted.IsZero() || !m.made.IsZero() || m.done {
		return
	}
	m.made = now
	if boot := bootTime(now); !boot.IsZero() {
		m.before.Set(m.began.Sub(boot).Seconds())
	}
	m.waiting.Set(m.attempted.Sub(m.began).Seconds())
	m.registering.Set(now.Sub(m.attempted).Seconds())
}

// Ready records that the node is ready.
func (m *Startup) Ready(now time.Time) {
	if !m.done && !m.made.IsZero() {
		m.registered.Set(now.Sub(m.made).Seconds())
		if boot := bootTime(now); !boot.IsZero() {
			m.total.Set(now.Sub(boot).Seconds())
		}
	}
	m.done = true
}

// bootTime returns when the machine started; the zero time if the kernel does not say it.
func bootTime(now time.Time) time.Time {
	text, _ := os.ReadFile("/proc/uptime")
	up, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(seconds * float64(time.Second)))
}
