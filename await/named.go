package await

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/podstate"
)

// A name is an object that a pod names in its spec and that can keep it from a node or from its start. Schedulers and kubelets
// report nothing about it: they wait. Other objects that a pod names are reported elsewhere. The API server refuses pods
// with a missing priority class, runtime class or ServiceAccount, and kubelet writes events about missing Secrets and
// ConfigMaps.
type name struct {
	resource        schema.GroupVersionResource
	namespace, name string
	made            bool // a controller makes the object for the pod
}

var (
	resourceClaims    = resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	resourceTemplates = resourcev1.SchemeGroupVersion.WithResource("resourceclaimtemplates")
)

// namesOf returns the objects that may keep a pod from starting: the claims of a pod without a node, and the node that a
// pod has from its creation.
func namesOf(p *corev1.Pod) (names []name) {
	switch {
	case podstate.Finished(p) || p.DeletionTimestamp != nil || p.Status.StartTime != nil:
		return nil
	case p.Spec.NodeName != "":
		// A scheduler that binds a pod writes the condition.
		if podstate.Condition(p, corev1.PodScheduled) == nil {
			names = append(names, name{client.Nodes.GroupVersionResource, "", p.Spec.NodeName, false})
		}
		return names
	}
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names = append(names, name{client.PersistentVolumeClaims.GroupVersionResource, p.Namespace, v.PersistentVolumeClaim.ClaimName, false})
		case v.Ephemeral != nil:
			names = append(names, name{client.PersistentVolumeClaims.GroupVersionResource, p.Namespace, p.Name + "-" + v.Name, true})
		}
	}
	for _, c := range p.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, name{resourceClaims, p.Namespace, *c.ResourceClaimName, false})
		}
		if c.ResourceClaimTemplateName != nil && !slices.ContainsFunc(p.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name }) {
			names = append(names, name{resourceTemplates, p.Namespace, *c.ResourceClaimTemplateName, false})
		}
	}
	return names
}

// what returns the object for messages.
func (n name) what() string {
	switch n.resource {
	case client.Nodes.GroupVersionResource:
		return "node " + n.name
	case resourceClaims:
		return "resource claim " + n.name
	case resourceTemplates:
		return "resource claim template " + n.name
	}
	return "claim " + n.name
}

// A namedObject is the object of a name, as far as it has been read.
type namedObject struct {
	listed bool          // it is known whether the object exists
	object client.Object // nil if it does not exist
	pods   map[*node]struct{}
}

// setNames records which objects a pod names.
func (f *forest) setNames(pod *node, names []name) {
	if slices.Equal(names, pod.names) {
		return
	}
	for _, n := range pod.names {
		if o := f.named[n]; o != nil {
			if delete(o.pods, pod); len(o.pods) == 0 && !o.listed {
				delete(f.named, n) // it is not followed
			}
		}
	}
	pod.names = names
	for _, n := range names {
		o := f.named[n]
		if o == nil {
			o = &namedObject{pods: map[*node]struct{}{}}
			f.named[n] = o
		}
		o.pods[pod] = struct{}{}
	}
}

// show updates the object of a name; nil if it does not exist. It may be called for names that no pod has any more.
func (f *forest) show(n name, object client.Object) {
	o := f.named[n]
	if o == nil {
		return
	}
	if o.object != nil {
		delete(f.about, o.object.GetUID())
	}
	if o.listed, o.object = true, object; object != nil {
		f.about[object.GetUID()] = n
	}
	f.renamed(n)
}

// renamed has the pods judged again that have a name.
func (f *forest) renamed(n name) {
	for pod := range f.named[n].pods {
		f.relink(pod)
		f.touch(pod)
	}
}

// final returns the verdict on a pod with the cause that is known: that of an object that it names, or a warning.
func (f *forest) final(n *node, j judged) Verdict {
	verdict := j.final(f.notes[n.uid])
	if !j.vague && !j.claim {
		return verdict
	}
	for _, named := range n.names {
		if why := f.troubleOf(named); why.Cause != "" {
			verdict.State, verdict.Certainty, verdict.Cause = why.State, why.Certainty, f.once(why.Cause)
			break
		}
	}
	return verdict
}

