package workload

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/controller/rolling"
	"github.com/sampan-io/sampan/internal/podstate"
)

// A part is one ReplicaSet of a Deployment and its planned state.
type part struct {
	set         *appsv1.ReplicaSet // as it is; as it is to be made if made
	made        bool
	size        int32
	annotations map[string]string
	least       int32 // seconds
}

func partOf(set *appsv1.ReplicaSet) *part {
	return &part{set: set, size: sizeOf(set), annotations: set.Annotations, least: set.Spec.MinReadySeconds}
}

// behind says that the status of a set is that of another size. It is not for long: its
// controller writes the status as soon as it has acted on the size.
func (p *part) behind() bool {
	return !p.made && p.set.Status.ObservedGeneration < p.set.Generation
}

// available returns how many of its pods serve and will go on to: some may be about to
// go.
func (p *part) available() int32 {
	if p.made {
		return 0
	}
	return min(p.set.Status.AvailableReplicas, p.size)
}

// changed returns the set as it is to be, or nil if it is so already.
func (p *part) changed() *appsv1.ReplicaSet {
	if p.made || p.size == sizeOf(p.set) && p.least == p.set.Spec.MinReadySeconds && maps.Equal(p.annotations, p.set.Annotations) {
		return nil
	}
	set := p.set.DeepCopy()
	set.Spec.Replicas, set.Spec.MinReadySeconds, set.Annotations = &p.size, p.least, p.annotations
	return set
}

// A rollout is a Deployment with its ReplicaSets and their wanted sizes. Each reconcile makes a new one.
type rollout struct {
	d       *appsv1.Deployment
	current *part   // the set of the present template; nil if there is none
	old     []*part // the others, oldest first
	pods    func(*appsv1.ReplicaSet) []*corev1.Pod
	now     time.Time
}

func newRollout(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, pods func(*appsv1.ReplicaSet) []*corev1.Pod, now time.Time) *rollout {
	r := &rollout{d: d, pods: pods, now: now}
	sets = slices.Clone(sets)
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, set := range sets {
		if r.current == nil && sameTemplate(set, &d.Spec.Template) {
			r.current = partOf(set)
		} else {
			r.old = append(r.old, partOf(set))
		}
	}
	return r
}

// parts returns all sets, oldest first, the present one last. The slice is the
// caller's.
func (r *rollout) parts() []*part {
	all := slices.Clone(r.old)
	if r.current != nil {
		all = append(all, r.current)
	}
	return all
}

func (r *rollout) want() int32 {
	if r.d.Spec.Replicas == nil {
		return 1
	}
	return *r.d.Spec.Replicas
}

func total(parts []*part) (n int32) {
	for _, p := range parts {
		n += p.size
	}
	return n
}

// limits returns the limits of a rollout. With the strategy Recreate they are its size.
func (r *rollout) limits() rolling.Limits {
	how, want := r.d.Spec.Strategy, r.want()
	if how.Type != appsv1.RollingUpdateDeploymentStrategyType || how.RollingUpdate == nil {
		return rolling.Limits{Min: want, Max: want}
	}
	return rolling.LimitsOf(want, how.RollingUpdate.MaxSurge, how.RollingUpdate.MaxUnavailable)
}

// plan decides about the sizes and annotations of all sets. It does nothing for a
// Deployment that is being deleted.
func (r *rollout) plan() error {
	if r.d.DeletionTimestamp != nil {
		return nil
	}
	if r.current != nil {
		r.current.annotations = annotateSet(r.d, r.current.set, r.old)
		r.current.least = r.d.Spec.MinReadySeconds
	}
	r.markCompleted()
	if r.d.Spec.Paused || r.scaled() {
		r.scale()
		return nil
	}
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return r.recreate()
	}
	if err := r.begin(); err != nil {
		return err
	}
	r.roll()
	return nil
}

// begin makes the set of the present template if there is none.
func (r *rollout) begin() error {
	if r.current != nil {
		return nil
	}
	set, err := newSet(r.d)
	if err != nil {
		return err
	}
	set.Annotations = annotateSet(r.d, set, r.old)
	r.current = &part{set: set, made: true, annotations: set.Annotations, least: r.d.Spec.MinReadySeconds}
	r.resize(r.current, 0)
	return nil
}

// resize plans another size for a set, and with it what scaled and grow will want to
// know.
func (r *rollout) resize(p *part, size int32) {
	p.size = max(0, size)
	p.annotations = dependents.With(p.annotations, desiredAnnotation, strconv.Itoa(int(r.want())))
	p.annotations[maxAnnotation] = strconv.Itoa(int(r.limits().Max))
}

