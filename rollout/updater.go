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

// DefaultKey is the label that tells old pods from new.
const DefaultKey = "deployment"

// Options configures an [Updater]. Client, Namespace and Old are required, and one
// of Image, New and Rollback.
type Options struct {
	Client    client.Interface // its objects must have their Go types
	Namespace string

	Old string // name of the controller to update

	// Image is what the container called Container shall run; Container may be
	// empty where there is one. NewName, if set, is the name under which the
	// new pods live in the end; otherwise they keep the old one.
	Image      string
	Container  string
	PullPolicy corev1.PullPolicy // empty leaves it as it is
	NewName    string

	// New is the new controller as a whole, instead of Image. Its name must not
	// be the old one's. Without replicas it gets as many as the old one has.
	New *corev1.ReplicationController

	// Rollback undoes the update that is under way; Promote goes on with it,
	// whatever it is to.
	Rollback bool
	Promote  bool

	// ReplacePods replaces each pod by one of the same kind, all under the same
	// controller.
	ReplacePods bool

	// Canaries is after how many new pods to stop, with as many old ones fewer; 0
	// means not to.
	Canaries int32

	// AutoRollback undoes the update when the new pods are certain to fail or
	// when the timeout is over.
	AutoRollback bool

	// Cleanup says what becomes of the old controller. Empty means to delete it
	// where there is a new name and to rename the new one otherwise.
	Cleanup Cleanup

	Surge       *intstr.IntOrString // nil means 1, but 0 with ReplacePods alone
	Unavailable *intstr.IntOrString // nil means 0, but 1 with ReplacePods alone
	MinReady    time.Duration       // how long a pod must have been ready to count; 0: being ready is enough
	Key         string              // empty means DefaultKey

	// UpdatePeriod is the pause between adding new pods and removing old ones. 0
	// means none; it is not waited for longer than the new pods need anyway.
	UpdatePeriod time.Duration

	// Timeout is how long to go on without any progress; 0 means for ever.
	Timeout time.Duration

	Out      io.Writer         // the lines that kubectl prints; nil means nowhere
	Progress func(line string) // called with why it is waiting, when that changes; may be nil
	Log      *slog.Logger      // nil means slog.Default

	// Self is how others are told who performs the update; the zero Holder is this
	// process.
	Self Holder
}

// A Cleanup is what becomes of the old controller when all pods are new.
type Cleanup string

// The clean-up policies, which are those of kubectl.
const (
	CleanupDelete   Cleanup = "delete"   // it is deleted; the new one has a name of its own
	CleanupRename   Cleanup = "rename"   // the new one takes its name
	CleanupPreserve Cleanup = "preserve" // it stays, without pods
)

// An Outcome is how an update went that did not go wrong.
type Outcome struct {
	Name     string // of the controller that has the new pods now; of the old one after a rollback
	Canaries int32  // new pods that it stopped at; 0: it is complete
	Desired  int32  // with Canaries: how many there are to be in the end

	// Unchanged says that there was nothing to do: the controller is as it was asked for.
	Unchanged bool

	// Deleted is the new controller that a rollback has deleted with its pods, because the
	// old one is gone and there is nothing to go back to. Name is empty then.
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
	_, err := LimitsOf(1, *o.Surge, *o.Unavailable)
	return o, err
}

