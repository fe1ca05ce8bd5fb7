package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Volumes count operations on volumes.
type Volumes struct {
	operations *prometheus.HistogramVec
	overall    *prometheus.HistogramVec
	Measured   *prometheus.HistogramVec

	// Registered reports whether a CSI driver is registered; nil means that none is.
	Registered func(driver string) bool

	mu sync.Mutex
	// claimed are the plug-ins of volumes of claims, by pod and name of the volume: only the PersistentVolume shows
	// them.
	claimed map[types.UID]map[string]string // guarded by mu
}

func newVolumeMetrics(m *Metrics) *Volumes {
	buckets := []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	return &Volumes{
		claimed: map[types.UID]map[string]string{},
		operations: add(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "How long operations on volumes took.", Buckets: buckets,
		}, []string{"volume_plugin", "operation_name", "status", "migrated"})),
		overall: add(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volume_operation_total_seconds", Help: "Time from when a volume of a pod was first needed until it was mounted.", Buckets: buckets,
		}, []string{"plugin_name", "operation_name"})),
		Measured: add(m, histogramVec("volume_metric_collection_duration_seconds", "How long it took to measure volumes.", prometheus.DefBuckets, "metric_source")),
	}
}

// Operations on volumes, as metrics name them.
const (
	mountVolume    = "volume_mount"
	MapVolume      = "map_volume"
	VerifyAttached = "verify_controller_attached_volume"
)

// Operation records an operation on a volume that began at a time.
func (m *Volumes) Operation(plugin, name string, began time.Time, err error) {
	outcome := "success"
	if err != nil {
		outcome = "fail-unknown"
	}
	m.operations.WithLabelValues(m.series(plugin), name, outcome, "false").Observe(time.Since(began).Seconds())
}

// Mounted records a mount of a volume of a pod that began at a time; since is when the pod needed it.
func (m *Volumes) Mounted(plugin string, since, began time.Time, err error) {
	m.Operation(plugin, mountVolume, began, err)
	if err == nil && !since.IsZero() {
		m.overall.WithLabelValues(m.series(plugin), "overall_volume_mount").Observe(time.Since(since).Seconds())
	}
}

// Claim records the plug-in of a volume of a claim.
func (m *Volumes) Claim(uid types.UID, volume string, pv *corev1.PersistentVolume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claimed[uid] == nil {
		m.claimed[uid] = map[string]string{}
	}
	m.claimed[uid][volume] = persistentPlugin(pv)
}

func (m *Volumes) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claimed, uid)
}

// NoPlugin stands for the plug-in of a volume of a claim that is not known.
const NoPlugin = "N/A"

// Plugin returns the plug-in of a volume of a pod.
func (m *Volumes) Plugin(uid types.UID, v *corev1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return "kubernetes.io/configmap"
	case v.Secret != nil:
		return "kubernetes.io/secret"
	case v.Projected != nil:
		return "kubernetes.io/projected"
	case v.DownwardAPI != nil:
		return "kubernetes.io/downward-api"
	case v.EmptyDir != nil:
		return "kubernetes.io/empty-dir"
	case v.HostPath != nil:
		return "kubernetes.io/host-path"
	case v.NFS != nil:
		return "kubernetes.io/nfs"
	case v.Image != nil:
		return "kubernetes.io/image"
	case v.CSI != nil:
		return CSIPlugin(v.CSI.Driver)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if name := m.claimed[uid][v.Name]; name != "" {
		return name
	}
	return NoPlugin
}

// Driver returns the name of the CSI driver of a volume.
func (m *Volumes) Driver(uid types.UID, v *corev1.Volume) string {
	return strings.TrimPrefix(m.Plugin(uid, v), CSIPlugin(""))
}

// series returns a plug-in as the value of a label. All drivers that are not registered have one value: users choose their names.
func (m *Volumes) series(plugin string) string {
	const unregistered = "kubernetes.io/csi"
	name, isDriver := strings.CutPrefix(plugin, CSIPlugin(""))
	if isDriver && (m.Registered == nil || !m.Registered(name)) {
		return unregistered
	}
	return plugin
}

func CSIPlugin(driver string) string { return "kubernetes.io/csi:" + driver }

func persistentPlugin(pv *corev1.PersistentVolume) string {
	switch {
	case pv.Spec.CSI != nil:
		return CSIPlugin(pv.Spec.CSI.Driver)
	case pv.Spec.Local != nil:
		return "kubernetes.io/local-volume"
	case pv.Spec.HostPath != nil:
		return "kubernetes.io/host-path"
	case pv.Spec.NFS != nil:
		return "kubernetes.io/nfs"
	}
	return NoPlugin
}
