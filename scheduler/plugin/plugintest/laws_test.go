package plugintest

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// misdeclares returns a check and a scorer with a method each of another signature than the contract's.
type misdeclares struct{ check, scorer bool }

func (misdeclares) Name() string { return "Misdeclares" }

func (m misdeclares) PreFilter(context.Context, *plugin.Pod, *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if !m.check {
		return nil, plugin.Verdict{}
	}
	return deafCheck{}, plugin.Verdict{}
}

func (m misdeclares) PreScore(context.Context, *plugin.Pod, *plugin.Snapshot, []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	if !m.scorer {
		return nil, plugin.Verdict{}
	}
	return wildScorer{}, plugin.Verdict{}
}

type deafCheck struct{}

func (deafCheck) Filter(*plugin.Node) plugin.Verdict { return plugin.Verdict{} }
func (deafCheck) PodAdded(*plugin.Pod)               {}

// narrowsItself has the method of a Narrower, but returns no Check.
type narrowsItself struct{ misdeclares }

func (narrowsItself) Narrow() ([]string, bool) { return nil, false }

type wildScorer struct{}

func (wildScorer) Score(*plugin.Node) int64 { return 1 << 20 }
func (wildScorer) Normalize([]int64)        {}

func TestTheKitFindsMisdeclaredMethodsOfChecksAndScorers(t *testing.T) {
	w := Worlds().Filter(func(w World) bool { return len(w.Nodes) > 0 }).Example(1)
	for _, tt := range []struct {
		p    misdeclares
		want string
	}{
		{misdeclares{check: true}, "PreFilter returns a plugintest.deafCheck: method PodAdded is func(*plugin.Pod), want func(*plugin.Pod, *plugin.Node)"},
		{misdeclares{scorer: true}, "PreScore returns a plugintest.wildScorer: method Normalize is func([]int64), want func([]*plugin.Node, []int64)"},
	} {
		if err := misdeclared(tt.p, w); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("misdeclared = %v, want %s", err, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) { declared(t, misdeclares{}, w) })
	if err := misdeclared(narrowsItself{}, w); err == nil || !strings.Contains(err.Error(), "PreFilter returns no Check, so Narrow of the plugintest.narrowsItself would never be called") {
		t.Errorf("misdeclared = %v", err)
	}
}
