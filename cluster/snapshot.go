package cluster

import (
	"cmp"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

// ownPaths returns the handlers of the API server's paths that only Sampan has.
func (c *cluster) ownPaths(p *controlPlane) map[string]http.Handler {
	source := c.snapshots(p)
	var mu sync.Mutex
	loader := apiserver.NewLoader(p.catalog)
	decode := func(key string, data []byte) (store.Value, error) {
		mu.Lock() // a loader counts
		defer mu.Unlock()
		return loader.Decode(key, data)
	}
	source.Put = &snapshots.Reset{
		Store: p.store, Decode: decode, ID: p.id, Cluster: c.Profile.Name, Ancestors: c.Settings.Ancestors, Limit: c.storeMemory().quota,
		Kinds: func() []*catalog.Kind { return p.catalog.Snapshot().Hubs() },
	}
	return map[string]http.Handler{snapshots.Path: source}
}

// snapshots returns the maker of snapshots of the cluster.
func (c *cluster) snapshots(p *controlPlane) snapshots.Source {
	return snapshots.Source{
		Freeze: p.store.Freeze,
		Seal:   c.encryption.Seal,
		Info: func() snapshot.Info {
			settings, _ := json.Marshal(c.Settings) // it was read from JSON
			return snapshot.Info{ClusterID: p.id(), Cluster: c.Profile.Name, Version: c.Version, API: KubernetesVersion, Settings: settings}
		},
	}
}

// snapshotTasks returns the part that saves snapshots by itself, if the settings ask for that.
func (c *cluster) snapshotTasks(p *controlPlane) run.Stage {
	schedule := c.snapshotSchedule()
	if schedule.Every == 0 {
		return nil
	}
	schedule = snapshots.Schedule{
		Source: c.snapshots(p), Dir: schedule.Dir, Name: schedule.Name, Every: schedule.Every,
		Keep: c.Settings.Snapshots.Count(), Log: c.Log,
		Failed: func(err error) {
			c.notices.add(store.Notice{Warning: true, Reason: snapshots.FailedReason, Message: "cannot save a snapshot of the cluster: " + err.Error()})
		},
	}
	return run.Stage{{Name: "scheduled snapshots", Run: schedule.Run}}
}

// snapshotSchedule returns where and how often snapshots are saved; the period is 0 if they are not.
func (c *cluster) snapshotSchedule() snapshots.Schedule {
	s := c.Settings.Snapshots
	return snapshots.Schedule{Dir: cmp.Or(s.Dir, c.Profile.Snapshots()), Name: c.Profile.Name, Every: s.Period()}
}

// snapshotMetrics returns the metric of the snapshots that the cluster saves by itself, or none.
func (c *cluster) snapshotMetrics() []prometheus.Collector {
	schedule := c.snapshotSchedule()
	if schedule.Every == 0 {
		return nil
	}
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sampan_snapshot_last_success_timestamp_seconds",
		Help: "Unix time of the newest snapshot that the cluster has saved by itself; 0 if there is none.",
	}, func() float64 {
		last := schedule.Last()
		if last.IsZero() {
			return 0
		}
		return float64(last.Unix())
	})}
}

// id returns the ID of the cluster, which is the UID of the namespace kube-system, as other programs have it; "" until
// there is one.
func (p *controlPlane) id() string {
	rec, err := p.store.Get("namespaces/kube-system")
	if err != nil {
		return ""
	}
	v, ok := rec.Value.(interface{ Object() catalog.Object })
	if !ok {
		return ""
	}
	return string(v.Object().GetUID())
}
