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
	return config.Parse("s.yaml", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+body), config.Available{Default: builtin.Default(), Others: []plugin.Plugin{tuned{}}})
}

// said returns the entries of a set at the given points as text.
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
		"filter: Tuned NodeUnschedulable NodeName TaintToleration NodeAffinity NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources NodeDeclaredFeatures\nscore: Tuned×5 ImageLocality×3\n" {
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
  colours: red
  plugins:
    filter: {enabled: [{name: Nope}, {name: PrioritySort}]}
    score: {disabled: [{name: Never}], enabled: [{name: ImageLocality, weight: -1}]}
  pluginConfig:
  - {name: Tuned, args: {level: high}}
  - {name: Tuned}
  - {name: NodePorts, args: {}}
  - {name: Unheard}
- plugins: {queueSort: {disabled: [{name: PrioritySort}]}}
- schedulerName: c
  pluginConfig: [{name: Tuned, args: {levle: 1, lever: 2}}]
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
		"s.yaml: line 4 column 1: colour: unknown field", "parallelism: 0: should be", "percentageOfNodesToScore: 101: not in", "podMaxBackoffSeconds: 10: must be",
		"leaderElection.leaseDuration: \"5s\"", "leaderElection.resourceLock: Unsupported value",
		"line 11 column 3: profiles[0].colours: unknown field",
		`profiles[0].plugins.filter.enabled[0].name: Unsupported value: "Nope"`, `profiles[0].plugins.filter.enabled[1].name: "PrioritySort": does not implement filter`,
		`profiles[0].plugins.score.disabled[0].name: Unsupported value: "Never"`, "profiles[0].plugins.score.enabled[0].weight: -1: must not",
		"profiles[0].pluginConfig[0].args.level: is a string, want a number", `profiles[0].pluginConfig[1].name: Duplicate value: "Tuned"`,
		"profiles[0].pluginConfig[2].args: Forbidden: plug-in NodePorts takes no arguments", `profiles[0].pluginConfig[3].name: Unsupported value: "Unheard"`,
		"profiles[1].schedulerName: Required value", "profiles[2].pluginConfig[0].args.levle: unknown field", "profiles[2].pluginConfig[0].args.lever: unknown field",
		"extenders[0].urlPrefix: \"ftp://x\"", "extenders[1].weight: 0", "extenders[1].urlPrefix: \"http://x\"", "extenders[1].managedResources[0].name: Required value",
		"extenders[2].enableHTTPS: false", "extenders[2].tlsConfig.certFile: \"/nowhere\"", "extenders[3].bindVerb: \"b\"",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "nil") {
		t.Errorf("the error has a path that is nil:\n%v", err)
	}
}

func TestAFileOfAnotherKindIsNamed(t *testing.T) {
	const other = "s.yaml: apiVersion \"v1\", kind \"Pod\": want kubescheduler.config.k8s.io/v1, KubeSchedulerConfiguration"
	const old = "s.yaml: apiVersion \"kubescheduler.config.k8s.io/v1beta3\", kind \"KubeSchedulerConfiguration\": want kubescheduler.config.k8s.io/v1, KubeSchedulerConfiguration"
	for text, want := range map[string]string{
		"":                            "s.yaml: is empty",
		"apiVersion: v1\nkind: Pod\n": other,
		"apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n":         old,
		"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: 5\n": "s.yaml: line 3 column 1: profiles: is a number, want a list",
	} {
		if _, err := config.Parse("s.yaml", []byte(text), config.Available{}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
