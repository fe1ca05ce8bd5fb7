package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// Run performs the update, or resumes it, and returns when it is complete or, with Options.Canaries, when the canaries
// are ready. It makes one call at a time and waits on watches in between.
//
// After a *TimeoutError, a *FailedError, a *BusyError, an *OrphanedError, the cancellation of ctx and errors of the
// server, the update can be resumed by running it again, or undone with Options.Rollback. A *RolledBackError reports that
// Options.AutoRollback has undone it, a *DoneError that nothing was left to do.
func (u *Updater) Run(ctx context.Context) (Outcome, error) {
	// The first read is a plain request, because its errors are returned at once.
	old, err := client.ReplicationControllers.Get(ctx, u.opts.Client, u.opts.Namespace, u.opts.Old)
	var left *corev1.ReplicationController
	if apierrors.IsNotFound(err) && !u.opts.ReplacePods {
		left, err = u.leftBehind(ctx, err) // by an update whose old controller was deleted
		old = nil
	}
	if err != nil {
		return Outcome{}, err
	}
	g, err := u.goalFor(old)
	if err == nil && left != nil {
		g, err = u.finishOrphaned(g, left)
	}
	if err != nil {
		return Outcome{}, err
	}
	r := &running{
		Updater: u, goal: g, self: u.opts.Self.begun(), said: map[string]bool{}, changed: run.NewBell(),
		progress: time.Now(), availability: availability{least: u.opts.MinReady},
	}
	wake := func() {
		r.changed.Ring()
	}
	r.controllers = cache.New(u.opts.Client, client.ReplicationControllers, cache.Options[*corev1.ReplicationController]{Namespace: u.opts.Namespace, Log: u.opts.Log})
	r.controllers.Subscribe(func(_, _ *corev1.ReplicationController) { wake() })
	r.pods = cache.New(u.opts.Client, client.Pods, cache.Options[*corev1.Pod]{
		Namespace: u.opts.Namespace, Log: u.opts.Log,
		Indexes: map[string]func(*corev1.Pod) []string{byController: controllerOf},
	})
	r.pods.Subscribe(func(_, _ *corev1.Pod) { wake() })

	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	group.Go(func(ctx context.Context) { _ = r.controllers.Run(ctx) }) // it ends with its context only
	group.Go(func(ctx context.Context) { _ = r.pods.Run(ctx) })
	for _, look := range []struct {
		ready <-chan struct{}
		of    schema.GroupVersionResource
	}{
		{r.controllers.Ready(), client.ReplicationControllers.GroupVersionResource},
		{r.pods.Ready(), client.Pods.GroupVersionResource},
	} {
		if err := r.firstLook(ctx, look.ready, look.of); err != nil {
			return Outcome{}, err
		}
	}
	out, err := r.loop(ctx)
	if err != nil && r.held && !errors.As(err, new(*client.UnreachableError)) {
		r.letGo(ctx, nil)
	}
	return out, err
}

