package dependents

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// TestClaims says what an owner does about one object (O1).
func TestClaims(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	web := labels.SelectorFromSet(labels.Set{"app": "web"})
	tests := []struct {
		name     string
		selector labels.Selector
		leaving  bool   // the owner
		of       string // UID of the object's controller
		app      string // the object's label
		going    bool   // the object
		want     string
	}{
		{"its own", web, false, "me", "web", false, "mine"},
		{"its own that goes", web, false, "me", "web", true, "mine"},
		{"its own of other labels", web, false, "me", "db", false, "release"},
		{"its own of other labels that goes", web, false, "me", "db", true, ""},
		{"its own of other labels, leaving", web, true, "me", "db", false, "mine"},
		{"somebody's", web, false, "you", "web", false, ""},
		{"nobody's", web, false, "", "web", false, "adopt"},
		{"nobody's of other labels", web, false, "", "db", false, ""},
		{"nobody's that goes", web, false, "", "web", true, ""},
		{"nobody's, leaving", web, true, "", "web", false, ""},
		{"nobody's, and all are selected", labels.Everything(), false, "", "web", false, ""},
		{"nobody's, and none is selected", labels.Nothing(), false, "", "web", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			owner := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "me"}}
			if tt.leaving {
				owner.DeletionTimestamp = &now
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": tt.app}}}
			if tt.of != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(tt.of), Controller: new(true)}}
			}
			if tt.going {
				pod.DeletionTimestamp = &now
			}
			c := planClaim(owner, tt.selector, []*corev1.Pod{pod})
			var got []string
			for what, pods := range map[string][]*corev1.Pod{"mine": c.mine, "adopt": c.adopt, "release": c.release} {
				if len(pods) > 0 {
					got = append(got, what)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestConditionsOfAnyType(t *testing.T) {
	var list []corev1.PodCondition
	c := Conditions[corev1.PodCondition]{
		List: &list,
		Pack: func(c metav1.Condition) corev1.PodCondition {
			return corev1.PodCondition{Type: corev1.PodConditionType(c.Type), Reason: c.Reason}
		},
		Unpack: func(c corev1.PodCondition) metav1.Condition {
			return metav1.Condition{Type: string(c.Type), Reason: c.Reason}
		},
	}
	c.Drop("A")
	c.Set(metav1.Condition{Type: "A", Reason: "first"})
	c.Set(metav1.Condition{Type: "B", Reason: "other"})
	c.Set(metav1.Condition{Type: "A", Reason: "second"})
	if one, ok := c.Find("A"); !ok || one.Reason != "second" || len(list) != 2 {
		t.Errorf("list = %+v", list)
	}
	c.Drop("A")
	c.Drop("B")
	if _, ok := c.Find("B"); ok || list != nil {
		t.Errorf("list = %#v, want nil", list)
	}
}
