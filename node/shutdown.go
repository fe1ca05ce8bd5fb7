package node

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/shutdown"
	"github.com/sampan-io/sampan/node/static"
)

// Shutdown of the machine: if the configuration has grace periods for it, the agent delays it by a lock of systemd-logind, ends
// the pods by priority, the lowest first, and gives the lock back. From its beginning on the node is not Ready and admits no
// pods, until it is cancelled. The end of the agent alone (N5) leaves the pods running.

// The reasons and messages of upstream's kubelet.
const (
	shutdownReason  = "Terminated"
	shutdownMessage = "Pod was terminated in response to imminent node shutdown."
)

// logindConfig is where logind's limit is raised.
const logindConfig = "/etc/systemd/logind.conf.d/99-sampan.conf"

// DefaultSystemBus is the address of the system bus where DBUS_SYSTEM_BUS_ADDRESS does not name another one.
const DefaultSystemBus = shutdown.DefaultBus

// shutdownFile records the last shutdown for the metrics of the next agent, as upstream's kubelet has it.
const shutdownFile = "graceful_node_shutdown_state"

// A shutdownRecord is the content of shutdownFile.
type shutdownRecord struct {
	Start time.Time `json:"startTime"`
	End   time.Time `json:"endTime"`
}

// followShutdown delays shutdowns of the machine until ctx is cancelled.
func (n *Node) followShutdown(ctx context.Context) error {
	n.showShutdown(n.lastShutdown())
	i := &shutdown.Inhibitor{
		Bus: n.opts.SystemBus, Delay: shutdown.Total(n.shutdowns), ConfigFile: logindConfig,
		Began: n.shutDown, Cancelled: n.shutdownCancelled, Log: n.log,
	}
	return i.Run(ctx)
}

// setClosing has pods rejected, or not any more, because the machine is shutting down.
func (n *Node) setClosing(closing bool) {
	n.capacity.SetClosing(closing)
	n.registrar.Outdated()
}

func (n *Node) shutdownCancelled() {
	n.log.Info("the shutdown of the machine was cancelled")
	n.event(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown cancellation")
	n.setClosing(false)
}

// shutDown ends the pods of the node, one group after the other. It returns when all have ended or their time is over.
func (n *Node) shutDown(ctx context.Context) {
	record := shutdownRecord{Start: time.Now()}
	n.log.Info("the machine is shutting down, ending its pods")
	n.event(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown event")
	n.setClosing(true)
	n.saveShutdown(record)
	workers := map[*corev1.Pod]*worker{}
	var pods []*corev1.Pod
	for _, w := range n.allWorkers() {
		if state, _ := w.Status(); !state.Over && state.Pod.Name != "" && !podstate.FinishedIn(&state.Pod.Status) {
			workers[state.Pod] = w
			pods = append(pods, state.Pod)
		}
	}
	for _, g := range shutdown.Groups(n.shutdowns, pods) {
		n.log.Info("ending pods", "priority", g.Priority, "pods", len(g.Pods), "limit", g.Length)
		limited, cancel := context.WithTimeout(ctx, g.Length)
		for _, pod := range g.Pods {
			workers[pod].terminate(g.Grace(pod))
		}
		for _, pod := range g.Pods {
			n.awaitEnd(limited, workers[pod])
		}
		cancel()
	}
	record.End = time.Now()
	n.saveShutdown(record)
	n.log.Info("the pods have ended, the machine may shut down", "took", record.End.Sub(record.Start))
}

// terminate ends a pod because of the shutdown of the machine.
func (w *worker) terminate(grace time.Duration) {
	w.post(func() {
		now := time.Now()
		if m := &w.view.Memory; w.view.Deleting() {
			if by := now.Add(grace); m.KillBy.IsZero() || by.Before(m.KillBy) {
				m.KillBy, m.DrainUntil = by, time.Time{}
			}
			return
		}
		if !w.view.Finished() {
			w.fail(lifecycle.Verdict{Reason: shutdownReason, Message: shutdownMessage, Grace: &grace, Disrupted: true}, now)
		}
	})
}

// awaitEnd waits until a pod has ended and the API server has its status, or until ctx is cancelled.
func (n *Node) awaitEnd(ctx context.Context, w *worker) {
	for {
		state, changed := w.Status()
		if state.Over || podstate.FinishedIn(&state.Pod.Status) && (static.Is(state.Pod) || n.knownToHaveEnded(state.Pod)) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// knownToHaveEnded reports whether the API server has the end of a pod.
func (n *Node) knownToHaveEnded(pod *corev1.Pod) bool {
	stored, ok := n.api.pods.Get(pod.Namespace, pod.Name)
	return !ok || stored.UID != pod.UID || podstate.Finished(stored)
}

// lastShutdown reads the record of the last shutdown; the zero one if there is none.
func (n *Node) lastShutdown() (record shutdownRecord) {
	b, err := os.ReadFile(filepath.Join(n.opts.RootDir, shutdownFile))
	if err == nil {
		err = json.Unmarshal(b, &record)
	}
	if err != nil && !os.IsNotExist(err) {
		n.log.Warn("the record of the last shutdown can't be read", "err", err)
		return shutdownRecord{}
	}
	return record
}

// saveShutdown records a shutdown on disk and in the metrics.
func (n *Node) saveShutdown(record shutdownRecord) {
	n.showShutdown(record)
	path := filepath.Join(n.opts.RootDir, shutdownFile)
	b, err := json.Marshal(record)
	if err == nil {
		err = wholefile.Write(path, b, 0o600, wholefile.Durable)
	}
	if err != nil {
		n.log.Warn("the shutdown can't be recorded", "err", err)
	}
}

func (n *Node) showShutdown(record shutdownRecord) {
	set := func(g prometheus.Gauge, t time.Time) {
		g.Set(0)
		if !t.IsZero() {
			g.Set(float64(t.Unix()))
		}
	}
	set(n.metrics.ShutdownStart, record.Start)
	set(n.metrics.ShutdownEnd, record.End)
}

// shutdownTask is the task that delays shutdowns, if the configuration asks for that.
func (n *Node) shutdownTask() []run.Task {
	if len(n.shutdowns) == 0 || n.opts.SystemBus == "" || n.opts.RootDir == "" {
		return nil
	}
	return []run.Task{{Name: "shutdown of the machine", Run: n.followShutdown}}
}
