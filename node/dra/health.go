package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	oldhealthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/sampan-io/sampan/internal/run"
)

const (
	// healthLife is for how long a report about a device counts, if the driver says nothing else, as in kubelet.
	healthLife = 30 * time.Second
	// healthPause is that between tries to read reports, as in kubelet.
	healthPause = 5 * time.Second

	maxDevices = 16384 // of one driver
)

// A deviceKey names a device of a driver.
type deviceKey struct{ pool, name string }

// health is what a driver has reported about a device.
type health struct {
	state   corev1.ResourceHealthStatus
	message string
	until   time.Time // when it ceases to count
}

// watchHealth reads what a plug-in reports about the health of its devices, until ctx is cancelled or it says that it reports
// nothing.
func (m *Manager) watchHealth(ctx context.Context, p *plugin) {
	for ctx.Err() == nil {
		err := m.readHealth(ctx, p)
		m.setHealth(p.driver, nil)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		if ctx.Err() == nil {
			m.opts.Log.DebugContext(ctx, "health of devices not read, will try again", "driver", p.driver, "err", err)
		}
		run.Pause(ctx, healthPause)
	}
}

func (m *Manager) readHealth(ctx context.Context, p *plugin) error {
	var stream grpc.ServerStreamingClient[healthapi.NodeWatchResourcesResponse]
	var err error
	if p.healthService == healthapi.DRAResourceHealthService {
		stream, err = healthapi.NewDRAResourceHealthClient(p.conn).NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{})
	} else {
		old := healthapi.V1Alpha1ClientWrapper{Client: oldhealthapi.NewDRAResourceHealthClient(p.conn)}
		stream, err = old.NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{})
	}
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(r.GetDevices()) > maxDevices {
			return fmt.Errorf("it has %d devices, want at most %d", len(r.GetDevices()), maxDevices)
		}
		devices := make(map[deviceKey]health, len(r.GetDevices()))
		now := time.Now()
		for _, d := range r.GetDevices() {
			devices[deviceKey{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}] = reported(d, now)
		}
		m.setHealth(p.driver, devices)
	}
}

// reported translates a report.
func reported(d *healthapi.DeviceHealth, now time.Time) health {
	h := health{state: corev1.ResourceHealthStatusUnknown, message: d.GetMessage(), until: now.Add(healthLife)}
	switch d.GetHealth() {
	case healthapi.HealthStatus_HEALTHY:
		h.state = corev1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		h.state = corev1.ResourceHealthStatusUnhealthy
	case healthapi.HealthStatus_UNKNOWN:
	}
	if s := d.GetHealthCheckTimeoutSeconds(); s > 0 {
		h.until = now.Add(time.Duration(min(s, 1<<31)) * time.Second)
	}
	if len(h.message) > corev1.ResourceHealthMessageMaxLength {
		h.message = strings.ToValidUTF8(h.message[:corev1.ResourceHealthMessageMaxLength-3], "") + "..."
	}
	return h
}

// setHealth replaces what is known of a driver's devices; nil means nothing. A device that is left out of a report keeps what
// was reported about it before, until that ceases to count.
func (m *Manager) setHealth(driver string, devices map[deviceKey]health) {
	m.mu.Lock()
	before := m.health[driver]
	if devices == nil {
		delete(m.health, driver)
	} else {
		now := time.Now()
		for k, h := range before {
			if _, again := devices[k]; !again && now.Before(h.until) && len(devices) < maxDevices {
				devices[k] = h
			}
		}
		m.health[driver] = devices
	}
	pods := map[types.UID]bool{}
	for _, c := range m.claims {
		if slices.ContainsFunc(c.Drivers[driver], func(d device) bool {
			k := deviceKey{d.Pool, d.Name}
			return before[k].state != devices[k].state || before[k].message != devices[k].message
		}) {
			maps.Copy(pods, c.Pods)
		}
	}
	m.mu.Unlock()
	if len(pods) > 0 {
		m.opts.Changed(slices.Collect(maps.Keys(pods)))
	}
}

// Status describes the devices of a container, for its status, and returns when that changes if drivers report nothing more
// (zero: never). Only claims that the container itself uses count, as in kubelet.
func (m *Manager) Status(pod *corev1.Pod, c *corev1.Container, now time.Time) (all []corev1.ResourceStatus, changes time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, used := range c.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(of corev1.PodResourceClaim) bool { return of.Name == used.Name })
		if i < 0 {
			continue
		}
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		prepared := m.claims[key{pod.Namespace, *name}]
		if prepared == nil {
			continue
		}
		s := corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + used.Name)}
		if used.Request != "" {
			s.Name += corev1.ResourceName("/" + used.Request)
		}
		seen := map[corev1.ResourceID]bool{}
		for _, driver := range slices.Sorted(maps.Keys(prepared.Drivers)) {
			for _, d := range prepared.Drivers[driver] {
				if used.Request != "" && !d.in(resourceclaim.BaseRequestRef(used.Request)) {
					continue
				}
				r, until := m.healthOf(driver, &d, now)
				if seen[r.ResourceID] {
					continue
				}
				seen[r.ResourceID] = true
				s.Resources = append(s.Resources, r)
				if !until.IsZero() && (changes.IsZero() || until.Before(changes)) {
					changes = until
				}
			}
		}
		if len(s.Resources) > 0 {
			all = append(all, s)
		}
	}
	return all, changes
}

// healthOf describes a device, and returns when that changes. The caller holds mu.
func (m *Manager) healthOf(driver string, d *device, now time.Time) (corev1.ResourceHealth, time.Time) {
	r := corev1.ResourceHealth{ResourceID: corev1.ResourceID(driver + "/" + d.Pool + "/" + d.Name), Health: corev1.ResourceHealthStatusUnknown}
	if len(d.CDI) > 0 {
		r.ResourceID = corev1.ResourceID(d.CDI[0])
	}
	h, known := m.health[driver][deviceKey{d.Pool, d.Name}]
	if !known || !now.Before(h.until) {
		return r, time.Time{}
	}
	r.Health = h.state
	if h.message != "" {
		r.Message = &h.message
	}
	return r, h.until
}
