package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestRollouts plays the stories in testdata/rollouts. A story has one Deployment, whose
// sets live in the test alone and are called by the image of their template.
// Commands are
//
//	deployment name=value …  make or change the Deployment
//	plan                     plan and carry out; what happens stands below with ">"
//	obey                     the sets have as many pods as they are to have
//	serve IMAGE N            so many pods of a set are available
//	fail IMAGE MESSAGE       a set cannot make its pods
//	break IMAGE              a pod of the set will never work
//	leave IMAGE | gone IMAGE a pod of the set goes on existing; it is gone
//	roll                     plan and obey, with all pods available at once, to the end
//	show                     the Deployment's annotations and conditions
//	+DURATION                time passes
func TestRollouts(t *testing.T) {
	storytest.PlayCommands(t, "testdata/rollouts", func(script *storytest.Story) storytest.Commands {
		s := newRolloutStory(script)
		return storytest.Commands{
			"deployment": s.setDeployment,
			"plan":       func([]string) { s.plan() },
			"obey":       func([]string) { s.obey() },
			"serve": func(words []string) {
				n, err := strconv.Atoi(words[1])
				if err != nil {
					s.T.Fatal(err)
				}
				s.serve(s.set(words[0]), int32(n))
			},
			"fail": func(words []string) {
				s.set(words[0]).Status.Conditions = []appsv1.ReplicaSetCondition{{
					Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: strings.Join(words[1:], " "),
				}}
			},
			"break": func(words []string) {
				s.addPod(s.set(words[0])).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName", Message: "no such name"},
				}}}
			},
			"leave": func(words []string) { s.addPod(s.set(words[0])) },
			"gone":  func(words []string) { s.pods[s.set(words[0]).UID] = nil },
			"roll":  func([]string) { s.roll() },
			"undo":  func(words []string) { s.undo(words[0]) },
			"show":  func([]string) { s.show() },
		}
	})
}

type rolloutStory struct {
	*storytest.Story
	d    *appsv1.Deployment
	sets []*appsv1.ReplicaSet
	pods map[types.UID][]*corev1.Pod
}

func newRolloutStory(script *storytest.Story) *rolloutStory {
	return &rolloutStory{Story: script, pods: map[types.UID][]*corev1.Pod{}}
}

func (s *rolloutStory) addPod(set *appsv1.ReplicaSet) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-" + imageOf(set)}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	s.pods[set.UID] = append(s.pods[set.UID], pod)
	return pod
}

func imageOf(set *appsv1.ReplicaSet) string { return set.Spec.Template.Spec.Containers[0].Image }

func (s *rolloutStory) set(image string) *appsv1.ReplicaSet {
	i := slices.IndexFunc(s.sets, func(set *appsv1.ReplicaSet) bool { return imageOf(set) == image })
	if i < 0 {
		s.T.Fatalf("no set of image %s", image)
	}
	s.sets[i] = s.sets[i].DeepCopy()
	return s.sets[i]
}

func (s *rolloutStory) setDeployment(words []string) {
	if s.d == nil {
		app := map[string]string{"app": "web"}
		s.d = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
		s.d.Spec.Selector = &metav1.LabelSelector{MatchLabels: app}
		s.d.Spec.Template.Labels = app
		s.d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "v1"}}
		s.d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("25%")), MaxUnavailable: new(intstr.FromString("25%"))},
		}
		s.d.Spec.ProgressDeadlineSeconds, s.d.Spec.RevisionHistoryLimit = new(int32(600)), new(int32(10))
	}
	d := s.d.DeepCopy()
	d.Generation++
	s.d = d
	annotate := func(key, value string) { d.Annotations = dependents.With(d.Annotations, key, value) }
	storytest.Pairs(words, func(name, value string, n int32) {
		switch name {
		case "replicas":
			d.Spec.Replicas = &n
		case "image":
			d.Spec.Template.Spec.Containers[0].Image = value
		case "surge":
			d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.Parse(value))
		case "unavailable":
			d.Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(value))
		case "strategy":
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.DeploymentStrategyType(value)}
		case "paused":
			d.Spec.Paused = value == "true"
		case "deadline":
			d.Spec.ProgressDeadlineSeconds = &n
		case "history":
			d.Spec.RevisionHistoryLimit = &n
		case "minReadySeconds":
			d.Spec.MinReadySeconds = n
		case "auto-rollback", "canaries", "promote", "abort":
			annotate("sampan.dev/"+name, value)
		case "cause":
			annotate("kubernetes.io/change-cause", value)
		case "deleted":
			d.DeletionTimestamp = &metav1.Time{Time: s.Now}
		default:
			s.T.Fatalf("unknown field %q of a deployment", name)
		}
	})
}

// undo does what kubectl rollout undo does: the annotations of the ReplicaSet replace those of the Deployment, apart from a few.
func (s *rolloutStory) undo(image string) {
	set, d := s.set(image), s.d.DeepCopy()
	annotations := map[string]string{revisionAnnotation: d.Annotations[revisionAnnotation]}
	for key, value := range set.Annotations {
		switch key {
		case revisionAnnotation, historyAnnotation, desiredAnnotation, maxAnnotation, appliedAnnotation:
		default:
			annotations[key] = value
		}
	}
	d.Annotations, d.Spec.Template = annotations, *bareTemplate(&set.Spec.Template)
	d.Generation++
	s.d = d
}

