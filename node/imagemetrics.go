package node

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// imageMetrics count what happens to images.
type imageMetrics struct {
	pulls     *prometheus.HistogramVec
	collected *prometheus.CounterVec
	ensured   *prometheus.CounterVec
	checks    *prometheus.CounterVec // whether the credentials of a pod have to be verified

	volumes, volumesMounted, volumeErrors prometheus.Counter
}

func newImageMetrics(m *metrics) *imageMetrics {
	return &imageMetrics{
		pulls: add(m, histogramVec("image_pull_duration_seconds", "How long pulls took, with their wait for their turn, by the size of the image.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}, "image_size_in_bytes")),
		collected: add(m, counterVec("image_garbage_collected_total", "Unused images that the agent removed, because of their age or to free space.", "reason")),
		ensured:   add(m, counterVec("image_manager_ensure_image_requests_total", "Images that containers or volumes needed.", "pull_policy", "present_locally", "pull_required")),
		checks:    add(m, counterVec("imagemanager_image_mustpull_checks_total", "Checks of whether a pod may use an image that is on the node.", "result")),

		volumes:        add(m, counter("image_volume_requested_total", "Volumes that are images, of containers that were started.")),
		volumesMounted: add(m, counter("image_volume_mounted_succeed_total", "Mounts of volumes that are images.")),
		volumeErrors:   add(m, counter("image_volume_mounted_errors_total", "Mounts of volumes that are images that failed.")),
	}
}

// Reasons for which images are removed.
const (
	becauseOfAge   = "age"
	becauseOfSpace = "space"
)

// pulled records a pull that succeeded.
func (m *imageMetrics) pulled(size uint64, took time.Duration) {
	m.pulls.WithLabelValues(sizeBucket(size)).Observe(took.Truncate(time.Millisecond).Seconds())
}

// sizeBucket returns the name that metrics have for a size of an image.
func sizeBucket(bytes uint64) string {
	const mega, giga = 1 << 20, 1 << 30
	name := "N/A" // the runtime does not say it
	for _, b := range []struct {
		above uint64
		name  string
	}{
		{0, "0-10MB"},
		{10 * mega, "10MB-100MB"},
		{100 * mega, "100MB-500MB"},
		{500 * mega, "500MB-1GB"},
		{giga, "1GB-5GB"},
		{5 * giga, "5GB-10GB"},
		{10 * giga, "10GB-20GB"},
		{20 * giga, "20GB-30GB"},
		{30 * giga, "30GB-40GB"},
		{40 * giga, "40GB-60GB"},
		{60 * giga, "60GB-100GB"},
		{100 * giga, "GT100GB"},
	} {
		if bytes > b.above {
			name = b.name
		}
	}
	return name
}

// notKnown is the label that stands for a value that the agent has not found out.
const notKnown = "unknown"

// An ensured is what was found out about an image that a container needs.
type ensured struct{ present, pull string }

func (e *ensured) found(present bool) { e.present = strconv.FormatBool(present) }
func (e *ensured) must(pull bool)     { e.pull = strconv.FormatBool(pull) }

// needed counts an image that a container needed.
func (m *imageMetrics) needed(policy corev1.PullPolicy, e ensured) {
	m.ensured.WithLabelValues(strings.ToLower(string(policy)), e.present, e.pull).Inc()
}

// mounted counts the volumes of a container that are images, by name, when it has been made or has failed: because of one of them, or
// otherwise.
func (m *imageMetrics) mounted(c *corev1.Container, volumes map[string]string, failed bool) {
	m.volumes.Add(float64(len(volumes)))
	for i := range c.VolumeMounts {
		if _, is := volumes[c.VolumeMounts[i].Name]; !is {
			continue
		}
		if failed {
			m.volumeErrors.Inc()
		} else {
			m.volumesMounted.Inc()
		}
	}
}
