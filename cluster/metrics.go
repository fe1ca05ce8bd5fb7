package cluster

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// storeMetrics collects the state of the store. Its directory is read when the metrics are.
type storeMetrics struct {
	store *store.Store
	dir   string
}

func storeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("sampan_store_"+name, help, nil, nil)
}

var (
	descSync     = storeDesc("sync_duration_seconds", "Time that it took to make a batch of writes durable.")
	descWrites   = storeDesc("synced_writes_total", "Writes in those batches.")
	descRevision = storeDesc("revision", "The newest revision.")
	descRecords  = storeDesc("records", "Live records.")
	descHistory  = storeDesc("history_events", "Events that are kept for watchers.")
	descWatchers = storeDesc("watchers", "Watches under way.")
	descUnsaved  = storeDesc("unsaved_writes", "Volatile writes that are not durable yet.")
	descFull     = storeDesc("full", "1 if there is no space for writes, otherwise 0.")
	descMemory   = storeDesc("memory_bytes", "Memory that live records take, as the quota counts it.")
	descOld      = storeDesc("history_memory_bytes", "Memory of old values that are kept for watchers.")
	descQuota    = storeDesc("quota_bytes", "Memory that live records may take.")
	descBytes    = storeDesc("bytes", "Size of the files of the store.")
	descSegments = storeDesc("segments", "Files of the log of the store.")
	descFree     = storeDesc("free_bytes", "Free space of the file system of the store.")
)

// Describe implements [prometheus.Collector].
func (storeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descSync, descWrites, descRevision, descRecords, descHistory, descWatchers, descUnsaved, descFull, descMemory, descOld, descQuota, descBytes, descSegments, descFree,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m storeMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.store.Stats()
	gauge := func(desc *prometheus.Desc, n float64) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n)
	}
	buckets := make(map[float64]uint64, len(s.Latency))
	for i, bound := range store.SyncBuckets {
		buckets[bound.Seconds()] = s.Latency[i]
	}
	to <- prometheus.MustNewConstHistogram(descSync, s.Syncs, s.Took.Seconds(), buckets)
	to <- prometheus.MustNewConstMetric(descWrites, prometheus.CounterValue, float64(s.Writes))
	gauge(descRevision, float64(s.Revision))
	gauge(descRecords, float64(s.Records))
	gauge(descHistory, float64(s.History))
	gauge(descWatchers, float64(s.Watchers))
	gauge(descUnsaved, float64(s.Unsaved))
	full := 0.0
	if s.Full {
		full = 1
	}
	gauge(descFull, full)
	gauge(descMemory, float64(s.Memory))
	gauge(descOld, float64(s.HistoryMemory))
	gauge(descQuota, float64(s.Quota))
	if use, err := disk.UsageOf(m.dir); err == nil {
		gauge(descBytes, float64(use.Bytes))
		gauge(descSegments, float64(use.Segments))
		gauge(descFree, float64(use.Free))
	}
}

// measure adds the metrics of the store and of the queues of the controllers to those of the API server.
func (c *cluster) measure(p *controlPlane) error {
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "The version of the program; the value is 1.",
		ConstLabels: c.buildLabels(),
	}, func() float64 { return 1 })
	all := []prometheus.Collector{build, c.queues, p.webhooks.metrics, p.webhooks.conditions, storeMetrics{p.store, filepath.Join(c.Profile.DataDir, "store")}}
	for _, m := range append(all, c.snapshotMetrics()...) {
		if err := p.server.Measure(m); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) buildLabels() prometheus.Labels {
	v := c.versionInfo()
	return prometheus.Labels{
		"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
		"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
	}
}
