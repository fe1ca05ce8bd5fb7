package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/core"
)

// TestControllersAmongOwnersAreQuotedTwice has an object with many controllers as owners: each fault quotes all of them.
func TestControllersAmongOwnersAreQuotedTwice(t *testing.T) {
	var kind *catalog.Kind
	for _, k := range core.Kinds() {
		if k.Kind == "ConfigMap" {
			kind = k
		}
	}
	object := func(n int) *corev1.ConfigMap {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "1", UID: "u"}}
		for i := range n {
			c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)), Controller: new(true)})
		}
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", UID: "last"})
		return c
	}
	for n, want := range map[int]int{1: 1, 2: 2, 3: 3, 500: 3} { // one fault is that of the last owner
		for _, old := range []catalog.Object{nil, object(0)} {
			if old != nil {
				old.SetOwnerReferences(nil)
			}
			errs := catalog.ValidateMeta(kind, object(n), old)
			if len(errs) != want || !strings.Contains(errs.ToAggregate().Error(), "must not be empty") {
				t.Errorf("%d controllers, update %v: %d faults, want %d: %.300v", n, old != nil, len(errs), want, errs)
			}
		}
	}
}
