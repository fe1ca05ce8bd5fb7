package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Controllers says which controllers a cluster runs, as kube-controller-manager's flag
// of that name does: names separated by commas, * for all, -NAME for all but that one
// behind a *. The first word about a controller counts. Empty means all. The scheduler, which is a
// program of its own upstream, can be turned off as well (-scheduler), and runs otherwise. It lets
// others work in the place of ours.
type Controllers string

// A part is a controller under the name and the short name that upstream has for it,
// and the loops that are its.
type part struct {
	name, alias string
	loops       []string
	apart       bool // not selected by * or by a list of names
}

// SchedulerLoop is the loop of the scheduler, in [Controllers.Off].
const SchedulerLoop = "scheduler"

// NodesLoop is the loop of the node lifecycle controller, in [Controllers.Off].
const NodesLoop = "nodes"

func parts() []part {
	return []part{
		{name: "bootstrap-signer-controller", alias: "bootstrapsigner", loops: []string{"bootstrap-signer-controller"}},
		{name: "certificatesigningrequest-approving-controller", alias: "csrapproving", loops: []string{"certificatesigningrequest-approving-controller"}},
		{name: "certificatesigningrequest-cleaner-controller", alias: "csrcleaner", loops: []string{"certificatesigningrequest-cleaner-controller"}},
		{name: "certificatesigningrequest-signing-controller", alias: "csrsigning", loops: []string{"certificatesigningrequest-signing-controller"}},
		{name: "clusterrole-aggregation-controller", alias: "clusterrole-aggregation", loops: []string{"clusterrole-aggregation-controller"}},
		{name: "cronjob-controller", alias: "cronjob", loops: []string{"cronjob-controller"}},
		{name: "daemonset-controller", alias: "daemonset", loops: []string{"daemonset-controller"}},
		{name: "deployment-controller", alias: "deployment", loops: []string{"deployment-controller"}},
		{name: "device-taint-eviction-controller", alias: "device-taint-eviction-controller", loops: []string{"device-taint-eviction-controller", "device-taint-rule-status"}},
		{name: "disruption-controller", alias: "disruption", loops: []string{"disruption-controller"}},
		// This one writes Endpoints and mirrors them, too.
		{name: "endpointslice-controller", alias: "endpointslice", loops: []string{"endpoints"}},
		{name: "ephemeral-volume-controller", alias: "ephemeral-volume", loops: []string{"ephemeral-volume-controller"}},
		{name: "garbage-collector-controller", alias: "garbagecollector", loops: []string{"garbage-collector"}},
		{name: "horizontal-pod-autoscaler-controller", alias: "horizontalpodautoscaling", loops: []string{"horizontal-pod-autoscaler-controller"}},
		{name: "job-controller", alias: "job", loops: []string{"job-controller", "job-orphans"}},
		{name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", alias: "kube-apiserver-serving-clustertrustbundle-publisher-controller", loops: []string{"kube-apiserver-serving-clustertrustbundle-publisher-controller"}},
		{name: "legacy-serviceaccount-token-cleaner-controller", alias: "legacy-service-account-token-cleaner", loops: []string{"legacy-serviceaccount-token-cleaner-controller"}},
		{name: "namespace-controller", alias: "namespace", loops: []string{"namespaces"}},
		{name: "node-lifecycle-controller", alias: "nodelifecycle", loops: []string{NodesLoop}},
		{name: "persistentvolume-attach-detach-controller", alias: "attachdetach", loops: []string{"persistentvolume-attach-detach-controller"}},
		{name: "persistentvolume-binder-controller", alias: "persistentvolume-binder", loops: []string{"persistentvolume-binder-controller"}},
		{name: "persistentvolume-expander-controller", alias: "persistentvolume-expander", loops: []string{"persistentvolume-expander-controller"}},
		{name: "persistentvolume-protection-controller", alias: "pv-protection", loops: []string{"persistentvolume-protection-controller"}},
		{name: "persistentvolumeclaim-protection-controller", alias: "pvc-protection", loops: []string{"persistentvolumeclaim-protection-controller"}},
		{name: "pod-garbage-collector-controller", alias: "podgc", loops: []string{"finished-pods"}},
		{name: "podcertificaterequest-cleaner-controller", alias: "podcertificaterequest-cleaner-controller", loops: []string{"podcertificaterequest-cleaner-controller"}},
		{name: "replicaset-controller", alias: "replicaset", loops: []string{"replicaset-controller"}},
		{name: "replicationcontroller-controller", alias: "replicationcontroller", loops: []string{"replication-controller"}},
		{name: "resourceclaim-controller", alias: "resource-claim-controller", loops: []string{"resourceclaim-controller", "resourceclaim-reservations"}},
		{name: "resourcequota-controller", alias: "resourcequota", loops: []string{"resourcequota-controller"}},
		{name: "root-ca-certificate-publisher-controller", alias: "root-ca-cert-publisher", loops: []string{"root-certificates"}},
		{name: "service-cidr-controller", alias: "service-cidr-controller", loops: []string{"service-cidr-controller"}},
		{name: "service-lb-controller", alias: "service", loops: []string{"service-lb-controller"}},
		{name: "scheduler", alias: "scheduler", loops: []string{SchedulerLoop}, apart: true},
		{name: "serviceaccount-controller", alias: "serviceaccount", loops: []string{"accounts"}},
		{name: "serviceaccount-token-controller", alias: "serviceaccount-token", loops: []string{"serviceaccount-token-controller"}},
		{name: "statefulset-controller", alias: "statefulset", loops: []string{"statefulset-controller"}},
		{name: "storage-version-migrator-controller", alias: "svm", loops: []string{"storage-version-migrator-controller"}},
		{name: "ttl-controller", alias: "ttl", loops: []string{"ttl-controller"}},
		{name: "volumeattributesclass-protection-controller", alias: "volumeattributesclass-protection-controller", loops: []string{"volumeattributesclass-protection-controller"}},
		{name: "token-cleaner-controller", alias: "tokencleaner", loops: []string{"token-cleaner-controller"}},
		{name: "ttl-after-finished-controller", alias: "ttl-after-finished", loops: []string{"ttl-after-finished-controller"}},
	}
}

// words returns the names as the user wrote them.
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
			errs = append(errs, fmt.Errorf("--controllers: %q is not a controller; must be *, or names with or without a - before them, of: %s", word, strings.Join(names, ", ")))
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
	star := c == "" || p.apart
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
