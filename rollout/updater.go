package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sampan-io/sampan/client"
)

// DefaultKey is the default of Options.Key.
const DefaultKey = "deployment"

// Options configures an [Updater]. Client, Namespace and Old are required, and exactly one
// of Image, New, Rollback, Promote and ReplacePods.
type Options struct {
	Client    client.Interface // it must return Go types
	Namespace string

	Old string // name of the controller to update

	// Image is the new image of the container with the name Container, which may be
	// empty if there is only one. NewName, if set, is the name of the new controller;
	// otherwise it gets the old name in the end.
	Image      string
	Container  string
	PullPolicy corev1.PullPolicy // empty leaves it as it is
	NewName    string

	// New is the complete new controller, instead of Image. Its name must differ
	// from Old. Without replicas it gets as many as the old one has.
	New *corev1.ReplicationController

	// Rollback undoes the update that is under way; Promote continues it,
	// whatever its image.
	Rollback bool
	Promote  bool

	// ReplacePods replaces each pod by one with the same template, under the same
	// controller.
	ReplacePods bool

	// Canaries is the number of new pods at which the update stops, with as many fewer old
	// pods; 0 means that it does not stop.
	Canaries int32

	// AutoRollback undoes the update when the new pods certainly fail or when
	// it times out.
	AutoRollback bool

	// Cleanup is the fate of the old controller. Empty means CleanupDelete if
	// there is a new name, otherwise CleanupRename.
	Cleanup Cleanup

	Surge       *intstr.IntOrString // nil means 1; with ReplacePods and without Unavailable it means 0
	Unavailable *intstr.IntOrString // nil means 0; with ReplacePods and without Surge it means 1
	MinReady    time.Duration       // how long a pod must have been ready to count
	Key         string              // the label that distinguishes old pods from new ones; empty means DefaultKey

	// UpdatePeriod is the shortest time between adding new pods and removing old ones. 0
	// means none. The time in which new pods become ready counts.
	UpdatePeriod time.Duration

	// Timeout is how long the update may go on without progress; 0 means without limit.
	Timeout time.Duration

	Out      io.Writer         // gets the lines that kubectl prints; nil discards them
	Progress func(line string) // called with the reason why it waits, when that changes; may be nil
	Log      *slog.Logger      // nil means slog.Default

	// Self identifies this run to other clients; the zero Holder means this
	// process.
	Self Holder
}

// A Cleanup is the fate of the old controller when all pods are new.
type Cleanup string

// The clean-up policies, which are those of kubectl.
const (
	CleanupDelete   Cleanup = "delete"   // it is deleted; the new one keeps its name
	CleanupRename   Cleanup = "rename"   // the new one gets its name
	CleanupPreserve Cleanup = "preserve" // it is kept, without pods
)

// An Outcome is the result of an update without an error.
type Outcome struct {
	Name     string // of the controller that has the new pods; of the old one after a rollback
	Canaries int32  // the number of new pods at which it stopped; 0 if it is complete
	Desired  int32  // with Canaries, the final number of new pods

	// Unchanged says that there was nothing to do.
	Unchanged bool

	// Deleted is the new controller that a rollback has deleted with its pods, because the
	// old one does not exist any more. Name is empty then.
	Deleted string
}

