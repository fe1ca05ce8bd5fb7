package local_test

import (
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cluster/local"
)

// TestNodeIsStartedAgain has a node that has joined, and what is asked for at a later start.
func TestNodeIsStartedAgain(t *testing.T) {
	p := local.Profile{Name: "two", DataDir: t.TempDir()}
	joined := local.Member{Settings: local.Settings{NodeName: "two", KubeletConfig: "/etc/kubelet.yaml", DNSUpstream: "none"}}
	kept, err := joined.Again(local.Settings{}, "", p)
	if err != nil || kept.Settings.KubeletConfig != "/etc/kubelet.yaml" || kept.Settings.NodeName != "two" {
		t.Errorf("without flags: %+v, %v", kept.Settings, err)
	}
	changed, err := joined.Again(local.Settings{NodeName: "two", KubeletConfig: local.NoKubeletConfig, Images: local.ImageSettings{Registries: "/etc/registries"}}, "", p)
	if s := changed.Settings; err != nil || s.KubeletConfig != "" || s.Images.Registries != "/etc/registries" || s.DNSUpstream != "none" {
		t.Errorf("with flags: %+v, %v", changed, err)
	}
	for want, asked := range map[string]local.Settings{
		"--node-name of this node is two and cannot be changed to three": {NodeName: "three"},
		"--registries: must be absolute paths":                           {Images: local.ImageSettings{Registries: "here"}},
		"--proxy-mode":                                                   {ProxyMode: "magic"},
		"--cni-conf-dir: must be an absolute path":                       {CNIConfDir: "net.d"},
		"--container-runtime-endpoint":                                   {RuntimeEndpoint: "tcp://192.0.2.1:80"},
		"must not be set with --container-runtime-endpoint":              {CNIConfDir: "/etc/cni/net.d", RuntimeEndpoint: "unix:///run/c.sock"},
	} {
		if _, err := joined.Again(asked, "", p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", asked, err, want)
		}
	}
	if _, err := joined.Again(local.Settings{}, "203.0.113.9", p); err == nil || !strings.Contains(err.Error(), "--node-ip") {
		t.Errorf("the address of another machine: %v", err)
	}
}

// TestFirstSettingsHaveNothingToTakeBack checks that the words that remove a stored setting mean the default at first.
func TestFirstSettingsHaveNothingToTakeBack(t *testing.T) {
	none := local.Settings{RuntimeEndpoint: local.NoRuntimeEndpoint, CNIConfDir: local.NoCNI, KubeletConfig: local.NoKubeletConfig, StaticPodPath: local.NoStaticPodPath}
	if s, err := none.First(); err != nil || s.RuntimeEndpoint+s.CNIConfDir+s.KubeletConfig+s.StaticPodPath != "" {
		t.Errorf("%+v, %v", s, err)
	}
	asked := local.Settings{RuntimeEndpoint: "unix:///run/c.sock", KubeletConfig: "/etc/kubelet.yaml"}
	if s, err := asked.First(); err != nil || s.RuntimeEndpoint != asked.RuntimeEndpoint || s.KubeletConfig != asked.KubeletConfig {
		t.Errorf("%+v, %v", s, err)
	}
}
