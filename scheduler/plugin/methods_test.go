package plugin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// named is the one method that all of the plug-ins below need.
type named struct{}

func (named) Name() string { return "N" }

// scores is right.
type scores struct{ named }

func (scores) Score(*plugin.Pod, *plugin.Node) int64 { return 0 }

type oldFilter struct{ scores }

func (oldFilter) Filter(*plugin.Pod) bool { return true }

type oldPermit struct{ scores }

func (oldPermit) Permit(context.Context, ...string) (plugin.Verdict, error) {
	return plugin.Verdict{}, nil
}

type pointerFilter struct{ scores }

func (*pointerFilter) Filter(*plugin.Pod, *plugin.Node) plugin.Verdict { return plugin.Verdict{} }

type halfReserve struct{ scores }

func (halfReserve) Reserve(context.Context, plugin.Placement) plugin.Verdict { return plugin.Verdict{} }

type busyOnly struct{ scores }

func (busyOnly) Busy(plugin.Placement) bool { return false }

type oldHints struct{ scores }

func (oldHints) Hints() plugin.Hint { return plugin.Hint{} }

type explainsNothing struct{ scores }

func (explainsNothing) Explain(*plugin.Pod, *plugin.Node) []plugin.Lack { return nil }

type normalizesNothing struct{ named }

func (normalizesNothing) Less(_, _ *plugin.Queued) bool     { return false }
func (normalizesNothing) Normalize([]*plugin.Node, []int64) {}

func TestAMethodThatWouldNotBeCalledIsRefused(t *testing.T) {
	for _, tt := range []struct {
		p    plugin.Plugin
		want string
	}{
		{oldFilter{}, `plug-in "N" (plugin_test.oldFilter): method Filter is func(*plugin.Pod) bool, want func(*plugin.Pod, *plugin.Node) plugin.Verdict`},
		{oldPermit{}, `method Permit is func(context.Context, ...string) (plugin.Verdict, error), want func(context.Context, plugin.Placement, plugin.Held) (plugin.Verdict, time.Duration)`},
		{pointerFilter{}, `method Filter has a pointer receiver, which a value of type plugin_test.pointerFilter does not have: use a *plugin_test.pointerFilter`},
		{halfReserve{}, `method Reserve is never called: method Unreserve, which belongs to it, is missing`},
		{busyOnly{}, `method Busy is never called: method PreBind, which belongs to it, is missing`},
		{oldHints{}, `method Hints is func() plugin.Hint, want func() []plugin.Hint`},
		{explainsNothing{}, `method Explain is never called: method Filter, whose refusals it explains, is missing`},
		{normalizesNothing{}, `method Normalize is never called: method Score, whose scores it normalizes, is missing`},
	} {
		err := plugin.Set{Entries: []plugin.Entry{{Plugin: tt.p}}}.Validate()
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%T: %v\nwant one error that says %s", tt.p, err, tt.want)
		}
	}
}

// selfCheck is its own Check and Scorer, as both return it.
type selfCheck struct{ named }

func (s selfCheck) PreFilter(context.Context, *plugin.Pod, *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	return s, plugin.Verdict{}
}

func (s selfCheck) PreScore(context.Context, *plugin.Pod, *plugin.Snapshot, []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	return s, plugin.Verdict{}
}

func (selfCheck) Filter(*plugin.Node) plugin.Verdict                       { return plugin.Verdict{} }
func (selfCheck) Explain(*plugin.Node) []plugin.Lack                       { return nil }
func (selfCheck) Score(*plugin.Node) int64                                 { return 0 }
func (selfCheck) Normalize(_ []*plugin.Node, _ []int64)                    {}
func (selfCheck) Mine(*plugin.Pod) (unrelated string)                      { return "" }
func (selfCheck) Narrow() (nodes []string, narrow bool)                    { return nil, false }
func (selfCheck) Sign(*plugin.Pod) string                                  { return "" }
func (selfCheck) PodAdded(_ *plugin.Pod, _ *plugin.Node)                   {}
func (selfCheck) PodRemoved(_ *plugin.Pod, _ *plugin.Node)                 {}
func (*selfCheck) Unrelated()                                              {}
func (selfCheck) PreBind(context.Context, plugin.Placement) plugin.Verdict { return plugin.Verdict{} }

func TestAPluginMayBeItsOwnCheckAndScorer(t *testing.T) {
	if err := (plugin.Set{Entries: []plugin.Entry{{Plugin: selfCheck{}}}}).Validate(); err != nil {
		t.Error(err)
	}
}

// follower follows half, and narrows with another signature.
type follower struct{}

func (follower) Filter(*plugin.Node) plugin.Verdict     { return plugin.Verdict{} }
func (follower) PodAdded(_ *plugin.Pod, _ *plugin.Node) {}

type narrower struct{}

func (narrower) Filter(*plugin.Node) plugin.Verdict { return plugin.Verdict{} }
func (narrower) Narrow() []string                   { return nil }

func TestAMethodOfACheckThatWouldNotBeCalledIsFound(t *testing.T) {
	for want, check := range map[string]plugin.Check{
		"method PodAdded is never called: method PodRemoved, which belongs to it, is missing": follower{},
		"method Narrow is func() []string, want func() ([]string, bool)":                      narrower{},
	} {
		if err := plugin.ValidateCheck(check); err == nil || err.Error() != want {
			t.Errorf("%T: %v, want %s", check, err, want)
		}
	}
}
