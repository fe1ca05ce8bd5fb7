package sets

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// After a pod has ended, its replacement is created after firstPause, and after each further failure after twice as long, up
// to longestPause. After that long without a failure the first pause is firstPause again.
const (
	firstPause   = time.Second
	longestPause = 15 * time.Minute
)

// A placeKey is a DaemonSet and a node, or a StatefulSet and the name of a pod.
type placeKey struct {
	set   types.UID
	place string
}

type pause struct {
	length time.Duration
	until  time.Time
}

// A backoff remembers where pods ended, because the pods themselves are deleted. It is lost in a restart, which costs
// one try.
type backoff struct {
	mu     *sync.Mutex
	places map[placeKey]*pause // guarded by mu
}

func newBackoff() backoff { return backoff{mu: &sync.Mutex{}, places: map[placeKey]*pause{}} }

// add notes that the pod at a place has ended.
func (b backoff) add(key placeKey, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, old := range b.places { // there are few, and this is rare
		if now.Sub(old.until) > longestPause {
			delete(b.places, k)
		}
	}
	one := b.places[key]
	if one == nil {
		one = &pause{length: firstPause / 2}
		b.places[key] = one
	}
	one.length = min(2*one.length, longestPause)
	one.until = now.Add(one.length)
}

// left returns how long it is until the next pod may be made at a place; 0 or less means now.
func (b backoff) left(key placeKey, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.places[key]; one != nil {
		return one.until.Sub(now)
	}
	return 0
}
