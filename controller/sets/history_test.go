package sets

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/sampan-io/sampan/controller/dependents"
)

func TestHistoryKeepsItsLimit(t *testing.T) {
	r := record{}
	for range 4 {
		r.all = append(r.all, &appsv1.ControllerRevision{})
	}
	r.present = r.all[3]
	none := func(*appsv1.ControllerRevision) bool { return false }
	for limit, want := range map[int32]int{-1: 0, 0: 3, 2: 1, 3: 0, 9: 0} {
		o := recorded{Owner: dependents.Owner{Object: &appsv1.StatefulSet{}}, limit: &limit}
		if got := surplus(o, r, none); len(got) != want {
			t.Errorf("with the limit %d there are %d revisions too many, want %d", limit, len(got), want)
		}
	}
}
