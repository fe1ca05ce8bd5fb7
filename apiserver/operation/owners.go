package operation

import (
	"fmt"
	"strings"

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
	known := make(map[reference]bool, len(refs))
	var duplicates []string
	for i := range refs {
		r := referenceOf(&refs[i])
		if known[r] {
			duplicates = append(duplicates, string(refs[i].UID))
			continue
		}
		known[r] = true
		kept = append(kept, refs[i])
	}
	if len(duplicates) == 0 {
		return nil
	}
	obj.SetOwnerReferences(kept)
	return []string{fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s", when, strings.Join(duplicates, ", "))}
}

// A reference is an owner reference that can be compared.
type reference struct {
	apiVersion, kind, name string
	uid                    types.UID
	controller, blocks     choice
}

// A choice is a pointer to a bool: nil, or its value.
type choice struct{ made, is bool }

func choiceOf(b *bool) choice { return choice{b != nil, b != nil && *b} }

func referenceOf(r *metav1.OwnerReference) reference {
	return reference{r.APIVersion, r.Kind, r.Name, r.UID, choiceOf(r.Controller), choiceOf(r.BlockOwnerDeletion)}
}
