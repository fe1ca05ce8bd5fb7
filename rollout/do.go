package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// intro prints what kubectl prints before an action.
func (r *running) intro(v view, act action) {
	switch act.kind {
	case scaleOld, scaleNew:
		r.introScale(v)
	case closeOld:
		r.once("Update succeeded. Keeping %s without pods", r.old)
	case deletePod:
		left := 0
		for _, p := range v.olds() {
			if p.Old {
				left++
			}
		}
		_, _ = fmt.Fprintf(r.opts.Out, "Deleting pod %s (%d left to replace)\n", act.pod.Name, left)
	case release, takeOver:
		r.once("Update succeeded. Deleting old controller: %s", r.old)
		r.once("Renaming %s to %s", v.new.Name, r.old)
	case deleteOld:
		r.once("Update succeeded. Deleting %s", r.old)
	case deleteNew:
		if v.old == nil {
			r.once("%s is gone, and there is nothing to go back to: deleting %s", r.old, v.new.Name)
		}
	case takeBack:
		r.once("%s is gone: finishing its update as %s", r.old, v.new.Name)
	default: // kubectl prints nothing for it
	}
}

func (r *running) introScale(v view) {
	switch {
	case v.new == nil: // a replacement
		return
	case v.old == nil:
		r.once("%s is gone: finishing its update as %s", r.old, v.new.Name)
		return
	}
	from, to, desiredMark, holder := v.old, v.new, markDesired, v.new
	undoing := r.back || r.foreign || !r.made(v.new)
	if undoing {
		from, to, desiredMark, holder = v.new, v.old, markOriginal, v.old
	}
	desired, _ := marked(holder, desiredMark) // next has checked that it is there
	if undoing {
		r.once("Setting %q replicas to %d", to.Name, desired)
	} else if !r.said["created"] {
		r.once("Found existing update in progress (%s), resuming.", v.new.Name)
	}
	if !r.said["scaling "+to.Name] {
		r.said["scaling "+to.Name] = true
		limits := r.limits(desired)
		r.once("Scaling up %s from %d to %d, scaling down %s from %d to 0 (keep %d pods available, don't exceed %d pods)",
			to.Name, replicas(to), desired, from.Name, replicas(from), limits.Min, limits.Max)
	}
}

// do makes the call of an action and waits until the caches have its result.
func (r *running) do(ctx context.Context, v view, act action) error {
	switch act.kind {
	case announce:
		return r.announce(ctx, v.old)
	case labelPods:
		return r.labelPods(ctx, v.old)
	case createNew:
		return r.create(ctx, v.old)
	case acceptOld:
		if v.new != nil {
			if n, _ := marked(v.new, markDesired); n != act.replicas {
				return r.update(ctx, v.new, func(rc *corev1.ReplicationController) { markNumber(rc, markDesired, act.replicas) })
			}
		}
		return r.update(ctx, v.old, func(rc *corev1.ReplicationController) {
			markNumber(rc, markOriginal, act.replicas)
			markNumber(rc, markWritten, act.replicas)
		})
	case acceptNew:
		return r.update(ctx, v.new, func(rc *corev1.ReplicationController) {
			// With canaries, a number below the desired one is a new number of canaries.
			desired, known := marked(rc, markDesired)
			if _, canaries := marked(v.old, markCanary); !known || !canaries || act.replicas > desired {
				markNumber(rc, markDesired, act.replicas)
			}
			markNumber(rc, markWritten, act.replicas)
		})
	case scaleOld:
		return r.scale(ctx, v.old, act.replicas)
	case scaleNew:
		return r.scale(ctx, v.new, act.replicas)
	case release:
		return r.update(ctx, v.new, func(rc *corev1.ReplicationController) {
			none := int32(0)
			rc.Spec.Replicas = &none
			rc.Spec.Selector = with(rc.Spec.Selector, labelReleased, "true")
			rc.Spec.Template.Labels = with(rc.Spec.Template.Labels, labelReleased, "true")
			markNumber(rc, markWritten, 0)
		})
	case takeBack:
		return r.update(ctx, v.new, func(rc *corev1.ReplicationController) {
			rc.Spec.Replicas = &act.replicas
			rc.Spec.Selector = without(rc.Spec.Selector, labelReleased)
			rc.Spec.Template.Labels = without(rc.Spec.Template.Labels, labelReleased)
			markNumber(rc, markWritten, act.replicas)
		})
	case closeOld:
		return r.update(ctx, v.old, func(rc *corev1.ReplicationController) {
			mark(rc, markTaken, v.new.Name)
			mark(rc, markCleanup, string(CleanupPreserve))
		})
	case takeOver:
		return r.takeOver(ctx, v)
	case listOlds:
		return r.listOlds(ctx, v)
	case deletePod:
		return r.deletePod(ctx, act.pod)
	case deleteNew:
		r.undone = sourceID(v.new)
		return r.delete(ctx, v.new)
	case deleteOld:
		return r.delete(ctx, v.old)
	case forgetOld:
		return r.update(ctx, v.old, func(rc *corev1.ReplicationController) {
			unmark(rc)
			delete(rc.Annotations, markReplaced)
			switch {
			case r.replace: // no update, only a replacement of pods
			case closing(v.old):
				mark(rc, markLast, lastComplete+r.old)
			default:
				mark(rc, markLast, lastBack+r.old)
				if r.undone != "" {
					mark(rc, markReplaced, r.undone)
				}
			}
		})
	case forgetNew:
		return r.update(ctx, v.new, func(rc *corev1.ReplicationController) {
			source := rc.Annotations[markSource]
			unmark(rc)
			mark(rc, markLast, lastComplete+r.old)
			mark(rc, markReplaced, source)
		})
	case wait, finished, paused, replaceForeign:
	}
	return fmt.Errorf("rollout: nothing can be done for action %d", act.kind) // a bug
}

