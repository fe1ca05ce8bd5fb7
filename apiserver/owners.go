package apiserver

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/catalog"
)

// afterAdmission is part of the warning about owner references that are duplicates after admission. Those of a patch are looked for
// only then, as upstream.
const afterAdmission = " after mutating admission happens"

// dropDuplicateOwners drops owner references that are equal to others in all fields, and returns the warning about them in the words of
// upstream.
func dropDuplicateOwners(obj catalog.Object, when string) []string {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return nil
	}
	kept := make([]metav1.OwnerReference, 0, len(refs))
	places := map[types.UID][]int{} // in kept
	var duplicates []string
	for i := range refs {
		uid := refs[i].UID
		if slices.ContainsFunc(places[uid], func(at int) bool { return equality.Semantic.DeepEqual(kept[at], refs[i]) }) {
			duplicates = append(duplicates, string(uid))
			continue
		}
		places[uid] = append(places[uid], len(kept))
		kept = append(kept, refs[i])
	}
	if len(duplicates) == 0 {
		return nil
	}
	obj.SetOwnerReferences(kept)
	return []string{fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s", when, strings.Join(duplicates, ", "))}
}
