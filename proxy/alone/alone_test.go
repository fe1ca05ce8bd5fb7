package alone_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/proxy/alone"
)

// TestFaultsNameTheirFlags has every flag wrong at once, and each by itself.
func TestFaultsNameTheirFlags(t *testing.T) {
	all := alone.Options{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, Mode: "ipvs", BindAddress: "localhost", NodePortAddresses: []string{"192.0.2.1"}, ClusterCIDR: []string{"::ffff:10.0.0.0/104"},
		ServiceCIDR: []string{""}, HealthzAddress: "10256", MetricsAddress: "0.0.0.0:10249",
	}
	err := alone.Run(t.Context(), all)
	for _, want := range []string{
		`--proxy-mode: "ipvs" is no mode, want kernel or userspace`,
		`--bind-address: "localhost"`,
		`--nodeport-addresses: "192.0.2.1" is no network, want one such as 10.244.0.0/16`,
		`--cluster-cidr: "::ffff:10.0.0.0/104" is no network`,
		`--service-cluster-ip-range: "" is no network`,
		`--healthz-bind-address: "10256" is not ADDRESS:PORT, want one such as 127.0.0.1:10256`,
		`--metrics-bind-address: "0.0.0.0:10249" is not of loopback`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the faults are\n%v\nwant among them\n%s", err, want)
		}
	}
	one := alone.Options{Config: all.Config, BindAddress: "203.0.113.254", Node: "n1"}
	if err := alone.Run(t.Context(), one); err == nil || strings.Contains(err.Error(), "--") {
		t.Errorf("without a server: %v", err)
	}
}
