package builtin

import (
	"context"
	"encoding/json"
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeResourcesBalancedAllocation prefers nodes whose resources the pod brings into balance: where, with it, about the same
// share of each is in use. The zero value looks at CPU and memory.
type NodeResourcesBalancedAllocation struct {
	Resources []ResourceSpec
}

// Name implements [plugin.Plugin].
func (NodeResourcesBalancedAllocation) Name() string { return "NodeResourcesBalancedAllocation" }

// Configure implements [plugin.Configurable].
func (b NodeResourcesBalancedAllocation) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var a struct {
		Resources []ResourceSpec `json:"resources"`
	}
	if err := plugin.DecodeArgs(args, &a); err != nil {
		return nil, err
	}
	at := field.NewPath("resources")
	errs := validateResources(a.Resources, at)
	for i, r := range a.Resources {
		if r.Weight > 1 {
			errs = append(errs, field.Invalid(at.Index(i).Child("weight"), r.Weight, "want 1: all resources count the same in a balance"))
		}
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	b.Resources = withDefaults(a.Resources)
	return b, nil
}

func (b NodeResourcesBalancedAllocation) resources() []ResourceSpec {
	if len(b.Resources) == 0 {
		return defaultResources
	}
	return b.Resources
}

// PreScore implements [plugin.PreScore]. A pod that asks for nothing changes no balance.
func (b NodeResourcesBalancedAllocation) PreScore(_ context.Context, pod *plugin.Pod, _ *plugin.Snapshot, _ []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	for _, r := range b.resources() {
		if pod.Requests.Amount(r.Name) > 0 {
			return nil, plugin.Verdict{}
		}
	}
	return nil, plugin.Skip
}

// Score implements [plugin.Score]. It is 75 where the pod changes nothing, more where it brings the
// shares nearer together, and less where it moves them apart.
func (b NodeResourcesBalancedAllocation) Score(pod *plugin.Pod, node *plugin.Node) int64 {
	var without, with deviation
	for _, r := range b.resources() {
		if u, ok := usageOf(r.Name, pod, node, false); ok {
			without.add(u.without, u.has)
			with.add(u.with, u.has)
		}
	}
	const half = plugin.MaxScore / 2
	return half + (half+with.score()-without.score())/2
}

// deviation works out the standard deviation of shares.
type deviation struct {
	n            int
	sum, squares float64
}

func (d *deviation) add(taken, has int64) {
	share := min(float64(taken)/float64(has), 1)
	d.n, d.sum, d.squares = d.n+1, d.sum+share, d.squares+share*share
}

// score is from MaxScore/2, for shares as far apart as can be, to MaxScore, for equal ones.
func (d *deviation) score() int64 {
	if d.n < 2 {
		return plugin.MaxScore
	}
	mean := d.sum / float64(d.n)
	// Rounded to a billionth, so that the order in which shares were added makes no difference.
	std := math.Round(math.Sqrt(max(d.squares/float64(d.n)-mean*mean, 0))*1e9) / 1e9
	return int64((1 - std) * plugin.MaxScore)
}
