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
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/storytest"
)

// TestStatefulSets plays the stories in testdata/stateful. A story has one StatefulSet
// "db", whose pods live in the test alone; a revision is called by its image. Commands
// are
//
//	set name=value …  make or change the StatefulSet
//	plan              plan and carry out; what happens stands below with ">"
//	ready N …         these pods serve
//	fail N | stop N   the pod ends in failure; it is not ready any more
//	gone N …          these pods are gone
//	roll              plan, with pods that serve and go at once, to the end
//	pods              the pods and their images
//	+DURATION         time passes
func TestStatefulSets(t *testing.T) {
	storytest.Play(t, "testdata/stateful", func(t *testing.T) func(string) []string {
		s := &statefulStory{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		return func(line string) []string {
			s.said = nil
			s.do(strings.Fields(line))
			return s.said
		}
	})
}

type statefulStory struct {
	t    *testing.T
	now  time.Time
	set  *appsv1.StatefulSet
	pods []*corev1.Pod
	said []string
}

func (s *statefulStory) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *statefulStory) do(words []string) {
	switch {
	case len(words) == 0:
	case words[0] == "set":
		s.setSet(words[1:])
	case words[0] == "plan":
		s.plan()
	case words[0] == "roll":
		s.roll()
	case words[0] == "pods":
		s.say("%s", s.all())
	case strings.HasPrefix(words[0], "+"):
		d, err := time.ParseDuration(words[0][1:])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	default:
		for _, n := range words[1:] {
			s.become(words[0], "db-"+n)
		}
	}
}

func (s *statefulStory) become(state, name string) {
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		s.t.Fatalf("no pod %s", name)
	}
	p := s.pods[i].DeepCopy()
	s.pods[i] = p
	ready := corev1.ConditionFalse
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

func (s *statefulStory) setSet(words []string) {
	if s.set == nil {
		s.set = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}}
		s.set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		s.set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		s.set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "v1"}}
	}
	set := s.set.DeepCopy()
	set.Generation++
	s.set = set
	pairs(s.t, words, func(name, value string, n int32) {
		switch name {
		case "replicas":
			set.Spec.Replicas = &n
		case "image":
			set.Spec.Template.Spec.Containers[0].Image = value
		case "partition":
			set.Spec.UpdateStrategy.RollingUpdate.Partition = &n
		case "maxUnavailable":
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(value))
		case "start":
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: n}
		case "management":
			set.Spec.PodManagementPolicy = appsv1.PodManagementPolicyType(value)
		case "strategy":
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.StatefulSetUpdateStrategyType(value)}
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

func (s *statefulStory) view() *statefulView {
	image := s.set.Spec.Template.Spec.Containers[0].Image
	v := &statefulView{set: s.set, pods: s.pods, update: image, current: s.set.Status.CurrentRevision, now: s.now}
	if v.current == "" {
		v.current = image
	}
	return v
}

// plan does what reconcile does, and tells it.
func (s *statefulStory) plan() (different bool) {
	v := s.view()
	plan := v.plan()
	for _, p := range plan.restart {
		s.say("restart %s", p.Name)
	}
	for _, p := range slices.Concat(plan.restart, plan.remove) {
		if !slices.Contains(plan.restart, p) {
			s.say("remove %s (%s)", p.Name, revisionOfPod(p))
		}
		i := slices.Index(s.pods, p)
		s.pods[i] = p.DeepCopy()
		s.pods[i].DeletionTimestamp = &metav1.Time{Time: s.now}
	}
	for _, one := range plan.create {
		pod := statefulFrom(s.set, &s.set.Spec.Template, one)
		pod.Status.Phase = corev1.PodPending
		s.say("create %s (%s)", pod.Name, one.revision)
		s.pods = append(s.pods, pod)
	}
	v = s.view()
	status, after := v.status()
	different = len(s.said) > 0
	if !equality.Semantic.DeepEqual(status, s.set.Status) {
		line := fmt.Sprintf("replicas=%d ready=%d available=%d current=%d updated=%d %s/%s",
			status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.CurrentReplicas, status.UpdatedReplicas, status.CurrentRevision, status.UpdateRevision)
		for _, c := range status.Conditions {
			line += fmt.Sprintf(" %s=%s(%s)", c.Type, c.Status, c.Reason)
		}
		s.say("%s", line)
		s.set = s.set.DeepCopy()
		s.set.Status = status
		different = true
	}
	if plan.after > 0 && (after == 0 || plan.after < after) {
		after = plan.after
	}
	if after > 0 {
		s.say("look again in %v", after)
	}
	return different
}

func (s *statefulStory) all() string {
	var words []string
	for _, p := range s.pods {
		state := ""
		switch {
		case p.DeletionTimestamp != nil:
			state = "-"
		case isReady(p):
			state = "+"
		}
		words = append(words, strings.TrimPrefix(p.Name, "db-")+"="+revisionOfPod(p)+state)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (s *statefulStory) roll() {
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
