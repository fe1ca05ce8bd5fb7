package sets

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/storytest"
)

// A podStory is what the stories of both kinds have in common: pods that live in the test
// alone. A revision is called by its image. Commands are
//
//	plan                      plan and carry out; what happens stands below with ">"
//	ready POD … | stop POD …  these pods serve; they do not
//	fail POD … | gone POD …   these pods end in failure; they are gone
//	roll                      plan, with pods that serve and go at once, to the end
//	pods                      the pods and their images
//	+DURATION                 time passes
type podStory struct {
	*storytest.Story
	pods []*corev1.Pod

	named func(word string) (pod string) // the name of a pod that a story calls so
	place func(pod *corev1.Pod) string   // as it is called in the list of pods
	plan  func() (different bool)        // does what reconcile does, and reports whether anything changed
	ready func(pod *corev1.Pod)          // what happens to a pod besides; nil means nothing
}

func (s *podStory) commands(more storytest.Commands) storytest.Commands {
	all := storytest.Commands{
		"plan": func([]string) { s.plan() },
		"roll": func([]string) { s.roll() },
		"pods": func([]string) { s.Say("%s", s.all()) },
	}
	for _, state := range []string{"ready", "stop", "fail", "gone"} {
		all[state] = func(words []string) {
			for _, w := range words {
				s.become(state, s.named(w))
			}
		}
	}
	maps.Copy(all, more)
	return all
}

func (s *podStory) become(state, name string) {
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		s.T.Fatalf("no pod %s", name)
	}
	p := s.pods[i].DeepCopy()
	s.pods[i] = p
	if s.ready != nil {
		s.ready(p)
	}
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
		s.T.Fatalf("unknown state %q", state)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(s.Now)}}
}

// leave marks a pod as one that is to go.
func (s *podStory) leave(pod *corev1.Pod) {
	i := slices.Index(s.pods, pod)
	s.pods[i] = pod.DeepCopy()
	s.pods[i].DeletionTimestamp = &metav1.Time{Time: s.Now}
}

// settle makes all pods ready and ends the pods that are being deleted, and returns whether there were any.
func (s *podStory) settle() (different bool) {
	for _, p := range slices.Clone(s.pods) {
		switch {
		case p.DeletionTimestamp != nil:
			s.become("gone", p.Name)
		case !podstate.Ready(p):
			s.become("ready", p.Name)
		default:
			continue
		}
		different = true
	}
	return different
}

func (s *podStory) all() string {
	var words []string
	for _, p := range s.pods {
		state := ""
		switch {
		case p.DeletionTimestamp != nil:
			state = "-"
		case podstate.Ready(p):
			state = "+"
		}
		words = append(words, s.place(p)+"="+revisionOfPod(p)+state)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (s *podStory) roll() {
	s.Roll(func() (different bool) {
		s.Quietly(func() { different = s.plan() })
		s.Say("%s", s.all())
		return s.settle() || different
	})
}

// conditionWords returns the conditions of a status as text.
func conditionWords[C any](list []C, words func(C) (kind, status, reason any)) (text string) {
	for _, c := range list {
		kind, status, reason := words(c)
		text += fmt.Sprintf(" %v=%v(%v)", kind, status, reason)
	}
	return text
}