// troubleOf returns how the object of a name keeps pods from starting; without a cause if it does not, or nothing is known
// of it. That the object does not exist is a likely failure, unless a controller makes it for the pod.
func (f *forest) troubleOf(n name) Verdict {
	o := f.named[n]
	switch {
	case !o.listed:
		return Verdict{}
	case o.object == nil && n.resource == client.Nodes.GroupVersionResource:
		return waiting("%s does not exist, and spec.nodeName names it", n.what())
	case o.object == nil && n.made:
		return waiting("not yet on a node: %s does not exist", n.what())
	case o.object == nil:
		return failed(Likely, "not yet on a node: %s does not exist", n.what())
	}
	claim, is := o.object.(*corev1.PersistentVolumeClaim)
	if !is {
		return Verdict{}
	}
	v := f.view(&node{uid: claim.UID, there: true, object: claim})
	v.forPod = true
	verdict, err := judgeClaim(Ready, claim, v)
	if err != nil || verdict.State == Done {
		return Verdict{}
	}
	verdict.Certainty = Likely // another claim may take its name
	cause, is := strings.CutPrefix(verdict.Cause, "it is ")
	if is || strings.HasPrefix(cause, "not bound") {
		verdict.Cause = "not yet on a node: " + n.what() + " is " + cause
	} else {
		verdict.Cause = "not yet on a node: " + n.what() + ": " + cause
	}
	return verdict
}

// Obstacle returns why an object that a pod names keeps it from a node, or from starting on the node that the pod has from
// its creation; empty if none does. If the object is a claim for a volume or a resource, without is a copy of the pod that
// does not name it, otherwise nil. It ignores objects and events that c may not read.
func Obstacle(ctx context.Context, c client.Interface, pod *corev1.Pod) (why string, without *corev1.Pod) {
	f := newForest(Ready)
	n := f.place(f.kindOf(client.Pods.GroupVersionResource, client.Pods.Kind), pod)
	for _, named := range n.names {
		got, err := c.Get(ctx, named.resource, named.namespace, named.name, "")
		if apierrors.IsNotFound(err) {
			f.show(named, nil)
		}
		if err != nil {
			continue
		}
		object, is := got.(client.Object)
		if !is {
			continue
		}
		about, _, _ := client.Events.List(ctx, c, named.namespace, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(object.GetUID())}) // without events there is less to say
		for _, e := range about {
			f.note(e, false, 0)
		}
		f.show(named, object)
	}
	for _, named := range n.names {
		if why := f.troubleOf(named).Cause; why != "" {
			return why, named.removedFrom(pod)
		}
	}
	return "", nil
}

// removedFrom returns a copy of a pod without the volumes and resource claims that name the object, or nil if it has none.
func (n name) removedFrom(pod *corev1.Pod) *corev1.Pod {
	anew := pod.DeepCopy()
	anew.Spec.Volumes = slices.DeleteFunc(anew.Spec.Volumes, func(v corev1.Volume) bool {
		return n.resource == client.PersistentVolumeClaims.GroupVersionResource &&
			(v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == n.name || v.Ephemeral != nil && pod.Name+"-"+v.Name == n.name)
	})
	anew.Spec.ResourceClaims = slices.DeleteFunc(anew.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
		return n.resource == resourceClaims && c.ResourceClaimName != nil && *c.ResourceClaimName == n.name ||
			n.resource == resourceTemplates && c.ResourceClaimTemplateName != nil && *c.ResourceClaimTemplateName == n.name
	})
	if len(anew.Spec.Volumes) == len(pod.Spec.Volumes) && len(anew.Spec.ResourceClaims) == len(pod.Spec.ResourceClaims) {
		return nil
	}
	return anew
}

// maxNamed limits how many objects a wait follows because pods name them. More of them seldom have more causes.
const maxNamed = 32

// lookAt follows the objects that a pod names. Without the permission for that, the wait goes on without them.
func (w *watcher) lookAt(pod *node) {
	for _, n := range pod.names {
		if w.byName[n] != nil || len(w.byName) >= maxNamed {
			continue
		}
		f := &feed{source: source{GroupVersionResource: n.resource, namespace: n.namespace, fields: "metadata.name=" + n.name}, late: true, named: &n}
		w.byName[n] = f
		w.every = append(w.every, f)
		w.pending++
		w.start(f)
	}
}

// nameReported handles a step of the source of a name.
func (w *watcher) nameReported(f *feed, step follow.Step) error {
	show := func(o client.Object) error {
		o, err := typed(o)
		if err == nil && o.GetName() == f.named.name {
			f.nodes = map[types.UID]*node{o.GetUID(): nil}
			w.forest.show(*f.named, o)
		}
		return err
	}
	switch news := step.(type) {
	case follow.Deleted:
		w.forest.show(*f.named, nil)
	case *follow.Changed:
		return show(news.Object)
	case follow.Page:
		if news.Begins {
			f.nodes = nil
		}
		for _, o := range news.Objects {
			if err := show(o); err != nil {
				return err
			}
		}
		if news.Whole {
			if f.nodes == nil {
				w.forest.show(*f.named, nil)
			}
			f.nodes = nil
			w.listed(f)
		}
	}
	return nil
}
