package localdisk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// Provisioner is the name of this provisioner in storage classes.
const Provisioner = names.Local

// Class is the name of the class that a cluster without one gets.
const Class = "local"

const (
	name   = "local-volume-provisioner"
	prefix = "pvc-" // of names of volumes and their directories

	// finalizer keeps a volume until its directory is gone. All external provisioners have it.
	finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)

// An API makes raw requests to the API server, as [client.REST] does. A failure is an API status error.
type API interface {
	Do(ctx context.Context, r client.RawRequest) (*http.Response, error)
}

// Options configures the provisioner. Client is required.
type Options struct {
	Client client.Interface
	Caches *cache.Shared // caches for reading; nil means separate ones, over Client

	// Agents makes requests to the agents of nodes, through the subresource proxy of nodes, and Node is the node for claims whose
	// class does not wait for the first consumer. Both empty means that no directories are made: the nodes have no files.
	Agents API
	Node   string

	Log *slog.Logger // nil means slog.Default
}

type provisioner struct {
	Options
	claims  *cache.Cache[*corev1.PersistentVolumeClaim]
	volumes *cache.Cache[*corev1.PersistentVolume]
	classes *cache.Cache[*storagev1.StorageClass]
	nodes   *cache.Cache[*corev1.Node]
	events  *client.Recorder
	loop    *controller.Loop
	turns   turns
}

// workers is the number of keys that are worked on at the same time. With the limit for each node, 64 nodes have to hang before
// volumes of others are delayed. An idle loop has none.
const workers = 64 * perNode

// Tasks returns the provisioner, to be run together as one stage.
func Tasks(opts Options) ([]run.Task, error) {
	if (opts.Node == "") != (opts.Agents == nil) {
		return nil, fmt.Errorf("localdisk: Node is %q and Agents is %v: want both or neither", opts.Node, opts.Agents)
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	var caches run.Task
	opts.Caches, caches = opts.Caches.Or(opts.Client, opts.Log)
	p := &provisioner{
		Options: opts,
		claims:  cache.Of(opts.Caches, client.PersistentVolumeClaims, nil),
		volumes: cache.Of(opts.Caches, client.PersistentVolumes, nil),
		classes: cache.Of(opts.Caches, client.StorageClasses, nil),
		nodes:   cache.Of(opts.Caches, client.Nodes, nil),
		events:  client.NewRecorder(opts.Client, Provisioner, "", opts.Log),
	}
	p.loop = controller.New(controller.Options{
		Name: name, Reconcile: p.reconcile, Workers: workers, Log: opts.Log,
		Needs: []<-chan struct{}{p.claims.Ready(), p.volumes.Ready(), p.classes.Ready(), p.nodes.Ready()},
	})
	p.claims.Subscribe(func(_, after *corev1.PersistentVolumeClaim) {
		if after != nil && p.ours(after) {
			p.loop.Add(controller.KeyOf(after))
		}
	})
	p.volumes.Subscribe(func(_, after *corev1.PersistentVolume) {
		if after != nil && p.over(after) {
			p.loop.Add(controller.KeyOf(after))
		}
	})
	p.nodes.Subscribe(func(before, after *corev1.Node) {
		if before != nil && (after == nil || silence(before) != "" && silence(after) == "") {
			p.loop.Add(controller.Key{Name: nodeKey + before.Name})
		}
	})
	p.loop.Add(controller.Key{}) // the class
	return []run.Task{caches, {Name: name + "-events", Run: p.events.Run}, p.loop.Task()}, nil
}

// nodeKey begins the keys of nodes. Names of volumes have no slash.
const nodeKey = "node/"

func (p *provisioner) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	node, isNode := strings.CutPrefix(key.Name, nodeKey)
	switch {
	case key.Name == "":
		return controller.Result{}, p.class(ctx)
	case isNode:
		p.resume(node)
	case key.Namespace == "":
		if v, ok := p.volumes.Get("", key.Name); ok && p.over(v) {
			return controller.Result{}, p.remove(ctx, v)
		}
	default:
		if c, ok := p.claims.Get(key.Namespace, key.Name); ok && p.ours(c) {
			return controller.Result{}, p.provision(ctx, c)
		}
	}
	return controller.Result{}, nil
}

// resume queues the claims and volumes of a node whose agent reports again, or which does not exist any more.
func (p *provisioner) resume(node string) {
	for _, c := range p.claims.List("") {
		if p.ours(c) && p.where(c) == node {
			p.loop.Add(controller.KeyOf(c))
		}
	}
	for _, v := range p.volumes.List("") {
		if p.over(v) && v.Annotations[volumefit.SelectedNode] == node {
			p.loop.Add(controller.KeyOf(v))
		}
	}
}