// leftBehind returns the new controller of an update whose old controller was deleted, by the update at its end or by
// another client. It returns the error gone if there is none, and a *DoneError if the update was to be promoted and is
// complete.
func (u *Updater) leftBehind(ctx context.Context, gone error) (*corev1.ReplicationController, error) {
	all, _, err := client.ReplicationControllers.List(ctx, u.opts.Client, u.opts.Namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	asked := u.opts.NewName
	if u.opts.New != nil {
		asked = u.opts.New.Name
	}
	var (
		left  *corev1.ReplicationController
		names []string
	)
	for _, rc := range all {
		switch {
		case asked != "" && asked != rc.Name:
		case u.opts.Promote && rc.Annotations[markLast] == lastComplete+u.opts.Old:
			return nil, &DoneError{Name: rc.Name, What: "updated"}
		case sourceName(rc) == u.opts.Old:
			left = rc
			names = append(names, rc.Name)
		}
	}
	switch len(names) {
	case 0:
		return nil, gone
	case 1:
		return left, nil
	}
	slices.Sort(names)
	return nil, fmt.Errorf("replicationcontroller %q is gone, and there are several updates of it (%s): pass one of these as the new name", u.opts.Old, strings.Join(names, ", "))
}

// finishOrphaned returns the goal to finish or to undo an update without its old controller.
func (u *Updater) finishOrphaned(g goal, left *corev1.ReplicationController) (goal, error) {
	g.orphaned, g.new, g.cleanup = true, left.Name, CleanupDelete
	same := true
	switch {
	case u.opts.New != nil:
		same = g.made(left)
	case u.opts.Image != "":
		spec := left.Spec.DeepCopy()
		if err := u.setImage(spec); err != nil {
			return g, err
		}
		same = apiequality.Semantic.DeepEqual(spec, &left.Spec)
	}
	if !same {
		return g, fmt.Errorf("replicationcontroller %q is gone, and %q, which an update of it has left, is of another update: --promote finishes that, --rollback deletes it", u.opts.Old, left.Name)
	}
	return g, nil
}

// firstLook waits until a cache has its first list. If that takes longer than lookPatience, it makes a plain request to
// find out whether the list is forbidden.
func (r *running) firstLook(ctx context.Context, ready <-chan struct{}, of schema.GroupVersionResource) error {
	patience := time.NewTimer(lookPatience)
	defer patience.Stop()
	select {
	case <-ready:
		return nil
	case <-patience.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, _, err := r.opts.Client.List(ctx, of, r.opts.Namespace, metav1.ListOptions{Limit: 1}); err != nil && !transient(err) {
		return err
	}
	for {
		if err := r.pause(ctx, ready, "the first list of controllers and pods"); err != nil {
			return err
		}
		select {
		case <-ready:
			return nil
		default: // woken for another reason
		}
	}
}

// lookPatience is how long a first list usually takes at most.
const lookPatience = 2 * time.Second

const byController = "controller"

func controllerOf(p *corev1.Pod) []string {
	if ref := metav1.GetControllerOf(p); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

// running is an update under way. It belongs to one goroutine.
type running struct {
	*Updater
	goal
	controllers *cache.Cache[*corev1.ReplicationController]
	pods        *cache.Cache[*corev1.Pod]
	changed     run.Bell // rung when a cache has news

	self       Holder
	held       bool      // the holder annotation has this run
	beat       time.Time // when that was written last
	rival      *Holder   // another run that holds the controller
	rivalSince time.Time // since when its counter has not changed

	availability availability
	due          time.Time // when the next pod will have been ready for the minimum time; zero for none

	said      map[string]bool // lines that are printed only once
	why       string          // the last reason passed to Options.Progress
	acted     bool            // an action was begun
	foreign   bool            // the action undoes another update, perhaps one with the same template and another name
	tried     bool            // the dry runs have succeeded
	undone    string          // NAME:UID of the controller that a rollback has deleted
	cause     error           // the cause of an automatic rollback; nil without one
	closing   bool            // the last write of the update was tried, which removes the annotations
	progress  time.Time       // of the last progress
	lostRaces int             // consecutive writes that failed because another client was faster
	best      counts          // the best numbers since the last action
	up        time.Time       // of the last scaling up
}

// counts are numbers that show progress. Only a number that was never reached since the last action counts as progress;
// pods that come and go do not.
type counts struct {
	known        bool
	ready, pods  int32 // pods of the side that is scaled up
	left, seen   int32 // pods of the side that is scaled down; controllers that have observed their latest spec
	held, gained int32 // pods that are still to be released; pods that the old controller has adopted
}

// loop performs actions until none is left.
func (r *running) loop(ctx context.Context) (Outcome, error) {
	for {
		if ctx.Err() != nil {
			return Outcome{}, context.Cause(ctx)
		}
		v := r.look()
		if v.old == nil {
			r.held = false // the annotation was deleted with it
		}
		if r.closing && r.closed(v) {
			return r.outcome(v), nil
		}
		if r.opts.AutoRollback && !r.back && v.old != nil && v.old.Annotations[markBack] != "" {
			r.turn(errors.New(v.old.Annotations[markBack])) // an earlier run began the rollback
		}
		r.goal = r.goal.resumed(v)
		act, err := next(r.goal, v)
		begins := act.kind == announce || act.kind == replaceForeign
		r.foreign = err == nil && act.kind == replaceForeign
		if r.foreign {
			act, err = r.undoForeign(v)
		}
		if err != nil {
			return Outcome{}, err
		}
		switch act.kind {
		case finished:
			return r.finish(v)
		case paused:
			return r.pauseAtCanaries(ctx, v), nil
		default:
		}
		if v.old != nil {
			if mine, err := r.contest(ctx, v.old); err != nil {
				return Outcome{}, err
			} else if !mine {
				continue
			}
			if !r.held && (underWay(v.old) || replacing(v.old)) || r.held && r.idle(v, act) && time.Since(r.beat) >= renewEvery {
				if err := r.settle(ctx, r.update(ctx, v.old, nil), false); err != nil {
					return Outcome{}, err
				}
				continue
			}
		}
		if begins && !r.tried {
			err := r.try(ctx, v.old)
			r.tried = err == nil
			if err := r.settle(ctx, err, false); err != nil {
				return Outcome{}, err
			}
			continue
		}
		if r.idle(v, act) && act.kind != wait {
			r.note(fmt.Sprintf("the update period of %v between adding new pods and removing old ones", r.opts.UpdatePeriod))
			if err := r.rest(ctx, time.Until(r.up.Add(r.opts.UpdatePeriod))); err != nil {
				return Outcome{}, err
			}
			r.progress = time.Now() // the pause does not count for the timeout
			continue
		}
		if act.kind == wait {
			err := r.wait(ctx, v, act.why)
			if errors.As(err, new(*TimeoutError)) {
				err = r.blind(ctx, err)
			}
			if r.undoable(v) && (errors.As(err, new(*FailedError)) || errors.As(err, new(*TimeoutError))) {
				err = r.settle(ctx, r.turnBack(ctx, v.old, err), true)
			}
			if err != nil {
				return Outcome{}, err
			}
			continue
		}
		r.acted = true
		r.intro(v, act)
		err = r.do(ctx, v, act)
		if v.old == nil && act.kind == forgetNew || v.old != nil && act.kind == forgetOld && (r.replace || closing(v.old)) {
			r.closing = true
		}
		if err := r.settle(ctx, err, true); err != nil {
			return Outcome{}, err
		}
	}
}

// idle reports whether nothing is written for now: the action is to wait, or the update period is not over.
func (r *running) idle(v view, act action) bool {
	return act.kind == wait || r.shrinks(act) && !r.holds(v) && time.Now().Before(r.up.Add(r.opts.UpdatePeriod))
}

// holds reports whether the canaries are ready and only old pods are left to remove before the run stops. The update period
// is for updates that go on by themselves.
func (r *running) holds(v view) bool {
	return r.canaries > 0 && !r.back && v.new != nil && replicas(v.new) >= r.canaries && r.made(v.new)
}

// closed reports whether the last write of the update, which was tried, has succeeded.
func (r *running) closed(v view) bool {
	switch {
	case r.replace:
		return v.old == nil || !replacing(v.old)
	case v.old != nil:
		return !underWay(v.old)
	}
	return v.new == nil || sourceName(v.new) != r.old
}

// blind returns late, or the error of the server if it cannot be reached: in that case the cause of the delay is not
// known.
func (r *running) blind(ctx context.Context, late error) error {
	_, err := client.ReplicationControllers.Get(ctx, r.opts.Client, r.opts.Namespace, r.old)
	if err != nil && transient(err) {
		return err
	}
	return late
}

// settle handles the result of a write. It returns nil if the run continues, after a pause if the write is to be retried.
func (r *running) settle(ctx context.Context, err error, forward bool) error {
	switch {
	case err == nil && forward:
		r.progress, r.best, r.lostRaces = time.Now(), counts{}, 0
		return nil
	case err == nil:
		r.lostRaces = 0
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		// Another client was faster, usually the replication controller with a status. The caches will have its
		// write soon.
		timer := time.NewTimer(lostPause)
		defer timer.Stop()
		select {
		case <-r.changed:
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.lostRaces++; r.lostRaces <= fewRaces {
			return nil
		}
	case transient(err):
		r.note("lost the server, trying again: " + err.Error())
		if !run.Pause(ctx, lostPause) {
			return context.Cause(ctx)
		}
	default:
		return err
	}
	if r.overdue() {
		return err
	}
	return nil
}

// fewRaces is how many consecutive lost races are retried without a look at the timeout.
const fewRaces = 5

// lostPause is the pause between attempts to reach the server.
const lostPause = time.Second

// transient reports whether the same request may succeed later.
func transient(err error) bool {
	return errors.As(err, new(*client.UnreachableError)) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// finish returns the result when nothing is left to do.
func (r *running) finish(v view) (Outcome, error) {
	if r.cause != nil {
		return Outcome{}, &RolledBackError{Name: r.old, Cause: r.cause}
	}
	return r.outcome(v), nil
}

func (r *running) outcome(v view) Outcome {
	if r.orphaned && r.back {
		return Outcome{Deleted: r.new}
	}
	name := r.old
	if !r.back && !r.replace && !r.rename() {
		name = r.new
		if v.new != nil {
			name = v.new.Name
		}
	}
	return Outcome{Name: name, Unchanged: !r.acted}
}

// pauseAtCanaries ends the run, so that users can check the new pods.
func (r *running) pauseAtCanaries(ctx context.Context, v view) Outcome {
	desired, _ := marked(v.new, markDesired) // next has checked that it is there
	out := Outcome{Name: v.new.Name, Canaries: replicas(v.new), Desired: desired}
	if r.held {
		r.letGo(ctx, func(rc *corev1.ReplicationController) { markNumber(rc, markCanary, out.Canaries) })
	}
	return out
}

// undoable reports whether a failure now causes an automatic rollback.
func (r *running) undoable(v view) bool {
	return r.opts.AutoRollback && !r.back && v.old != nil && v.old.Annotations[markNext] == r.new && !closing(v.old) &&
		(v.new == nil || r.made(v.new) && !released(v.new))
}

// turnBack writes the cause of an automatic rollback on the old controller, and begins the rollback.
func (r *running) turnBack(ctx context.Context, old *corev1.ReplicationController, cause error) error {
	err := r.update(ctx, old, func(rc *corev1.ReplicationController) { mark(rc, markBack, cause.Error()) })
	if err == nil {
		r.turn(cause)
	}
	return err
}

func (r *running) turn(cause error) {
	r.back, r.cause = true, cause
	r.once("Update failed, rolling back %s: %v", r.old, cause)
}

// shrinks reports whether an action deletes pods, which the update period delays.
func (r *running) shrinks(act action) bool {
	return act.kind == deletePod || !r.replace && (act.kind == scaleOld && !r.back || act.kind == scaleNew && r.back)
}

// undoForeign returns the next action to undo another update, and prints that it does.
func (r *running) undoForeign(v view) (action, error) {
	named, _ := r.controllers.Get(r.opts.Namespace, r.new)
	act, err := r.goal.undoForeign(v, named)
	if err == nil && r.tried { // otherwise a dry run may still fail, and nothing is undone
		r.once("Found existing update in progress (%s) to something else, undoing it first.", v.old.Annotations[markNext])
	}
	return act, err
}

// look reads the cluster from the caches.
func (r *running) look() view {
	var v view
	v.old, _ = r.controllers.Get(r.opts.Namespace, r.old)
	name := r.new
	switch {
	case v.old != nil && underWay(v.old):
		name = v.old.Annotations[markNext]
	case v.old == nil && name == "":
		for _, rc := range r.controllers.List(r.opts.Namespace) {
			if sourceName(rc) == r.old {
				name = rc.Name
			}
		}
	}
	if name != "" {
		v.new, _ = r.controllers.Get(r.opts.Namespace, name)
	}
	if v.new != nil && v.old != nil && v.new.Annotations[markSource] != sourceID(v.old) && name != r.new {
		v.new = nil // it belongs to another controller; the name is left over from an update
	}
	var oldAll, newAll, newLive []*corev1.Pod
	if v.old != nil {
		v.took = v.old.Status.ObservedGeneration >= v.old.Generation
		oldAll = r.pods.ByIndex(byController, string(v.old.UID))
		v.oldLive = live(oldAll)
		byName(v.oldLive)
	}
	if v.new != nil {
		v.newTook = v.new.Status.ObservedGeneration >= v.new.Generation
		newAll = r.pods.ByIndex(byController, string(v.new.UID))
		newLive, v.held = live(newAll), int32(len(newAll))
	}
	v.available, r.due = r.availability.update(slices.Concat(v.oldLive, newLive), time.Now())
	v.oldPods, v.newPods = sideOf(v.oldLive, v.available), sideOf(newLive, v.available)
	r.measure(v)
	return v
}

// measure records progress.
func (r *running) measure(v view) {
	fill, drain := v.newPods, v.oldPods
	if r.back || r.replace {
		fill, drain = v.oldPods, v.newPods
	}
	now := counts{known: true, ready: fill.Ready, pods: fill.Pods, left: drain.Pods, held: v.held, gained: v.oldPods.Pods}
	if r.replace {
		for _, p := range v.olds() {
			if p.Old {
				now.left++
			}
		}
	}
	for _, took := range []bool{v.took, v.newTook} {
		if took {
			now.seen++
		}
	}
	b := &r.best
	if !b.known {
		*b = now
		return
	}
	if now.ready > b.ready || now.pods > b.pods || now.left < b.left || now.seen > b.seen || now.held < b.held || now.gained > b.gained {
		r.progress = time.Now()
	}
	b.ready, b.pods, b.seen, b.gained = max(b.ready, now.ready), max(b.pods, now.pods), max(b.seen, now.seen), max(b.gained, now.gained)
	b.left, b.held = min(b.left, now.left), min(b.held, now.held)
}

// wait blocks until a cache changes. It returns a *TimeoutError without progress, and a *FailedError at once if the new
// pods certainly fail.
func (r *running) wait(ctx context.Context, v view, why string) error {
	fill := v.new
	if r.back || r.replace || r.foreign {
		fill = v.old
	}
	if fill != nil {
		verdict := r.verdict(fill, v)
		// The first part of the cause counts pods, which why does as well.
		if _, cause, found := strings.Cut(verdict.Cause, "; "); found && verdict.State != await.Done {
			why += "; " + cause
		}
		if verdict.State == await.Failed && verdict.Certainty == await.Certain && !r.back && !r.foreign && (r.replace || r.made(fill)) {
			return &FailedError{Why: why}
		}
	}
	r.note(why)
	return r.pause(ctx, r.changed, why)
}

// verdict judges a controller by its pods; during a replacement, by its new pods.
func (r *running) verdict(rc *corev1.ReplicationController, v view) await.Verdict {
	pods := r.pods.ByIndex(byController, string(rc.UID))
	if r.replace {
		olds := map[string]bool{}
		for i, p := range v.olds() {
			olds[v.oldLive[i].Name] = p.Old
		}
		pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return olds[p.Name] })
	}
	verdict, err := await.Judge(await.Ready, await.View{Object: rc, Pods: pods})
	if err != nil {
		return await.Verdict{} // the verdict only explains the delay
	}
	return verdict
}

// pause blocks until c has a value or the next due time. It returns a *TimeoutError without progress.
func (r *running) pause(ctx context.Context, c <-chan struct{}, why string) error {
	if r.overdue() {
		return &TimeoutError{After: r.opts.Timeout, Why: why}
	}
	var due <-chan time.Time
	if at := r.nextDue(); !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-c:
		return nil
	case <-due:
		if r.overdue() {
			return &TimeoutError{After: r.opts.Timeout, Why: why}
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// nextDue returns the time at which the loop has to run without a change; zero for never.
func (r *running) nextDue() time.Time {
	at := r.due
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if r.opts.Timeout > 0 {
		earlier(r.progress.Add(r.opts.Timeout))
	}
	if r.held {
		earlier(r.beat.Add(renewEvery))
	}
	return at
}

func (r *running) overdue() bool {
	return r.opts.Timeout > 0 && time.Since(r.progress) >= r.opts.Timeout
}

// rest pauses, but not longer than until the holder annotation has to be renewed.
func (r *running) rest(ctx context.Context, d time.Duration) error {
	if r.held {
		d = min(d, max(0, time.Until(r.beat.Add(renewEvery))))
	}
	if !run.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// note calls Options.Progress if the reason for waiting has changed.
func (r *running) note(why string) {
	if why != r.why {
		r.why = why
		r.opts.Progress(why)
	}
}

// once prints a line, the first time.
func (r *running) once(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !r.said[line] {
		r.said[line] = true
		_, _ = fmt.Fprintln(r.opts.Out, line)
	}
}
