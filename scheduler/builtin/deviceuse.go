package builtin

import (
	"slices"
	"strconv"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

func sameStatus(a, b *resourcev1.ResourceClaim) bool {
	return equality.Semantic.DeepEqual(a.Status, b.Status)
}

// selectors are the compiled CEL expressions. The environment that they need is made for the first pod with a claim.
type selectors struct {
	once  sync.Once
	cache *cel.Cache
}

// keptSelectors is the number of compiled expressions that are kept. Each takes a few tens of kilobytes.
const keptSelectors = 32

func (s *selectors) get() *cel.Cache {
	s.once.Do(func() { s.cache = cel.NewCache(keptSelectors, cel.Features{EnableConsumableCapacity: true}) })
	return s.cache
}

// slowNamespaces are those whose claims took too long. They have to wait ten times as long as they took, so that they get at
// most about a tenth of the scheduler's time.
type slowNamespaces struct {
	mu   sync.Mutex
	ends map[string]time.Time // guarded by mu
}

// slowRest is how many times longer than it took a namespace has to wait.
const slowRest = 10

func (s *slowNamespaces) add(namespace string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = map[string]time.Time{}
	}
	s.ends[namespace] = time.Now().Add(slowRest * took)
}

// until reports whether a namespace has to wait, and until when.
func (s *slowNamespaces) until(namespace string, now time.Time) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.ends[namespace]
	if ok && !now.Before(end) {
		delete(s.ends, namespace)
		ok = false
	}
	return end, ok
}

// allocations holds the allocations that the Snapshot does not show yet. An allocation begins with Reserve. It ends when it is given back
// before it was written, or when the Snapshot has the claim as it was written, or newer.
type allocations struct {
	mu    sync.Mutex
	claim map[types.UID]*allocation // guarded by mu
}

type allocation struct {
	claim   *resourcev1.ResourceClaim // before
	pod     types.UID
	result  *resourcev1.AllocationResult
	written uint64 // the revision with which it was written; 0: not yet
	unseen  bool   // the claim is new, and the Snapshot may not have it
}

// add holds an allocation for a pod.
func (a *allocations) add(pod types.UID, c *resourcev1.ResourceClaim, result *resourcev1.AllocationResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claim == nil {
		a.claim = map[types.UID]*allocation{}
	}
	a.claim[c.UID] = &allocation{claim: c, pod: pod, result: result}
}

// has reports whether a claim is being allocated.
func (a *allocations) has(c *resourcev1.ResourceClaim) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.claim[c.UID] != nil
}

// write notes that the allocation of a claim is part of a revision.
func (a *allocations) write(c *resourcev1.ResourceClaim) {
	revision, err := strconv.ParseUint(c.ResourceVersion, 10, 64)
	if err != nil {
		revision = 1 // any revision that the Snapshot has is newer
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if held := a.claim[c.UID]; held != nil {
		held.written = revision
	}
}

// rename notes that a claim that was in memory only is stored now.
func (a *allocations) rename(from types.UID, c *resourcev1.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if held := a.claim[from]; held != nil {
		delete(a.claim, from)
		held.claim, held.unseen = c, true
		a.claim[c.UID] = held
	}
}

// drop gives back a pod's allocation that was not written.
func (a *allocations) drop(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, held := range a.claim {
		if held.pod == pod && held.written == 0 {
			delete(a.claim, uid)
		}
	}
}

// settle forgets allocations that the Snapshot shows.
func (a *allocations) settle(s *plugin.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, held := range a.claim {
		if held.written == 0 {
			continue
		}
		now, ok := plugin.Find(s, client.ResourceClaims, held.claim.Namespace, held.claim.Name)
		if _, _, placed := s.Placed(held.pod); !ok && held.unseen && placed {
			continue // the Snapshot does not have the new claim yet
		}
		if !ok || now.UID != uid || now.ResourceVersion == "" {
			delete(a.claim, uid)
		} else if revision, err := strconv.ParseUint(now.ResourceVersion, 10, 64); err != nil || revision >= held.written {
			delete(a.claim, uid)
		}
	}
}

// state returns the devices in use.
func (a *allocations) state(s *plugin.Snapshot) structured.AllocatedState {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	plugin.Each(s, client.ResourceClaims, func(c *resourcev1.ResourceClaim) {
		if c.Status.Allocation != nil {
			use(&state, c.Status.Allocation)
		}
	})
	for uid, held := range a.claim {
		now, ok := plugin.Find(s, client.ResourceClaims, held.claim.Namespace, held.claim.Name)
		if !ok || now.UID != uid || now.Status.Allocation == nil {
			use(&state, held.result)
		}
	}
	return state
}

// use adds the devices of an allocation to those in use. Devices with admin access are used beside others.
func use(state *structured.AllocatedState, a *resourcev1.AllocationResult) {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		if r.ConsumedCapacity != nil {
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
}

// taintedSlices returns all slices, with the taints of DeviceTaintRules added to their devices.
func taintedSlices(s *plugin.Snapshot) []*resourcev1.ResourceSlice {
	all, rules := plugin.All(s, client.ResourceSlices, ""), plugin.All(s, client.DeviceTaintRules, "")
	rules = slices.DeleteFunc(rules, func(r *resourcev1.DeviceTaintRule) bool { return r.Spec.DeviceSelector == nil })
	for i := range all {
		all[i] = tainted(all[i], rules)
	}
	return all
}

// tainted returns a slice with the taints of rules; a rule without a selector taints nothing.
func tainted(slice *resourcev1.ResourceSlice, rules []*resourcev1.DeviceTaintRule) *resourcev1.ResourceSlice {
	out := slice
	is := func(want *string, has string) bool { return want == nil || *want == has }
	for _, r := range rules {
		by := r.Spec.DeviceSelector
		if !is(by.Driver, slice.Spec.Driver) || !is(by.Pool, slice.Spec.Pool.Name) {
			continue
		}
		for i := range slice.Spec.Devices {
			if !is(by.Device, slice.Spec.Devices[i].Name) {
				continue
			}
			if out == slice {
				out = slice.DeepCopy()
			}
			out.Spec.Devices[i].Taints = append(out.Spec.Devices[i].Taints, r.Spec.Taint)
		}
	}
	return out
}