// class creates the storage class of a cluster that has none.
func (p *provisioner) class(ctx context.Context) error {
	if p.classes.Len() > 0 {
		return nil
	}
	_, err := client.StorageClasses.Create(ctx, p.Client, &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: Class, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       Provisioner,
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ours reports whether a volume is to be made for a claim. It is the binder that asks, by an annotation.
func (p *provisioner) ours(c *corev1.PersistentVolumeClaim) bool {
	return c.DeletionTimestamp == nil && c.Spec.VolumeName == "" && c.Annotations[volumefit.Provisioner] == Provisioner && p.where(c) != ""
}

// where returns on which node a claim's volume is to be: where the first consumer will run, or, if the class does not wait for
// that, on the node of the options; "" if on none.
func (p *provisioner) where(c *corev1.PersistentVolumeClaim) string {
	return cmp.Or(c.Annotations[volumefit.SelectedNode], p.Node)
}

// over reports whether a volume of this provisioner has to be deleted, or is being deleted and has our finalizer.
func (p *provisioner) over(v *corev1.PersistentVolume) bool {
	if v.Annotations[volumefit.ProvisionedBy] != Provisioner || p.Agents != nil && v.Annotations[volumefit.SelectedNode] == "" || v.Status.Phase == corev1.VolumeBound {
		return false
	}
	released := v.Status.Phase == corev1.VolumeReleased && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	return released || v.DeletionTimestamp != nil && slices.Contains(v.Finalizers, finalizer)
}

// provision creates the volume of a claim.
func (p *provisioner) provision(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	volume := prefix + string(c.UID)
	if _, there := p.volumes.Get("", volume); there {
		return nil
	}
	class, ok := p.classes.Get("", volumefit.Class(c))
	if !ok || class.Provisioner != Provisioner {
		return nil // the binder says so
	}
	chosen := c.Annotations[volumefit.SelectedNode] != ""
	if !chosen && volumefit.Delays(class) {
		return nil // the scheduler has to choose again
	}
	if why := refusal(c); why != "" {
		p.events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %s", class.Name, why)
		return nil
	}
	on := p.where(c)
	failed := func(err error) {
		p.events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %v", class.Name, err)
	}
	var path, host string
	if p.Agents == nil {
		path, host = filepath.Join("/", volume), p.hostname(on)
	} else {
		made, err := p.ask(ctx, controller.KeyOf(c), on, func(ctx context.Context) (string, error) {
			p.events.Event(c, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q", c.Namespace+"/"+c.Name)
			return p.make(ctx, on, volume)
		})
		switch {
		case errors.Is(err, errWaiting):
			return nil
		case errors.Is(err, errNoNode) && chosen:
			failed(err)
			return p.reschedule(ctx, c)
		case errors.As(err, new(*silentError)):
			failed(err)
			return nil // resume continues
		case err != nil:
			failed(err)
			return err
		}
		path, host = made, on
	}
	made, err := client.PersistentVolumes.Create(ctx, p.Client, newVolume(c, class, path, on, host))
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("create persistentvolume %s: %w", volume, err)
	}
	p.events.Event(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", volume)
	return p.volumes.Await(ctx, made.ResourceVersion)
}

// newVolume returns the volume of a claim, which is the directory path of a node whose host name is host.
func newVolume(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, path, node, host string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: prefix + string(c.UID), Finalizers: []string{finalizer}, Annotations: map[string]string{volumefit.ProvisionedBy: Provisioner, volumefit.SelectedNode: node}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   c.Spec.AccessModes,
			VolumeMode:                    c.Spec.VolumeMode,
			MountOptions:                  class.MountOptions,
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: client.PersistentVolumeClaims.Kind, Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
			}}}},
		},
	}
	if class.ReclaimPolicy != nil {
		v.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	return v
}

// refusal returns why no volume can be created for a claim; "" if one can.
func refusal(c *corev1.PersistentVolumeClaim) string {
	if c.Spec.VolumeMode != nil && *c.Spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		return fmt.Sprintf("volumeMode %s is not supported, want Filesystem", *c.Spec.VolumeMode)
	}
	if c.Spec.Selector != nil {
		return "claim.spec.selector is not supported"
	}
	if c.Spec.DataSource != nil || c.Spec.DataSourceRef != nil {
		return "data sources are not supported"
	}
	for _, mode := range c.Spec.AccessModes {
		if !slices.Contains([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}, mode) {
			return fmt.Sprintf("a directory of one node cannot be %s, want ReadWriteOnce or ReadWriteOncePod", mode)
		}
	}
	return ""
}

// hostname returns the label by which volumes are bound to a node without files.
func (p *provisioner) hostname(node string) string {
	if n, ok := p.nodes.Get("", node); ok {
		return cmp.Or(n.Labels[corev1.LabelHostname], node)
	}
	return node
}

// reschedule asks the scheduler to choose another node for a claim, as upstream's provisioners do.
func (p *provisioner) reschedule(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	next := c.DeepCopy()
	delete(next.Annotations, volumefit.SelectedNode)
	if _, err := client.PersistentVolumeClaims.Update(ctx, p.Client, next, ""); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the node of persistentvolumeclaim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// remove removes the directory of a volume, unless it is to be retained, and then the volume (D1, D3).
func (p *provisioner) remove(ctx context.Context, v *corev1.PersistentVolume) error {
	if p.Agents != nil && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		on := v.Annotations[volumefit.SelectedNode]
		_, err := p.ask(ctx, controller.KeyOf(v), on, func(ctx context.Context) (string, error) {
			return "", p.removeDir(ctx, on, v)
		})
		switch {
		case err == nil:
		case errors.Is(err, errWaiting):
			return nil
		case errors.Is(err, errNoNode):
			// The machine may have left the cluster, or may be gone.
			p.events.Event(v, corev1.EventTypeWarning, "VolumeDirectoryLeft", "the volume is deleted without its directory: %v", err)
		default:
			p.events.Event(v, corev1.EventTypeWarning, "VolumeFailedDelete", "%v", err)
			if errors.As(err, new(*silentError)) || apierrors.IsConflict(err) {
				return nil // resume continues; another try would not change the path
			}
			return err
		}
	}
	if v.DeletionTimestamp == nil {
		err := client.PersistentVolumes.Delete(ctx, p.Client, "", v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete persistentvolume %s: %w", v.Name, err)
		}
		return nil // it comes back, to be let go
	}
	next := v.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	if len(next.Finalizers) == len(v.Finalizers) {
		return nil
	}
	if _, err := client.PersistentVolumes.Update(ctx, p.Client, next, ""); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the finalizer of persistentvolume %s: %w", v.Name, err)
	}
	return nil
}
