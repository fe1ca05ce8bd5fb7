package scheduler

import (
	"fmt"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A Profile is a set of plug-ins for the pods that name it.
type Profile struct {
	Name    string // spec.schedulerName of the pods
	Plugins plugin.Set
	Share   int // see [Decider.Share]
}

// A profile is a Profile in use.
type profile struct {
	Profile
	decider    *Decider
	signers    []plugin.Signer
	sort       plugin.QueueSort // nil means in the order of arrival
	preEnqueue []plugin.PreEnqueue
	reserve    []plugin.Reserve
	permit     []plugin.Permit
	preBind    []plugin.PreBind
	bind       []plugin.Bind
	postBind   []plugin.PostBind
	hints      map[string][]plugin.Hint // by plug-in
}

func newProfile(p Profile) (*profile, error) {
	d, err := NewDecider(p.Plugins)
	if err != nil {
		return nil, fmt.Errorf("profile %q: %w", p.Name, err)
	}
	d.Share = p.Share
	out := &profile{Profile: p, decider: d, hints: map[string][]plugin.Hint{}}
	for _, e := range p.Plugins.Entries {
		if s, ok := e.Plugin.(plugin.Signer); ok {
			out.signers = append(out.signers, s)
		}
		if h, ok := e.Plugin.(plugin.Hinter); ok {
			if out.hints[e.Name()], err = hintsOf(h); err != nil {
				return nil, fmt.Errorf("profile %q: %w", p.Name, err)
			}
		}
	}
	set := p.Plugins
	for _, e := range set.At(plugin.AtQueueSort) {
		out.sort, _ = e.Plugin.(plugin.QueueSort)
	}
	out.preEnqueue = at[plugin.PreEnqueue](set, plugin.AtPreEnqueue)
	out.reserve = at[plugin.Reserve](set, plugin.AtReserve)
	out.permit = at[plugin.Permit](set, plugin.AtPermit)
	out.preBind = at[plugin.PreBind](set, plugin.AtPreBind)
	out.bind = at[plugin.Bind](set, plugin.AtBind)
	out.postBind = at[plugin.PostBind](set, plugin.AtPostBind)
	return out, nil
}

func at[T any](set plugin.Set, point plugin.Points) []T {
	var all []T
	for _, e := range set.At(point) {
		if p, ok := e.Plugin.(T); ok {
			all = append(all, p)
		}
	}
	return all
}
