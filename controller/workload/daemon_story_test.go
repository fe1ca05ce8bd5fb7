package workload

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

	"github.com/sampan-io/sampan/internal/storytest"
)

// TestDaemonSets plays the stories in testdata/daemon. A story has one DaemonSet and
// nodes, which live in the test alone; a revision is called by its image, a pod p0, p1, …
// Commands are
//
//	set name=value …        make or change the DaemonSet
//	node NAME [k=v …]       a node with those labels; taint=KEY:EFFECT; without=yes: gone
//	plan                    plan and carry out; what happens stands below with ">"
//	ready P … | stop P …    these pods serve; they do not
//	fail P … | gone P …     these pods end in failure; they are gone
//	roll                    plan, with pods that serve and go at once, to the end
//	pause NODE DURATION     pods have failed on a node
//	+DURATION               time passes
func TestDaemonSets(t *testing.T) {
	storytest.Play(t, "testdata/daemon", func(t *testing.T) func(string) []string {
		s := &daemonStory{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), paused: map[string]time.Duration{}}
		return func(line string) []string {
			s.said = nil
			s.do(strings.Fields(line))
			return s.said
		}
	})
}

type daemonStory struct {
	t      *testing.T
	now    time.Time
	set    *appsv1.DaemonSet
	nodes  []*corev1.Node
	pods   []*corev1.Pod
	paused map[string]time.Duration
	made   int
	said   []string
}

func (s *daemonStory) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *daemonStory) do(words []string) {
	switch {
	case len(words) == 0:
	case words[0] == "set":
		s.setSet(words[1:])
	case words[0] == "node":
		s.setNode(words[1], words[2:])
	case words[0] == "plan":
		s.plan()
	case words[0] == "roll":
		s.roll()
	case words[0] == "pause":
		s.paused[words[1]] = s.duration(words[2])
	case strings.HasPrefix(words[0], "+"):
		s.now = s.now.Add(s.duration(words[0][1:]))
	default:
		for _, name := range words[1:] {
			s.become(words[0], name)
		}
	}
}

func (s *daemonStory) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *daemonStory) become(state, name string) {
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		s.t.Fatalf("no pod %s", name)
	}
	p := s.pods[i].DeepCopy()
	s.pods[i] = p
	ready := corev1.ConditionFalse
	p.Spec.NodeName = meantFor(p)
	switch state {
	case "ready":
		p.Status.Phase, ready = corev1.PodRunning, corev1.ConditionTrue
	case "stop":
		p.Status.Phase = corev1.PodRunning
	case "fail":
		p.Status.Phase = corev1.PodFailed
	case "gone":
		s.pods = slices.Delete(s.pods, i, i+1)
	default:
		s.t.Fatalf("unknown command %q", state)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(s.now)}}
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
	pairs(s.t, words, func(name, value string, n int32) {
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
			set.DeletionTimestamp = &metav1.Time{Time: s.now}
		default:
			s.t.Fatalf("unknown field %q of a set", name)
		}
	})
}

func (s *daemonStory) view() *daemonView {
	return &daemonView{
		set: s.set, pods: s.pods, nodes: s.nodes, hash: s.set.Spec.Template.Spec.Containers[0].Image, now: s.now,
		pause: func(node string) time.Duration { return s.paused[node] },
	}
}

// plan does what reconcile does, and tells it.
func (s *daemonStory) plan() (different bool) {
	plan := s.view().plan()
	for _, p := range slices.Concat(plan.failed, plan.remove) {
		what := "remove"
		if slices.Contains(plan.failed, p) {
			what = "remove failed"
		}
		s.say("%s %s from %s (%s)", what, p.Name, meantFor(p), p.Labels[revisionLabel])
		i := slices.Index(s.pods, p)
		s.pods[i] = p.DeepCopy()
		s.pods[i].DeletionTimestamp = &metav1.Time{Time: s.now}
	}
	for _, node := range plan.create {
		pod := daemonFrom(s.set, s.set.Spec.Template.Spec.Containers[0].Image, node)
		pod.Name = fmt.Sprintf("p%d", s.made)
		pod.UID = types.UID(pod.Name)
		pod.CreationTimestamp = metav1.NewTime(s.now.Add(time.Duration(s.made) * time.Second))
		pod.Status.Phase = corev1.PodPending
		s.made++
		s.say("create %s for %s (%s)", pod.Name, meantFor(pod), pod.Labels[revisionLabel])
		s.pods = append(s.pods, pod)
	}
	st, after := s.view().status()
	different = len(s.said) > 0
	if !equality.Semantic.DeepEqual(st, s.set.Status) {
		line := fmt.Sprintf("desired=%d current=%d updated=%d ready=%d available=%d misscheduled=%d",
			st.DesiredNumberScheduled, st.CurrentNumberScheduled, st.UpdatedNumberScheduled, st.NumberReady, st.NumberAvailable, st.NumberMisscheduled)
		for _, c := range st.Conditions {
			line += fmt.Sprintf(" %s=%s(%s)", c.Type, c.Status, c.Reason)
		}
		s.say("%s", line)
		s.set = s.set.DeepCopy()
		s.set.Status = st
		different = true
	}
	plan.again(after)
	if plan.after > 0 {
		s.say("look again in %v", plan.after)
	}
	return different
}

func (s *daemonStory) all() string {
	var words []string
	for _, p := range s.pods {
		state := ""
		switch {
		case p.DeletionTimestamp != nil:
			state = "-"
		case isReady(p):
			state = "+"
		}
		words = append(words, meantFor(p)+"="+p.Labels[revisionLabel]+state)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (s *daemonStory) roll() {
	for range 100 {
		kept := s.said
		s.said = nil
		different := s.plan()
		s.said = kept
		s.say("%s", s.all())
		for _, p := range slices.Clone(s.pods) {
			switch {
			case p.DeletionTimestamp != nil:
				s.become("gone", p.Name)
			case !isReady(p):
				s.become("ready", p.Name)
			default:
				continue
			}
			different = true
		}
		if !different {
			s.said = slices.Compact(s.said)
			return
		}
	}
	s.t.Fatal("it does not end")
}