// roll takes the next step from the old sets to the present one. Sets count as having as many pods as they want.
func (r *rollout) roll() {
	from, to := total(r.old), r.current.size
	step := rolling.Plan(rolling.State{
		Desired: r.want(), Canaries: r.canaries(), Limits: r.limits(), From: rolling.Side{Want: from, Pods: from},
		To: rolling.Side{Want: to, Pods: to, Ready: r.current.set.Status.AvailableReplicas},
	})
	if step.To != to {
		r.resize(r.current, step.To)
	}
	if slices.ContainsFunc(r.parts(), (*part).behind) {
		return // how many serve is not known
	}
	drop := from - step.From
	for _, kept := range []func(*part) int32{(*part).available, func(*part) int32 { return 0 }} { // unavailable pods first
		for _, p := range r.old {
			if n := min(drop, p.size-kept(p)); n > 0 {
				r.resize(p, p.size-n)
				drop -= n
			}
		}
	}
}

// recreate takes all old pods away, and makes the new ones when they are gone.
func (r *rollout) recreate() error {
	left := false
	for _, p := range r.old {
		if p.size > 0 {
			r.resize(p, 0)
			left = true
		}
		left = left || slices.ContainsFunc(r.pods(p.set), func(pod *corev1.Pod) bool { return !podstate.Finished(pod) })
	}
	if left {
		return nil
	}
	if err := r.begin(); err != nil {
		return err
	}
	if r.current.size != r.want() {
		r.resize(r.current, r.want())
	}
	return nil
}

// scaled says that the Deployment was given another size since its sets were sized.
func (r *rollout) scaled() bool {
	return slices.ContainsFunc(r.parts(), func(p *part) bool {
		desired, err := strconv.ParseInt(p.set.Annotations[desiredAnnotation], 10, 32)
		return p.size > 0 && err == nil && int32(desired) != r.want()
	})
}

// scale spreads the size of the Deployment over the sets that have pods: a rollout that
// is under way keeps its proportions.
func (r *rollout) scale() {
	active := slices.DeleteFunc(r.parts(), func(p *part) bool { return p.size == 0 })
	want := r.want()
	switch {
	case len(active) == 0 && r.current != nil:
		active = []*part{r.current}
	case len(active) == 0 && len(r.old) > 0:
		active = r.old[len(r.old)-1:]
	}
	switch {
	case len(active) == 0, len(active) > 1 && !r.scaled():
	case len(active) == 1:
		if active[0].size != want || r.stale(active[0]) {
			r.resize(active[0], want)
		}
	case r.saturated():
		for _, p := range r.old {
			if p.size > 0 {
				r.resize(p, 0)
			}
		}
	case r.d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		r.spread(active)
	}
}

// stale says that a set was sized for another size of the Deployment.
func (r *rollout) stale(p *part) bool {
	return p.set.Annotations[desiredAnnotation] != strconv.Itoa(int(r.want()))
}

// saturated says that the present set has all pods that are wanted.
func (r *rollout) saturated() bool {
	c := r.current
	return c != nil && c.size == r.want() && !r.stale(c) && c.available() == r.want()
}

// spread gives or takes the difference, in proportion; what rounding
// leaves goes to the largest.
func (r *rollout) spread(active []*part) {
	want := r.want()
	room := int32(0)
	if want > 0 {
		room = r.limits().Max
	}
	if n := r.canaries(); n > 0 { // a canary keeps its number
		active = slices.DeleteFunc(active, func(p *part) bool { return p == r.current })
		r.resize(r.current, min(r.current.size, n))
		room = want - r.current.size
	}
	add := room - total(active)
	newestFirst := slices.Clone(active)
	slices.Reverse(newestFirst)
	if add < 0 {
		newestFirst = active // of equals the oldest loses
	}
	slices.SortStableFunc(newestFirst, func(a, b *part) int { return cmp.Compare(b.size, a.size) })
	left := add
	for _, p := range newestFirst {
		n := r.portion(p, room)
		if add > 0 {
			n = min(max(n, 0), left)
		} else {
			n = max(min(n, 0), left)
		}
		left -= n
		r.resize(p, p.size+n)
	}
	if len(newestFirst) > 0 && left != 0 {
		r.resize(newestFirst[0], newestFirst[0].size+left)
	}
}

// portion returns by how much a set changes when all of them together are to be room,
// if they were as many before as its annotation says.
func (r *rollout) portion(p *part, room int32) int32 {
	if r.want() == 0 {
		return -p.size
	}
	before, err := strconv.ParseInt(p.set.Annotations[maxAnnotation], 10, 32)
	if err != nil || before <= 0 {
		before = int64(r.d.Status.Replicas)
	}
	if before <= 0 {
		return 0
	}
	return int32(math.Round(float64(p.size)*float64(room)/float64(before))) - p.size
}
