package rollout

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
)

// refusal returns why the update cannot begin; nil if it can, or if nothing is left to do. named is the controller with the
// name of the goal's new one, which differs from v.new while another update is under way; nil if it does not exist.
func (g goal) refusal(v view, named *corev1.ReplicationController) error {
	act, err := next(g, v)
	if err == nil && act.kind == replaceForeign {
		act, err = g.undoForeign(v, named)
	}
	if err == nil && act.kind == listOlds {
		_, err = listNames(v.oldLive)
	}
	if err == nil && act.kind == finished && g.promote && v.new == nil {
		err = apierrors.NewNotFound(client.ReplicationControllers.GroupResource(), g.new)
	}
	return err
}

// undoForeign returns the next action to undo another update, perhaps one that failed. It returns an error if the update
// of the goal could not follow, because another controller has its name.
func (g goal) undoForeign(v view, named *corev1.ReplicationController) (action, error) {
	if named != nil && named.Annotations[markSource] != sourceID(v.old) {
		return action{}, notPart(named, v.old)
	}
	g.back = true
	return next(g, v)
}

func notPart(rc, old *corev1.ReplicationController) error {
	return fmt.Errorf("replicationcontroller %q exists and is not part of an update of %q: choose another name or delete it", rc.Name, old.Name)
}

// resumed returns the goal of continuing the update that is under way, if that differs from g in the name of the new
// controller only, and g does not want one: an update with two names is resumed with the first of them, as kubectl does. The
// new controller gets the old name in the end.
func (g goal) resumed(v view) goal {
	if g.rename() && !g.promote && !g.back && v.old != nil && underWay(v.old) && v.new != nil && ours(v) && g.made(v.new) {
		g.new = v.new.Name
	}
	return g
}

// glance reads what refusal needs with plain requests.
func (u *Updater) glance(ctx context.Context, g goal, old *corev1.ReplicationController) (v view, named *corev1.ReplicationController, err error) {
	v = view{old: old, took: true, newTook: true}
	get := func(name string) (*corev1.ReplicationController, error) {
		if name == "" {
			return nil, nil // no controller, as for a view
		}
		rc, err := client.ReplicationControllers.Get(ctx, u.opts.Client, u.opts.Namespace, name)
		if apierrors.IsNotFound(err) {
			return nil, nil // no controller, as for a view
		}
		return rc, err
	}
	if named, err = get(g.new); err != nil {
		return v, nil, err
	}
	v.new = named
	if next := old.Annotations[markNext]; next != "" && next != g.new {
		if v.new, err = get(next); err != nil {
			return v, nil, err
		}
		if v.new != nil && !ours(v) {
			v.new = nil // as in look
		}
	}
	if !g.replace {
		return v, named, nil
	}
	pods, _, err := client.Pods.List(ctx, u.opts.Client, old.Namespace, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(old.Spec.Selector).String()})
	for _, p := range pods {
		if metav1.IsControlledBy(p, old) {
			v.oldLive = append(v.oldLive, p)
		}
	}
	v.oldLive = live(v.oldLive)
	byName(v.oldLive)
	return v, named, err
}
