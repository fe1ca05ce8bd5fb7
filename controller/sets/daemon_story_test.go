package sets

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestDaemonSets plays the stories in testdata/daemon. A story has one DaemonSet and
// nodes, and calls pods p0, p1, … Commands besides those of a podStory are
//
//	set name=value …     make or change the DaemonSet
//	node NAME [k=v …]    a node with those labels; taint=KEY:EFFECT; without=yes: gone
//	pause NODE DURATION  pods have failed on a node
func TestDaemonSets(t *testing.T) {
	storytest.PlayCommands(t, "testdata/daemon", func(script *storytest.Story) storytest.Commands {
		s := newDaemonStory(script)
		return s.commands(storytest.Commands{
			"set":   s.setSet,
			"node":  func(words []string) { s.setNode(words[0], words[1:]) },
			"pause": func(words []string) { s.paused[words[0]] = s.Duration(words[1]) },
		})
	})
}

type daemonStory struct {
	podStory
	set    *appsv1.DaemonSet
	nodes  []*corev1.Node
	paused map[string]time.Duration
	made   int
}

func newDaemonStory(script *storytest.Story) *daemonStory {
	s := &daemonStory{podStory: podStory{Story: script}, paused: map[string]time.Duration{}}
	s.named = func(word string) string { return word }
	s.place = meantFor
	s.plan = s.planSet
	s.ready = func(p *corev1.Pod) { p.Spec.NodeName = meantFor(p) }
	return s
}

func (s *daemonStory) setNode(name string, words []string) {
	i := slices.IndexFunc(s.nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i >= 0 {
		s.nodes = slices.Delete(s.nodes, i, i+1)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "without":
			return
		case "taint":
			taint, effect, _ := strings.Cut(value, ":")
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: taint, Effect: corev1.TaintEffect(effect)})
		default:
			node.Labels[key] = value
		}
	}
	s.nodes = append(s.nodes, node)
}

func (s *daemonStory) setSet(words []string) {
	if s.set == nil {
		s.set = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d", UID: "d"}}
		s.set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type:          appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1)), MaxSurge: new(intstr.FromInt32(0))},
		}
		s.set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "v1"}}
	}
	set := s.set.DeepCopy()
	set.Generation++
	s.set = set
	storytest.Pairs(words, func(name, value string, n int32) {
		switch name {
		case "image":
			set.Spec.Template.Spec.Containers[0].Image = value
		case "unavailable":
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(value))
		case "surge":
			set.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.Parse(value))
		case "strategy":
			set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.DaemonSetUpdateStrategyType(value)}
		case "select":
			key, label, _ := strings.Cut(value, ":")
			set.Spec.Template.Spec.NodeSelector = nil
			if key != "" {
				set.Spec.Template.Spec.NodeSelector = map[string]string{key: label}
			}
		case "affinity":
			set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: value, Operator: corev1.NodeSelectorOpExists}},
				}}},
			}}
		case "tolerate":
			set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: value, Operator: corev1.TolerationOpExists}}
		case "minReadySeconds":
			set.Spec.MinReadySeconds = n
		case "deadline":
			set.Annotations = map[string]string{deadlineAnnotation: value}
		case "deleted":
			set.DeletionTimestamp = &metav1.Time{Time: s.Now}
		default:
			s.T.Fatalf("unknown field %q of a set", name)
		}
	})
}

func (s *daemonStory) view() *daemonView {
	return &daemonView{
		set: s.set, pods: s.pods, nodes: s.nodes, hash: s.set.Spec.Template.Spec.Containers[0].Image, now: s.Now,
		pause: func(node string) time.Duration { return s.paused[node] },
	}
}

func (s *daemonStory) planSet() (different bool) {
	plan := s.view().plan()
	for _, p := range plan.failed {
		s.Say("remove failed %s from %s (%s)", p.Name, meantFor(p), revisionOfPod(p))
		s.leave(p)
	}
	for _, p := range plan.remove {
		s.Say("remove %s from %s (%s)", p.Name, meantFor(p), revisionOfPod(p))
		s.leave(p)
	}
	for _, node := range plan.create {
		pod := daemonFrom(s.set, s.set.Spec.Template.Spec.Containers[0].Image, node)
		pod.Name = fmt.Sprintf("p%d", s.made)
		pod.UID = types.UID(pod.Name)
		pod.CreationTimestamp = metav1.NewTime(s.Now.Add(time.Duration(s.made) * time.Second))
		pod.Status.Phase = corev1.PodPending
		s.made++
		s.Say("create %s for %s (%s)", pod.Name, meantFor(pod), revisionOfPod(pod))
		s.pods = append(s.pods, pod)
	}
	different = len(plan.failed)+len(plan.remove)+len(plan.create) > 0
	st, after := s.view().status()
	if !equality.Semantic.DeepEqual(st, s.set.Status) {
		s.Say("desired=%d current=%d updated=%d ready=%d available=%d misscheduled=%d%s",
			st.DesiredNumberScheduled, st.CurrentNumberScheduled, st.UpdatedNumberScheduled, st.NumberReady, st.NumberAvailable, st.NumberMisscheduled,
			conditionWords(st.Conditions, func(c appsv1.DaemonSetCondition) (kind, status, reason any) { return c.Type, c.Status, c.Reason }))
		s.set = s.set.DeepCopy()
		s.set.Status = st
		different = true
	}
	if after = dependents.Sooner(after, plan.after); after > 0 {
		s.Say("look again in %v", after)
	}
	return different
}
