package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/stats"
)

// A Meter is a [Runtime] that knows what its node uses. Without one, a node uses what this machine does.
type Meter interface {
	OfMachine(now time.Time) (statsapi.NodeStats, error)
}

// measure returns what the node, its pods and their containers use now, with file systems if asked for.
func (n *Node) measure(ctx context.Context, files bool) (*statsapi.Summary, error) {
	m := stats.Measured{}
	var err error
	now := time.Now()
	if meter, ok := n.opts.Runtime.(Meter); ok {
		m.Node, err = meter.OfMachine(now)
	} else {
		m.Node, err = stats.OfMachine(cmp.Or(n.opts.RootDir, "/"), now)
	}
	if err != nil {
		return nil, err
	}
	m.Node.NodeName = n.opts.Name
	if m.Sandboxes, err = n.opts.Runtime.ListPodSandboxStats(ctx, nil); err != nil {
		return nil, fmt.Errorf("stats of pods: %w", err)
	}
	if files {
		if m.Layers, err = n.opts.Runtime.ListContainerStats(ctx, nil); err != nil {
			return nil, fmt.Errorf("stats of containers: %w", err)
		}
	} else {
		m.Node.Fs = nil
	}
	for _, w := range n.allWorkers() {
		state, _ := w.status()
		if state.pod.Name == "" || state.over {
			continue
		}
		p := stats.Pod{Pod: state.pod, Started: map[string]time.Time{}}
		for _, c := range state.containers {
			if c.State == lifecycle.Running {
				p.Started[c.ID] = c.StartedAt
			}
		}
		m.Pods = append(m.Pods, p)
	}
	return stats.Summarize(m), nil
}

// resourceMetrics answers with CPU and memory as metrics. As in upstream's kubelet an error is one of the metrics.
func (n *Node) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	summary, err := n.measure(r.Context(), false)
	if err != nil {
		n.log.Warn("the usage of resources could not be measured", "err", err)
		summary = nil
	}
	w.Header().Set("Content-Type", stats.ContentType)
	_, _ = w.Write(stats.Metrics(summary)) // a client that has gone needs no answer
}

// statsSummary answers with a summary, without file systems if the client asks for CPU and memory only.
func (n *Node) statsSummary(w http.ResponseWriter, r *http.Request) {
	only := false
	if text := r.URL.Query().Get("only_cpu_and_memory"); text != "" {
		var err error
		if only, err = strconv.ParseBool(text); err != nil {
			answer(w, refuse(http.StatusBadRequest, "only_cpu_and_memory=%q: want true or false", text))
			return
		}
	}
	summary, err := n.measure(r.Context(), !only)
	if err != nil {
		answer(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(summary)
}
