package sets

import (
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// matches remembers which revisions record the template that their owner has. A reconcile asks that for each revision, and
// decodes it to answer: without a memory each change of a pod would cost as much as all revisions of its owner have bytes.
type matches struct {
	mu    sync.Mutex
	known map[types.UID]match // guarded by mu; by revision
}

// A match is an answer for a version of a revision and a generation of its owner, which counts the changes of its template.
type match struct {
	owner      types.UID
	generation int64
	version    string // resource version of the revision
	equal      bool
}

// of reports whether a revision records the present template of o. A revision that cannot be decoded does not.
func (m *matches) of(o recorded, r *appsv1.ControllerRevision) bool {
	now := match{owner: o.GetUID(), generation: o.GetGeneration(), version: r.ResourceVersion}
	m.mu.Lock()
	last, ok := m.known[r.UID]
	m.mu.Unlock()
	if now.equal = last.equal; ok && last == now && now.generation > 0 {
		return last.equal
	}
	t, err := templateOf(r)
	now.equal = err == nil && equality.Semantic.DeepEqual(t, o.template)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[types.UID]match{}
	}
	m.known[r.UID] = now
	return now.equal
}

// forget drops the results for a revision that does not exist any more.
func (m *matches) forget(r *appsv1.ControllerRevision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, r.UID)
}