// obey does what the controller of ReplicaSets does.
func (s *rolloutStory) obey() {
	for i, set := range s.sets {
		set = set.DeepCopy()
		n := sizeOf(set)
		set.Status.Replicas, set.Status.ObservedGeneration = n, set.Generation
		set.Status.ReadyReplicas, set.Status.AvailableReplicas = min(set.Status.ReadyReplicas, n), min(set.Status.AvailableReplicas, n)
		set.Status.TerminatingReplicas = new(int32(0))
		s.sets[i] = set
	}
}

func (s *rolloutStory) serve(set *appsv1.ReplicaSet, n int32) {
	set.Status.ReadyReplicas, set.Status.AvailableReplicas = n, n
	set.Status.Replicas, set.Status.ObservedGeneration = sizeOf(set), set.Generation
}

func (s *rolloutStory) look() *rollout {
	return newRollout(s.d, s.sets, func(set *appsv1.ReplicaSet) []*corev1.Pod { return s.pods[set.UID] }, s.Now)
}

// plan does what reconcile does, and prints it. It reports whether anything changed.
func (s *rolloutStory) plan() (different bool) {
	r := s.look()
	if err := r.plan(); err != nil {
		s.T.Fatal(err)
	}
	made := attempt{}
	for _, p := range r.parts() {
		switch set := p.changed(); {
		case p.made:
			set := p.set
			set.Spec.Replicas, set.Annotations = &p.size, p.annotations
			set.UID, set.Generation = types.UID(set.Name), 1
			set.CreationTimestamp = metav1.NewTime(s.Now)
			s.sets = append(s.sets, set)
			made.name = set.Name
			s.Say("%s new: %d (revision %d)", imageOf(set), p.size, revisionOf(p.annotations))
			different = true
		case set != nil:
			if p.size != sizeOf(p.set) {
				set.Generation++
				s.Say("%s: %d to %d", imageOf(set), sizeOf(p.set), p.size)
			}
			if a, b := revisionOf(p.set.Annotations), revisionOf(p.annotations); a != b {
				s.Say("%s: revision %d to %d", imageOf(set), a, b)
			}
			i := slices.IndexFunc(s.sets, func(one *appsv1.ReplicaSet) bool { return one.UID == set.UID })
			s.sets[i] = set
			different = true
		}
	}
	now := s.look()
	if now.current != nil {
		now.current.annotations = annotateSet(s.d, now.current.set, now.old)
	}
	status, after := now.status(made)
	if back := now.retreat(&status); back != nil {
		s.Say("back to %s: %s", imageOf(back.to), back.note.Message)
		d, err := back.apply(s.d)
		if err != nil {
			s.T.Fatal(err)
		}
		d.Generation++
		s.d = d
		return true
	}
	updated := now.withStatus(status)
	if updated != s.d {
		different = true
		if !equality.Semantic.DeepEqual(updated.Status, s.d.Status) {
			s.Say("%s", s.status(&updated.Status))
		}
		s.d = updated
	}
	if s.d.DeletionTimestamp == nil && (s.d.Spec.Paused || now.complete(&status)) {
		for _, set := range outdated(s.d, now.old) {
			s.Say("forget %s", imageOf(set))
			s.sets = slices.DeleteFunc(s.sets, func(one *appsv1.ReplicaSet) bool { return one == set })
			different = true
		}
	}
	if after > 0 {
		s.Say("look again in %v", after)
	}
	return different
}

func (s *rolloutStory) status(st *appsv1.DeploymentStatus) string {
	words := []string{fmt.Sprintf("replicas=%d updated=%d ready=%d available=%d unavailable=%d", st.Replicas, st.UpdatedReplicas, st.ReadyReplicas, st.AvailableReplicas, st.UnavailableReplicas)}
	for _, c := range st.Conditions {
		words = append(words, fmt.Sprintf("%s=%s(%s)", c.Type, c.Status, c.Reason))
	}
	return strings.Join(words, " ")
}

// sizes returns the sizes of the sets as text, and checks that the limits are kept.
func (s *rolloutStory) sizes() string {
	var words []string
	all, serving := int32(0), int32(0)
	for _, set := range s.sets {
		words = append(words, fmt.Sprintf("%s=%d", imageOf(set), sizeOf(set)))
		all += sizeOf(set)
		serving += min(set.Status.AvailableReplicas, sizeOf(set))
	}
	return fmt.Sprintf("%s (all %d, serving %d)", strings.Join(words, " "), all, serving)
}

func (s *rolloutStory) roll() {
	s.Roll(func() (different bool) {
		s.Quietly(func() { different = s.plan() })
		s.Say("%s", s.sizes())
		s.obey()
		for _, set := range s.sets {
			if set.Status.AvailableReplicas != sizeOf(set) {
				different = true
			}
			s.serve(s.set(imageOf(set)), sizeOf(set))
		}
		return different
	})
}

func (s *rolloutStory) show() {
	for _, c := range s.d.Status.Conditions {
		s.Say("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k := range s.d.Annotations {
			if !yield(k) {
				return
			}
		}
	}) {
		s.Say("%s: %s", key, s.d.Annotations[key])
	}
}
