package plugin

import (
	"reflect"
	"slices"
	"testing"
)

// TestEveryMethodOfTheContractIsLookedFor compares the names that are written down with the interfaces.
func TestEveryMethodOfTheContractIsLookedFor(t *testing.T) {
	known := map[string]bool{}
	for _, i := range slices.Concat(pluginContract(), checkContract(), scorerContract()) {
		for m := range i.Methods() {
			known[m.Name] = true
			if _, ok := methodOf(i, m.Name); !ok && m.Name != "Name" {
				t.Errorf("methodOf(%v) does not find %s", i, m.Name)
			}
		}
	}
	for _, name := range contractMethods() {
		if !known[name] {
			t.Errorf("no interface has a method %s", name)
		}
	}
	if len(contractMethods()) != len(known)-1 {
		t.Errorf("%d names are written down, and the interfaces have %d", len(contractMethods()), len(known)-1)
	}
	if _, ok := methodOf(reflect.TypeFor[Plugin](), "Name"); ok {
		t.Error("methodOf finds Name, which has no other signature")
	}
}
