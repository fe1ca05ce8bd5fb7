package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// tuned is a plug-in with arguments.
type tuned struct {
	Ignored []string `json:"ignoredResources"`
	Level   int      `json:"level"`
}

func (tuned) Name() string                                    { return "Tuned" }
func (tuned) Filter(*plugin.Pod, *plugin.Node) plugin.Verdict { return plugin.Verdict{} }
func (tuned) Score(*plugin.Pod, *plugin.Node) int64           { return 0 }
func (t tuned) Configure(args json.RawMessage) (plugin.Plugin, error) {
	return t, plugin.DecodeArgs(args, &t)
}

func parse(body string) (config.Config, error) {
	return config.Parse([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+body), config.Available{Default: builtin.Default(), Others: []plugin.Plugin{tuned{}}})
}

// said tells the entries of a set at some points.
func said(set plugin.Set, points ...plugin.Points) string {
	var b strings.Builder
	for _, p := range points {
		fmt.Fprintf(&b, "%v:", p)
		for _, e := range set.At(p) {
			fmt.Fprintf(&b, " %s", e.Name())
			if p == plugin.AtScore {
				fmt.Fprintf(&b, "×%d", max(1, e.Weight))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestAFileThatSaysNothingIsTheDefault(t *testing.T) {
	c, err := parse("")
	if err != nil {
		t.Fatal(err)
	}
	all := []plugin.Points{plugin.AtQueueSort, plugin.AtPreEnqueue, plugin.AtFilter, plugin.AtPostFilter, plugin.AtScore}
	if diff := cmp.Diff(said(builtin.Default(), all...), said(c.Profiles[0].Plugins, all...)); diff != "" {
		t.Error(diff)
	}
	if len(c.Profiles) != 1 || c.Profiles[0].Name != "default-scheduler" || c.InitialBackoff != time.Second || c.MaxBackoff != 10*time.Second || c.Election != nil {
		t.Errorf("%+v", c)
	}
}

func TestProfiles(t *testing.T) {
	c, err := parse(`
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
parallelism: 4
leaderElection: {leaderElect: true, leaseDuration: 30s, renewDeadline: 20s, resourceName: mine}
clientConnection: {kubeconfig: /etc/k, qps: 50, burst: 100}
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  percentageOfNodesToScore: 100
  plugins:
    filter: {enabled: [{name: Tuned}], disabled: [{name: NodePorts}]}
    score:
      disabled: [{name: "*"}]
      enabled: [{name: Tuned, weight: 5}, {name: ImageLocality, weight: 3}]
  pluginConfig:
  - name: Tuned
    args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: TunedArgs, level: 7}
- schedulerName: bare
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: Tuned, weight: 2}]
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := said(c.Profiles[1].Plugins, plugin.AtFilter, plugin.AtScore); got !=
		"filter: Tuned NodeUnschedulable NodeName TaintToleration NodeAffinity NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity\nscore: Tuned×5 ImageLocality×3\n" {
		t.Errorf("packing:\n%s", got)
	}
	if got := said(c.Profiles[2].Plugins, plugin.AtQueueSort, plugin.AtFilter, plugin.AtScore, plugin.AtPostFilter); got != "queueSort: PrioritySort\nfilter: Tuned\nscore: Tuned×2\npostFilter:\n" {
		t.Errorf("bare:\n%s", got)
	}
	at := c.Profiles[1].Plugins.Find("Tuned")
	if diff := cmp.Diff(tuned{Level: 7}, c.Profiles[1].Plugins.Entries[at].Plugin); diff != "" {
		t.Error(diff)
	}
	if c.Profiles[0].Share != 30 || c.Profiles[1].Share != 100 || c.InitialBackoff != 2*time.Second || c.MaxBackoff != time.Minute || c.Kubeconfig != "/etc/k" {
		t.Errorf("%+v", c)
	}
	if diff := cmp.Diff(&config.Election{Elect: true, LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 2 * time.Second, Namespace: "kube-system", Name: "mine"}, c.Election); diff != "" {
		t.Error(diff)
	}
}

func TestEveryFaultNamesItsField(t *testing.T) {
	_, err := parse(`
colour: red
parallelism: 0
percentageOfNodesToScore: 101
podInitialBackoffSeconds: 20
leaderElection: {leaseDuration: 5s, resourceLock: endpoints}
profiles:
- schedulerName: a
  plugins:
    filter: {enabled: [{name: Nope}, {name: PrioritySort}]}
    score: {disabled: [{name: Never}], enabled: [{name: ImageLocality, weight: -1}]}
  pluginConfig:
  - {name: Tuned, args: {level: high}}
  - {name: Tuned}
  - {name: NodePorts, args: {}}
  - {name: Unheard}
- plugins: {queueSort: {disabled: [{name: PrioritySort}]}}
extenders:
- {urlPrefix: "ftp://x"}
- {urlPrefix: "http://x", prioritizeVerb: p, enableHTTPS: true, managedResources: [{name: ""}]}
- {urlPrefix: "https://x", tlsConfig: {certFile: /nowhere}, bindVerb: b}
- {urlPrefix: "https://x", bindVerb: b}
`)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`unknown field "colour"`, "parallelism: Invalid value: 0", "percentageOfNodesToScore: Invalid value: 101", "podMaxBackoffSeconds: Invalid value: 10",
		"leaderElection.leaseDuration: Invalid value", "leaderElection.resourceLock: Unsupported value",
		`profiles[0].plugins.filter.enabled[0].name: Unsupported value: "Nope"`, `profiles[0].plugins.filter.enabled[1].name: Invalid value: "PrioritySort": does not implement filter`,
		`profiles[0].plugins.score.disabled[0].name: Unsupported value: "Never"`, "profiles[0].plugins.score.enabled[0].weight: Invalid value: -1",
		"profiles[0].pluginConfig[0].args: Invalid value", "level", `profiles[0].pluginConfig[1].name: Duplicate value: "Tuned"`,
		"profiles[0].pluginConfig[2].args: Forbidden: plug-in NodePorts takes no arguments", `profiles[0].pluginConfig[3].name: Unsupported value: "Unheard"`,
		"profiles[1].schedulerName: Required value",
		"extenders[0].urlPrefix: Invalid value", "extenders[1].weight: Invalid value", "extenders[1].urlPrefix: Invalid value", "extenders[1].managedResources[0].name: Required value",
		"extenders[2].enableHTTPS: Invalid value", "extenders[2].tlsConfig.certFile: Invalid value", "extenders[3].bindVerb: Invalid value",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	for _, other := range []string{"", "apiVersion: v1\nkind: Pod\n", "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n"} {
		if _, err := config.Parse([]byte(other), config.Available{}); err == nil || !strings.Contains(err.Error(), "want kubescheduler.config.k8s.io/v1, KubeSchedulerConfiguration") {
			t.Errorf("%q: %v", other, err)
		}
	}
}
