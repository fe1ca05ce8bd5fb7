package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Controllers says which controllers a cluster runs, as kube-controller-manager's flag
// of that name does: names separated by commas, * for all, -NAME for all but that one
// behind a *. The first word about a controller counts. Empty means all. It lets
// others work in the place of ours.
type Controllers string

// A part is a controller under the name and the short name that upstream has for it,
// and the loops that are its.
type part struct {
	name, alias string
	loops       []string
}

func parts() []part {
	return []part{
		{"daemonset-controller", "daemonset", []string{"daemonset-controller"}},
		{"deployment-controller", "deployment", []string{"deployment-controller"}},
		{"disruption-controller", "disruption", []string{"disruption-controller"}},
		// This one writes Endpoints and mirrors them, too.
		{"endpointslice-controller", "endpointslice", []string{"endpoints"}},
		{"ephemeral-volume-controller", "ephemeral-volume", []string{"ephemeral-volume-controller"}},
		{"garbage-collector-controller", "garbagecollector", []string{"garbage-collector"}},
		{"job-controller", "job", []string{"job-controller", "job-orphans"}},
		{"namespace-controller", "namespace", []string{"namespaces"}},
		{"node-lifecycle-controller", "nodelifecycle", []string{"nodes"}},
		{"persistentvolume-binder-controller", "persistentvolume-binder", []string{"persistentvolume-binder-controller"}},
		{"persistentvolume-protection-controller", "pv-protection", []string{"persistentvolume-protection-controller"}},
		{"persistentvolumeclaim-protection-controller", "pvc-protection", []string{"persistentvolumeclaim-protection-controller"}},
		{"pod-garbage-collector-controller", "podgc", []string{"finished-pods"}},
		{"replicaset-controller", "replicaset", []string{"replicaset-controller"}},
		{"replicationcontroller-controller", "replicationcontroller", []string{"replication-controller"}},
		{"service-lb-controller", "service", []string{"service-lb-controller"}},
		// This one publishes the root certificate, too.
		{"serviceaccount-controller", "serviceaccount", []string{"accounts"}},
		{"statefulset-controller", "statefulset", []string{"statefulset-controller"}},
	}
}

// words returns the names as they were said.
func (c Controllers) words() []string {
	if c == "" {
		return nil
	}
	return strings.Split(string(c), ",")
}

// check returns an error for each name that no controller has.
func (c Controllers) check() error {
	var known []string
	for _, p := range parts() {
		known = append(known, p.name, p.alias)
	}
	var errs []error
	for _, word := range c.words() {
		if word != "*" && !slices.Contains(known, strings.TrimPrefix(word, "-")) {
			var names []string
			for _, p := range parts() {
				names = append(names, p.name)
			}
			errs = append(errs, fmt.Errorf("--controllers: %q is none; want *, or names with or without a - before them, of: %s", word, strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// Off returns the loops that are not to run.
func (c Controllers) Off() []string {
	var off []string
	for _, p := range parts() {
		if !c.runs(p) {
			off = append(off, p.loops...)
		}
	}
	return off
}

func (c Controllers) runs(p part) bool {
	star := c == ""
	for _, word := range c.words() {
		switch word {
		case "*":
			star = true
		case p.name, p.alias:
			return true
		case "-" + p.name, "-" + p.alias:
			return false
		}
	}
	return star
}

// String implements pflag.Value.
func (c *Controllers) String() string { return string(*c) }

// Set implements pflag.Value.
func (c *Controllers) Set(text string) error {
	*c = Controllers(text)
	return nil
}

// Type implements pflag.Value.
func (*Controllers) Type() string { return "names" }
