package blocking

import (
	"sync"
	"weak"

	"github.com/sampan-io/sampan/store"
)

// A memo caches the results of expressions for the newest state of each object that waiting
// requests are about, so that each expression is evaluated once (U3).
type memo struct {
	mu   sync.Mutex
	keys map[string]*judged // guarded by mu
}

// judged is one state of an object.
type judged struct {
	value   store.Value
	results map[string]*result           // guarded by the memo's mu; by the text of the expression
	object  weak.Pointer[map[string]any] // guarded by the memo's mu
}

// A result is written once.
type result struct {
	once  sync.Once
	holds bool
	err   error
}

// maxResults bounds the results kept for one state, if many ask different things of it
// and go away.
const maxResults = 1000

// judge returns whether p holds for the object.
func (m *memo) judge(ws *Waiters, key string, v store.Value, p *program) (bool, error) {
	j, r := m.result(key, v, p.String())
	r.once.Do(func() {
		ws.evaluations.Add(1)
		object, err := m.object(j, ws.opts.Object)
		if err != nil {
			r.err = err
			return
		}
		r.holds, r.err = p.Holds(*object)
	})
	return r.holds, r.err
}

// object returns what expressions see. While several look at one state, they see the
// same map; it is many times as large as the value, so it is not kept.
func (m *memo) object(j *judged, of func(store.Value) (map[string]any, error)) (*map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := j.object.Value(); o != nil {
		return o, nil
	}
	o, err := of(j.value)
	if err != nil {
		return nil, err
	}
	j.object = weak.Make(&o)
	return &o, nil
}

func (m *memo) result(key string, v store.Value, text string) (*judged, *result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[string]*judged{}
	}
	j := m.keys[key]
	if j == nil || j.value != v || len(j.results) >= maxResults {
		j = &judged{value: v, results: map[string]*result{}}
		m.keys[key] = j
	}
	r := j.results[text]
	if r == nil {
		r = &result{}
		j.results[text] = r
	}
	return j, r
}

func (m *memo) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, key)
}

func (m *memo) forgetAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.keys)
}
