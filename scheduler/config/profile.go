package config

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/internal/document"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// everything disables all plug-ins where it stands.
const everything = "*"

// profile reads one of so many profiles.
func (r *reader) profile(p *profile, many int, ignored []string, path *field.Path) scheduler.Profile {
	out := scheduler.Profile{Name: corev1.DefaultSchedulerName, Share: r.percent(p.PercentageOfNodesToScore, path.Child("percentageOfNodesToScore"))}
	switch {
	case p.SchedulerName != nil && *p.SchedulerName != "":
		out.Name = *p.SchedulerName
	case p.SchedulerName != nil, many > 1:
		out.Name = ""
		r.fault(field.Required(path.Child("schedulerName"), "pods name it in spec.schedulerName"))
	}
	b := builder{reader: r, known: map[string]plugin.Plugin{}}
	for _, e := range r.from.Default.Entries {
		b.known[e.Name()] = e.Plugin
	}
	for _, other := range r.from.Others {
		b.known[other.Name()] = other
	}
	b.configure(p.PluginConfig, ignored, path.Child("pluginConfig"))
	if p.Plugins == nil {
		p.Plugins = &plugins{}
	}
	faults := len(r.errs)
	out.Plugins = b.build(p.Plugins, path.Child("plugins"))
	if err := out.Plugins.Validate(); err != nil && len(r.errs) == faults {
		for _, err := range parts(err) {
			r.fault(document.Fault(path.Child("plugins").String(), err))
		}
	}
	return out
}

// A builder puts the set of a profile together.
type builder struct {
	*reader
	known map[string]plugin.Plugin // with their arguments
}

// configure gives plug-ins their arguments.
func (b *builder) configure(list []oneArgs, ignored []string, path *field.Path) {
	seen := map[string]bool{}
	args := map[string]json.RawMessage{}
	at := map[string]*field.Path{}
	for i, c := range list {
		path := path.Index(i)
		switch {
		case seen[c.Name]:
			b.fault(field.Duplicate(path.Child("name"), c.Name))
			continue
		case b.known[c.Name] == nil:
			b.unknown(path.Child("name"), c.Name)
			continue
		}
		seen[c.Name] = true
		if _, ok := b.known[c.Name].(plugin.Configurable); !ok {
			b.fault(field.Forbidden(path.Child("args"), fmt.Sprintf("plug-in %s takes no arguments", c.Name)))
			continue
		}
		var head struct{ APIVersion, Kind string }
		if len(c.Args) > 0 && json.Unmarshal(c.Args, &head) == nil {
			if head.APIVersion != "" && head.APIVersion != version {
				b.fault(field.NotSupported(path.Child("args", "apiVersion"), head.APIVersion, []string{version}))
			}
			if want := c.Name + "Args"; head.Kind != "" && head.Kind != want {
				b.fault(field.NotSupported(path.Child("args", "kind"), head.Kind, []string{want}))
			}
		}
		args[c.Name], at[c.Name] = c.Args, path.Child("args")
	}
	const fit = "NodeResourcesFit"
	if _, ok := b.known[fit].(plugin.Configurable); ok && len(ignored) > 0 {
		args[fit] = ignoring(args[fit], ignored)
		if at[fit] == nil {
			at[fit] = path
		}
	}
	for name, raw := range args {
		configured, err := b.known[name].(plugin.Configurable).Configure(raw) // looked at above
		if err != nil {
			for _, err := range parts(err) {
				b.fault(document.Fault(at[name].String(), err))
			}
			continue
		}
		b.known[name] = configured
	}
}

// parts returns the errors that were joined into one.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// ignoring adds resources that extenders look after to the arguments of NodeResourcesFit.
func ignoring(args json.RawMessage, names []string) json.RawMessage {
	all := map[string]any{}
	if len(args) > 0 && json.Unmarshal(args, &all) != nil {
		return args // the plug-in reports the error when it decodes them
	}
	list, _ := all["ignoredResources"].([]any)
	for _, n := range names {
		list = append(list, n)
	}
	all["ignoredResources"] = list
	out, err := json.Marshal(all)
	if err != nil {
		return args
	}
	return out
}

func (b *builder) unknown(path *field.Path, name string) {
	var names []string
	for n := range b.known {
		names = append(names, n)
	}
	slices.Sort(names)
	b.fault(field.NotSupported(path, name, names))
}

