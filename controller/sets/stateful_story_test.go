package sets

import (
	"fmt"
	"maps"
	"slices"
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

// TestStatefulSets plays the stories in testdata/stateful. A story has one StatefulSet "db", whose pods are named by their
// ordinals. Commands besides those of a podStory are
//
//	set name=value …  makes or changes the StatefulSet; claims=a,b are its claim templates, retain=DELETED/SCALED
//	                  their retention policy
//	claims            lists the claims and their owners
//	claim gone NAME   a claim was deleted; "going" means that it is being deleted, "uncontrolled" that its owners have ceased to be its
//	                  controllers
//	collect           does what the garbage collector does: claims of deleted pods are deleted
func TestStatefulSets(t *testing.T) {
	storytest.PlayCommands(t, "testdata/stateful", func(script *storytest.Story) storytest.Commands {
		s := newStatefulStory(script)
		return s.commands(storytest.Commands{
			"set":     s.setSet,
			"claims":  func([]string) { s.Say("%s", s.allClaims()) },
			"claim":   func(words []string) { s.setClaim(words[0], words[1]) },
			"collect": func([]string) { s.collect() },
		})
	})
}

type statefulStory struct {
	podStory
	set    *appsv1.StatefulSet
	claims map[string]*corev1.PersistentVolumeClaim
	made   int // pods
}

func newStatefulStory(script *storytest.Story) *statefulStory {
	s := &statefulStory{podStory: podStory{Story: script}, claims: map[string]*corev1.PersistentVolumeClaim{}}
	s.named = func(word string) string { return "db-" + word }
	s.place = func(p *corev1.Pod) string { return strings.TrimPrefix(p.Name, "db-") }
	s.plan = s.planSet
	return s
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
	storytest.Pairs(words, func(name, value string, n int32) {
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
		case "claims":
			for name := range strings.SplitSeq(value, ",") {
				set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		case "retain":
			deleted, scaled, _ := strings.Cut(value, "/")
			set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(deleted), WhenScaled: appsv1.PersistentVolumeClaimRetentionPolicyType(scaled),
			}
		case "deleted":
			set.DeletionTimestamp = &metav1.Time{Time: s.Now}
		default:
			s.T.Fatalf("unknown field %q of a set", name)
		}
	})
}

func (s *statefulStory) setClaim(state, name string) {
	if s.claims[name] == nil {
		s.T.Fatalf("no claim %s", name)
	}
	switch state {
	case "gone":
		delete(s.claims, name)
	case "going":
		s.claims[name].DeletionTimestamp = &metav1.Time{Time: s.Now}
	case "uncontrolled":
		c := s.claims[name].DeepCopy()
		for i := range c.OwnerReferences {
			c.OwnerReferences[i].Controller = new(false)
		}
		s.claims[name] = c
	default:
		s.T.Fatalf("unknown state %q of a claim", state)
	}
}

func (s *statefulStory) collect() {
	for name, c := range s.claims {
		for _, r := range c.OwnerReferences {
			if r.Kind == "Pod" && !slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool { return p.UID == r.UID }) {
				delete(s.claims, name)
			}
		}
	}
}

func (s *statefulStory) allClaims() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.claims)) {
		for _, r := range s.claims[name].OwnerReferences {
			name += "(" + r.Name + ")"
			if !controls(r) {
				name += "?"
			}
		}
		words = append(words, name)
	}
	return strings.Join(words, " ")
}

// keepClaims does what reconcile does.
func (s *statefulStory) keepClaims(plan claimPlan) (different bool) {
	for _, c := range plan.wait {
		s.Say("%s waits for the end of claim %s", c.pod, c.Name)
	}
	for _, c := range plan.hold {
		s.Say("claim %s: %d owners", c.Name, len(c.OwnerReferences))
		s.claims[c.Name] = c
	}
	for _, c := range plan.create {
		s.Say("create claim %s for %s", c.Name, c.pod)
		s.claims[c.Name] = c.PersistentVolumeClaim
	}
	return len(plan.hold)+len(plan.create) > 0
}

func (s *statefulStory) view() *statefulView {
	image := s.set.Spec.Template.Spec.Containers[0].Image
	v := &statefulView{set: s.set, pods: s.pods, update: image, current: s.set.Status.CurrentRevision, now: s.Now}
	v.claims = func(name string) (*corev1.PersistentVolumeClaim, bool) { c, ok := s.claims[name]; return c, ok }
	if v.current == "" {
		v.current = image
	}
	return v
}

func (s *statefulStory) planSet() (different bool) {
	v := s.view()
	plan := v.plan()
	different = s.keepClaims(plan.claims)
	for _, p := range plan.restart {
		s.Say("restart %s", p.Name)
		s.leave(p)
	}
	for _, p := range plan.remove {
		s.Say("remove %s (%s)", p.Name, revisionOfPod(p))
		s.leave(p)
	}
	for _, one := range plan.create {
		pod := statefulFrom(s.set, &s.set.Spec.Template, one)
		pod.Status.Phase = corev1.PodPending
		pod.UID = types.UID(fmt.Sprint("p", s.made))
		s.made++
		s.Say("create %s (%s)", pod.Name, one.revision)
		s.pods = append(s.pods, pod)
	}
	different = different || len(plan.restart)+len(plan.remove)+len(plan.create) > 0
	st, after := s.view().status()
	if !equality.Semantic.DeepEqual(st, s.set.Status) {
		s.Say("replicas=%d ready=%d available=%d current=%d updated=%d %s/%s%s",
			st.Replicas, st.ReadyReplicas, st.AvailableReplicas, st.CurrentReplicas, st.UpdatedReplicas, st.CurrentRevision, st.UpdateRevision,
			conditionWords(st.Conditions, func(c appsv1.StatefulSetCondition) (kind, status, reason any) { return c.Type, c.Status, c.Reason }))
		s.set = s.set.DeepCopy()
		s.set.Status = st
		different = true
	}
	if after = dependents.Sooner(after, plan.after); after > 0 {
		s.Say("look again in %v", after)
	}
	return different
}