// update changes a controller as it was read (R4). On the old controller it also renews the holder annotation; a nil
// change does only that.
func (r *running) update(ctx context.Context, rc *corev1.ReplicationController, change func(*corev1.ReplicationController)) error {
	holds := false
	err := r.write(ctx, rc, func(rc *corev1.ReplicationController) {
		if change != nil {
			change(rc)
		}
		if holds = rc.Name == r.old && (underWay(rc) || replacing(rc)); holds {
			r.hold(rc)
		}
	})
	if rc.Name == r.old && err == nil {
		r.held, r.beat = holds, time.Now()
	}
	return err
}

// write changes a controller as it was read and waits until the cache has the change.
func (r *running) write(ctx context.Context, rc *corev1.ReplicationController, change func(*corev1.ReplicationController)) error {
	rc = rc.DeepCopy()
	change(rc)
	written, err := client.ReplicationControllers.Update(ctx, r.opts.Client, rc, "")
	if err != nil {
		return fmt.Errorf("updating replicationcontroller %s: %w", rc.Name, err)
	}
	return r.see(ctx, func(ctx context.Context) error { return r.controllers.Await(ctx, written.ResourceVersion) })
}

// see waits until the caches have a write. It takes at most Options.Timeout, because they may have lost the server.
func (r *running) see(ctx context.Context, await func(context.Context) error) error {
	if r.opts.Timeout <= 0 {
		return await(ctx)
	}
	late := &TimeoutError{After: r.opts.Timeout, Why: "the watch has not delivered the last write"}
	limited, cancel := context.WithTimeoutCause(ctx, r.opts.Timeout, late)
	defer cancel()
	err := await(limited)
	if errors.Is(err, late) {
		return r.blind(ctx, late)
	}
	return err
}

func (r *running) scale(ctx context.Context, rc *corev1.ReplicationController, n int32) error {
	more, direction := n > replicas(rc), "down"
	if more {
		direction = "up"
	}
	err := r.update(ctx, rc, func(rc *corev1.ReplicationController) {
		rc.Spec.Replicas = &n
		markNumber(rc, markWritten, n)
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(r.opts.Out, "Scaling %s %s to %d\n", rc.Name, direction, n)
	if more {
		r.up = time.Now()
	}
	return nil
}

// try makes dry runs of the calls of the update before its first write, so that a call that the server rejects does not
// stop the update half-way: the creation of the new controller, the labelling of a pod of the old one, and the deletion
// of the old one (R8).
func (r *running) try(ctx context.Context, old *corev1.ReplicationController) error {
	dry := []string{metav1.DryRunAll}
	_, err := r.opts.Client.Create(ctx, client.ReplicationControllers.GroupVersionResource, old.Namespace, "",
		r.newController(r.goal, old, replicas(old)), metav1.CreateOptions{DryRun: dry}, "")
	if err != nil && !apierrors.IsAlreadyExists(err) { // it is from another update, which is undone first
		return fmt.Errorf("creating replicationcontroller %s: %w", r.new, err)
	}
	if pods := live(r.pods.ByIndex(byController, string(old.UID))); r.key != "" && old.Spec.Selector[r.key] == "" && len(pods) > 0 {
		byName(pods)
		patch, err := labelPatch(pods[0], r.key, r.value)
		if err != nil {
			return err
		}
		_, err = r.opts.Client.Patch(ctx, client.Pods.GroupVersionResource, old.Namespace, pods[0].Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry}, "")
		if err != nil && !isGone(err) {
			return fmt.Errorf("labelling pod %s: %w", pods[0].Name, err)
		}
	}
	if r.cleanup == CleanupPreserve {
		return nil
	}
	err = client.ReplicationControllers.Delete(ctx, r.opts.Client, old.Namespace, old.Name, metav1.DeleteOptions{
		DryRun: dry, Preconditions: &metav1.Preconditions{UID: &old.UID},
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("deleting replicationcontroller %s: %w", old.Name, err)
	}
	return nil
}

// labelPatch returns the merge patch that adds a label to the pod with this UID.
func labelPatch(p *corev1.Pod, key, value string) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "labels": map[string]string{key: value},
	}})
	if err != nil {
		return nil, fmt.Errorf("labelling pod %s: %w", p.Name, err)
	}
	return patch, nil
}

