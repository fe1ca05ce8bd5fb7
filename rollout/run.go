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

// Run performs the update, or goes on with it, and returns when it is complete or,
// with Options.Canaries, when those are ready. It makes one call at a time and waits
// on watches in between. A *TimeoutError, a *FailedError, a *BusyError, the end of
// ctx and errors of the server leave the update where it is, to be resumed by
// running it again or undone with Options.Rollback; so does an *OrphanedError, which is
// returned if another client has deleted the old controller. A *RolledBackError says that
// it has been undone, as Options.AutoRollback asks; a *DoneError says that there was
// nothing left to do.
func (u *Updater) Run(ctx context.Context) (Outcome, error) {
	// The first look is a plain request, because it tells at once what is wrong.
	old, err := client.ReplicationControllers.Get(ctx, u.opts.Client, u.opts.Namespace, u.opts.Old)
	var left *corev1.ReplicationController
	if apierrors.IsNotFound(err) && !u.opts.ReplacePods {
		left, err = u.leftBehind(ctx, err) // by an update that has deleted the old one, or lost it
		old = nil
	}
	if err != nil {
		return Outcome{}, err
	}
	g, err := u.goalFor(old)
	if err == nil && left != nil {
		g, err = u.finishAlone(g, left)
	}
	if err != nil {
		return Outcome{}, err
	}
	r := &running{
		Updater: u, goal: g, self: u.opts.Self.begun(), said: map[string]bool{}, changed: make(chan struct{}, 1),
		progress: time.Now(), patience: patience{least: u.opts.MinReady},
	}
	wake := func() {
		select {
		case r.changed <- struct{}{}:
		default: // a look is due already
		}
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

// leftBehind returns the new controller of an update whose old controller is gone: it was
// deleted at the end of the update, or by another client during the update. It returns gone if there is none,
// and a *DoneError if the update was to be promoted and is complete.
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

// finishAlone makes it the goal to finish an update without the old controller, or to undo it.
func (u *Updater) finishAlone(g goal, left *corev1.ReplicationController) (goal, error) {
	g.alone, g.new, g.cleanup = true, left.Name, CleanupDelete
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

// firstLook waits until a cache knows what there is. One that takes its time may
// not be allowed to look, which a plain request tells.
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
		if err := r.pause(ctx, ready, "the first look at the controllers and pods"); err != nil {
			return err
		}
		select {
		case <-ready:
			return nil
		default: // some other reason to wake
		}
	}
}

// lookPatience is how long a list of everything usually takes at most.
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
	changed     chan struct{} // holds a token when a cache has news

	self       Holder
	held       bool      // the controller says that this run is at it
	beat       time.Time // when that was written last
	rival      *Holder   // who else said so
	rivalSince time.Time // since when he has given no sign of life

	patience patience
	due      time.Time // when the next pod will have been ready for long enough; zero: not by itself

	said      map[string]bool // lines that are said once
	why       string          // what was told last of waiting
	acted     bool            // an action was begun
	tried     bool            // the server would not refuse the calls of the update
	undone    string          // which controller a rollback has deleted, as NAME:UID
	cause     error           // why it goes back by itself; nil if it doesn't
	closing   bool            // the last write of all has been tried, after which there is nothing to tell by
	progress  time.Time       // of the last step forward
	lostRaces int             // writes in a row that somebody else was faster than
	best      standing        // since the last action
	up        time.Time       // of the last scaling up
}

// A standing is how far the pods are. Only what was never reached since the last
// action counts as progress: pods that come and go again and again are none.
type standing struct {
	known        bool
	ready, pods  int32 // of what is filled
	left, seen   int32 // of what is emptied, and controllers that have seen their latest spec
	held, gained int32 // of a release, and of what takes the pods over
}

