package metrics

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Images count what happens to images.
type Images struct {
	pulls     *prometheus.HistogramVec
	Collected *prometheus.CounterVec
	ensured   *prometheus.CounterVec
	Checks    *prometheus.CounterVec // whether the credentials of a pod have to be verified

	volumes, volumesMounted, volumeErrors prometheus.Counter
}

func newImageMetrics(m *Metrics) *Images {
	return &Images{
		pulls: add(m, histogramVec("image_pull_duration_seconds", "How long pulls took, with their wait for their turn, by the size of the image.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}, "image_size_in_bytes")),
		Collected: add(m, counterVec("image_garbage_collected_total", "Unused images that the agent removed, because of their age or to free space.", "reason")),
		ensured:   add(m, counterVec("image_manager_ensure_image_requests_total", "Images that containers or volumes needed.", "pull_policy", "present_locally", "pull_required")),
		Checks:    add(m, counterVec("imagemanager_image_mustpull_checks_total", "Checks of whether a pod may use an image that is on the node.", "result")),

		volumes:        add(m, counter("image_volume_requested_total", "Volumes that are images, of containers that were started.")),
		volumesMounted: add(m, counter("image_volume_mounted_succeed_total", "Mounts of volumes that are images.")),
		volumeErrors:   add(m, counter("image_volume_mounted_errors_total", "Mounts of volumes that are images that failed.")),
	}
}

// Reasons for which images are removed.
const (
	BecauseOfAge   = "age"
	BecauseOfSpace = "space"
)

// Pulled records a pull that succeeded.
func (m *Images) Pulled(size uint64, took time.Duration) {
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

// Unknown is the label that stands for a value that the agent has not found out.
const Unknown = "unknown"

// Ensured holds the findings about an image that a container needs: whether the node has it and whether it has to be pulled.
type Ensured struct{ present, pull string }

// Found records whether the node has the image.
func (e *Ensured) Found(present bool) { e.present = strconv.FormatBool(present) }

// Must records whether the image has to be pulled.
func (e *Ensured) Must(pull bool) { e.pull = strconv.FormatBool(pull) }

// Needed counts an image that a container needed.
func (m *Images) Needed(policy corev1.PullPolicy, e Ensured) {
	m.ensured.WithLabelValues(strings.ToLower(string(policy)), cmp.Or(e.present, Unknown), cmp.Or(e.pull, Unknown)).Inc()
}

// Mounted counts the volumes of a container that are images, by name, when it has been made or has failed: because of one of them, or
// otherwise.
func (m *Images) Mounted(c *corev1.Container, volumes map[string]string, failed bool) {
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
