package builtin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Busy implements [plugin.PreFlight].
func (*VolumeBinding) Busy(p plugin.Placement) bool {
	c, ok := p.Check.(*volumeCheck)
	return ok && c != nil && c.chosen != nil
}

// PreBind implements [plugin.PreBind]: it writes the choice, and waits until all claims are bound. It does not revert
// its writes: the next decision finds them, and goes on from there.
func (b *VolumeBinding) PreBind(ctx context.Context, p plugin.Placement) plugin.Verdict {
	if !b.Busy(p) {
		return plugin.Skip
	}
	plan := p.Check.(*volumeCheck).chosen // Busy has looked
	if err := b.bind(ctx, p, plan); err != nil {
		return plugin.Fail(fmt.Errorf("running PreBind plugin %q: %w", b.Name(), err))
	}
	return plugin.Verdict{}
}

func (b *VolumeBinding) bind(ctx context.Context, p plugin.Placement, plan *volumePlan) error {
	for _, m := range plan.bind {
		v, different := volumefit.Reserve(m.volume, m.claim)
		if !different {
			continue
		}
		if _, err := client.PersistentVolumes.Update(ctx, p.Client, v, ""); err != nil {
			return err
		}
	}
	for _, made := range plan.provision {
		if made.claim.Annotations[volumefit.SelectedNode] == plan.node.Name {
			continue
		}
		c := made.claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volumefit.SelectedNode, plan.node.Name)
		if _, err := client.PersistentVolumeClaims.Update(ctx, p.Client, c, ""); err != nil {
			return err
		}
	}
	timeout := defaultBindTimeout
	if b.BindTimeout != nil {
		timeout = *b.BindTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := awaitVolumes(ctx, p, plan); err != nil {
		return fmt.Errorf("binding volumes: %w", err)
	}
	return nil
}

// awaitVolumes returns when all claims of a plan are bound, or when it is known that they will not be, or ctx is over.
func awaitVolumes(ctx context.Context, p plugin.Placement, plan *volumePlan) error {
	w := &volumeWait{client: p.Client, ends: make(chan error, 2*len(plan.bind)+len(plan.provision)+1)}
	followers := run.NewGroup(ctx, 0)
	defer followers.Stop()
	left := len(plan.bind) + len(plan.provision)
	for _, m := range plan.bind {
		followClaim(followers, w, m.claim, plan.node, "")
		follows(followers, w, client.PersistentVolumes, "", m.volume.Name, func(_ context.Context, v *corev1.PersistentVolume) (bool, error) {
			switch {
			case v == nil:
				return true, fmt.Errorf("failed to check binding: persistentvolume %q not found", m.volume.Name)
			case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "":
				return true, fmt.Errorf("ClaimRef got reset for pv %q", v.Name)
			}
			return false, nil
		})
	}
	for _, made := range plan.provision {
		followClaim(followers, w, made.claim, plan.node, plan.node.Name)
	}
	follows(followers, w, client.Pods, p.Pod.Namespace, p.Pod.Name, func(_ context.Context, pod *corev1.Pod) (bool, error) {
		if pod == nil || pod.UID != p.Pod.UID || pod.DeletionTimestamp != nil {
			return true, errPodGone
		}
		return false, nil
	})
	for ; left > 0; left-- {
		select {
		case err := <-w.ends:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// errPodGone is for a pod that vanished while its volumes were being bound.
var errPodGone = errors.New("pod does not exist any more")

// volumeWait is the common state of the followers of one wait.
type volumeWait struct {
	client client.Interface
	ends   chan error // has room for one result of each follower
}

// followClaim says when a claim is bound to a volume that can be reached from the node. For a claim whose volume is to be made, selected
// is the node that was asked for: a provisioner that fails takes that back.
func followClaim(g *run.Group, w *volumeWait, c *corev1.PersistentVolumeClaim, node *corev1.Node, selected string) {
	follows(g, w, client.PersistentVolumeClaims, c.Namespace, c.Name, func(ctx context.Context, now *corev1.PersistentVolumeClaim) (bool, error) {
		switch {
		case now == nil || now.UID != c.UID:
			return true, fmt.Errorf("failed to check binding: persistentvolumeclaim %q not found", c.Name)
		case selected != "" && now.Annotations[volumefit.SelectedNode] != selected:
			return true, fmt.Errorf("provisioning failed for PVC %q", c.Name)
		case now.Status.Phase == corev1.ClaimLost:
			return true, fmt.Errorf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", c.Name, now.Spec.VolumeName)
		case !volumefit.Bound(now):
			return false, nil
		}
		v, err := client.PersistentVolumes.Get(ctx, w.client, "", now.Spec.VolumeName)
		if apierrors.IsNotFound(err) {
			return false, nil // the binder will say that it is lost
		}
		if err != nil {
			return true, err
		}
		if !reachable(v, node) {
			return true, fmt.Errorf("pv %q node affinity doesn't match node %q", v.Name, node.Name)
		}
		return true, nil
	})
}

// follows asks judge about an object now and after each change, until it has come to an end. Judge gets nil if there
// is no such object.
func follows[T interface {
	comparable
	client.Object
}](g *run.Group, w *volumeWait, r client.Resource[T], namespace, name string, judge func(context.Context, T) (end bool, err error)) {
	g.Go(func(ctx context.Context) {
		var seen types.UID
		say := func(obj T) bool {
			end, err := judge(ctx, obj)
			if end {
				w.ends <- err
			}
			return !end
		}
		f := follow.Follower{Client: w.client, Source: follow.Source{
			GroupVersionResource: r.GroupVersionResource, Namespace: namespace, Fields: "metadata.name=" + name,
		}}
		for step := range f.Steps(ctx) {
			var obj T
			going := true
			switch s := step.(type) {
			case follow.Failed:
				if s.Final {
					w.ends <- s.Err
				}
			case *follow.Changed:
				if o, ok := s.Object.(T); ok {
					seen = o.GetUID()
					going = say(o)
				}
			case follow.Deleted:
				if seen == "" || s.Object.GetUID() == seen {
					seen = s.Object.GetUID()
					going = say(obj)
				}
			case follow.Page:
				for _, o := range s.Objects {
					if t, ok := o.(T); ok && o.GetName() == name {
						obj, seen = t, o.GetUID()
					}
				}
				going = say(obj)
			}
			if !going {
				return
			}
		}
	})
}
