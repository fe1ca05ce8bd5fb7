package builtin

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// assumptions are choices for pods that the Snapshot does not show yet: the claim of a volume, and the node for which the
// volume of a claim is to be made. Pods that share a claim share the assumption; it ends with the last of them, or when the
// Snapshot says the same.
type assumptions struct {
	mu      sync.Mutex
	volumes map[string]*assumption    // guarded by mu; by name of the volume
	claims  map[types.UID]*assumption // guarded by mu; claims for which a volume is to be made
}

// An assumption is for pods: true while their volumes and claims are being written.
type assumption struct {
	claim *corev1.PersistentVolumeClaim
	node  string // where the claim's volume is to be made
	pods  map[types.UID]bool
}

func (a *assumption) settled() bool {
	for _, busy := range a.pods {
		if busy {
			return false
		}
	}
	return true
}

// claim returns the UID of the claim for which a volume is held.
func (a *assumptions) claim(v *corev1.PersistentVolume) (types.UID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.volumes[v.Name]
	if held == nil {
		return "", false
	}
	return held.claim.UID, true
}

// node returns the node for which a claim's volume is to be made, or "".
func (a *assumptions) node(c *corev1.PersistentVolumeClaim) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if held := a.claims[c.UID]; held != nil {
		return held.node
	}
	return ""
}

// add holds the volumes and claims of a plan for a pod.
func (a *assumptions) add(pod types.UID, plan *volumePlan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.volumes == nil {
		a.volumes, a.claims = map[string]*assumption{}, map[types.UID]*assumption{}
	}
	for _, m := range plan.bind {
		held := a.volumes[m.volume.Name]
		if held == nil {
			held = &assumption{claim: m.claim, pods: map[types.UID]bool{}}
			a.volumes[m.volume.Name] = held
		}
		held.pods[pod] = true
	}
	for _, p := range plan.provision {
		held := a.claims[p.claim.UID]
		if held == nil {
			held = &assumption{claim: p.claim, node: plan.node.Name, pods: map[types.UID]bool{}}
			a.claims[p.claim.UID] = held
		}
		held.pods[pod] = true
	}
}

// drop gives back objects held for a pod alone.
func (a *assumptions) drop(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, held := range a.volumes {
		if delete(held.pods, pod); len(held.pods) == 0 {
			delete(a.volumes, name)
		}
	}
	for uid, held := range a.claims {
		if delete(held.pods, pod); len(held.pods) == 0 {
			delete(a.claims, uid)
		}
	}
}

// done records that a pod's claims and volumes are written. It is held until the Snapshot shows it.
func (a *assumptions) done(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, held := range a.volumes {
		if held.pods[pod] {
			held.pods[pod] = false
		}
	}
	for _, held := range a.claims {
		if held.pods[pod] {
			held.pods[pod] = false
		}
	}
}

// settle forgets written objects that can be seen.
func (a *assumptions) settle(s *plugin.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	current := func(held *assumption) *corev1.PersistentVolumeClaim {
		if c, ok := plugin.Find(s, client.PersistentVolumeClaims, held.claim.Namespace, held.claim.Name); ok && c.UID == held.claim.UID {
			return c
		}
		return nil
	}
	for name, held := range a.volumes {
		if !held.settled() {
			continue
		}
		if v, ok := plugin.Find(s, client.PersistentVolumes, "", name); !ok || v.Spec.ClaimRef != nil || current(held) == nil {
			delete(a.volumes, name)
		}
	}
	for uid, held := range a.claims {
		if !held.settled() {
			continue
		}
		if c := current(held); c == nil || volumefit.Bound(c) || c.Annotations[volumefit.SelectedNode] != "" {
			delete(a.claims, uid)
		}
	}
}
