package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// A Way is how an object is applied.
type Way int

// The ways.
const (
	Auto       Way = iota // ServerSide if the server has it, ThreeWay otherwise
	ServerSide            // the server merges, and records the manager of each field
	ThreeWay              // the client merges
)

// The names under which fields are written unless another is chosen. That of merges
// is kubectl's: it is how every tool recognises them.
const (
	ServerSideManager = "sampan"
	ThreeWayManager   = "kubectl-client-side-apply"
)

// A DryRun says how far an apply goes.
type DryRun int

// The degrees.
const (
	ForReal  DryRun = iota
	OnClient        // nothing is sent but reads
	OnServer        // the server does everything but keep it
)

func (d DryRun) options() []string {
	if d == OnServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Options configures an [Applier]. Client and Mapper are required.
type Options struct {
	Client client.Interface // its objects come out unstructured
	Mapper *resource.Mapper

	Way        Way
	Manager    string // the field manager; empty means the default of Way
	Force      bool   // server-side: take fields that others own, instead of failing
	Recreate   bool   // delete and recreate objects that the server refuses to update; not ServerSide, not in a dry run on the server
	DryRun     DryRun
	Validation string // one of metav1.FieldValidation…; empty leaves it to the server

	// Warn receives warnings for the user. It may be nil.
	Warn func(text string)
}

// An Action is what applying did, in kubectl's words.
type Action string

// The actions.
const (
	Created           Action = "created"
	Configured        Action = "configured"
	Unchanged         Action = "unchanged"
	ServerSideApplied Action = "serverside-applied"
	Pruned            Action = "pruned"
)

// A Result is what became of one object.
type Result struct {
	Action Action
	Object *unstructured.Unstructured // after the write; as it would be in a dry run
}

// An Applier applies objects to one server. It is not safe for concurrent use.
type Applier struct {
	opts    Options
	without bool // the server is known to have no server-side apply
}

// New returns an applier that has asked nothing yet.
func New(o Options) (*Applier, error) {
	switch {
	case o.Client == nil || o.Mapper == nil:
		return nil, errors.New("apply: Options.Client or Options.Mapper is nil")
	case o.Way == ServerSide && o.DryRun == OnClient:
		return nil, errors.New("--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)")
	case o.Way == ServerSide && o.Recreate:
		return nil, errors.New("--force cannot be used with --server-side")
	case o.DryRun == OnServer && o.Recreate:
		return nil, errors.New("--dry-run=server cannot be used with --force")
	case o.Way == ThreeWay && o.Force:
		return nil, errors.New("--force-conflicts only works with --server-side")
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return &Applier{opts: o}, nil
}

// conflictAdvice is appended to the error of a conflict with other managers.
const conflictAdvice = "\nOther managers own the fields above. Take ownership with --force-conflicts, or remove the fields" +
	"\nfrom the file, or share ownership by setting them to their current values. If you own them under" +
	"\nthe name of another manager, pass --field-manager=NAME."

// Apply brings one object to the state that info says. It has a mapping, a name and an
// object.
func (a *Applier) Apply(ctx context.Context, info resource.Info) (Result, error) {
	if info.Name == "" {
		if prefix := info.Object.GetGenerateName(); prefix != "" {
			return Result{}, info.Fault(fmt.Errorf("cannot use generate name with apply: %s", prefix), "metadata.generateName")
		}
		return Result{}, info.Fault(errors.New("metadata.name: must be set to apply the object"), "metadata")
	}
	r, err := a.once(ctx, info)
	if apierrors.IsInvalid(err) && a.opts.Recreate && a.opts.DryRun == ForReal {
		r, err = a.recreate(ctx, info, err)
	}
	return r, info.Fault(err)
}

// once applies an object in the way that the server has.
func (a *Applier) once(ctx context.Context, info resource.Info) (Result, error) {
	if a.opts.Way != ThreeWay && !a.without && a.opts.DryRun != OnClient {
		r, err := a.serverSide(ctx, info)
		switch {
		case !apierrors.IsUnsupportedMediaType(err):
			if apierrors.IsConflict(err) {
				err = fmt.Errorf("%w%s", err, conflictAdvice)
			}
			return r, err
		case a.opts.Way == ServerSide:
			return r, errors.New("the server does not support server-side apply: leave out --server-side to use three-way merges")
		}
		a.without = true
	}
	return a.threeWay(ctx, info)
}

// tries is how often a write that lost a race is attempted. An attempt only fails if
// another client writes the object between two of our requests.
const tries = 10

// threeWay creates the object, or patches it.
func (a *Applier) threeWay(ctx context.Context, info resource.Info) (r Result, err error) {
	wanted, err := modified(info.Object)
	if err != nil {
		return Result{}, err
	}
	for range tries {
		r, err = a.mergeOnce(ctx, info, wanted)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !(apierrors.IsNotFound(err) && r.Object != nil) {
			return r, err
		}
		// Another client wrote, created or deleted the object: read it again.
	}
	return r, err
}

// mergeOnce looks and writes once. With an error, an object in the result says that
// it was there.
func (a *Applier) mergeOnce(ctx context.Context, info resource.Info, wanted []byte) (Result, error) {
	gvr := info.Mapping.GroupVersionResource
	manager := a.opts.Manager
	if manager == "" {
		manager = ThreeWayManager
	}
	live, err := a.get(ctx, info)
	if apierrors.IsNotFound(err) {
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal(wanted, &obj.Object); err != nil {
			return Result{}, err
		}
		withoutNulls(obj.Object)
		if a.opts.DryRun == OnClient {
			return Result{Created, obj}, nil
		}
		opts := metav1.CreateOptions{DryRun: a.opts.DryRun.options(), FieldManager: manager, FieldValidation: a.opts.Validation}
		obj, err = answer(a.opts.Client.Create(ctx, gvr, info.Namespace, "", obj, opts, ""))
		if err != nil {
			return Result{}, err
		}
		return Result{Created, obj}, nil
	}
	if err != nil {
		return Result{}, err
	}
	a.warnOfDeletion(info, live)
	original, annotated := live.GetAnnotations()[LastApplied]
	if !annotated && !a.applied(live) {
		a.opts.Warn(fmt.Sprintf("resource %s/%s is missing the %s annotation which is required by sampan apply. sampan apply should only be used on "+
			"resources created declaratively by either sampan create --save-config or sampan apply. The missing annotation will be patched automatically.",
			info.Mapping.Resource, info.Name, LastApplied))
	}
	text, err := encode(live)
	if err != nil {
		return Result{}, err
	}
	patch, err := Merge(info.Mapping.GVK(), []byte(original), wanted, text)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("merging %s: %w", info, err)
	case patch.Empty():
		return Result{Unchanged, live}, nil
	case a.opts.DryRun == OnClient:
		if text, err = patch.applied(info.Mapping.GVK(), text); err != nil {
			return Result{}, fmt.Errorf("merging %s: %w", info, err)
		}
		obj := &unstructured.Unstructured{}
		return Result{Configured, obj}, obj.UnmarshalJSON(text)
	}
	opts := metav1.PatchOptions{DryRun: a.opts.DryRun.options(), FieldManager: manager, FieldValidation: a.opts.Validation}
	obj, err := answer(a.opts.Client.Patch(ctx, gvr, info.Namespace, info.Name, patch.Type, patch.Body, opts, ""))
	if err != nil {
		return Result{Object: live}, err
	}
	return Result{Configured, obj}, nil
}

// applied reports whether we have applied an object server-side.
func (a *Applier) applied(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == a.manager() && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
}

// get returns the object as it is.
func (a *Applier) get(ctx context.Context, info resource.Info) (*unstructured.Unstructured, error) {
	return answer(a.opts.Client.Get(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, ""))
}

func answer(obj runtime.Object, err error) (*unstructured.Unstructured, error) {
	if err != nil {
		return nil, err
	}
	return resource.Unstructured(obj)
}

func (a *Applier) warnOfDeletion(info resource.Info, live *unstructured.Unstructured) {
	if live.GetDeletionTimestamp() != nil {
		a.opts.Warn(fmt.Sprintf("Detected changes to resource %s which is currently being deleted.", info.Name))
	}
}

// serverSide has the server merge.
func (a *Applier) serverSide(ctx context.Context, info resource.Info) (Result, error) {
	wanted := info.Object
	if merged(wanted) { // managedFields show that a server printed it; the annotation does not record them
		wanted = wanted.DeepCopy()
		unstructured.RemoveNestedField(wanted.Object, "metadata", "annotations", LastApplied)
	}
	body, err := encode(wanted)
	if err != nil {
		return Result{}, err
	}
	obj, err := a.send(ctx, info, body, a.opts.Force)
	if apierrors.IsConflict(err) && !a.opts.Force {
		// The conflict may be with ourselves, in the time before.
		live, failed := a.get(ctx, info)
		switch {
		case failed != nil:
			return Result{}, err
		case merged(live):
			obj, err = a.migrate(ctx, info, live, body)
		case a.opts.Way == Auto && byHand(err, a.manager(), live):
			obj, err = a.send(ctx, info, body, true)
		default:
			return Result{}, err
		}
	} else if err == nil && merged(obj) {
		if a.opts.DryRun != ForReal { // what was answered is not what is there
			if obj, err = a.get(ctx, info); err != nil {
				return Result{}, err
			}
		}
		obj, err = a.migrate(ctx, info, obj, body)
	}
	if err != nil {
		return Result{}, err
	}
	a.warnOfDeletion(info, obj)
	return Result{ServerSideApplied, obj}, nil
}

func (a *Applier) manager() string {
	if a.opts.Manager != "" {
		return a.opts.Manager
	}
	return ServerSideManager
}

func (a *Applier) send(ctx context.Context, info resource.Info, body []byte, force bool) (*unstructured.Unstructured, error) {
	opts := metav1.PatchOptions{
		DryRun: a.opts.DryRun.options(), Force: &force, FieldManager: a.manager(), FieldValidation: a.opts.Validation,
	}
	return answer(a.opts.Client.Patch(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, types.ApplyPatchType, body, opts, ""))
}