// checkWay checks what is to be done, and what goes with it.
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
		return fmt.Errorf("the new controller must have a name, another one than %q", o.Old)
	case o.NewName == o.Old:
		return fmt.Errorf("the new name is the old one, %q; leave it out to keep it", o.Old)
	case o.NewName != "" && o.ReplacePods:
		return errors.New("pods that are replaced by the same stay with their controller: it needs no new name")
	case o.New != nil && o.New.Spec.Template == nil:
		return fmt.Errorf("the new controller %q has no pod template", o.New.Name)
	case o.PullPolicy != "" && o.PullPolicy != corev1.PullAlways && o.PullPolicy != corev1.PullIfNotPresent && o.PullPolicy != corev1.PullNever:
		return fmt.Errorf("image pull policy %q: want Always, IfNotPresent or Never", o.PullPolicy)
	case o.PullPolicy != "" && o.Image == "", o.Container != "" && o.Image == "":
		return errors.New("a container or an image pull policy is only of use with an image")
	case o.Canaries < 0:
		return fmt.Errorf("canaries %d: want 0 or more", o.Canaries)
	case o.Canaries > 0 && !forward:
		return errors.New("canaries are only of use with an image or a new controller")
	case o.AutoRollback && !forward && !o.Promote:
		return errors.New("only an update to something new can be rolled back by itself")
	}
	switch o.Cleanup {
	case "":
	case CleanupRename:
		if named {
			return errors.New("clean-up rename gives the new pods the old name: leave the new one out")
		}
	case CleanupDelete, CleanupPreserve:
		if !named {
			return fmt.Errorf("clean-up %s leaves the new controller the name that it has: say a new name", o.Cleanup)
		}
	default:
		return fmt.Errorf("clean-up %q: want delete, rename or preserve", o.Cleanup)
	}
	if o.Cleanup != "" && !forward {
		return errors.New("the clean-up is chosen with an image or a new controller")
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

// A TimeoutError says that an update made no progress for too long. Running it
// again resumes it.
type TimeoutError struct {
	After time.Duration
	Why   string // what it was waiting for
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("no progress for %v: %s", e.After, e.Why)
}

// A FailedError says that the new pods are certain not to become ready.
type FailedError struct{ Why string }

func (e *FailedError) Error() string { return "the new pods cannot become ready: " + e.Why }

// A RolledBackError says that an update failed and has been undone by itself, as
// Options.AutoRollback asks.
type RolledBackError struct {
	Name  string // of the controller
	Cause error  // why; a *TimeoutError, a *FailedError, or what an earlier run wrote of one
}

func (e *RolledBackError) Error() string {
	return fmt.Sprintf("the update of replicationcontroller %q was rolled back: %v", e.Name, e.Cause)
}

// Unwrap returns the cause.
func (e *RolledBackError) Unwrap() error { return e.Cause }

// A DoneError says that what is asked for, to undo an update or to go on with it, has been
// done already: the answer to whoever asked before was lost, perhaps.
type DoneError struct {
	Name string // of the controller that is there now
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
	Pods, Desired int32 // of the new one: how many there are, and how many there are to be
}

func (e *OrphanedError) Error() string {
	return fmt.Sprintf("replicationcontroller %q was deleted in the middle of its update, which has made %d of %d pods of replicationcontroller %q",
		e.Old, e.Pods, e.Desired, e.New)
}

// Target returns the controller that the update is to make, as it will be named
// on the way, without changing anything on the server.
func (u *Updater) Target(ctx context.Context) (*corev1.ReplicationController, error) {
	old, err := client.ReplicationControllers.Get(ctx, u.opts.Client, u.opts.Namespace, u.opts.Old)
	if err != nil {
		return nil, err
	}
	g, err := u.goalFor(old)
	if err != nil {
		return nil, err
	}
	if u.opts.Rollback || u.opts.ReplacePods {
		return old.DeepCopy(), nil
	}
	if u.opts.Promote {
		return client.ReplicationControllers.Get(ctx, u.opts.Client, u.opts.Namespace, g.new)
	}
	desired := replicas(old)
	if n, found := marked(old, markOriginal); found {
		desired = n
	}
	return u.newController(g, old, desired), nil
}

// goalFor works out what the update wants, given the old controller; nil when
// that is gone already.
func (u *Updater) goalFor(old *corev1.ReplicationController) (goal, error) {
	o := u.opts
	g := goal{
		old: o.Old, new: o.NewName, cleanup: o.Cleanup, back: o.Rollback, promote: o.Promote, replace: o.ReplacePods,
		canaries: o.Canaries, key: o.Key, surge: *o.Surge, unavailable: *o.Unavailable,
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
			g.key = "" // they don't need a label to be told apart
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
			return g, fmt.Errorf("the name %q is too long to be updated in place: say another name to update to", o.Old)
		}
	}
	return g, nil
}

// promoted completes the goal of going on with what is under way.
func (g goal) promoted(old *corev1.ReplicationController) (goal, error) {
	switch {
	case old == nil:
		g.cleanup = CleanupDelete // that was the last thing but one
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
		return fmt.Errorf("replicationcontroller %q has several containers (%s): say with --container which one gets the image", u.opts.Old, strings.Join(names, ", "))
	case at < 0:
		return fmt.Errorf("replicationcontroller %q has no container %q: it has %s", u.opts.Old, u.opts.Container, strings.Join(names, ", "))
	}
	containers[at].Image = u.opts.Image
	if u.opts.PullPolicy != "" {
		containers[at].ImagePullPolicy = u.opts.PullPolicy
	}
	return nil
}

// newController returns the new controller as it is created: empty.
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
