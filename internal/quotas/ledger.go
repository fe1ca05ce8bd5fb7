package quotas

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// A Ledger adds up what the objects of one resource in one namespace use of each quota there. It is not safe for
// concurrent use. It keeps the objects, which must not be changed.
type Ledger struct {
	resource Resource
	objects  map[string]entry // by name
	sums     map[types.UID]*sum
	due      time.Time // when the usage of an object changes by itself; zero if of none
}

// An entry is an object with the time at which its usage was counted.
type entry struct {
	obj Object
	at  time.Time
}

// A sum is what the objects use that the scopes of a quota include.
type sum struct {
	scopes corev1.ResourceQuotaSpec // without hard
	used   corev1.ResourceList
}

// NewLedger returns a ledger without objects.
func NewLedger(r Resource) *Ledger {
	return &Ledger{resource: r, objects: map[string]entry{}, sums: map[types.UID]*sum{}}
}

// Set adds obj, or replaces the object of its name.
func (l *Ledger) Set(obj Object, now time.Time) {
	l.Remove(obj.GetName())
	l.put(entry{obj, now})
}

func (l *Ledger) put(e entry) {
	l.objects[e.obj.GetName()] = e
	l.countAll(e, 1)
	l.expect(e)
}

// expect brings due forward to when the usage of an object changes by itself.
func (l *Ledger) expect(e entry) {
	if l.resource.expires == nil {
		return
	}
	if end := l.resource.expires(e.obj); !end.Before(e.at) && (l.due.IsZero() || end.Before(l.due)) {
		l.due = end
	}
}

// Remove removes the object of a name, if there is one.
func (l *Ledger) Remove(name string) {
	e, ok := l.objects[name]
	if !ok {
		return
	}
	delete(l.objects, name)
	l.countAll(e, -1)
}

// countAll adds the usage of an object to all sums, or with sign -1 subtracts it.
func (l *Ledger) countAll(e entry, sign int) {
	if len(l.sums) == 0 {
		return
	}
	usage := l.resource.usage(e.obj, e.at)
	for _, s := range l.sums {
		l.count(s, e.obj, usage, sign)
	}
}

// count is countAll for one sum, if the object is in its scopes.
func (l *Ledger) count(s *sum, obj Object, usage corev1.ResourceList, sign int) {
	if !l.resource.Includes(&s.scopes, obj) {
		return
	}
	for name, q := range usage {
		total := s.used[name].DeepCopy()
		if sign > 0 {
			total.Add(q)
		} else {
			total.Sub(q)
		}
		s.used[name] = total
	}
}

// Used returns what the objects use now of the names of q that the resource counts towards. The caller may change it.
func (l *Ledger) Used(q *corev1.ResourceQuota, now time.Time) corev1.ResourceList {
	l.expire(now)
	s := l.sums[q.UID]
	if s == nil || !equality.Semantic.DeepEqual(s.scopes.Scopes, q.Spec.Scopes) || !equality.Semantic.DeepEqual(s.scopes.ScopeSelector, q.Spec.ScopeSelector) {
		s = &sum{scopes: corev1.ResourceQuotaSpec{Scopes: q.Spec.Scopes, ScopeSelector: q.Spec.ScopeSelector}, used: corev1.ResourceList{}}
		l.sums[q.UID] = s
		for _, e := range l.objects {
			l.count(s, e.obj, l.resource.usage(e.obj, e.at), 1)
		}
	}
	used := corev1.ResourceList{}
	for _, name := range l.resource.Names(q.Spec.Hard) {
		total, ok := s.used[name]
		if !ok {
			total = number(0)
		}
		used[name] = total.DeepCopy()
	}
	return used
}

// expire counts the objects again whose usage changed by itself.
func (l *Ledger) expire(now time.Time) {
	if l.due.IsZero() || !now.After(l.due) {
		return
	}
	l.due = time.Time{}
	for name, e := range l.objects {
		switch end := l.resource.expires(e.obj); {
		case end.IsZero() || end.Before(e.at):
		case now.After(end):
			l.Remove(name)
			l.put(entry{e.obj, now})
		default:
			l.expect(e)
		}
	}
}

// Due returns the time after which Used can return less without a change of an object, or zero.
func (l *Ledger) Due() time.Time { return l.due }

// Keep forgets all quotas but these.
func (l *Ledger) Keep(current []*corev1.ResourceQuota) {
	for uid := range l.sums {
		if !slices.ContainsFunc(current, func(q *corev1.ResourceQuota) bool { return q.UID == uid }) {
			delete(l.sums, uid)
		}
	}
}