// build merges the file's enabled and disabled plug-ins into the default set.
func (b *builder) build(p *plugins, path *field.Path) plugin.Set {
	set := b.multiPoint(&p.MultiPoint, path.Child("multiPoint"))
	masks := map[string]plugin.Points{}
	for _, e := range set.Entries {
		masks[e.Name()] = e.Points()
	}
	order := map[plugin.Points][]string{}
	for _, s := range []struct {
		point plugin.Points
		name  string
		set   *pluginSet
	}{
		{plugin.AtPreEnqueue, "preEnqueue", &p.PreEnqueue},
		{plugin.AtQueueSort, "queueSort", &p.QueueSort},
		{plugin.AtPreFilter, "preFilter", &p.PreFilter},
		{plugin.AtFilter, "filter", &p.Filter},
		{plugin.AtPostFilter, "postFilter", &p.PostFilter},
		{plugin.AtPreScore, "preScore", &p.PreScore},
		{plugin.AtScore, "score", &p.Score},
		{plugin.AtReserve, "reserve", &p.Reserve},
		{plugin.AtPermit, "permit", &p.Permit},
		{plugin.AtPreBind, "preBind", &p.PreBind},
		{plugin.AtBind, "bind", &p.Bind},
		{plugin.AtPostBind, "postBind", &p.PostBind},
	} {
		path := path.Child(s.name)
		for i, c := range s.set.Disabled {
			if c.Name == everything {
				for name := range masks {
					masks[name] &^= s.point
				}
			} else if b.known[c.Name] == nil {
				b.unknown(path.Child("disabled").Index(i).Child("name"), c.Name)
			} else {
				masks[c.Name] &^= s.point
			}
		}
		for i, c := range s.set.Enabled {
			path := path.Child("enabled").Index(i)
			e, ok := b.choice(c, path)
			switch {
			case !ok:
				continue
			case plugin.PointsOf(e.Plugin)&s.point == 0:
				b.fault(field.Invalid(path.Child("name"), c.Name, fmt.Sprintf("does not implement %s: it implements %s", s.name, plugin.PointsOf(e.Plugin))))
				continue
			case slices.Contains(order[s.point], c.Name):
				b.fault(field.Duplicate(path.Child("name"), c.Name))
				continue
			}
			order[s.point] = append(order[s.point], c.Name)
			masks[c.Name] |= s.point
			if at := set.Find(c.Name); at < 0 {
				set.Entries = append(set.Entries, e)
			} else if s.point == plugin.AtScore {
				set.Entries[at].Weight = e.Weight
			}
		}
	}
	var kept []plugin.Entry
	for _, e := range set.Entries {
		if mask := masks[e.Name()]; mask != 0 {
			e.Only = mask
			kept = append(kept, e)
		}
	}
	set.Entries = kept
	for point, names := range order {
		names = slices.DeleteFunc(names, func(name string) bool { return set.Find(name) < 0 })
		if len(names) > 0 {
			if set.Order == nil {
				set.Order = map[plugin.Points][]string{}
			}
			set.Order[point] = names
		}
	}
	return set
}

// multiPoint returns the plug-ins that are enabled wherever they have something to say.
func (b *builder) multiPoint(m *pluginSet, path *field.Path) plugin.Set {
	var set plugin.Set
	off, all := map[string]bool{}, false
	for i, c := range m.Disabled {
		if c.Name == everything {
			all = true
		} else if b.known[c.Name] == nil {
			b.unknown(path.Child("disabled").Index(i).Child("name"), c.Name)
		}
		off[c.Name] = true
	}
	for _, e := range b.from.Default.Entries {
		if !all && !off[e.Name()] {
			e.Plugin = b.known[e.Name()]
			set.Entries = append(set.Entries, e)
		}
	}
	seen := map[string]bool{}
	for i, c := range m.Enabled {
		path := path.Child("enabled").Index(i)
		e, ok := b.choice(c, path)
		if seen[c.Name] {
			b.fault(field.Duplicate(path.Child("name"), c.Name))
		}
		if seen[c.Name] = true; ok {
			set = set.With(e)
		}
	}
	return set
}

// choice returns the plug-in that a file names, with the weight that it gives it.
func (b *builder) choice(c choice, path *field.Path) (plugin.Entry, bool) {
	p := b.known[c.Name]
	if p == nil {
		b.unknown(path.Child("name"), c.Name)
		return plugin.Entry{}, false
	}
	e := plugin.Entry{Plugin: p, Weight: 1}
	if c.Weight != nil {
		if *c.Weight < 0 {
			b.fault(field.Invalid(path.Child("weight"), *c.Weight, "must not be negative"))
		}
		e.Weight = max(1, int64(*c.Weight))
	}
	return e, true
}
