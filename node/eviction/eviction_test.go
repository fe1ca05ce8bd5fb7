package eviction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/node/eviction"
)

func TestMonitorHoldsConditions(t *testing.T) {
	m := eviction.Monitor{Thresholds: upstream(), Transition: 5 * time.Minute}
	start := time.Unix(1000, 0)
	full := map[eviction.Signal]eviction.Observation{
		eviction.MemoryAvailable: {Available: 1 << 30, Capacity: 4 << 30},
		eviction.NodeFsAvailable: {Available: 9, Capacity: 100},
		eviction.NodeFsInodes:    {}, // a file system that does not count them
	}
	short, conditions := m.Observe(full, start)
	if len(short) != 1 || short[0].Signal != eviction.NodeFsAvailable || short[0].Least != 10 {
		t.Errorf("shortages %+v, want nodefs.available below 10", short)
	}
	if want := []corev1.NodeConditionType{corev1.NodeDiskPressure}; !slices.Equal(conditions, want) {
		t.Errorf("conditions %v, want %v", conditions, want)
	}
	full[eviction.NodeFsAvailable] = eviction.Observation{Available: 50, Capacity: 100}
	if short, conditions = m.Observe(full, start.Add(4*time.Minute)); len(short) != 0 || len(conditions) != 1 {
		t.Errorf("within the transition period: %v %v, want no shortage and one condition", short, conditions)
	}
	if _, conditions = m.Observe(full, start.Add(6*time.Minute)); len(conditions) != 0 {
		t.Errorf("after the transition period: %v, want no condition", conditions)
	}
}

func TestParse(t *testing.T) {
	got, err := eviction.Parse(eviction.Settings{Hard: map[string]string{"nodefs.available": "2.5%", "memory.available": "1Gi", "imagefs.available": "0%"}})
	want := []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: 1 << 30, Text: "1Gi"}, {Signal: eviction.NodeFsAvailable, Percent: 2.5}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Parse = %v, %v, want %v", got, err, want)
	}
	for _, bad := range []map[string]string{{"x": "1"}, {"memory.available": "-1"}, {"memory.available": "101%"}, {"memory.available": "NaN%"}, {"nodefs.available": "much"}} {
		if got, err := eviction.Parse(eviction.Settings{Hard: bad}); err == nil {
			t.Errorf("Parse(%v) = %v, want an error", bad, got)
		}
	}
}

func pod(name string, priority int32, memoryRequest, memory string) eviction.Pod {
	p := &corev1.Pod{}
	p.Name, p.Spec.Priority = name, &priority
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	if memoryRequest != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memoryRequest)}
	}
	q := resource.MustParse(memory)
	return eviction.Pod{Pod: p, Memory: q.Value(), Containers: map[string]eviction.Use{"main": {Memory: q.Value()}}}
}

func TestVictim(t *testing.T) {
	short := eviction.Shortage{Signal: eviction.MemoryAvailable, Resource: corev1.ResourceMemory, Least: 100 << 20}
	short.Available = 50 << 20
	tests := []struct {
		name string
		pods []eviction.Pod
		want string
	}{
		{"more than requested goes first", []eviction.Pod{pod("fits", 0, "1Gi", "900Mi"), pod("exceeds", 10, "10Mi", "20Mi")}, "exceeds"},
		{"then the lowest priority", []eviction.Pod{pod("high", 5, "", "900Mi"), pod("low", 1, "", "10Mi")}, "low"},
		{"then the largest excess", []eviction.Pod{pod("small", 0, "", "10Mi"), pod("large", 0, "10Mi", "50Mi")}, "large"},
		{"never a critical pod", []eviction.Pod{pod("critical", 2_000_000_000, "", "900Mi")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if victim, _ := eviction.Victim(short, tt.pods); victim != nil {
				got = victim.Name
			}
			if got != tt.want {
				t.Errorf("victim %q, want %q", got, tt.want)
			}
		})
	}
	_, text := eviction.Victim(short, []eviction.Pod{pod("p", 0, "10Mi", "20Mi")})
	const want = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
		"Container main was using 20Mi, request is 10Mi, has larger consumption of memory. "
	if text != want {
		t.Errorf("message %q, want %q", text, want)
	}
	whole := pod("p", 0, "10Mi", "5Mi")
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("20Mi")}}
	_, text = eviction.Victim(short, []eviction.Pod{whole})
	if want := "Pod p was using 5Mi, request is 20Mi, has larger consumption of memory. "; !strings.HasSuffix(text, "available: 50Mi. "+want) {
		t.Errorf("message %q, want %q at its end", text, want)
	}
}

