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
	// be the old one's.
	New *corev1.ReplicationController

	// Rollback undoes the update that is under way.
	Rollback bool

	Surge       *intstr.IntOrString // nil means 1
	Unavailable *intstr.IntOrString // nil means 0
	Key         string              // empty means DefaultKey

	// UpdatePeriod is the pause between adding new pods and removing old ones. 0
	// means none; it is not waited for longer than the new pods need anyway.
	UpdatePeriod time.Duration

	// Timeout is how long to go on without any progress; 0 means for ever.
	Timeout time.Duration

	Out      io.Writer         // the lines that kubectl prints; nil means nowhere
	Progress func(line string) // called with why it is waiting, when that changes; may be nil
	Log      *slog.Logger      // nil means slog.Default
}

func (o Options) check() (Options, error) {
	ways := 0
	for _, chosen := range []bool{o.Image != "", o.New != nil, o.Rollback} {
		if chosen {
			ways++
		}
	}
	switch {
	case o.Client == nil:
		return o, errors.New("rollout: Options.Client is nil")
	case o.Old == "" || o.Namespace == "":
		return o, errors.New("rollout: Options.Old or Options.Namespace is empty")
	case ways != 1:
		return o, errors.New("say what to update to: an image, a new controller, or back")
	case o.New != nil && (o.New.Name == "" || o.New.Name == o.Old):
		return o, fmt.Errorf("the new controller must have a name, another one than %q", o.Old)
	case o.NewName == o.Old:
		return o, fmt.Errorf("the new name is the old one, %q; leave it out to keep it", o.Old)
	case o.New != nil && o.New.Spec.Template == nil:
		return o, fmt.Errorf("the new controller %q has no pod template", o.New.Name)
	case o.Timeout < 0 || o.UpdatePeriod < 0:
		return o, errors.New("timeout and update period must not be negative")
	}
	if o.Key == "" {
		o.Key = DefaultKey
	}
	if errs := validation.IsQualifiedName(o.Key); len(errs) > 0 {
		return o, fmt.Errorf("label key %q: %s", o.Key, strings.Join(errs, "; "))
	}
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
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
	_, err := LimitsOf(1, *o.Surge, *o.Unavailable)
	return o, err
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
	if u.opts.Rollback {
		return old.DeepCopy(), nil
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
		old: o.Old, new: o.NewName, rename: o.NewName == "" && o.New == nil, back: o.Rollback,
		key: o.Key, surge: *o.Surge, unavailable: *o.Unavailable,
	}
	switch {
	case o.Rollback:
		g.rename = false
		if old != nil && !underWay(old) {
			return g, fmt.Errorf("no update of replicationcontroller %q is under way: there is nothing to roll back", o.Old)
		}
		return g, nil
	case o.New != nil:
		g.new = o.New.Name
		g.spec = *o.New.Spec.DeepCopy()
		if old != nil && old.Namespace != o.Namespace {
			return g, errors.New("the new controller must be in the old one's namespace")
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
	if g.rename {
		g.new = o.Old + "-" + g.hash
		if len(g.new) > validation.DNS1123SubdomainMaxLength {
			return g, fmt.Errorf("the name %q is too long to be updated in place: say another name to update to", o.Old)
		}
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
		rc.Labels = with(old.Labels, g.key, g.hash)
	}
	rc.Name, rc.Namespace, rc.ResourceVersion, rc.UID = g.new, u.opts.Namespace, "", ""
	if len(rc.Spec.Selector) == 0 {
		rc.Spec.Selector = rc.Spec.Template.Labels
	}
	rc.Spec.Selector = with(without(rc.Spec.Selector, labelReleased), g.key, g.hash)
	rc.Spec.Template.Labels = with(without(rc.Spec.Template.Labels, labelReleased), g.key, g.hash)
	none := int32(0)
	rc.Spec.Replicas = &none
	mark(rc, markSource, sourceID(old))
	mark(rc, markHash, g.hash)
	markNumber(rc, markDesired, desired)
	markNumber(rc, markWritten, 0)
	return rc
}
