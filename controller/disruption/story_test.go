package disruption

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/storytest"
)

// TestStories plays the stories in testdata. A story has one budget and pods. Commands are
//
//	budget name=value …  makes or changes the budget
//	owner NAME SIZE      makes a controller of pods; SIZE "?" is unknown
//	pod NAME STATE OWNER sets a pod to ready, running, going (being deleted) or gone; OWNER is optional
//	evict POD            the API server grants an eviction
//	plan                 reconciles and writes the status
//	+DURATION            time passes
func TestStories(t *testing.T) {
	storytest.Play(t, "testdata", func(t *testing.T) func(string) []string {
		s := &story{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), pods: map[string]*corev1.Pod{}, owners: map[string]string{}, of: map[string]string{}}
		return func(line string) []string { return s.do(strings.Fields(line)) }
	})
}

type story struct {
	t      *testing.T
	now    time.Time
	budget policyv1.PodDisruptionBudget
	pods   map[string]*corev1.Pod
	owners map[string]string // sizes
	of     map[string]string // owner of a pod
}

func (s *story) do(words []string) []string {
	switch {
	case len(words) == 0:
	case words[0] == "budget":
		s.budget.Name, s.budget.Namespace = "b", "default"
		s.budget.Generation++
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			v := intstr.Parse(value)
			switch name {
			case "minAvailable":
				s.budget.Spec.MinAvailable, s.budget.Spec.MaxUnavailable = &v, nil
			case "maxUnavailable":
				s.budget.Spec.MinAvailable, s.budget.Spec.MaxUnavailable = nil, &v
			default:
				s.t.Fatalf("unknown field %q", name)
			}
		}
	case words[0] == "owner":
		s.owners[words[1]] = words[2]
	case words[0] == "pod":
		s.setPod(words[1], words[2], words[3:])
	case words[0] == "evict":
		s.budget.Status.DisruptionsAllowed--
		s.budget.Status.DisruptedPods = map[string]metav1.Time{words[1]: metav1.NewTime(s.now)}
	case words[0] == "plan":
		return s.plan()
	case strings.HasPrefix(words[0], "+"):
		d, err := time.ParseDuration(words[0][1:])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	default:
		s.t.Fatalf("unknown command %q", words[0])
	}
	return nil
}

func (s *story) setPod(name, state string, owner []string) {
	if state == "gone" {
		delete(s.pods, name)
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.pods[name] = pod
	if len(owner) > 0 {
		s.of[name] = owner[0]
	}
	switch state {
	case "ready", "going":
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if state == "going" {
			pod.DeletionTimestamp = &metav1.Time{Time: s.now}
		}
	case "running":
	default:
		s.t.Fatalf("unknown state %q", state)
	}
}

func (s *story) plan() (said []string) {
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		pods = append(pods, s.pods[name])
	}
	v := plan(&s.budget, pods, func(pod *corev1.Pod) (scale, bool, error) {
		owner, managed := s.of[pod.Name]
		n, err := strconv.Atoi(s.owners[owner])
		if managed && err != nil {
			return scale{}, false, errors.New("the size of " + owner + " is not known")
		}
		return scale{types.UID(owner), int32(n)}, managed, nil
	}, s.now)
	s.budget.Status = v.status
	st := v.status
	c := st.Conditions[0]
	line := fmt.Sprintf("expected=%d desired=%d healthy=%d allowed=%d %s", st.ExpectedPods, st.DesiredHealthy, st.CurrentHealthy, st.DisruptionsAllowed, c.Reason)
	if c.Message != "" {
		line += ": " + c.Message
	}
	for _, name := range slices.Sorted(maps.Keys(st.DisruptedPods)) {
		line += " disrupted=" + name
	}
	said = append(said, line)
	for _, e := range v.events {
		said = append(said, fmt.Sprintf("event %s %s: %s", e.kind, e.reason, e.message))
	}
	if v.after > 0 {
		said = append(said, fmt.Sprintf("look again in %v", v.after))
	}
	return said
}