// TestShortageNumbers compares the numbers with the formats of upstream's kubelet.
func TestShortageNumbers(t *testing.T) {
	thresholds, err := eviction.Parse(eviction.Settings{Hard: map[string]string{
		"memory.available": "100M", "nodefs.available": "50%", "nodefs.inodesFree": "5%", "pid.available": "1k",
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := eviction.Monitor{Thresholds: thresholds}
	short, _ := m.Observe(map[eviction.Signal]eviction.Observation{
		eviction.MemoryAvailable: {Available: 50 << 20, Capacity: 4 << 30},
		eviction.NodeFsAvailable: {Available: 1 << 30, Capacity: 4 << 30},
		eviction.NodeFsInodes:    {Available: 2000, Capacity: 1 << 20},
		eviction.PIDAvailable:    {Available: 512, Capacity: 32768},
	}, time.Unix(0, 0))
	var got []string
	for _, s := range short {
		threshold, available := s.Numbers()
		got = append(got, fmt.Sprintf("%s %s %s", s.Signal, threshold, available))
	}
	want := []string{"memory.available 100M 50Mi", "nodefs.available 2Gi 1Gi", "nodefs.inodesFree 52428 2k", "pid.available 1k 512"}
	if !slices.Equal(got, want) {
		t.Errorf("threshold and available:\n%q, want\n%q", got, want)
	}
}

func TestExceeded(t *testing.T) {
	limited := func(volume, container string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Spec.Containers = []corev1.Container{{Name: "main"}}
		if container != "" {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(container)}
		}
		if volume != "" {
			q := resource.MustParse(volume)
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &q}}}}
		}
		return p
	}
	tests := []struct {
		name         string
		pod          *corev1.Pod
		volume, disk int64
		limit        eviction.StorageLimit
		want         string
	}{
		{"nothing limited", limited("", ""), 1 << 40, 1 << 40, "", ""},
		{"within the limits", limited("5Mi", "20Mi"), 5 << 20, 10 << 20, "", ""},
		{"a volume", limited("5Mi", ""), 6 << 20, 0, eviction.VolumeLimit, `Usage of EmptyDir volume "data" exceeds the limit "5Mi". `},
		{"the pod", limited("", "10Mi"), 6 << 20, 6 << 20, eviction.PodLimit, "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := eviction.Pod{Pod: tt.pod, Volumes: map[string]int64{"data": tt.volume}, Containers: map[string]eviction.Use{"main": {Disk: tt.disk}}}
			if limit, got := eviction.Exceeded(&p); limit != tt.limit || got != tt.want {
				t.Errorf("Exceeded = %q, %q, want %q, %q", limit, got, tt.limit, tt.want)
			}
			if got, want := eviction.Limited(tt.pod), tt.name != "nothing limited"; got != want {
				t.Errorf("Limited = %t, want %t", got, want)
			}
		})
	}
}

// upstream returns the thresholds of upstream's kubelet without configuration.
func upstream() []eviction.Threshold {
	return []eviction.Threshold{
		{Signal: eviction.MemoryAvailable, Value: 100 << 20},
		{Signal: eviction.NodeFsAvailable, Percent: 10},
		{Signal: eviction.NodeFsInodes, Percent: 5},
		{Signal: eviction.ImageFsAvailable, Percent: 15},
		{Signal: eviction.ImageFsInodes, Percent: 5},
	}
}

func TestSoftThresholdWaitsAndReclaims(t *testing.T) {
	thresholds, err := eviction.Parse(eviction.Settings{
		Hard: map[string]string{"memory.available": "100"}, Soft: map[string]string{"memory.available": "20%"},
		SoftGracePeriod: map[string]string{"memory.available": "1m30s"}, MinimumReclaim: map[string]string{"memory.available": "50"},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := eviction.Monitor{Thresholds: thresholds, Transition: time.Minute}
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		at        time.Duration
		available int64
		hard      bool
		soft      bool
		pressure  bool
	}{
		{0, 250, false, false, false},
		{10 * time.Second, 190, false, false, true},
		{90 * time.Second, 190, false, false, true},
		{100 * time.Second, 190, false, true, true},
		{110 * time.Second, 240, false, true, true}, // less than 50 more than the threshold
		{120 * time.Second, 250, false, false, true},
		{130 * time.Second, 199, false, false, true}, // the time begins again
		{140 * time.Second, 99, true, false, true},
		{220 * time.Second, 120, true, true, true}, // the hard one wants its 50, too
		{230 * time.Second, 260, false, false, true},
		{290 * time.Second, 260, false, false, false},
	} {
		short, conditions := m.Observe(map[eviction.Signal]eviction.Observation{eviction.MemoryAvailable: {Available: tt.available, Capacity: 1000}}, start.Add(tt.at))
		hard := slices.ContainsFunc(short, func(s eviction.Shortage) bool { return !s.Soft })
		soft := slices.ContainsFunc(short, func(s eviction.Shortage) bool { return s.Soft })
		if met, below := len(m.Met()), tt.available < 200; len(short) > met || below != (met > 0) && !soft {
			t.Errorf("after %v with %d: %d thresholds are met, and %d shortages", tt.at, tt.available, met, len(short))
		}
		if hard != tt.hard || soft != tt.soft || (len(conditions) > 0) != tt.pressure {
			t.Errorf("after %v with %d: %+v, %v", tt.at, tt.available, short, conditions)
		}
	}
	for _, bad := range []string{"", "soon", "-1s"} {
		if got, err := eviction.Parse(eviction.Settings{Soft: map[string]string{"pid.available": "1"}, SoftGracePeriod: map[string]string{"pid.available": bad}}); err == nil {
			t.Errorf("a grace period of %q is accepted: %v", bad, got)
		}
	}
}