func (o Options) check() (Options, error) {
	if o.Client == nil {
		return o, errors.New("rollout: Options.Client is nil")
	}
	if o.Old == "" || o.Namespace == "" {
		return o, errors.New("rollout: Options.Old or Options.Namespace is empty")
	}
	if err := o.checkWay(); err != nil {
		return o, err
	}
	if o.Timeout < 0 || o.UpdatePeriod < 0 || o.MinReady < 0 {
		return o, errors.New("timeout, update period and the time that a pod must be ready must not be negative")
	}
	if o.Timeout > 0 && o.Timeout <= o.MinReady {
		return o, fmt.Errorf("the timeout (%v) must be longer than pods must be ready to count (%v)", o.Timeout, o.MinReady)
	}
	if o.Key == "" {
		o.Key = DefaultKey
	}
	if errs := validation.IsQualifiedName(o.Key); len(errs) > 0 {
		return o, fmt.Errorf("label key %q: %s", o.Key, strings.Join(errs, "; "))
	}
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	if o.ReplacePods && o.Surge == nil && o.Unavailable == nil {
		o.Surge, o.Unavailable = &none, &one
	}
	if o.Surge == nil {
		o.Surge = &one
	}
	if o.Unavailable == nil {
		o.Unavailable = &none
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Self == (Holder{}) {
		o.Self = thisProcess()
	}
	return o, checkLimits(o.Surge, o.Unavailable)
}

// checkLimits checks that both are numbers or percentages, and not both 0.
func checkLimits(surge, unavailable *intstr.IntOrString) error {
	sum := 0
	for i, v := range []*intstr.IntOrString{surge, unavailable} {
		name := [...]string{"surge", "unavailable"}[i]
		n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
		if err != nil {
			return fmt.Errorf("%s %q: want a number or a percentage", name, v.String())
		}
		if n < 0 || n > 1<<30 {
			return fmt.Errorf("%s %s: want 0 or more", name, v.String())
		}
		sum += n
	}
	if sum == 0 {
		return errors.New("one of surge and unavailable must be more than 0, or no pod could ever be replaced")
	}
	return nil
}

// checkWay checks that exactly one kind of update is chosen, with options that belong to it.
func (o Options) checkWay() error {
	ways := 0
	for _, chosen := range []bool{o.Image != "", o.New != nil, o.Rollback, o.Promote, o.ReplacePods} {
		if chosen {
			ways++
		}
	}
	forward := o.Image != "" || o.New != nil
	named := o.New != nil || o.NewName != ""
	switch {
	case ways != 1:
		return errors.New("Options must have one of Image, New, Rollback, Promote and ReplacePods")
	case o.New != nil && (o.New.Name == "" || o.New.Name == o.Old):
		return fmt.Errorf("the new controller must have a name that differs from %q", o.Old)
	case o.NewName == o.Old:
		return fmt.Errorf("the new name is the old one, %q; leave it out to keep it", o.Old)
	case o.NewName != "" && o.ReplacePods:
		return errors.New("replaced pods stay with their controller: leave the new name out")
	case o.New != nil && o.New.Spec.Template == nil:
		return fmt.Errorf("the new controller %q has no pod template", o.New.Name)
	case o.PullPolicy != "" && o.PullPolicy != corev1.PullAlways && o.PullPolicy != corev1.PullIfNotPresent && o.PullPolicy != corev1.PullNever:
		return fmt.Errorf("image pull policy %q: want Always, IfNotPresent or Never", o.PullPolicy)
	case o.PullPolicy != "" && o.Image == "", o.Container != "" && o.Image == "":
		return errors.New("a container or an image pull policy needs an image")
	case o.Canaries < 0:
		return fmt.Errorf("canaries %d: want 0 or more", o.Canaries)
	case o.Canaries > 0 && !forward:
		return errors.New("canaries need an image or a new controller")
	case o.AutoRollback && !forward && !o.Promote:
		return errors.New("automatic rollback needs an image, a new controller or a promotion")
	}
	switch o.Cleanup {
	case "":
	case CleanupRename:
		if named {
			return errors.New("clean-up rename gives the new controller the old name: leave the new name out")
		}
	case CleanupDelete, CleanupPreserve:
		if !named {
			return fmt.Errorf("clean-up %s needs a name for the new controller: pass a new name", o.Cleanup)
		}
	default:
		return fmt.Errorf("clean-up %q: want delete, rename or preserve", o.Cleanup)
	}
	if o.Cleanup != "" && !forward {
		return errors.New("a clean-up policy needs an image or a new controller")
	}
	return nil
}

// An Updater performs one rolling update.
type Updater struct{ opts Options }

// New returns an updater that has not started; call [Updater.Run].
func New(opts Options) (*Updater, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	return &Updater{opts}, nil
}

// A TimeoutError reports that an update made no progress for Options.Timeout. Running it
// again resumes it.
type TimeoutError struct {
	After time.Duration
	Why   string // the reason that the update was waiting
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("no progress for %v: %s", e.After, e.Why)
}

// A FailedError reports that the new pods will certainly not become ready.
type FailedError struct{ Why string }

func (e *FailedError) Error() string { return "the new pods cannot become ready: " + e.Why }

// A RolledBackError reports that an update failed and was undone, because Options.AutoRollback
// is set.
type RolledBackError struct {
	Name  string // of the controller
	Cause error  // a *TimeoutError, a *FailedError, or the text of one from an earlier run
}

func (e *RolledBackError) Error() string {
	return fmt.Sprintf("the update of replicationcontroller %q was rolled back: %v", e.Name, e.Cause)
}

// Unwrap returns the cause.
func (e *RolledBackError) Unwrap() error { return e.Cause }

// A DoneError reports that a rollback or a promotion has been done already, perhaps by a run whose last response was
// lost.
type DoneError struct {
	Name string // of the controller that exists now
	What string // "rolled back" or "updated"
}

func (e *DoneError) Error() string {
	return fmt.Sprintf("replicationcontroller %q has been %s already", e.Name, e.What)
}

// An OrphanedError reports that another client deleted the old controller during its
// update. Running that again finishes it, under the name of the new controller;
// Options.Rollback deletes the new controller.
type OrphanedError struct {
	Old, New      string
	Pods, Desired int32 // existing and desired pods of the new controller
}

func (e *OrphanedError) Error() string {
	return fmt.Sprintf("replicationcontroller %q was deleted in the middle of its update, which has made %d of %d pods of replicationcontroller %q",
		e.Old, e.Pods, e.Desired, e.New)
}

// Target returns the new controller of the update, with its temporary name, or the error with which [Updater.Run] would
// refuse to begin. undoes is the name of the new controller of another update that Run would undo first; empty if there
// is none. Target changes nothing on the server.
func (u *Updater) Target(ctx context.Context) (target *corev1.ReplicationController, undoes string, err error) {
	old, err := client.ReplicationControllers.Get(ctx, u.opts.Client, u.opts.Namespace, u.opts.Old)
	if err != nil {
		return nil, "", err
	}
	g, err := u.goalFor(old)
	if err != nil {
		return nil, "", err
	}
	v, named, err := u.glance(ctx, g, old)
	if err != nil {
		return nil, "", err
	}
	g = g.resumed(v)
	if err := g.refusal(v, named); err != nil {
		return nil, "", err
	}
	if act, err := next(g, v); err == nil && act.kind == replaceForeign {
		undoes = v.old.Annotations[markNext]
	}
	if u.opts.Rollback || u.opts.ReplacePods {
		return old.DeepCopy(), undoes, nil
	}
	if u.opts.Promote {
		return v.new.DeepCopy(), undoes, nil // refusal has checked that it is there
	}
	desired := replicas(old)
	if n, found := marked(old, markOriginal); found {
		desired = n
	}
	return u.newController(g, old, desired), undoes, nil
}

// goalFor returns the goal of the update. old is nil if the old controller does not exist any more.
func (u *Updater) goalFor(old *corev1.ReplicationController) (goal, error) {
	o := u.opts
	g := goal{
		old: o.Old, new: o.NewName, cleanup: o.Cleanup, back: o.Rollback, promote: o.Promote, replace: o.ReplacePods,
		canaries: o.Canaries, key: o.Key, surge: o.Surge, unavailable: o.Unavailable,
	}
	if g.cleanup == "" {
		g.cleanup = CleanupRename
		if o.New != nil || o.NewName != "" {
			g.cleanup = CleanupDelete
		}
	}
	switch {
	case o.ReplacePods:
		return g, nil
	case o.Rollback:
		g.cleanup = CleanupDelete
		if old != nil && !underWay(old) && !replacing(old) {
			if old.Annotations[markLast] == lastBack+o.Old {
				return g, &DoneError{Name: o.Old, What: "rolled back"}
			}
			return g, fmt.Errorf("no update of replicationcontroller %q is under way: there is nothing to roll back", o.Old)
		}
		return g, nil
	case o.Promote:
		return g.promoted(old)
	case o.New != nil:
		g.new = o.New.Name
		g.spec = *o.New.Spec.DeepCopy()
		if old != nil && apart(selector(old.Spec), selector(g.spec)) {
			g.key = "" // their selectors distinguish the pods
		}
	case old == nil:
		return g, nil
	default:
		g.spec = *old.Spec.DeepCopy()
		if err := u.setImage(&g.spec); err != nil {
			return g, err
		}
	}
	var err error
	if g.hash, err = hash(g.spec, g.key); err != nil {
		return g, err
	}
	g.value = g.hash
	if old != nil {
		g.value = otherThan(g.hash, old.Spec.Selector[g.key], "-next")
	}
	if g.rename() {
		g.new = o.Old + "-" + g.hash
		if len(g.new) > validation.DNS1123SubdomainMaxLength {
			return g, fmt.Errorf("the name %q is too long to be updated in place: pass a new name", o.Old)
		}
	}
	return g, nil
}

// promoted completes the goal of continuing the update that is under way.
func (g goal) promoted(old *corev1.ReplicationController) (goal, error) {
	switch {
	case old == nil:
		g.cleanup = CleanupDelete // the update has deleted it; only annotations are left
		return g, nil
	case !underWay(old) && old.Annotations[markLast] == lastComplete+g.old:
		return g, &DoneError{Name: g.old, What: "updated"}
	case !underWay(old):
		return g, fmt.Errorf("no update of replicationcontroller %q is under way: there is nothing to promote", g.old)
	case g.new != "" && g.new != old.Annotations[markNext]:
		return g, fmt.Errorf("the update of replicationcontroller %q that is under way is to %q, not to %q", g.old, old.Annotations[markNext], g.new)
	}
	g.new = old.Annotations[markNext]
	if noted := Cleanup(old.Annotations[markCleanup]); noted != "" {
		g.cleanup = noted
	}
	return g, nil
}

func (u *Updater) setImage(spec *corev1.ReplicationControllerSpec) error {
	if spec.Template == nil || len(spec.Template.Spec.Containers) == 0 {
		return fmt.Errorf("replicationcontroller %q has no containers", u.opts.Old)
	}
	containers := spec.Template.Spec.Containers
	var names []string
	for _, c := range containers {
		names = append(names, c.Name)
	}
	at := slices.Index(names, u.opts.Container)
	switch {
	case u.opts.Container == "" && len(containers) == 1:
		at = 0
	case u.opts.Container == "":
		return fmt.Errorf("replicationcontroller %q has several containers (%s): choose one with --container", u.opts.Old, strings.Join(names, ", "))
	case at < 0:
		return fmt.Errorf("replicationcontroller %q has no container %q: it has %s", u.opts.Old, u.opts.Container, strings.Join(names, ", "))
	}
	containers[at].Image = u.opts.Image
	if u.opts.PullPolicy != "" {
		containers[at].ImagePullPolicy = u.opts.PullPolicy
	}
	return nil
}

// newController returns the new controller to create, with 0 replicas.
func (u *Updater) newController(g goal, old *corev1.ReplicationController, desired int32) *corev1.ReplicationController {
	rc := &corev1.ReplicationController{Spec: *g.spec.DeepCopy()}
	if u.opts.New != nil {
		rc.ObjectMeta = *u.opts.New.ObjectMeta.DeepCopy()
		if u.opts.New.Spec.Replicas != nil {
			desired = *u.opts.New.Spec.Replicas
		}
	} else {
		rc.Labels = with(old.Labels, g.key, g.value)
	}
	rc.Name, rc.Namespace, rc.ResourceVersion, rc.UID = g.new, u.opts.Namespace, "", ""
	rc.Spec.Selector = without(selector(rc.Spec), labelReleased)
	rc.Spec.Template.Labels = without(rc.Spec.Template.Labels, labelReleased)
	if g.key != "" {
		rc.Spec.Selector = with(rc.Spec.Selector, g.key, g.value)
		rc.Spec.Template.Labels = with(rc.Spec.Template.Labels, g.key, g.value)
	}
	none := int32(0)
	rc.Spec.Replicas = &none
	mark(rc, markSource, sourceID(old))
	mark(rc, markHash, g.hash)
	markNumber(rc, markDesired, desired)
	markNumber(rc, markWritten, 0)
	return rc
}
