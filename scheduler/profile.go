package scheduler

import (
	"fmt"
	"strings"

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
	decider     *Decider // used by one job at a time, made anew when one is given up
	signers     []plugin.Signer
	signerNames string
	sort        plugin.QueueSort // nil: as they come
	sortName    string
	preEnqueue  []plugin.PreEnqueue
	reserve     []plugin.Reserve
	permit      []plugin.Permit
	preBind     []plugin.PreBind
	bind        []plugin.Bind
	postBind    []plugin.PostBind
	hinters     map[string]*hinter
	calls       *calls // of the keeper
}

func newProfile(p Profile, c *calls) (*profile, error) {
	d, err := NewDecider(p.Plugins)
	if err != nil {
		return nil, fmt.Errorf("profile %q: %w", p.Name, err)
	}
	d.Share = p.Share
	out := &profile{Profile: p, decider: d, hinters: map[string]*hinter{}, calls: c}
	var signers []string
	for _, e := range p.Plugins.Entries {
		if s, ok := e.Plugin.(plugin.Signer); ok {
			out.signers, signers = append(out.signers, s), append(signers, e.Name())
		}
		if h, ok := e.Plugin.(plugin.Hinter); ok {
			if out.hinters[e.Name()], err = newHinter(h); err != nil {
				return nil, fmt.Errorf("profile %q: %w", p.Name, err)
			}
		}
	}
	out.signerNames = strings.Join(signers, ", ")
	set := p.Plugins
	for _, e := range set.At(plugin.AtQueueSort) {
		out.sort, _ = e.Plugin.(plugin.QueueSort)
		out.sortName = e.Name()
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

// renew gives the profile another decider, since somebody who was given up may still use this one.
func (p *profile) renew() {
	d, err := NewDecider(p.Plugins)
	if err != nil {
		return // it was valid before
	}
	d.Share = p.Share
	p.decider = d
}
