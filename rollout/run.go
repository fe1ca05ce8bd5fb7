package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// Run performs the update, or goes on with it, and returns when it is complete.
// It makes one call at a time and waits on watches in between. A *TimeoutError, a
// *FailedError, the end of ctx and errors of the server leave the update where it
// is, to be resumed by running it again or undone with Options.Rollback.
func (u *Updater) Run(ctx context.Context) error {
	// The first look is a plain request, because it tells at once what is wrong.
	old, err := client.ReplicationControllers.Get(ctx, u.opts.Client, u.opts.Namespace, u.opts.Old)
	if apierrors.IsNotFound(err) && (u.opts.New != nil || u.opts.NewName != "") {
		old, err = nil, nil // maybe the last thing that was done is its deletion
	}
	if err != nil {
		return err
	}
	g, err := u.goalFor(old)
	if err != nil {
		return err
	}
	r := &running{Updater: u, goal: g, said: map[string]bool{}, changed: make(chan struct{}, 1), progress: time.Now()}
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
	for _, ready := range []<-chan struct{}{r.controllers.Ready(), r.pods.Ready()} {
		if err := r.pause(ctx, ready, "the first look at the controllers and pods"); err != nil {
			return err
		}
	}
	return r.loop(ctx)
}

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

	said     map[string]bool // lines that are said once
	why      string          // what was told last of waiting
	progress time.Time       // of the last step forward
	up       time.Time       // of the last scaling up
	seen     string          // what the pods were like at the last look
}

// loop does what is next until nothing is.
func (r *running) loop(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v := r.look()
		act, err := next(r.goal, v)
		if err == nil && act.kind == replaceForeign {
			act, err = r.undoForeign(v)
		}
		if err != nil {
			return err
		}
		if rest := time.Until(r.up.Add(r.opts.UpdatePeriod)); rest > 0 && r.shrinks(act) {
			if err := r.rest(ctx, rest); err != nil {
				return err
			}
			r.progress = time.Now() // nothing was due meanwhile
			continue
		}
		if act.kind == finished {
			return nil
		}
		if act.kind == wait {
			if err := r.wait(ctx, v, act.why); err != nil {
				return err
			}
			continue
		}
		r.intro(v, act)
		err = r.do(ctx, v, act)
		switch {
		case err == nil && act.kind == forgetNew:
			return nil // with the old controller gone, that was the last trace
		case err == nil:
			r.progress = time.Now()
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			// Somebody was faster, its own controller with a status mostly; the
			// caches will show it.
			if err := r.pause(ctx, r.changed, err.Error()); err != nil {
				return err
			}
		case errors.As(err, new(*client.UnreachableError)):
			r.note("lost the server, trying again: " + err.Error())
			if err := r.rest(ctx, lostPause); err != nil {
				return err
			}
			if r.overdue() {
				return err
			}
		default:
			return err
		}
	}
}

// lostPause is between tries to reach a server that is away.
const lostPause = time.Second

// shrinks reports whether an action takes pods away, which is what the update
// period holds back.
func (r *running) shrinks(act action) bool {
	return act.kind == scaleOld && !r.back || act.kind == scaleNew && r.back
}

// undoForeign says what is next to get rid of another update, one that failed
// perhaps.
func (r *running) undoForeign(v view) (action, error) {
	r.once("Found existing update in progress (%s) to something else, undoing it first.", v.old.Annotations[markNext])
	g := r.goal
	g.back = true
	return next(g, v)
}

// look reads the cluster from the caches.
func (r *running) look() view {
	var v view
	v.old, _ = r.controllers.Get(r.opts.Namespace, r.old)
	name := r.new
	if v.old != nil {
		v.took = v.old.Status.ObservedGeneration >= v.old.Generation
		v.oldPods, _ = r.count(v.old)
		if underWay(v.old) {
			name = v.old.Annotations[markNext]
		}
	}
	if name != "" {
		v.new, _ = r.controllers.Get(r.opts.Namespace, name)
	}
	if v.new != nil {
		v.newPods, v.held = r.count(v.new)
	}
	if now := fmt.Sprintf("%+v %+v %d", v.oldPods, v.newPods, v.held); now != r.seen {
		r.seen, r.progress = now, time.Now()
	}
	return v
}

// count counts the pods of a controller; all are those that are of any use to
// nobody, too.
func (r *running) count(rc *corev1.ReplicationController) (s Side, all int32) {
	for _, p := range r.pods.ByIndex(byController, string(rc.UID)) {
		all++
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		s.Pods++
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				s.Ready++
			}
		}
	}
	return s, all
}

// wait blocks until a cache has news. It gives up when that does not bring the
// update on, and at once when the new pods are certain to fail.
func (r *running) wait(ctx context.Context, v view, why string) error {
	fill := v.new
	if r.back {
		fill = v.old
	}
	if fill != nil {
		verdict := r.verdict(fill)
		// Its first part counts pods, as why does.
		if _, cause, found := strings.Cut(verdict.Cause, "; "); found && verdict.State != await.Done {
			why += "; " + cause
		}
		if verdict.State == await.Failed && verdict.Certainty == await.Certain && !r.back && r.made(fill) {
			return &FailedError{Why: why}
		}
	}
	r.note(why)
	return r.pause(ctx, r.changed, why)
}

func (r *running) verdict(rc *corev1.ReplicationController) await.Verdict {
	verdict, err := await.Judge(await.Ready, await.View{Object: rc, Pods: r.pods.ByIndex(byController, string(rc.UID))})
	if err != nil {
		return await.Verdict{} // it only explains
	}
	return verdict
}

// pause blocks until c says so, or too long has passed without progress.
func (r *running) pause(ctx context.Context, c <-chan struct{}, why string) error {
	var late <-chan time.Time
	if r.opts.Timeout > 0 {
		t := time.NewTimer(time.Until(r.progress.Add(r.opts.Timeout)))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-c:
		return nil
	case <-late:
		return &TimeoutError{After: r.opts.Timeout, Why: why}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *running) overdue() bool {
	return r.opts.Timeout > 0 && time.Since(r.progress) >= r.opts.Timeout
}

// rest lets time pass.
func (r *running) rest(ctx context.Context, d time.Duration) error {
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
