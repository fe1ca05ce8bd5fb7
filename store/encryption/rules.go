package encryption

import (
	"encoding/base64"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rules is a configuration that is in use. It is not changed.
type rules struct {
	resources map[schema.GroupResource]*rule
	keys      []key // that can decrypt, whatever the resource
	plugins   []*plugin
}

// A rule says how the values of a resource are stored.
type rule struct {
	source string // the file
	write  key    // nil: values are not encrypted
	plain  bool   // values that are not encrypted may be read
}

// unencrypted is the rule of resources without one.
var unencrypted = &rule{plain: true}

// build makes rules of a configuration.
func (c *configuration) build(source string, log *slog.Logger) (_ *rules, err error) {
	out := &rules{resources: map[schema.GroupResource]*rule{}}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	for _, r := range c.Resources {
		providers := make([][]key, 0, len(r.Providers))
		for _, p := range r.Providers {
			keys, err := p.build(log)
			if err != nil {
				return nil, err
			}
			providers = append(providers, keys)
			out.keys = append(out.keys, keys...)
			for _, k := range keys {
				if plugin, ok := k.(*plugin); ok {
					out.plugins = append(out.plugins, plugin)
				}
			}
		}
		for _, name := range r.Resources {
			gr := schema.ParseGroupResource(name)
			one := out.resources[gr]
			if one == nil {
				one = &rule{source: source}
				if len(providers[0]) > 0 {
					one.write = providers[0][0]
				}
				out.resources[gr] = one
			}
			for i := range providers {
				one.plain = one.plain || r.Providers[i].Identity != nil
			}
		}
	}
	return out, nil
}

// build returns the keys of a provider; identity has none.
func (p *providerConfig) build(log *slog.Logger) ([]key, error) {
	var from []keyConfig
	var build func(name string, value []byte) (key, error)
	switch {
	case p.AESGCM != nil:
		from, build = p.AESGCM.Keys, newGCM
	case p.AESCBC != nil:
		from, build = p.AESCBC.Keys, newCBC
	case p.Secretbox != nil:
		from, build = p.Secretbox.Keys, newBox
	case p.KMS != nil:
		k, err := newPlugin(p.KMS, log)
		if err != nil {
			return nil, err
		}
		return []key{k}, nil
	}
	var out []key
	for _, c := range from {
		value, err := base64.StdEncoding.DecodeString(c.Secret)
		if err != nil {
			return nil, err
		}
		k, err := build(c.Name, value)
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}

func (r *rules) close() {
	for _, p := range r.plugins {
		p.close()
	}
}

// of returns the rule of a resource.
func (r *rules) of(resource schema.GroupResource) *rule {
	for _, name := range []schema.GroupResource{resource, {Group: resource.Group, Resource: "*"}, everything} {
		if one := r.resources[name]; one != nil {
			return one
		}
	}
	return unencrypted
}

// opener returns the key that a value is encrypted with, or nil.
func (r *rules) opener(data []byte) key {
	for _, k := range r.keys {
		if h := k.head(); len(data) >= len(h) && string(data[:len(h)]) == h {
			return k
		}
	}
	return nil
}

// add makes r read with the keys of other rules, too. r must not be in use yet.
func (r *rules) add(keys ...key) {
	for _, k := range keys {
		known := false
		for _, have := range r.keys {
			known = known || have.head() == k.head()
		}
		if !known {
			r.keys = append(r.keys, k)
		}
	}
}

// resourceOf returns the resource of a record, by the first segment of its key in the store.
func resourceOf(record string) schema.GroupResource {
	name, _, _ := strings.Cut(record, "/")
	return schema.ParseGroupResource(name)
}

// nameIn returns the provider and the name of the key of an encrypted value, for messages.
func nameIn(data []byte) (provider, name string) {
	rest := strings.TrimPrefix(string(data[:min(len(data), 300)]), prefix)
	provider, rest, _ = strings.Cut(rest, ":")
	_, rest, _ = strings.Cut(rest, ":")
	name, _, _ = strings.Cut(rest, ":")
	return provider, name
}
