package builtin

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// DefaultPreemption says of a pod that fits nowhere whether the end of others could help.
type DefaultPreemption struct{}

// Name implements [plugin.Plugin].
func (DefaultPreemption) Name() string { return "DefaultPreemption" }

// PostFilter implements [plugin.PostFilter].
func (DefaultPreemption) PostFilter(_ context.Context, f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
	if p := f.Pod().Spec.PreemptionPolicy; p != nil && *p == corev1.PreemptNever {
		return plugin.Nomination{}, plugin.Refuse("preemption: not eligible due to preemptionPolicy=Never.")
	}
	nodes := f.Snapshot().Nodes()
	final := 0
	for _, n := range nodes {
		if v, _ := f.Verdict(n); v.Code == plugin.Unresolvable {
			final++
		}
	}
	var why []string
	if n := len(nodes) - final; n > 0 {
		why = append(why, fmt.Sprintf("%d No preemption victims found for incoming pod", n))
	}
	if final > 0 {
		why = append(why, fmt.Sprintf("%d Preemption is not helpful for scheduling", final))
	}
	if len(why) == 2 && why[1] < why[0] {
		why[0], why[1] = why[1], why[0]
	}
	return plugin.Nomination{}, plugin.Refuse(fmt.Sprintf("preemption: 0/%d nodes are available: %s.", len(nodes), strings.Join(why, ", ")))
}