// loop does what is next until nothing is.
func (r *running) loop(ctx context.Context) (Outcome, error) {
	for {
		if ctx.Err() != nil {
			return Outcome{}, context.Cause(ctx)
		}
		v := r.look()
		if v.old == nil {
			r.held = false // there is nothing to say it on
		}
		if r.closing && r.closed(v) {
			return r.outcome(v), nil
		}
		if r.opts.AutoRollback && !r.back && v.old != nil && v.old.Annotations[markBack] != "" {
			r.turn(errors.New(v.old.Annotations[markBack])) // an earlier run had to
		}
		act, err := next(r.goal, v)
		begins := act.kind == announce || act.kind == replaceForeign
		if err == nil && act.kind == replaceForeign {
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
			if !r.held && (underWay(v.old) || replacing(v.old)) || r.held && r.idle(act) && time.Since(r.beat) >= renewEvery {
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
		if r.idle(act) && act.kind != wait {
			r.note(fmt.Sprintf("the update period of %v between adding new pods and removing old ones", r.opts.UpdatePeriod))
			if err := r.rest(ctx, time.Until(r.up.Add(r.opts.UpdatePeriod))); err != nil {
				return Outcome{}, err
			}
			r.progress = time.Now() // nothing was due meanwhile
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

// idle reports whether nothing is written for now: an action has to wait, or the
// update period is not over.
func (r *running) idle(act action) bool {
	return act.kind == wait || r.shrinks(act) && time.Now().Before(r.up.Add(r.opts.UpdatePeriod))
}

// closed reports whether the last write of all, which was tried, has been done.
func (r *running) closed(v view) bool {
	switch {
	case r.replace:
		return v.old == nil || !replacing(v.old)
	case v.old != nil:
		return !underWay(v.old)
	}
	return v.new == nil || sourceName(v.new) != r.old
}

// blind returns why the server cannot be seen, if it cannot, instead of late: then
// nobody knows what there was to wait for.
func (r *running) blind(ctx context.Context, late error) error {
	_, err := client.ReplicationControllers.Get(ctx, r.opts.Client, r.opts.Namespace, r.old)
	if err != nil && transient(err) {
		return err
	}
	return late
}

// settle decides what the answer to a write means: go on (nil) or give up.
func (r *running) settle(ctx context.Context, err error, forward bool) error {
	switch {
	case err == nil && forward:
		r.progress, r.best, r.lostRaces = time.Now(), standing{}, 0
		return nil
	case err == nil:
		r.lostRaces = 0
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		// Somebody was faster, its own controller with a status mostly; the
		// caches will show it, or have already.
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

// fewRaces is how many lost races in a row are nothing to wonder about.
const fewRaces = 5

// lostPause is between tries to reach a server that is away.
const lostPause = time.Second

// transient reports whether the same request may well succeed later.
func transient(err error) bool {
	return errors.As(err, new(*client.UnreachableError)) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// finish says how it ended when nothing is left to do.
func (r *running) finish(v view) (Outcome, error) {
	if r.cause != nil {
		return Outcome{}, &RolledBackError{Name: r.old, Cause: r.cause}
	}
	return r.outcome(v), nil
}

func (r *running) outcome(v view) Outcome {
	if r.alone && r.back {
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

// pauseAtCanaries stops, for people to look at the new pods.
func (r *running) pauseAtCanaries(ctx context.Context, v view) Outcome {
	desired, _ := marked(v.new, markDesired) // next has checked that it is there
	out := Outcome{Name: v.new.Name, Canaries: replicas(v.new), Desired: desired}
	if r.held {
		r.letGo(ctx, func(rc *corev1.ReplicationController) { markNumber(rc, markCanary, out.Canaries) })
	}
	return out
}

// undoable reports whether the update is to be undone by itself if it fails here.
func (r *running) undoable(v view) bool {
	return r.opts.AutoRollback && !r.back && v.old != nil && v.old.Annotations[markNext] == r.new && !closing(v.old) &&
		(v.new == nil || r.made(v.new) && !released(v.new))
}

// turnBack writes that the update is to be undone, and begins to.
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

// shrinks reports whether an action takes pods away, which is what the update
// period holds back.
func (r *running) shrinks(act action) bool {
	return act.kind == deletePod || !r.replace && (act.kind == scaleOld && !r.back || act.kind == scaleNew && r.back)
}

// undoForeign says what is next to get rid of another update, one that failed
// perhaps.
func (r *running) undoForeign(v view) (action, error) {
	if r.tried { // otherwise the server may refuse the update, and nothing is undone
		r.once("Found existing update in progress (%s) to something else, undoing it first.", v.old.Annotations[markNext])
	}
	g := r.goal
	g.back = true
	return next(g, v)
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
		v.new = nil // a stranger's, who has a name that an update left behind
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
	v.available, r.due = r.patience.look(slices.Concat(v.oldLive, newLive), time.Now())
	v.oldPods, v.newPods = sideOf(v.oldLive, v.available), sideOf(newLive, v.available)
	r.measure(v)
	return v
}

// measure notes progress.
func (r *running) measure(v view) {
	fill, drain := v.newPods, v.oldPods
	if r.back || r.replace {
		fill, drain = v.oldPods, v.newPods
	}
	now := standing{known: true, ready: fill.Ready, pods: fill.Pods, left: drain.Pods, held: v.held, gained: v.oldPods.Pods}
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

// wait blocks until a cache has news. It gives up when that does not bring the
// update on, and at once when the new pods are certain to fail.
func (r *running) wait(ctx context.Context, v view, why string) error {
	fill := v.new
	if r.back || r.replace {
		fill = v.old
	}
	if fill != nil {
		verdict := r.verdict(fill, v)
		// Its first part counts pods, as why does.
		if _, cause, found := strings.Cut(verdict.Cause, "; "); found && verdict.State != await.Done {
			why += "; " + cause
		}
		if verdict.State == await.Failed && verdict.Certainty == await.Certain && !r.back && (r.replace || r.made(fill)) {
			return &FailedError{Why: why}
		}
	}
	r.note(why)
	return r.pause(ctx, r.changed, why)
}

// verdict judges a controller by its pods; where they are replaced, by the new ones.
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
		return await.Verdict{} // it only explains
	}
	return verdict
}

// pause blocks until c says so or something is due, or too long has passed without
// progress.
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

// nextDue returns when to look without being told to; zero is never.
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

// rest lets time pass, but not so long that others take it for death.
func (r *running) rest(ctx context.Context, d time.Duration) error {
	if r.held {
		d = min(d, max(0, time.Until(r.beat.Add(renewEvery))))
	}
	if !run.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// note tells why nothing happens, if that is news.
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