// announce writes the annotations of the update on the old controller, and adds to its template the label that
// distinguishes its pods from the new ones.
func (r *running) announce(ctx context.Context, old *corev1.ReplicationController) error {
	h, err := hash(old.Spec, r.key)
	if err != nil {
		return err
	}
	h = otherThan(h, r.value, "-orig")
	return r.update(ctx, old, func(rc *corev1.ReplicationController) {
		mark(rc, markNext, r.new)
		mark(rc, markCleanup, string(r.cleanup))
		if r.canaries > 0 {
			markNumber(rc, markCanary, r.canaries)
		}
		delete(rc.Annotations, markOlds) // the update replaces all pods
		if _, found := marked(rc, markOriginal); !found {
			markNumber(rc, markOriginal, replicas(rc))
			markNumber(rc, markWritten, replicas(rc))
		}
		if r.key != "" && rc.Spec.Template != nil && rc.Spec.Template.Labels[r.key] == "" {
			rc.Spec.Template.Labels = with(rc.Spec.Template.Labels, r.key, h)
		}
	})
}

// labelPods labels the pods of the old controller, and then its selector. The controller has observed its labelled
// template before, so it creates no more pods without the label.
func (r *running) labelPods(ctx context.Context, old *corev1.ReplicationController) error {
	value := old.Spec.Template.Labels[r.key]
	// A list, because the cache may not have every pod that was created from the former template yet.
	pods, _, err := client.Pods.List(ctx, r.opts.Client, old.Namespace,
		metav1.ListOptions{LabelSelector: labels.SelectorFromSet(old.Spec.Selector).String()})
	if err != nil {
		return fmt.Errorf("listing the pods of %s: %w", old.Name, err)
	}
	for _, p := range pods {
		if !metav1.IsControlledBy(p, old) || p.Labels[r.key] == value {
			continue
		}
		patch, err := labelPatch(p, r.key, value)
		if err != nil {
			return err
		}
		if _, err := client.Pods.Patch(ctx, r.opts.Client, p.Namespace, p.Name, types.MergePatchType, patch, ""); err != nil {
			if isGone(err) {
				continue
			}
			return fmt.Errorf("labelling pod %s: %w", p.Name, err)
		}
	}
	return r.update(ctx, old, func(rc *corev1.ReplicationController) {
		rc.Spec.Selector = with(rc.Spec.Selector, r.key, value)
	})
}

func (r *running) create(ctx context.Context, old *corev1.ReplicationController) error {
	desired, _ := marked(old, markOriginal) // announce has written it
	made, err := client.ReplicationControllers.Create(ctx, r.opts.Client, r.newController(r.goal, old, desired))
	if err != nil {
		return fmt.Errorf("creating replicationcontroller %s: %w", r.new, err)
	}
	r.once("Created %s", made.Name)
	r.said["created"] = true
	return r.see(ctx, func(ctx context.Context) error { return r.controllers.Await(ctx, made.ResourceVersion) })
}

// listOlds writes the names of the pods to be replaced on their controller.
func (r *running) listOlds(ctx context.Context, v view) error {
	names, err := listNames(v.oldLive)
	if err != nil {
		return err
	}
	return r.update(ctx, v.old, func(rc *corev1.ReplicationController) {
		mark(rc, markOlds, names)
		markNumber(rc, markOriginal, replicas(rc))
		markNumber(rc, markWritten, replicas(rc))
	})
}

// deletePod deletes the pod with this UID. Its controller creates another one.
func (r *running) deletePod(ctx context.Context, p *corev1.Pod) error {
	uid := p.UID
	err := client.Pods.Delete(ctx, r.opts.Client, p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !isGone(err) {
		return fmt.Errorf("deleting pod %s: %w", p.Name, err)
	}
	r.up = time.Now()
	return r.see(ctx, func(ctx context.Context) error { return r.pods.AwaitDeletion(ctx, p) })
}

// takeOver gives the old controller the spec of the new one, so that it adopts the pods, which have no controller at the
// moment (R5).
func (r *running) takeOver(ctx context.Context, v view) error {
	desired, _ := marked(v.new, markDesired)
	return r.update(ctx, v.old, func(rc *corev1.ReplicationController) {
		rc.Spec = *v.new.Spec.DeepCopy()
		rc.Spec.Selector = without(rc.Spec.Selector, labelReleased)
		rc.Spec.Template.Labels = without(rc.Spec.Template.Labels, labelReleased)
		rc.Spec.Replicas = &desired
		markNumber(rc, markOriginal, desired)
		markNumber(rc, markWritten, desired)
		mark(rc, markTaken, v.new.Name)
	})
}

// delete deletes a controller without pods, if it is still as it was read: another client may have scaled it.
func (r *running) delete(ctx context.Context, rc *corev1.ReplicationController) error {
	uid, version, policy := rc.UID, rc.ResourceVersion, metav1.DeletePropagationBackground
	err := client.ReplicationControllers.Delete(ctx, r.opts.Client, rc.Namespace, rc.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &policy,
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("deleting replicationcontroller %s: %w", rc.Name, err)
	}
	return r.see(ctx, func(ctx context.Context) error { return r.controllers.AwaitDeletion(ctx, rc) })
}

func isGone(err error) bool { return apierrors.IsNotFound(err) }
